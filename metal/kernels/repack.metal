#include "prelude.h"
#include "repack.h"

constant uint repackTile = 64; // rows of a tile of the planes

// Native rows into planes: every bit of the planes is one of its block's, or fixed, as `bits` says for the bytes of a block in
// the order groups of plane 0, groups of plane 1, meta. Row n of the planes is row order[n] of the source. A threadgroup has one
// block of a tile's rows, neighbouring threads neighbouring rows. Grid: blocks, tiles. Threads: 256 (spec: image format table).
kernel void repack(device const uchar *native [[buffer(0)]], device const uint *order [[buffer(1)]],
                   device const ushort *bits [[buffer(2)]], device uchar *plane0 [[buffer(3)]],
                   device uchar *plane1 [[buffer(4)]], device uchar *meta [[buffer(5)]],
                   constant RepackParams &p [[buffer(6)]], THREADS) {
	const uint first = p.groups * p.plane0, second = first + p.groups * p.plane1, all = second + p.meta;
	for (uint i = index; i < all * repackTile; i += 256) {
		const uint row = i % repackTile, o = i / repackTile, n = group.y * repackTile + row;
		uint value = 0;
		if (n < p.source) {
			device const uchar *block = native + (ulong(order[n]) * p.blocks + group.x) * p.blockBytes;
			device const ushort *entry = bits + o * bitsEntry;
			const uint fixed = entry[bitsEntry - 1];
			if (fixed >= 256) {
				value = block[entry[0] / 8];
			} else {
				for (uint b = 0; b < 8; b++)
					if (entry[b] != noBit) value |= (uint(block[entry[b] / 8]) >> (entry[b] % 8) & 1) << b;
			}
			value ^= fixed & 255;
		}
		// The unit of a plane, and the byte in it.
		const ulong tile = ulong(group.y);
		if (o < first) {
			const uint g = group.x * p.groups + o / p.plane0;
			plane0[((tile * p.blocks * p.groups + g) * repackTile + row) * p.plane0 + o % p.plane0] = uchar(value);
		} else if (o < second) {
			const uint g = group.x * p.groups + (o - first) / p.plane1;
			plane1[((tile * p.blocks * p.groups + g) * repackTile + row) * p.plane1 + (o - first) % p.plane1] = uchar(value);
		} else {
			meta[((tile * p.blocks + group.x) * repackTile + row) * p.meta + o - second] = uchar(value);
		}
	}
}
KERNEL(repack);
