#ifndef SPLASH_GDN_H
#define SPLASH_GDN_H
#include "params.h"

enum {
	gdnDim = 128,  // of keys and values
	gdnKept = 8,   // rows whose updates are kept
	gdnUpdate = 2 * gdnDim + 1, // floats of an update: key, delta, decay
	gdnChunk = 16  // rows that are taken at once
};

typedef struct {
	unsigned keyHeads, valueHeads;
	float epsilon;
	unsigned chunked; // gdn_chunk has been over the first rows of long segments
} GDNParams;
SPLASH_SIZE(GDNParams, 16);

#endif
