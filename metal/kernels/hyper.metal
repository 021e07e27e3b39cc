#include "prelude.h"
#include "math.h"
#include "hyper.h"

// Every stream of a row becomes x. Grid: width / 256 rounded up, rows. Threads: 256.
kernel void expand(device const float *x [[buffer(0)]], device float *streams [[buffer(1)]],
                   constant HyperParams &p [[buffer(2)]], THREADS) {
	const uint i = group.x * 256 + index;
	if (i >= p.width) return;
	for (uint s = 0; s < p.streams; s++)
		streams[(ulong(group.y) * p.streams + s) * p.width + i] = x[ulong(group.y) * p.width + i];
}
KERNEL(expand);

// RMSNorm of each stream by itself, times scale; w spans them all. Grid: streams, rows. Threads: 256. Threadgroup memory: 4
// bytes a SIMD-group (oracle/hyper.go, GroupedRMSNorm).
kernel void grouped_norm(device const float *x [[buffer(0)]], device const float *w [[buffer(1)]],
                         device float *dst [[buffer(2)]], constant HyperParams &p [[buffer(3)]], THREADS) {
	threadgroup float *sums = (threadgroup float *)shared;
	const ulong at = (ulong(group.y) * p.streams + group.x) * p.width;
	float sum = 0;
	for (uint i = index; i < p.width; i += 256) sum += x[at + i] * x[at + i];
	sum = simd_sum(sum);
	if (lane == 0) sums[simd] = sum;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	sum = 0;
	for (uint s = 0; s < 8; s++) sum += sums[s];
	const float inv = 1 / precise::sqrt(sum / float(p.width) + p.epsilon) * p.scale;
	for (uint i = index; i < p.width; i += 256) dst[at + i] = x[at + i] * inv * w[ulong(group.x) * p.width + i];
}
KERNEL(grouped_norm);

// A read of the streams: h_i is the sum over streams of sigmoid(gate) times what was normalized, which has the 1 / streams of
// the mean in it; and of what the projection of the injection weights gave, 2 sigmoid. Grid: width / 256 rounded up, rows.
// Threads: 256 (oracle/hyper.go, Read).
kernel void hyper_mix(device const float *normed [[buffer(0)]], device const float *gates [[buffer(1)]],
                      device float *inject [[buffer(2)]], device float *h [[buffer(3)]],
                      constant HyperParams &p [[buffer(4)]], THREADS) {
	const uint i = group.x * 256 + index;
	if (p.injects != 0 && i < p.streams) {
		device float *weight = inject + group.y * p.streams + i;
		*weight = 2 * sigmoid(*weight);
	}
	if (i >= p.width) return;
	float sum = 0;
	for (uint s = 0; s < p.streams; s++) {
		const ulong at = (ulong(group.y) * p.streams + s) * p.width + i;
		sum += sigmoid(gates[at]) * normed[at];
	}
	h[ulong(group.y) * p.width + i] = sum;
}
KERNEL(hyper_mix);

// Adds inject_s y to each stream s. Grid: width / 256 rounded up, rows. Threads: 256 (oracle/hyper.go, HyperWrite).
kernel void hyper_write(device const float *y [[buffer(0)]], device const float *inject [[buffer(1)]],
                        device float *streams [[buffer(2)]], constant HyperParams &p [[buffer(3)]], THREADS) {
	const uint i = group.x * 256 + index;
	if (i >= p.width) return;
	const float v = y[ulong(group.y) * p.width + i];
	for (uint s = 0; s < p.streams; s++)
		streams[(ulong(group.y) * p.streams + s) * p.width + i] += inject[group.y * p.streams + s] * v;
}
KERNEL(hyper_write);

// The mean of the streams, summed in their order. Grid: width / 256 rounded up, rows. Threads: 256 (oracle/hyper.go,
// HyperMean).
kernel void stream_mean(device const float *streams [[buffer(0)]], device float *dst [[buffer(1)]],
                        constant HyperParams &p [[buffer(2)]], THREADS) {
	const uint i = group.x * 256 + index;
	if (i >= p.width) return;
	float sum = 0;
	for (uint s = 0; s < p.streams; s++) sum += streams[(ulong(group.y) * p.streams + s) * p.width + i];
	dst[ulong(group.y) * p.width + i] = sum / float(p.streams);
}
KERNEL(stream_mean);
