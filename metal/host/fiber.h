// Lanes as fibers, seen from a kernel: where lanes meet, and how kernels are found.
#pragma once

#include <cstddef>
#include <cstdint>

// Functions of the device itself, whose accesses are not the kernel's: what checks accesses leaves them out.
#ifndef SPLASH_UNCHECKED
#define SPLASH_UNCHECKED
#endif

namespace metal { namespace {
struct uint3;
} }

namespace splash_host { namespace {

// Where the lanes of a threadgroup meet, and of a SIMD-group. memory says that threadgroup memory is ordered by it.
void meet_group(bool memory);
void meet_simd(bool memory);
float reduce_sum(float x);
float reduce_max(float x);
uint32_t reduce_max_uint(uint32_t x);

// Products of 8x8 matrices wait until a lane wants a result, so that lanes meet once for many: multiply adds a b to d then, and
// settle does it now. An epoch is that of the products that wait.
void multiply(float *d, const float *a, const float *b);
void settle();
unsigned epoch();
int lane();

// The arguments of a lane of a running dispatch.
struct Call {
	void *const *buffers;
	const void *params;
	const metal::uint3 *group;
	unsigned index, simd, lane;
	unsigned char *shared;
};

struct Kernel {
	const char *name;
	void (*function)();
	void (*call)(void (*function)(), const Call &);
	unsigned buffers, params_size;
	Kernel *next;
};

// A Register enters a kernel in the list of all, with how to call it: pointers are its buffers, the reference after them
// its parameters, and the last five arguments are THREADS.
struct Register {
	Kernel entry;
	template <class... A> Register(const char *name, void (*f)(A...));
};

extern Kernel *kernels;

} } // namespace splash_host
