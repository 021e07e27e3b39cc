#ifndef SPLASH_NGRAM_H
#define SPLASH_NGRAM_H
#include "params.h"

// Rows of the convolution's input that a lane keeps, by index modulo: those its next row reads and those that taking back rows
// uncovers.
enum { ngramKept = 32 };

typedef struct {
	unsigned streams, width;
	unsigned taps, dilation;
	float epsilon;
} NGramParams;
SPLASH_SIZE(NGramParams, 20);

#endif
