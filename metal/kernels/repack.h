#ifndef SPLASH_REPACK_H
#define SPLASH_REPACK_H
#include "params.h"

// What the bits of a byte of the planes are: entries of bitsEntry words for each byte of a block, the sources of its bits, lowest
// first, as bits of the native block (noBit: none), then what they are exclusive-ored with, and flags: oneByte where all are one
// byte's, in order; noScale where a byte of 0x7f, which is no scale of GGUF's NVFP4, becomes 0.
enum { bitsEntry = 9, noBit = 0xffff, oneByte = 256, noScale = 512 };

// noRow is the source of rows that only fill the last tile.
enum { noRow = -1 };

// The native rows stand in parts, each a run of all rows: a block has so many bytes of data, of scales and of biases in them, and
// its row's tensor scale. Together, in this order, they are the block whose bits are meant.
typedef struct {
	unsigned blocks;                        // of a row
	unsigned groups;                        // of 32 weights in a block
	unsigned plane0, plane1, meta;          // bytes of a unit
	unsigned data, scales, biases;          // bytes of a block
	unsigned scalesAt, biasesAt, globalsAt; // where the parts begin; data begins at 0
} RepackParams;
SPLASH_SIZE(RepackParams, 44);

#endif
