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

// Handles are the objects themselves; the device holds kernels, the caller holds devices and buffers until it frees them.
static SplashDevice *deviceOf(splash_device *d) { return (__bridge SplashDevice *)(void *)d; }
static SplashBuffer *bufferOf(splash_buffer *b) { return (__bridge SplashBuffer *)(void *)b; }
static SplashKernel *kernelOf(splash_kernel *k) { return (__bridge SplashKernel *)(void *)k; }

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

static void encodeDispatch(id<MTLComputeCommandEncoder> encoder, const splash_dispatch *x) {
	[encoder setComputePipelineState:kernelOf(x->kernel).state];
	for (uint32_t i = 0; i < x->buffers; i++)
		[encoder setBuffer:bufferOf(x->bindings[i].buffer).buffer offset:x->bindings[i].offset atIndex:i];
	[encoder setBytes:x->params length:x->params_size atIndex:x->buffers];
	// Every kernel has the argument, and a length of 0 is none.
	[encoder setThreadgroupMemoryLength:(x->shared > 0 ? x->shared : 16) atIndex:0];
	[encoder dispatchThreadgroups:MTLSizeMake(x->groups[0], x->groups[1], x->groups[2])
	        threadsPerThreadgroup:MTLSizeMake(x->threads, 1, 1)];
}

static char *encode(splash_device *handle, const splash_dispatch *x, size_t count) {
	@autoreleasepool {
		SplashDevice *d = deviceOf(handle);
		if (count == 0) return NULL;
		for (size_t i = 0; i < count; i++) {
			char *error = checkDispatch(&x[i]);
			if (error != NULL) return error;
		}
		if (d.pending == nil) {
			d.pending = [d.queue commandBuffer];
			d.pending.label = kernelOf(x[0].kernel).name;
		}
		// The dispatches of a serial encoder see what those before them wrote.
		id<MTLComputeCommandEncoder> encoder = [d.pending computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
		if (d.pending == nil || encoder == nil) return text(@"no command encoder");
		for (size_t i = 0; i < count; i++) encodeDispatch(encoder, &x[i]);
		[encoder endEncoding];
		d.pending.label = [NSString stringWithFormat:@"%@ to %@", d.pending.label, kernelOf(x[count - 1].kernel).name];
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
		.encode = encode,
		.commit = commit,
		.wait = waitDevice,
		.counters = readCounters,
	};
	return &bridge;
}
