// The C interface of a device that runs the kernels: the GPU through Metal (bridge_darwin.m), or the host (host/device.h).
// A device is a table of these calls. Every call that can fail returns an error text, which is the caller's to free, or
// NULL; the text names the kernel where one is to blame. Calls on one device are made by one thread at a time.
#ifndef SPLASH_BRIDGE_H
#define SPLASH_BRIDGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
	SPLASH_BUFFERS = 12,      // bindings of a dispatch
	SPLASH_PARAMS = 64,       // bytes of its parameters
	SPLASH_THREADS = 1024,    // threads of a threadgroup
	SPLASH_SHARED = 32 * 1024 // bytes of threadgroup memory
};

typedef struct splash_device splash_device;
typedef struct splash_buffer splash_buffer;
typedef struct splash_kernel splash_kernel;
typedef struct splash_graph splash_graph;

// A binding is a buffer from an offset on.
typedef struct {
	splash_buffer *buffer;
	uint64_t offset;
} splash_binding;

// A dispatch is one run of a kernel: its bindings in the order of its arguments, then its parameters.
typedef struct {
	splash_kernel *kernel;
	splash_binding bindings[SPLASH_BUFFERS];
	uint32_t buffers;
	uint32_t params_size;
	uint8_t params[SPLASH_PARAMS];
	uint32_t groups[3];
	uint32_t threads;
	uint32_t shared; // bytes of threadgroup memory, a multiple of 16
} splash_dispatch;

// Counters are sums since the device was opened, but for the memory, which is what is held now.
typedef struct {
	uint64_t dispatches, commits, buffer_bytes, wrapped_bytes, graph_bytes;
	double seconds; // of the work itself
} splash_counters;

typedef struct {
	// open returns the device's name, which is the caller's to free.
	char *(*open)(splash_device **device, char **name);
	void (*close)(splash_device *device);

	// compile makes the kernels of one source, whose includes are resolved, known to the device.
	char *(*compile)(splash_device *device, const char *name, const char *source);
	// kernel finds one of them. A device that compiles for its GPU may take what it made of the kernel before from the file
	// archive, and where that is NULL or does not serve, write it to the file fresh, unless that is NULL. That it could not
	// is no error.
	char *(*kernel)(splash_device *device, const char *name, const char *archive, const char *fresh, splash_kernel **kernel);

	// buffer allocates memory that the CPU and the device share; wrap makes a buffer of memory that the caller keeps until
	// free_buffer, without a copy: it starts on a page and is read only.
	char *(*buffer)(splash_device *device, uint64_t size, splash_buffer **buffer);
	char *(*wrap)(splash_device *device, const void *memory, uint64_t size, splash_buffer **buffer);
	void *(*contents)(splash_buffer *buffer);
	void (*free_buffer)(splash_device *device, splash_buffer *buffer);

	// graph checks dispatches and keeps them. Their buffers stay as long as it is encoded.
	char *(*graph)(splash_device *device, const splash_dispatch *dispatches, size_t count, splash_graph **graph);
	void (*free_graph)(splash_device *device, splash_graph *graph);
	// encode adds a graph's dispatches to the work that the next commit starts; each sees what those before it wrote. Any
	// number of times, and the graph may be freed before that work is done.
	char *(*encode)(splash_device *device, splash_graph *graph);
	char *(*commit)(splash_device *device); // nothing, where nothing was encoded
	// wait returns when all that was committed is done, with the first error of it.
	char *(*wait)(splash_device *device);

	void (*counters)(splash_device *device, splash_counters *out);
} splash_bridge;

#ifdef __cplusplus
}
#endif
#endif
