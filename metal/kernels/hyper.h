#ifndef SPLASH_HYPER_H
#define SPLASH_HYPER_H
#include "params.h"

// Streams are [rows][streams][width].
typedef struct {
	unsigned streams, width;
	float epsilon;
	float scale; // of the result
	unsigned injects; // the read has injection weights
} HyperParams;
SPLASH_SIZE(HyperParams, 20);

#endif
