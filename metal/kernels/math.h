// Functions that several operators share (oracle/norm.go).
#pragma once

inline float sigmoid(float x) {
	// The exponent is never positive, so that nothing overflows.
	float e = precise::exp(-fabs(x));
	return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

inline float silu(float x) { return x * sigmoid(x); }

// softplus is log(1 + e^x). log1p of a small argument is its series, as MSL has no log1p.
inline float softplus(float x) {
	float e = precise::exp(-fabs(x));
	float log1p = e < 0x1p-10f ? e - 0.5f * e * e : precise::log(1 + e);
	return max(x, 0.0f) + log1p;
}

// An order of floats as integers: greater numbers have greater ranks, zeros are equal, and NaN is below every number.
inline uint rankOf(float x) {
	uint b = as_type<uint>(x == 0 ? 0.0f : x);
	if (!(x == x)) return 0;
	return (b & 0x80000000u) != 0 ? ~b : b | 0x80000000u;
}
