// The parameters of kernels, and what they know of a pass, as both sides see them: C for cgo, C++ for the host, MSL.
#ifndef SPLASH_PARAMS_H
#define SPLASH_PARAMS_H

// SPLASH_SIZE holds a structure to its size wherever it is compiled.
#define SPLASH_SIZE(type, bytes) typedef char type##_has_##bytes##_bytes[sizeof(type) == bytes ? 1 : -1]

// A Row is one row of a pass.
typedef struct {
	unsigned token;
	unsigned lane;  // its slot in the lanes' states
	unsigned index; // in the lane
	int t, h, w;    // its place for the rotary embedding
	unsigned padding; // 1: it fills up a cycle, and routes no experts
} Row;
SPLASH_SIZE(Row, 28);

// A Segment is consecutive rows of one lane.
typedef struct {
	unsigned lane;
	unsigned first; // row of the pass
	unsigned rows;
	unsigned index; // of the first row in the lane
	unsigned kept;  // rows before it whose updates the recurrent states do not hold yet (gdn.metal)
	unsigned slot;  // 0 or 1: where those updates are; the new ones go to the other
} Segment;
SPLASH_SIZE(Segment, 24);

#endif
