// What the kernels use of Metal's standard library, in C++ for the host: types, qualifiers, SIMD-group operations and
// 8x8 matrices. Lanes are fibers (fiber.h); a SIMD-group operation is where the fibers of a SIMD-group meet.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "fiber.h"

// Each device that is compiled from these sources has its own, as their lanes meet in different places.
namespace metal { namespace {

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

template <class To, class From> inline To as_type(From x) {
	static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
	To to;
	memcpy(&to, &x, sizeof to);
	return to;
}

// half is IEEE binary16, here only read and widened.
struct half {
	uint16_t bits;
	operator float() const {
		uint32_t sign = uint32_t(bits & 0x8000) << 16, e = bits >> 10 & 31, m = bits & 0x3ff;
		if (e == 0) {
			float f = float(m) * 0x1p-24f;
			return sign ? -f : f;
		}
		return as_type<float>(sign | (e == 31 ? 0x7f800000u : (e + 112) << 23) | m << 13);
	}
};

// bfloat is BF16: the upper half of an F32, rounded to nearest, ties to even.
struct bfloat {
	uint16_t bits;
	bfloat() = default;
	explicit bfloat(float x) {
		uint32_t b = as_type<uint32_t>(x);
		bits = (b & 0x7fffffff) > 0x7f800000 ? b >> 16 | 0x40 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
	}
	operator float() const { return as_type<float>(uint32_t(bits) << 16); }
};

struct float2 {
	float x, y;
	float2() = default;
	float2(float a, float b) : x(a), y(b) {}
	explicit float2(float a) : x(a), y(a) {}
};
inline float2 operator+(float2 a, float2 b) { return float2(a.x + b.x, a.y + b.y); }
inline float2 operator*(float2 a, float2 b) { return float2(a.x * b.x, a.y * b.y); }
inline float2 operator*(float a, float2 b) { return float2(a * b.x, a * b.y); }

struct uint3 {
	uint x, y, z;
};

template <class T> inline T min(T a, T b) { return b < a ? b : a; }
template <class T> inline T max(T a, T b) { return a < b ? b : a; }
inline float rint(float x) { return ::nearbyintf(x); } // to nearest, ties to even
inline uint popcount(uint x) { return uint(__builtin_popcount(x)); }

// The functions of Metal's namespace precise, in single precision.
namespace precise {
inline float exp(float x) { return ::expf(x); }
inline float log(float x) { return ::logf(x); }
inline float sqrt(float x) { return ::sqrtf(x); }
inline float cos(float x) { return ::cosf(x); }
inline float sin(float x) { return ::sinf(x); }
} // namespace precise
inline float fabs(float x) { return ::fabsf(x); }

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };

inline void threadgroup_barrier(mem_flags f) { splash_host::meet_group(f == mem_flags::mem_threadgroup); }
inline void simdgroup_barrier(mem_flags f) { splash_host::meet_simd(f == mem_flags::mem_threadgroup); }

// simd_sum adds in a fixed order: pairs of lanes that differ in bit 0, then in bit 1, and so on.
inline float simd_sum(float x) { return splash_host::reduce_sum(x); }
inline float simd_max(float x) { return splash_host::reduce_max(x); }
inline uint simd_max(uint x) { return splash_host::reduce_max_uint(x); }

// A matrix of 8x8 values lies over the 32 lanes of a SIMD-group as on Apple's GPUs: a lane holds two neighbours of a row.
template <class T, int R, int C> struct simdgroup_matrix {
	static_assert(sizeof(T) == 4 && R == 8 && C == 8, "the host has matrices of 8x8 floats");
	struct Elements {
		T v[2];
		T &operator[](int i) { return v[i]; }
	} elements;
	mutable unsigned waits = 0; // the epoch of products that are to be added; 0: of none

	simdgroup_matrix() {}
	explicit simdgroup_matrix(T x) { elements.v[0] = elements.v[1] = x; }
	simdgroup_matrix(const simdgroup_matrix &m) {
		m.settle();
		elements = m.elements;
	}
	simdgroup_matrix &operator=(const simdgroup_matrix &m) {
		m.settle();
		settle();
		elements = m.elements;
		return *this;
	}
	~simdgroup_matrix() { settle(); }
	void settle() const {
		if (waits != 0 && waits == splash_host::epoch()) splash_host::settle();
		waits = 0;
	}
	Elements &thread_elements() {
		settle();
		return elements;
	}
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;

inline int matrix_row(int lane) { return (lane / 4 & 4) + lane / 2 % 4; }
inline int matrix_col(int lane) { return (lane / 4 & 2) * 2 + lane % 2 * 2; }

template <class T>
inline void simdgroup_load(simdgroup_matrix<T, 8, 8> &m, const T *from, unsigned long stride) {
	m.settle();
	int lane = splash_host::lane();
	const T *at = from + matrix_row(lane) * stride + matrix_col(lane);
	m.elements.v[0] = at[0];
	m.elements.v[1] = at[1];
}

template <class T>
inline void simdgroup_store(simdgroup_matrix<T, 8, 8> m, T *to, unsigned long stride) {
	int lane = splash_host::lane();
	T *at = to + matrix_row(lane) * stride + matrix_col(lane);
	at[0] = m.elements.v[0];
	at[1] = m.elements.v[1];
}

// d = a b + c, sums in the order of the inner index.
inline void simdgroup_multiply_accumulate(simdgroup_float8x8 &d, const simdgroup_float8x8 &a, const simdgroup_float8x8 &b,
                                          const simdgroup_float8x8 &c) {
	a.settle();
	b.settle();
	if (&c != &d) d = c;
	splash_host::multiply(d.elements.v, a.elements.v, b.elements.v);
	d.waits = splash_host::epoch();
}

} } // namespace metal
