#include "prelude.h"
#include "repack.h"

constant uint repackTile = 64; // rows of a tile of the planes

// Byte i of a block: of its data, its scales, its biases, or its row's tensor scale.
inline uint repackByte(device const uchar *native, uint row, uint block, uint i, constant RepackParams &p) {
	const ulong b = ulong(row) * p.blocks + block;
	if (i < p.data) return native[b * p.data + i];
	i -= p.data;
	if (i < p.scales) return native[p.scalesAt + b * p.scales + i];
	i -= p.scales;
	if (i < p.biases) return native[p.biasesAt + b * p.biases + i];
	return native[p.globalsAt + ulong(row) * 4 + i - p.biases];
}

// Native rows into planes: every bit of the planes is one of its block's, or fixed, as `bits` says for the bytes of a block in
// the order groups of plane 0, groups of plane 1, meta. Row n of the planes is row order[n] of the source; where it has none its
// units are zeros. A threadgroup has one block of a tile's rows, neighbouring threads neighbouring rows. Grid: blocks, tiles.
// Threads: 256 (spec: image format table).
kernel void repack(device const uchar *native [[buffer(0)]], device const int *order [[buffer(1)]],
                   device const ushort *bits [[buffer(2)]], device uchar *plane0 [[buffer(3)]],
                   device uchar *plane1 [[buffer(4)]], device uchar *meta [[buffer(5)]],
                   constant RepackParams &p [[buffer(6)]], THREADS) {
	const uint first = p.groups * p.plane0, second = first + p.groups * p.plane1, all = second + p.meta;
	for (uint i = index; i < all * repackTile; i += 256) {
		const uint row = i % repackTile, o = i / repackTile;
		const int source = order[group.y * repackTile + row];
		uint value = 0;
		if (source != noRow) {
			device const ushort *entry = bits + o * bitsEntry;
			const uint fixed = entry[bitsEntry - 1];
			if ((fixed & oneByte) != 0) {
				value = repackByte(native, uint(source), group.x, entry[0] / 8, p);
			} else {
				for (uint b = 0; b < 8; b++)
					if (entry[b] != noBit)
						value |= (repackByte(native, uint(source), group.x, entry[b] / 8, p) >> (entry[b] % 8) & 1) << b;
			}
			value ^= fixed & 255;
			if ((fixed & noScale) != 0 && repackByte(native, uint(source), group.x, entry[0] / 8, p) == 0x7f) value = 0;
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
