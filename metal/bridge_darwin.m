// The device of bridge.h on a GPU, through Metal. Compiled with ARC.

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <stdlib.h>
#include <string.h>

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
@end

@implementation SplashDevice
@end

// Handles are the objects themselves; the device holds kernels, the caller holds devices, buffers and graphs until it frees them.
static SplashDevice *deviceOf(splash_device *d) { return (__bridge SplashDevice *)(void *)d; }
static SplashBuffer *bufferOf(splash_buffer *b) { return (__bridge SplashBuffer *)(void *)b; }
static SplashKernel *kernelOf(splash_kernel *k) { return (__bridge SplashKernel *)(void *)k; }
static SplashGraph *graphOf(splash_graph *g) { return (__bridge SplashGraph *)(void *)g; }

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
	SplashDevice *d = (__bridge_transfer SplashDevice *)(void *)handle;
	d.pending = nil;
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

static char *findKernel(splash_device *handle, const char *name, splash_kernel **out) {
	@autoreleasepool {
		SplashDevice *d = deviceOf(handle);
		for (id<MTLLibrary> library in d.libraries) {
			id<MTLFunction> function = [library newFunctionWithName:@(name)];
			if (function == nil) continue;
			NSError *error = nil;
			SplashKernel *k = [SplashKernel new];
			k.name = @(name);
			k.state = [d.device newComputePipelineStateWithFunction:function error:&error];
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
