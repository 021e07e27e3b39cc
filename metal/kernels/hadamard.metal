#include "prelude.h"
#include "hadamard.h"

// H (D x), or D (H x) where it is the inverse, by blocks of 1024: stages of stride 1, 2, 4, .., 512, each taking a pair (a, b)
// to (a + b, a - b) in F32, then times 1/32. dst may be x. Grid: width / 1024, rows. Threads: 256. Threadgroup memory: 4096
// bytes (oracle/hadamard.go).
kernel void hadamard(device const float *x [[buffer(0)]], device const float *signs [[buffer(1)]],
                     device float *dst [[buffer(2)]], constant HadamardParams &p [[buffer(3)]], THREADS) {
	threadgroup float *block = (threadgroup float *)shared;
	const uint first = group.x * hadamardBlock;
	const ulong at = ulong(group.y) * p.width + first;
	for (uint i = index; i < hadamardBlock; i += 256) block[i] = p.inverse != 0 ? x[at + i] : x[at + i] * signs[first + i];
	for (uint stride = 1; stride < hadamardBlock; stride *= 2) {
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (uint i = index; i < hadamardBlock / 2; i += 256) {
			const uint low = i / stride * 2 * stride + i % stride;
			const float a = block[low], b = block[low + stride];
			block[low] = a + b;
			block[low + stride] = a - b;
		}
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	for (uint i = index; i < hadamardBlock; i += 256)
		dst[at + i] = p.inverse != 0 ? block[i] * 0x1p-5f * signs[first + i] : block[i] * 0x1p-5f;
}
KERNEL(hadamard);
