#ifndef SPLASH_QSA_H
#define SPLASH_QSA_H
#include "attention.h"

// A token's raw key takes dim floats and its place for the rotary embedding, three integers; a page is [pageTokens][dim +
// indexPlace]. Pooled keys are [pageTokens / block][dim] a page.
enum { indexPlace = 4 };

typedef struct {
	unsigned heads, dim;
	unsigned pairs; // that are rotated
	unsigned block, budget; // tokens of a block; blocks that a row sees
	unsigned tablePages;
	unsigned stride; // scores of a row
	float epsilon;
} IndexParams;
SPLASH_SIZE(IndexParams, 32);

#endif
