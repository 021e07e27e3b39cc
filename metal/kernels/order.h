// The order of tokens: falling logit (0 and -0 are equal), then rising id. A number's place among all is a uint, so that the
// order of two tokens is that of two numbers; 0 is below every number, and what a NaN becomes.
#pragma once

// noToken is no token's id: it stands where there is none.
#define noToken 0xffffffffu

inline uint placeOf(float x) {
	if (x != x) return 0;
	if (x == 0) return 0x80000000u;
	const uint bits = as_type<uint>(x);
	return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

inline float numberAt(uint place) {
	return as_type<float>((place & 0x80000000u) != 0 ? place & 0x7fffffffu : ~place);
}

constant uint leastPlace = 0x007fffffu; // of -infinity

inline float infinity() { return as_type<float>(0x7f800000u); }
