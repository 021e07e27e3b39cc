#ifndef SPLASH_NORM_H
#define SPLASH_NORM_H
#include "params.h"

typedef struct {
	unsigned width;
	float epsilon;
} NormParams;
SPLASH_SIZE(NormParams, 8);

typedef struct {
	unsigned heads, dim;
	float epsilon;
	unsigned sigmoid; // the gate is a sigmoid instead of a SiLU
} GatedNormParams;
SPLASH_SIZE(GatedNormParams, 16);

#endif
