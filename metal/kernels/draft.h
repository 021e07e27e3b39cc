#ifndef SPLASH_DRAFT_H
#define SPLASH_DRAFT_H
#include "params.h"

// A draft's heads have draftDim elements, and draftPerKV heads of queries share one of keys and values. A layer's ring is
// [lanes][window][KV heads][draftDim], keys and values each, BF16; position t is in slot t mod window.
enum { draftDim = 128, draftPerKV = 4 };

typedef struct {
	unsigned width;
	unsigned mask; // rows after a segment's first are the mask's embedding
} DraftRowsParams;
SPLASH_SIZE(DraftRowsParams, 8);

typedef struct {
	unsigned width;          // of the tap
	unsigned stride, offset; // of dst, and of the tap in it
} DraftTapsParams;
SPLASH_SIZE(DraftTapsParams, 12);

typedef struct {
	unsigned hidden;
	unsigned group; // channels that share a dynamic kernel
	unsigned side;
	unsigned add; // to dst
} DraftConvParams;
SPLASH_SIZE(DraftConvParams, 16);

typedef struct {
	unsigned kvHeads;
	unsigned window;
	float epsilon;
	float scale;
} DraftHeadsParams;
SPLASH_SIZE(DraftHeadsParams, 16);

#endif
