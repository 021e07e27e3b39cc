#ifndef SPLASH_GDN_H
#define SPLASH_GDN_H
#include "params.h"

enum {
	gdnDim = 128,  // of keys and values
	gdnKept = 8,   // rows whose updates are kept
	gdnUpdate = 2 * gdnDim + 1 // floats of an update: key, delta, decay
};

typedef struct {
	unsigned keyHeads, valueHeads;
	float epsilon;
} GDNParams;
SPLASH_SIZE(GDNParams, 12);

#endif
