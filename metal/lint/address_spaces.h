// The kernels' language as clang reads it to check address spaces: C++ for OpenCL, whose qualifiers have the same rules.
// Nothing is run from it.
#pragma once

#define device __global
#define constant __constant
#define threadgroup __local
#define thread __private
#define kernel

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

#pragma OPENCL EXTENSION cl_khr_fp16 : enable

namespace metal {

struct float2 {
	float x, y;
	float2(float a, float b) : x(a), y(b) {}
};
struct uint3 {
	uint x, y, z;
};
struct bfloat {
	ushort bits;
	bfloat() = default;
	explicit bfloat(float);
	operator float() const;
};
template <class To, class From> To as_type(From);
template <class T> T min(T, T);
template <class T> T max(T, T);
float fabs(float);
float rint(float);
uint popcount(uint);
namespace precise {
float exp(float);
float log(float);
float sqrt(float);
float cos(float);
float sin(float);
}
enum class mem_flags { mem_none, mem_device, mem_threadgroup };
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
float simd_sum(float);
float simd_max(float);
uint simd_max(uint);
struct simdgroup_float8x8 {
	simdgroup_float8x8() = default;
	explicit simdgroup_float8x8(float);
	__private float *thread_elements();
};
void simdgroup_load(__private simdgroup_float8x8 &, const __local float *, ulong);
void simdgroup_store(simdgroup_float8x8, __local float *, ulong);
void simdgroup_multiply_accumulate(__private simdgroup_float8x8 &, simdgroup_float8x8, simdgroup_float8x8, simdgroup_float8x8);

}

#define THREADS metal::uint3 group, uint index, uint simd, uint lane, threadgroup uchar *shared
#define KERNEL(name)
#define INSTANCE(name, ...) template decltype(__VA_ARGS__) __VA_ARGS__
