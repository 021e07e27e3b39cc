#ifndef SPLASH_SAMPLING_H
#define SPLASH_SAMPLING_H
#include "params.h"

// An Occurrence is a token that occurred before a row, and how often it was put out.
typedef struct {
	unsigned row, token, count;
} Occurrence;
SPLASH_SIZE(Occurrence, 12);

// A Policy is how a row's token is chosen (oracle/sampling.go).
typedef struct {
	float temperature; // 0: the largest logit
	float minP;        // 0: none
	float topP;        // 0 or 1: all
	unsigned topK;     // 0: all
	float repetition;  // 1: none
	float presence, frequency;
} Policy;
SPLASH_SIZE(Policy, 28);

// A Target is what a row's policy leaves of its tokens: those whose place (order.h) is above place, and those at it whose id is
// at most last.
typedef struct {
	unsigned best; // the first token of all; noToken: no logit is a number
	float top;     // its logit
	unsigned place, last;
	float sum; // of the weights exp((x - top) / temperature) that are left; at temperature 0 of exp(x - top) of all
} Target;
SPLASH_SIZE(Target, 20);

typedef struct {
	unsigned vocab;
	unsigned words; // of a row's mask
} HeadParams;
SPLASH_SIZE(HeadParams, 8);

typedef struct {
	unsigned occurrences, vocab;
} PenaltyParams;
SPLASH_SIZE(PenaltyParams, 8);

#endif
