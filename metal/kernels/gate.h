#ifndef SPLASH_GATE_H
#define SPLASH_GATE_H
#include "params.h"

typedef struct {
	unsigned rows;                // of the pass
	unsigned cols;                // inputs
	unsigned outputs;             // rows of each matrix, from its first on
	unsigned gateFirst, upFirst;  // in its planes
} GateParams;
SPLASH_SIZE(GateParams, 20);

#endif
