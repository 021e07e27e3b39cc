#ifndef SPLASH_REPACK_H
#define SPLASH_REPACK_H
#include "params.h"

// What the bits of a byte of the planes are: entries of bitsEntry words for each byte of a block, the sources of its bits, lowest
// first, as bits of the native block (noBit: none), then what they are exclusive-ored with, and 256 where all are one byte's.
enum { bitsEntry = 9, noBit = 0xffff };

typedef struct {
	unsigned rows;      // of the planes, whole tiles; those past source hold zeros
	unsigned source;    // native rows
	unsigned blocks;    // of a row
	unsigned blockBytes;
	unsigned groups;    // of 32 weights in a block
	unsigned plane0, plane1, meta; // bytes of a unit
} RepackParams;
SPLASH_SIZE(RepackParams, 32);

#endif
