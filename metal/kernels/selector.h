#ifndef SPLASH_SELECTOR_H
#define SPLASH_SELECTOR_H
#include "params.h"

// Sizes of a cycle: rows of a lane, those with proposals, and at most so many candidates each.
enum { cycleRows = 8, proposals = cycleRows - 1, mostCandidates = 32, draws = 16 };

typedef struct {
	unsigned token;
	float logit;
} Candidate;
SPLASH_SIZE(Candidate, 8);

typedef struct {
	unsigned count; // candidates of a row
	unsigned items; // that they are chosen from
	unsigned shard; // of the items a threadgroup looks at
} TopParams;
SPLASH_SIZE(TopParams, 12);

typedef struct {
	unsigned positions, candidates;
	unsigned rank, vocab; // of the codebooks
} SelectParams;
SPLASH_SIZE(SelectParams, 16);

// A Walk is a lane's path through its candidates.
typedef struct {
	unsigned tokens[proposals];
	unsigned choices[proposals];
	float confidence[proposals];
} Walk;
SPLASH_SIZE(Walk, 84);

typedef struct {
	unsigned lanes;
	unsigned full;   // every row of the limits
	float base, row; // cost of a cycle, and of each of its rows
	float slope, intercept[proposals];
} VerifyParams;
SPLASH_SIZE(VerifyParams, 48);

// A Verify is the rows that a lane verifies, and the probability that each of its proposals is reached and accepted.
typedef struct {
	unsigned rows;
	float survival[proposals];
} Verify;
SPLASH_SIZE(Verify, 32);

#endif
