#include "prelude.h"
#include "rows.h"

// Row i of dst is row list[i] of x. Grid: width / 256 rounded up, rows. Threads: 256.
kernel void copy_rows(device const float *x [[buffer(0)]], device const uint *list [[buffer(1)]],
                      device float *dst [[buffer(2)]], constant CopyParams &p [[buffer(3)]], THREADS) {
	const uint i = group.x * 256 + index;
	if (i < p.width) dst[ulong(group.y) * p.width + i] = x[ulong(list[group.y]) * p.width + i];
}
KERNEL(copy_rows);
