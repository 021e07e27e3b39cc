#include "prelude.h"
#include "math.h"
#include "norm.h"

constant uint normThreads = 256;

// RMSNorm of one row a threadgroup: dst_i = x_i / sqrt(mean x^2 + epsilon) * w_i. dst may be x. Threads: 256.
// Threadgroup memory: 4 bytes a SIMD-group (oracle/norm.go).
kernel void rmsnorm(device const float *x [[buffer(0)]], device const float *w [[buffer(1)]],
                    device float *dst [[buffer(2)]], constant NormParams &p [[buffer(3)]], THREADS) {
	threadgroup float *sums = (threadgroup float *)shared;
	device const float *in = x + ulong(group.x) * p.width;
	device float *out = dst + ulong(group.x) * p.width;
	float sum = 0;
	for (uint i = index; i < p.width; i += normThreads) sum += in[i] * in[i];
	sum = simd_sum(sum);
	if (lane == 0) sums[simd] = sum;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	sum = 0;
	for (uint i = 0; i < normThreads / 32; i++) sum += sums[i];
	float inv = 1 / precise::sqrt(sum / float(p.width) + p.epsilon);
	for (uint i = index; i < p.width; i += normThreads) out[i] = in[i] * inv * w[i];
}
KERNEL(rmsnorm);

// The norm behind the recurrence, one head of one row a SIMD-group: RMSNorm(x, w) * gate(z). dst may be x. Grid: heads,
// rows. Threads: 32 (oracle/gdn.go).
kernel void gated_norm(device const float *x [[buffer(0)]], device const float *z [[buffer(1)]],
                       device const float *w [[buffer(2)]], device float *dst [[buffer(3)]],
                       constant GatedNormParams &p [[buffer(4)]], THREADS) {
	ulong at = (ulong(group.y) * p.heads + group.x) * p.dim;
	float sum = 0;
	for (uint i = lane; i < p.dim; i += 32) sum += x[at + i] * x[at + i];
	sum = simd_sum(sum);
	float inv = 1 / precise::sqrt(sum / float(p.dim) + p.epsilon);
	for (uint i = lane; i < p.dim; i += 32) {
		float gate = p.sigmoid != 0 ? sigmoid(z[at + i]) : silu(z[at + i]);
		dst[at + i] = x[at + i] * inv * w[i] * gate;
	}
}
KERNEL(gated_norm);
