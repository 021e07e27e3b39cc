// The weight formats in planes (spec: image format table; planner/image_values.go has the same values in Go). A format is
// the sizes of its units and pair(), the values of two neighbouring slots of a group: slots 8c + 2p and 8c + 2p + 1 of chunk
// c, which are elements 16 (p / 2) + 4c + 2 (p % 2) and the next. j is the group's place in its meta unit. The values are
// those of package dequant, bit for bit: every operation rounds once, none is fused.
#pragma once
#include "grids.h"

inline uint u16(device const uchar *b) { return uint(*(device const ushort *)b); }
inline uint u32(device const uchar *b) { return *(device const uint *)b; }
inline float f16(device const uchar *b) { return float(as_type<half>(*(device const ushort *)b)); }
inline float f32(device const uchar *b) { return *(device const float *)b; }
inline float bf16(device const uchar *b) { return as_type<float>(u16(b) << 16); }

// Two codes of a group, by chunk and pair.
struct Codes {
	uint x, y;
};

inline Codes linear4(device const uchar *plane, uint c, uint p) {
	uint w = u32(plane + 4 * c) >> (4 * p);
	return Codes{w & 15, w >> 16 & 15};
}
inline Codes bits1(device const uchar *plane, uint c, uint p) {
	uint w = uint(plane[c]) >> (2 * p);
	return Codes{w & 1, w >> 1 & 1};
}
inline Codes bits2(device const uchar *plane, uint c, uint p) {
	uint w = uint(plane[2 * c + p / 2]) >> (4 * (p & 1));
	return Codes{w & 3, w >> 2 & 3};
}
inline Codes bits4(device const uchar *plane, uint c, uint p) {
	uint w = plane[4 * c + p];
	return Codes{w & 15, w >> 4};
}
inline Codes bits8(device const uchar *plane, uint c, uint p) {
	uint w = u16(plane + 8 * c + 2 * p);
	return Codes{w & 255, w >> 8};
}
inline Codes above(Codes low, Codes high, uint shift) { return Codes{low.x | high.x << shift, low.y | high.y << shift}; }

inline float signed8(uint b) { return float(int(b << 24) >> 24); }

// E4M3: sign, 4 bits of exponent with bias 7, 3 of mantissa; without infinities.
inline float e4m3(uint b) {
	uint e = b >> 3 & 15, m = b & 7;
	float v = e == 0 ? float(m) * 0x1p-9f : as_type<float>((e + 120) << 23 | m << 20);
	return (b & 128) != 0 ? -v : v;
}

#define SPLASH_FORMAT(name, p0, p1, mb, mg)                                                                            \
	struct name {                                                                                                      \
		enum { plane0 = p0, plane1 = p1, metaBytes = mb, groups = mg };                                                \
		static float2 pair(device const uchar *a, device const uchar *b, device const uchar *m, uint j, uint c, uint p);   \
	};                                                                                                                 \
	inline float2 name::pair(device const uchar *a, device const uchar *b, device const uchar *m, uint j, uint c, uint p)

// The scale and the minimum of group j in the twelve bytes of Q4_K and Q5_K.
inline Codes kScale(device const uchar *s, uint j) {
	if (j < 4) return Codes{uint(s[j]) & 63, uint(s[j + 4]) & 63};
	return Codes{(uint(s[j + 4]) & 15) | uint(s[j - 4]) >> 6 << 4, uint(s[j + 4]) >> 4 | uint(s[j]) >> 6 << 4};
}
inline float2 scaled(float d, float m, Codes q) { return float2(d * float(q.x) + m, d * float(q.y) + m); }
inline float2 centred(float d, Codes q, int zero) { return float2(d * float(int(q.x) - zero), d * float(int(q.y) - zero)); }

SPLASH_FORMAT(Q4K, 16, 0, 16, 8) {
	Codes s = kScale(m + 4, j);
	return scaled(f16(m) * float(s.x), -(f16(m + 2) * float(s.y)), linear4(a, c, p));
}
SPLASH_FORMAT(Q5K, 16, 4, 16, 8) {
	Codes s = kScale(m + 4, j);
	return scaled(f16(m) * float(s.x), -(f16(m + 2) * float(s.y)), above(linear4(a, c, p), bits1(b, c, p), 4));
}
SPLASH_FORMAT(Q6K, 16, 8, 20, 8) {
	float d = f16(m + 16) * signed8(m[2 * j + p / 2]);
	return centred(d, above(linear4(a, c, p), bits2(b, c, p), 4), 32);
}
SPLASH_FORMAT(Q3K, 8, 4, 16, 8) {
	uint i = 2 * j + p / 2;
	uint low = uint(m[4 + i % 8]) >> (4 * (i / 8)) & 15, high = uint(m[12 + i % 4]) >> (2 * (i / 4)) & 3;
	float d = f16(m) * float(int(low | high << 4) - 32);
	return centred(d, above(bits2(a, c, p), bits1(b, c, p), 2), 4);
}
SPLASH_FORMAT(Q2K, 8, 0, 20, 8) {
	uint s = m[4 + 2 * j + p / 2];
	return scaled(f16(m) * float(s & 15), -(f16(m + 2) * float(s >> 4)), bits2(a, c, p));
}
SPLASH_FORMAT(Q80, 32, 0, 2, 1) {
	Codes q = bits8(a, c, p);
	return float2(f16(m) * signed8(q.x), f16(m) * signed8(q.y));
}
SPLASH_FORMAT(Q40, 16, 0, 2, 1) { return centred(f16(m), linear4(a, c, p), 8); }
SPLASH_FORMAT(Q41, 16, 0, 4, 1) { return scaled(f16(m), f16(m + 2), linear4(a, c, p)); }
SPLASH_FORMAT(Q50, 16, 4, 2, 1) { return centred(f16(m), above(linear4(a, c, p), bits1(b, c, p), 4), 16); }
SPLASH_FORMAT(Q51, 16, 4, 4, 1) { return scaled(f16(m), f16(m + 2), above(linear4(a, c, p), bits1(b, c, p), 4)); }
SPLASH_FORMAT(PQ20, 8, 0, 2, 4) { return centred(f16(m), bits2(a, c, p), 1); }
SPLASH_FORMAT(Q20, 8, 0, 2, 2) { return centred(f16(m), bits2(a, c, p), 1); }

// The codebook of IQ4_NL and IQ4_XS, and twice the values of E2M1 (GGML's ggml-common.h; OCP MX specification).
constant float codebookIQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constant float doubledE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12};

SPLASH_FORMAT(IQ4NL, 16, 0, 2, 1) {
	Codes q = bits4(a, c, p);
	return float2(f16(m) * codebookIQ4[q.x], f16(m) * codebookIQ4[q.y]);
}
SPLASH_FORMAT(IQ4XS, 16, 0, 8, 8) {
	uint low = uint(m[4 + j / 2]) >> (4 * (j & 1)) & 15, high = u16(m + 2) >> (2 * j) & 3;
	float d = f16(m) * float(int(low | high << 4) - 32);
	Codes q = bits4(a, c, p);
	return float2(d * codebookIQ4[q.x], d * codebookIQ4[q.y]);
}
// GGML halves the power of two and doubles the codes; its code 8 is worth +0.
SPLASH_FORMAT(MXFP4, 16, 0, 1, 1) {
	uint e = m[0];
	float d = as_type<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
	Codes q = bits4(a, c, p);
	return float2((q.x == 8 ? 0.0f : doubledE2M1[q.x]) * d, (q.y == 8 ? 0.0f : doubledE2M1[q.y]) * d);
}
SPLASH_FORMAT(NVFP4, 16, 0, 20, 8) {
	float d = f32(m + 16) * e4m3(m[2 * j + p / 2]);
	Codes q = bits4(a, c, p);
	return float2(d * (0.5f * doubledE2M1[q.x]), d * (0.5f * doubledE2M1[q.y]));
}
SPLASH_FORMAT(FP8, 32, 0, 4, 8) {
	Codes q = bits8(a, c, p);
	return float2(f32(m) * e4m3(q.x), f32(m) * e4m3(q.y));
}
SPLASH_FORMAT(BF16, 64, 0, 4, 8) {
	device const uchar *v = a + 16 * c + 4 * p;
	return float2(f32(m) * bf16(v), f32(m) * bf16(v + 2));
}
SPLASH_FORMAT(F16, 64, 0, 4, 8) {
	device const uchar *v = a + 16 * c + 4 * p;
	return float2(f32(m) * f16(v), f32(m) * f16(v + 2));
}

// The i-quants. Entries of eight elements: l is the entry of the group, k the pair's first element in it.
inline uint entryOf(uint c, uint p) { return 2 * (p / 2) + c / 2; }
inline uint elementOf(uint c, uint p) { return 4 * (c & 1) + 2 * (p & 1); }

// Seven bits index the signs of eight elements whose number of minuses is even.
inline uint evenSigns(uint i) { return (i & 127) | (popcount(i & 127) & 1) << 7; }
inline float signedBy(float v, uint signs, uint k) { return (signs >> k & 1) != 0 ? -v : v; }

constant float levelsIQ2[4] = {8, 25, 43, 0};
constant float levelsIQ3XXS[8] = {4, 12, 20, 28, 36, 44, 52, 62};

inline float2 grid2(float d, uint entry, uint signs, uint k) {
	return float2(signedBy(d * levelsIQ2[entry >> (2 * k) & 3], signs, k),
	              signedBy(d * levelsIQ2[entry >> (2 * k + 2) & 3], signs, k + 1));
}
inline float scaleIQ2(float d, uint s) { return d * (0.5f + float(s)) * 0.25f; }

SPLASH_FORMAT(IQ2XXS, 8, 0, 2, 8) {
	uint word = u32(a + 4), l = entryOf(c, p);
	return grid2(scaleIQ2(f16(m), word >> 28), gridIQ2XXS[a[l]], evenSigns(word >> (7 * l)), elementOf(c, p));
}
SPLASH_FORMAT(IQ2XS, 8, 1, 2, 8) {
	uint l = entryOf(c, p), q = u16(a + 2 * l);
	return grid2(scaleIQ2(f16(m), uint(b[0]) >> (4 * (l / 2)) & 15), gridIQ2XS[q & 511], evenSigns(q >> 9), elementOf(c, p));
}
SPLASH_FORMAT(IQ2S, 8, 2, 2, 8) {
	uint l = entryOf(c, p), q = uint(a[l]) | (uint(b[0]) >> (2 * l) & 3) << 8;
	return grid2(scaleIQ2(f16(m), uint(b[1]) >> (4 * (l / 2)) & 15), gridIQ2S[q], a[4 + l], elementOf(c, p));
}
SPLASH_FORMAT(IQ3XXS, 8, 4, 2, 8) {
	uint word = u32(b), k = 2 * (p & 1), entry = gridIQ3XXS[a[4 * (p / 2) + c]];
	float d = f16(m) * (0.5f + float(word >> 28)) * 0.5f;
	uint signs = evenSigns(word >> (7 * entryOf(c, p))), at = elementOf(c, p);
	return float2(signedBy(d * levelsIQ3XXS[entry >> (3 * k) & 7], signs, at),
	              signedBy(d * levelsIQ3XXS[entry >> (3 * k + 3) & 7], signs, at + 1));
}
SPLASH_FORMAT(IQ3S, 16, 0, 2, 8) {
	uint word = u32(a + 4 * c), h = p / 2, k = 2 * (p & 1);
	uint entry = gridIQ3S[(word >> (8 * h) & 255) | (word >> (24 + h) & 1) << 8];
	float d = f16(m) * float(1 + 2 * (word >> 26 & 15));
	uint signs = word >> 16;
	return float2(signedBy(d * float(2 * (entry >> (3 * k) & 7) + 1), signs, 2 * p),
	              signedBy(d * float(2 * (entry >> (3 * k + 3) & 7) + 1), signs, 2 * p + 1));
}
inline float2 grid1(float d, uint entry, bool negative, uint k) {
	float delta = negative ? -0.125f : 0.125f;
	return float2(d * (float(int(entry >> (2 * k) & 3) - 1) + delta), d * (float(int(entry >> (2 * k + 2) & 3) - 1) + delta));
}
SPLASH_FORMAT(IQ1S, 4, 2, 2, 8) {
	uint qh = u16(b), l = entryOf(c, p);
	float d = f16(m) * float(2 * (qh >> 12 & 7) + 1);
	return grid1(d, gridIQ1[uint(a[l]) | (qh >> (3 * l) & 7) << 8], qh >> 15 != 0, elementOf(c, p));
}
SPLASH_FORMAT(IQ1M, 4, 2, 8, 8) {
	uint l = entryOf(c, p), h = uint(b[l / 2]) >> (4 * (l & 1)) & 15;
	uint bits = u16(m) >> 12 | u16(m + 2) >> 12 << 4 | u16(m + 4) >> 12 << 8 | u16(m + 6) >> 12 << 12;
	uint s = 2 * (u16(m + 2 * (j / 2)) >> (6 * (j & 1) + 3 * (l / 2)) & 7) + 1;
	return grid1(float(as_type<half>(ushort(bits))) * float(s), gridIQ1[uint(a[l]) | (h & 7) << 8], (h & 8) != 0,
	             elementOf(c, p));
}

// MLX's affine codes: s q + z.
#define SPLASH_AFFINE(bits, p0, p1, codes)                                                                             \
	SPLASH_FORMAT(AF##bits##G32, p0, p1, 4, 1) { return scaled(bf16(m), bf16(m + 2), codes); }                         \
	SPLASH_FORMAT(AF##bits##G64, p0, p1, 4, 2) { return scaled(bf16(m), bf16(m + 2), codes); }                         \
	SPLASH_FORMAT(AF##bits##G128, p0, p1, 4, 4) { return scaled(bf16(m), bf16(m + 2), codes); }

SPLASH_AFFINE(2, 8, 0, bits2(a, c, p))
SPLASH_AFFINE(3, 8, 4, above(bits2(a, c, p), bits1(b, c, p), 2))
SPLASH_AFFINE(4, 16, 0, linear4(a, c, p))
SPLASH_AFFINE(5, 16, 4, above(linear4(a, c, p), bits1(b, c, p), 4))
SPLASH_AFFINE(6, 16, 8, above(linear4(a, c, p), bits2(b, c, p), 4))
SPLASH_AFFINE(8, 32, 0, bits8(a, c, p))

// Every format with the suffix of its kernels. A build of fewer says which.
#ifndef SPLASH_FORMATS
#define SPLASH_FORMATS(X)                                                                                              \
	X(q4k, Q4K) X(iq4xs, IQ4XS) X(iq4nl, IQ4NL) X(q5k, Q5K) X(q6k, Q6K) X(q3k, Q3K) X(q80, Q80) X(iq3s, IQ3S)              \
	X(q2k, Q2K) X(iq3xxs, IQ3XXS) X(iq2xxs, IQ2XXS) X(iq2xs, IQ2XS) X(iq2s, IQ2S) X(iq1s, IQ1S) X(iq1m, IQ1M)          \
	X(q40, Q40) X(q41, Q41) X(q50, Q50) X(q51, Q51) X(mxfp4, MXFP4) X(pq20, PQ20) X(q20, Q20) X(nvfp4, NVFP4)          \
	X(fp8, FP8) X(bf16, BF16) X(f16, F16)                                                                              \
	X(af2g32, AF2G32) X(af2g64, AF2G64) X(af2g128, AF2G128) X(af3g32, AF3G32) X(af3g64, AF3G64) X(af3g128, AF3G128)    \
	X(af4g32, AF4G32) X(af4g64, AF4G64) X(af4g128, AF4G128) X(af5g32, AF5G32) X(af5g64, AF5G64) X(af5g128, AF5G128)    \
	X(af6g32, AF6G32) X(af6g64, AF6G64) X(af6g128, AF6G128) X(af8g32, AF8G32) X(af8g64, AF8G64) X(af8g128, AF8G128)
#endif
