#ifndef SPLASH_HADAMARD_H
#define SPLASH_HADAMARD_H
#include "params.h"

enum { hadamardBlock = 1024 };

typedef struct {
	unsigned width;
	unsigned inverse; // the transform first, then the signs: a row of a rotated table
} HadamardParams;
SPLASH_SIZE(HadamardParams, 8);

#endif
