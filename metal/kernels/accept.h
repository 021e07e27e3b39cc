#ifndef SPLASH_ACCEPT_H
#define SPLASH_ACCEPT_H
#include "selector.h"

// An AcceptLane is a lane of a cycle: where its rows are, how many of them it verifies, how many tokens it may still put out,
// and where the tokens are that stop it, and how many.
typedef struct {
	unsigned first, verify, left;
	float temperature;
	unsigned stop, stops;
} AcceptLane;
SPLASH_SIZE(AcceptLane, 24);

// An Accepted is what a lane's cycle came to: the accepted proposals and the target's own token after them, and how many of
// those are kept.
typedef struct {
	unsigned accepted, retained;
	unsigned tokens[cycleRows];
} Accepted;
SPLASH_SIZE(Accepted, 40);

typedef struct {
	unsigned vocab, candidates;
} AcceptParams;
SPLASH_SIZE(AcceptParams, 8);

#endif
