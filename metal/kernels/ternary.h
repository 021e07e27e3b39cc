#ifndef SPLASH_TERNARY_H
#define SPLASH_TERNARY_H
#include "project.h"

// Rotated inputs in codes of 8 bits have one scale a block of so many, PQ2_0's weights one a group.
enum { codeBlock = 1024, ternaryGroup = 128, ternaryRows = 8 };

typedef struct {
	unsigned width;
} QuantizeParams;
SPLASH_SIZE(QuantizeParams, 4);

#endif
