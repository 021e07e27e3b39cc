#ifndef SPLASH_CONV_H
#define SPLASH_CONV_H
#include "params.h"

// Inputs of a convolution that a lane keeps, by index modulo: those its next row reads and those that taking back rows
// uncovers.
enum { convKept = 16, convTaps = 8 };

typedef struct {
	unsigned channels;
	unsigned taps; // at most convTaps
} ConvParams;
SPLASH_SIZE(ConvParams, 8);

#endif
