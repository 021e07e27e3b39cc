// The device of bridge.h on a GPU, through Metal. Compiled with ARC.

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bridge.h"

@interface SplashKernel : NSObject
@property(nonatomic, copy) NSString *name;
@property(nonatomic, strong) id<MTLComputePipelineState> state;
@end

@implementation SplashKernel
@end

@interface SplashBuffer : NSObject
@property(nonatomic, strong) id<MTLBuffer> buffer;
@property(nonatomic) uint64_t size;
@property(nonatomic) BOOL wrapped;
@end

@implementation SplashBuffer
@end

// A list of dispatches that were checked, and the buffers that they are bound to.
@interface SplashGraph : NSObject
@property(nonatomic) splash_dispatch *list;
@property(nonatomic) size_t count;
@property(nonatomic, strong) NSMutableSet<SplashBuffer *> *used;
@end

@implementation SplashGraph
@end

@interface SplashDevice : NSObject
@property(nonatomic, strong) id<MTLDevice> device;
@property(nonatomic, strong) id<MTLCommandQueue> queue;
@property(nonatomic, strong) NSMutableArray<id<MTLLibrary>> *libraries;
@property(nonatomic, strong) NSMutableArray<SplashKernel *> *kernels; // keeps what the handles point to
@property(nonatomic, strong) id<MTLCommandBuffer> pending;            // encoded, not committed
@property(nonatomic, strong) NSMutableArray<id<MTLCommandBuffer>> *committed;
@property(nonatomic) splash_counters counters;
// On macOS 15 and later: every buffer, which stays resident between command buffers.
@property(nonatomic, strong) id residency;
@property(nonatomic) BOOL moved; // buffers came or went that it does not know of
@end

@implementation SplashDevice
@end

// Handles are the objects themselves; the device holds kernels, the caller holds devices, buffers and graphs until it frees them.
static SplashDevice *deviceOf(splash_device *d) { return (__bridge SplashDevice *)(void *)d; }
static SplashBuffer *bufferOf(splash_buffer *b) { return (__bridge SplashBuffer *)(void *)b; }
static SplashKernel *kernelOf(splash_kernel *k) { return (__bridge SplashKernel *)(void *)k; }
static SplashGraph *graphOf(splash_graph *g) { return (__bridge SplashGraph *)(void *)g; }

// The SDK has residency sets.
#ifdef __MAC_15_0
static void openResidency(SplashDevice *d) {
	if (@available(macOS 15.0, *)) {
		NSError *error = nil;
		id<MTLResidencySet> set = [d.device newResidencySetWithDescriptor:[MTLResidencySetDescriptor new] error:&error];
		if (set == nil) return; // buffers are made resident with each command buffer
		[d.queue addResidencySet:set];
		d.residency = set;
	}
}

static void changeResidency(SplashDevice *d, id<MTLBuffer> buffer, BOOL stays) {
	if (@available(macOS 15.0, *)) {
		id<MTLResidencySet> set = d.residency;
		if (stays) [set addAllocation:buffer];
		else [set removeAllocation:buffer];
		d.moved = YES;
	}
}

static void commitResidency(SplashDevice *d) {
	if (!d.moved) return;
	if (@available(macOS 15.0, *)) {
		id<MTLResidencySet> set = d.residency;
		[set commit];
		[set requestResidency];
	}
	d.moved = NO;
}

static void closeResidency(SplashDevice *d) {
	if (@available(macOS 15.0, *)) {
		id<MTLResidencySet> set = d.residency;
		if (set == nil) return;
		[d.queue removeResidencySet:set];
		[set endResidency];
	}
}
#else
static void openResidency(SplashDevice *d) { d.residency = nil; }
static void changeResidency(SplashDevice *d, id<MTLBuffer> buffer, BOOL stays) { (void)d, (void)buffer, (void)stays; }
static void commitResidency(SplashDevice *d) { (void)d; }
static void closeResidency(SplashDevice *d) { (void)d; }
#endif

static char *text(NSString *s) { return strdup(s.UTF8String); }

static char *openDevice(splash_device **out, char **name) {
	@autoreleasepool {
		id<MTLDevice> gpu = MTLCreateSystemDefaultDevice();
		if (gpu == nil) return text(@"this system has no Metal device");
		if (![gpu supportsFamily:MTLGPUFamilyApple7])
			return text([NSString stringWithFormat:@"%@ is not an Apple GPU of the M1 or later", gpu.name]);
		SplashDevice *d = [SplashDevice new];
		d.device = gpu;
		d.queue = [gpu newCommandQueue];
		if (d.queue == nil) return text(@"no command queue");
		d.libraries = [NSMutableArray new];
		d.kernels = [NSMutableArray new];
		d.committed = [NSMutableArray new];
		openResidency(d);
		*name = text(gpu.name);
		*out = (splash_device *)(__bridge_retained void *)d;
		return NULL;
	}
}

static char *waitDevice(splash_device *handle) {
	@autoreleasepool {
		SplashDevice *d = deviceOf(handle);
		char *error = NULL;
		splash_counters c = d.counters;
		for (id<MTLCommandBuffer> commands in d.committed) {
			[commands waitUntilCompleted];
			c.seconds += commands.GPUEndTime - commands.GPUStartTime;
			if (commands.status == MTLCommandBufferStatusError && error == NULL)
				error = text([NSString stringWithFormat:@"kernels %@: %@", commands.label, commands.error.localizedDescription]);
		}
		[d.committed removeAllObjects];
		d.counters = c;
		return error;
	}
}

static void closeDevice(splash_device *handle) {
	free(waitDevice(handle));
	@autoreleasepool {
		SplashDevice *d = (__bridge_transfer SplashDevice *)(void *)handle;
		d.pending = nil;
		closeResidency(d);
	}
}

static char *compileSource(splash_device *handle, const char *name, const char *source) {
	@autoreleasepool {
		SplashDevice *d = deviceOf(handle);
		MTLCompileOptions *options = [MTLCompileOptions new];
		options.languageVersion = MTLLanguageVersion3_1; // the first with bfloat
		// Values are those of IEEE arithmetic, as the oracle's; the sources say so too.
		options.fastMathEnabled = NO;
		NSError *error = nil;
		id<MTLLibrary> library = [d.device newLibraryWithSource:@(source) options:options error:&error];
		// Warnings come in error beside a library.
		if (library == nil) return text([NSString stringWithFormat:@"%s: %@", name, error.localizedDescription]);
		[d.libraries addObject:library];
		return NULL;
	}
}

// takeState makes a kernel's state of what an archive has of it, or nil: it is another system's, or another's altogether.
static id<MTLComputePipelineState> takeState(SplashDevice *d, MTLComputePipelineDescriptor *wanted, const char *archive) {
	MTLBinaryArchiveDescriptor *file = [MTLBinaryArchiveDescriptor new];
	file.url = [NSURL fileURLWithPath:@(archive)];
	id<MTLBinaryArchive> kept = [d.device newBinaryArchiveWithDescriptor:file error:NULL];
	if (kept == nil) return nil;
	wanted.binaryArchives = @[ kept ];
	id<MTLComputePipelineState> state = [d.device newComputePipelineStateWithDescriptor:wanted
	                                                                            options:MTLPipelineOptionFailOnBinaryArchiveMiss
	                                                                         reflection:NULL
	                                                                              error:NULL];
	wanted.binaryArchives = nil;
	return state;
}

// keepState writes what the compiler made of a kernel to a file. A failure leaves none.
static void keepState(SplashDevice *d, MTLComputePipelineDescriptor *made, const char *fresh) {
	id<MTLBinaryArchive> archive = [d.device newBinaryArchiveWithDescriptor:[MTLBinaryArchiveDescriptor new] error:NULL];
	if (archive == nil || ![archive addComputePipelineFunctionsWithDescriptor:made error:NULL]) return;
	NSURL *url = [NSURL fileURLWithPath:@(fresh)];
	if (![archive serializeToURL:url error:NULL]) unlink(fresh);
}

static char *findKernel(splash_device *handle, const char *name, const char *archive, const char *fresh, splash_kernel **out) {
	@autoreleasepool {
		SplashDevice *d = deviceOf(handle);
		for (id<MTLLibrary> library in d.libraries) {
			id<MTLFunction> function = [library newFunctionWithName:@(name)];
			if (function == nil) continue;
			NSError *error = nil;
			SplashKernel *k = [SplashKernel new];
			k.name = @(name);
			MTLComputePipelineDescriptor *wanted = [MTLComputePipelineDescriptor new];
			wanted.computeFunction = function;
			wanted.label = k.name;
			if (archive != NULL) k.state = takeState(d, wanted, archive);
			if (k.state == nil) {
				k.state = [d.device newComputePipelineStateWithDescriptor:wanted options:MTLPipelineOptionNone reflection:NULL error:&error];
				if (k.state != nil && fresh != NULL) keepState(d, wanted, fresh);
			}
			if (k.state == nil) return text([NSString stringWithFormat:@"kernel %s: %@", name, error.localizedDescription]);
			if (k.state.threadExecutionWidth != 32)
				return text([NSString stringWithFormat:@"kernel %s: SIMD-groups of %lu lanes, the kernels are written for 32", name,
				                                       (unsigned long)k.state.threadExecutionWidth]);
			[d.kernels addObject:k];
			*out = (splash_kernel *)(__bridge void *)k;
			return NULL;
		}
		return text([NSString stringWithFormat:@"kernel %s: no source defines it", name]);
	}
}

static char *keepBuffer(SplashDevice *d, id<MTLBuffer> buffer, uint64_t size, BOOL wrapped, splash_buffer **out) {
	SplashBuffer *b = [SplashBuffer new];
	b.buffer = buffer;
	b.size = size;
	b.wrapped = wrapped;
	splash_counters c = d.counters;
	if (wrapped) c.wrapped_bytes += size;
	else c.buffer_bytes += size;
	d.counters = c;
	changeResidency(d, buffer, YES);
	*out = (splash_buffer *)(__bridge_retained void *)b;
	return NULL;
}

static char *newBuffer(splash_device *handle, uint64_t size, splash_buffer **out) {
	@autoreleasepool {
		SplashDevice *d = deviceOf(handle);
		if (size > d.device.maxBufferLength)
			return text([NSString stringWithFormat:@"a buffer of %llu bytes; the device takes up to %llu", (unsigned long long)size,
			                                       (unsigned long long)d.device.maxBufferLength]);
		id<MTLBuffer> buffer = [d.device newBufferWithLength:size options:MTLResourceStorageModeShared];
		if (buffer == nil) return text([NSString stringWithFormat:@"no memory for a buffer of %llu bytes", (unsigned long long)size]);
		return keepBuffer(d, buffer, size, NO, out);
	}
}

static char *wrapMemory(splash_device *handle, const void *memory, uint64_t size, splash_buffer **out) {
	@autoreleasepool {
		SplashDevice *d = deviceOf(handle);
		const uint64_t page = (uint64_t)NSPageSize();
		if ((uintptr_t)memory % page != 0) return text(@"wrapped memory does not begin on a page");
		// A mapping's last page is whole.
		const uint64_t length = (size + page - 1) / page * page;
		if (length > d.device.maxBufferLength)
			return text([NSString stringWithFormat:@"a buffer of %llu bytes; the device takes up to %llu", (unsigned long long)length,
			                                       (unsigned long long)d.device.maxBufferLength]);
		id<MTLBuffer> buffer = [d.device newBufferWithBytesNoCopy:(void *)memory
		                                                   length:length
		                                                  options:MTLResourceStorageModeShared
		                                              deallocator:nil];
		if (buffer == nil) return text([NSString stringWithFormat:@"%llu bytes cannot be wrapped", (unsigned long long)size]);
		return keepBuffer(d, buffer, size, YES, out);
	}
}

static void *bufferContents(splash_buffer *b) { return bufferOf(b).buffer.contents; }

static void freeBuffer(splash_device *handle, splash_buffer *b) {
	@autoreleasepool {
		SplashDevice *d = deviceOf(handle);
		SplashBuffer *buffer = (__bridge_transfer SplashBuffer *)(void *)b;
		splash_counters c = d.counters;
		if (buffer.wrapped) c.wrapped_bytes -= buffer.size;
		else c.buffer_bytes -= buffer.size;
		d.counters = c;
		changeResidency(d, buffer.buffer, NO);
	}
}

static char *checkDispatch(const splash_dispatch *x) {
	SplashKernel *k = kernelOf(x->kernel);
	if (x->threads == 0 || x->threads > k.state.maxTotalThreadsPerThreadgroup)
		return text([NSString stringWithFormat:@"kernel %@: %u threads a threadgroup; up to %lu are possible", k.name, x->threads,
		                                       (unsigned long)k.state.maxTotalThreadsPerThreadgroup]);
	if (x->shared > SPLASH_SHARED || x->shared % 16 != 0)
		return text([NSString stringWithFormat:@"kernel %@: %u bytes of threadgroup memory; up to %d in units of 16 are possible",
		                                       k.name, x->shared, (int)SPLASH_SHARED]);
	if (x->groups[0] == 0 || x->groups[1] == 0 || x->groups[2] == 0)
		return text([NSString stringWithFormat:@"kernel %@: an empty grid", k.name]);
	for (uint32_t i = 0; i < x->buffers; i++) {
		SplashBuffer *b = bufferOf(x->bindings[i].buffer);
		if (x->bindings[i].offset >= b.size)
			return text([NSString stringWithFormat:@"kernel %@: buffer %u begins at byte %llu of %llu", k.name, i,
			                                       (unsigned long long)x->bindings[i].offset, (unsigned long long)b.size]);
	}
	return NULL;
}

static char *newGraph(splash_device *handle, const splash_dispatch *x, size_t count, splash_graph **out) {
	@autoreleasepool {
		SplashDevice *d = deviceOf(handle);
		for (size_t i = 0; i < count; i++) {
			char *error = checkDispatch(&x[i]);
			if (error != NULL) return error;
		}
		SplashGraph *g = [SplashGraph new];
		g.used = [NSMutableSet new];
		for (size_t i = 0; i < count; i++)
			for (uint32_t k = 0; k < x[i].buffers; k++) [g.used addObject:bufferOf(x[i].bindings[k].buffer)];
		g.list = malloc(count * sizeof *x);
		if (g.list == NULL && count > 0) return text(@"no memory for a graph");
		if (count > 0) memcpy(g.list, x, count * sizeof *x);
		g.count = count;
		splash_counters c = d.counters;
		c.graph_bytes += count * sizeof *x;
		d.counters = c;
		*out = (splash_graph *)(__bridge_retained void *)g;
		return NULL;
	}
}

static void freeGraph(splash_device *handle, splash_graph *graph) {
	@autoreleasepool {
		SplashDevice *d = deviceOf(handle);
		SplashGraph *g = (__bridge_transfer SplashGraph *)(void *)graph;
		splash_counters c = d.counters;
		c.graph_bytes -= g.count * sizeof *g.list;
		d.counters = c;
		free(g.list);
	}
}

// What an encoder was told last. It keeps that from dispatch to dispatch, so that only what changes is told.
typedef struct {
	splash_kernel *kernel;
	splash_binding bindings[SPLASH_BUFFERS + 1];
	uint32_t shared;
} Told;

static void encodeDispatch(id<MTLComputeCommandEncoder> encoder, const splash_dispatch *x, Told *told) {
	if (told->kernel != x->kernel) [encoder setComputePipelineState:kernelOf(x->kernel).state];
	told->kernel = x->kernel;
	for (uint32_t i = 0; i < x->buffers; i++) {
		const splash_binding b = x->bindings[i];
		if (told->bindings[i].buffer == b.buffer && told->bindings[i].offset == b.offset) continue;
		told->bindings[i] = b;
		[encoder setBuffer:bufferOf(b.buffer).buffer offset:b.offset atIndex:i];
	}
	[encoder setBytes:x->params length:x->params_size atIndex:x->buffers];
	told->bindings[x->buffers].buffer = NULL;
	// Every kernel has the argument, and a length of 0 is none.
	const uint32_t shared = x->shared > 0 ? x->shared : 16;
	if (told->shared != shared) [encoder setThreadgroupMemoryLength:shared atIndex:0];
	told->shared = shared;
	[encoder dispatchThreadgroups:MTLSizeMake(x->groups[0], x->groups[1], x->groups[2])
	        threadsPerThreadgroup:MTLSizeMake(x->threads, 1, 1)];
}

static char *encode(splash_device *handle, splash_graph *graph) {
	@autoreleasepool {
		SplashDevice *d = deviceOf(handle);
		SplashGraph *g = graphOf(graph);
		const splash_dispatch *list = g.list;
		const size_t count = g.count;
		if (count == 0) return NULL;
		NSString *label = kernelOf(list[0].kernel).name;
		if (d.pending == nil) {
			d.pending = [d.queue commandBuffer];
			d.pending.label = label;
		}
		// The dispatches of a serial encoder see what those before them wrote.
		id<MTLComputeCommandEncoder> encoder = [d.pending computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
		if (d.pending == nil || encoder == nil) return text(@"no command encoder");
		Told told = {0};
		for (size_t i = 0; i < count; i++) encodeDispatch(encoder, &list[i], &told);
		[encoder endEncoding];
		d.pending.label = [NSString stringWithFormat:@"%@ to %@", d.pending.label, kernelOf(list[count - 1].kernel).name];
		splash_counters c = d.counters;
		c.dispatches += count;
		d.counters = c;
		return NULL;
	}
}

static char *commit(splash_device *handle) {
	@autoreleasepool {
		SplashDevice *d = deviceOf(handle);
		if (d.pending == nil) return NULL;
		commitResidency(d);
		[d.pending commit];
		[d.committed addObject:d.pending];
		d.pending = nil;
		splash_counters c = d.counters;
		c.commits++;
		d.counters = c;
		return NULL;
	}
}

static void readCounters(splash_device *handle, splash_counters *out) { *out = deviceOf(handle).counters; }

const splash_bridge *splash_metal_bridge(void);

const splash_bridge *splash_metal_bridge(void) {
	static const splash_bridge bridge = {
		.open = openDevice,
		.close = closeDevice,
		.compile = compileSource,
		.kernel = findKernel,
		.buffer = newBuffer,
		.wrap = wrapMemory,
		.contents = bufferContents,
		.free_buffer = freeBuffer,
		.graph = newGraph,
		.free_graph = freeGraph,
		.encode = encode,
		.commit = commit,
		.wait = waitDevice,
		.counters = readCounters,
	};
	return &bridge;
}
