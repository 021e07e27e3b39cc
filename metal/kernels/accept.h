#ifndef SPLASH_ACCEPT_H
#define SPLASH_ACCEPT_H
#include "selector.h"

// An AcceptLane is a lane of a cycle: where its rows are, how many of them it verifies, and how many tokens it may still put
// out.
typedef struct {
	unsigned first, verify, left;
	float temperature;
} AcceptLane;
SPLASH_SIZE(AcceptLane, 16);

// An Accepted is what a lane's cycle came to: the accepted proposals and the target's own token after them, and how many of
// those are kept.
typedef struct {
	unsigned accepted, retained;
	unsigned tokens[cycleRows];
} Accepted;
SPLASH_SIZE(Accepted, 40);

typedef struct {
	unsigned vocab, candidates;
	unsigned stops;
} AcceptParams;
SPLASH_SIZE(AcceptParams, 12);

#endif
