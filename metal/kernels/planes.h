// What the kernels that multiply by planes have in common.
#pragma once
#include "math.h"
#include "project.h"
#include "formats.h"

constant uint tileRows = 64;   // rows of a tile of the planes
constant uint blockCols = 128; // inputs that stand in threadgroup memory at a time
constant uint projectThreads = 256;

// Where unit b, of units a row, of row n stands among a plane's units.
inline ulong unitAt(uint n, uint b, uint units) {
	return (ulong(n / tileRows) * units + b) * tileRows + n % tileRows;
}

inline uint slotOf(uint e) { return 8 * (e / 4 & 3) + 4 * (e / 16 & 1) + (e & 3); }

// Of an 8x8 matrix a lane holds columns 2 pair and 2 pair + 1 of one row.
inline uint matrixRow(uint lane) { return (lane / 4 & 4) + lane / 2 % 4; }
inline uint matrixPair(uint lane) { return (lane / 8 & 1) * 2 + lane % 2; }

// Adds to sums the products of span columns, from column `from` on, of 8 rows of planes and of 8 Tiles rows of inputs, which
// stand in threadgroup memory as [slot][row]; of the tiles of 8 rows the first `live` hold any. n is the lane's row of the
// planes, of so many groups of 32 columns.
template <class F, uint Tiles>
inline void multiplyBlock(thread simdgroup_float8x8 *sums, threadgroup const float *inputs, device const uchar *plane0,
                          device const uchar *plane1, device const uchar *meta, uint n, uint groups, uint from, uint span,
                          uint pair, uint live) {
	const uint rows = 8 * Tiles, units = groups / F::groups;
	for (uint g = from / 32; g < (from + span) / 32; g++) {
		const ulong at = unitAt(n, g, groups);
		device const uchar *a = plane0 + at * F::plane0, *b = plane1 + at * F::plane1;
		device const uchar *m = meta + unitAt(n, g / F::groups, units) * F::metaBytes;
		for (uint c = 0; c < 4; c++) {
			float2 w = F::pair(a, b, m, g % F::groups, c, pair);
			simdgroup_float8x8 weights, in;
			weights.thread_elements()[0] = w.x;
			weights.thread_elements()[1] = w.y;
			for (uint t = 0; t < Tiles; t++) {
				if (t >= live) break;
				simdgroup_load(in, inputs + (g * 32 - from + 8 * c) * rows + 8 * t, rows);
				simdgroup_multiply_accumulate(sums[t], weights, in, sums[t]);
			}
		}
	}
}

// Adds the sum of a part to those before it, and begins another.
inline void addPart(thread simdgroup_float8x8 &total, thread simdgroup_float8x8 &sum) {
	for (uint i = 0; i < 2; i++) {
		total.thread_elements()[i] += sum.thread_elements()[i];
		sum.thread_elements()[i] = 0;
	}
}

// What becomes of a result y.
inline void conclude(device float *to, float y, uint epilogue) {
	switch (epilogue) {
	case EpilogueStore: *to = y; break;
	case EpilogueAdd: *to = *to + y; break;
	case EpilogueSiLU: *to = silu(y); break;
	case EpilogueMultiply: *to = *to * y; break;
	}
}
