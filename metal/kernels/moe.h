#ifndef SPLASH_MOE_H
#define SPLASH_MOE_H
#include "params.h"

// Routes are [rows][2 taken]: the ids of a row's experts, as floats, then their weights. Slot row * taken + j is a row's j-th
// expert. An id of -1 is none.
enum {
	maxTaken = 32,
	maxExperts = 1024,
	expertRows = 8 // slots of one expert that a threadgroup multiplies together
};

typedef struct {
	unsigned experts, taken;
	unsigned sigmoid, normalize;
	float scale; // of the weights
} RouteParams;
SPLASH_SIZE(RouteParams, 20);

// A Tile is up to expertRows slots of one expert: those from first on in the order of experts.
typedef struct {
	unsigned expert, first, count;
} Tile;
SPLASH_SIZE(Tile, 12);

typedef struct {
	unsigned rows, experts, taken;
	unsigned tiles; // room for them; those that are not needed have no slots
} GroupParams;
SPLASH_SIZE(GroupParams, 16);

typedef struct {
	unsigned cols;
	unsigned outputs; // of an expert
	unsigned stride;  // rows of an expert in the planes, whole tiles
	unsigned epilogue;
	unsigned share; // slots that read one row of x: those of a row's experts, or 1
} ExpertParams;
SPLASH_SIZE(ExpertParams, 20);

typedef struct {
	unsigned width, taken;
	unsigned add; // to dst
} CombineParams;
SPLASH_SIZE(CombineParams, 12);

typedef struct {
	unsigned width;
	unsigned gated;
} SharedParams;
SPLASH_SIZE(SharedParams, 8);

#endif
