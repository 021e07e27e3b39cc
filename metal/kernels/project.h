#ifndef SPLASH_PROJECT_H
#define SPLASH_PROJECT_H
#include "params.h"

enum { EpilogueStore, EpilogueAdd, EpilogueSiLU, EpilogueMultiply };

typedef struct {
	unsigned rows;     // of the pass
	unsigned cols;     // inputs
	unsigned outputs;  // rows of the matrix, from first on
	unsigned first;    // in its planes
	unsigned epilogue; // what becomes of dst: y, dst + y, silu(y), dst * y
	// Where head is not 0, the inputs are value heads of that size in grouped order, the columns in tiled order: head k * perKey
	// + r of the inputs is head r * keyHeads + k of the columns.
	unsigned head, keyHeads, perKey;
} ProjectParams;
SPLASH_SIZE(ProjectParams, 32);

typedef struct {
	unsigned cols;
} GatherParams;
SPLASH_SIZE(GatherParams, 4);

#endif
