#ifndef SPLASH_PROJECT_H
#define SPLASH_PROJECT_H
#include "params.h"

enum { EpilogueStore, EpilogueAdd, EpilogueSiLU, EpilogueMultiply };

// A sum over columns is made of parts of so many columns, each summed by itself, and then of their sums in order: the same
// bits whether one threadgroup has all the parts or each has its own.
enum { partCols = 2048 };

typedef struct {
	unsigned rows;     // of the pass
	unsigned cols;     // inputs
	unsigned outputs;  // rows of the matrix, from first on
	unsigned first;    // in its planes
	unsigned epilogue; // what becomes of dst: y, dst + y, silu(y), dst * y
	// Where head is not 0, the inputs are value heads of that size in grouped order, the columns in tiled order: head k * perKey
	// + r of the inputs is head r * keyHeads + k of the columns.
	unsigned head, keyHeads, perKey;
	unsigned split; // dst is [parts][rows][outputs], a threadgroup has one part, and nothing becomes of it yet
} ProjectParams;
SPLASH_SIZE(ProjectParams, 36);

typedef struct {
	unsigned rows, outputs, parts;
	unsigned epilogue;
} SumParams;
SPLASH_SIZE(SumParams, 16);

typedef struct {
	unsigned cols;
} GatherParams;
SPLASH_SIZE(GatherParams, 4);

#endif
