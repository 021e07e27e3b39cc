// What every kernel source begins with. The same sources are compiled by Metal, by g++ for the host device, and by clang
// for the check of address spaces; only this file knows.
//
// A kernel takes its buffers in order, [[buffer(0)]] and on, then its parameters in the constant space, then THREADS: the
// threadgroup's place in the grid, the thread's index in its threadgroup, its SIMD-group's and its lane there, and the
// threadgroup's memory, whose size the dispatch says.
#ifdef __METAL_VERSION__

#include <metal_stdlib>
#include <metal_simdgroup_matrix>

#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

#define THREADS                                                                                                        \
	uint3 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],                          \
		uint simd [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],                         \
		threadgroup uchar *shared [[threadgroup(0)]]

// After a kernel stands KERNEL(name), and for each instance of a template INSTANCE(project_q40, project<Q40>).
#define KERNEL(name)
#define INSTANCE(name, ...) template [[host_name(#name)]] kernel decltype(__VA_ARGS__) __VA_ARGS__

#else
#include SPLASH_QUALIFIERS
#endif

using namespace metal;
