#include "prelude.h"
#include "planes.h"
#include "moe.h"

constant uint routeLogits = maxExperts / 32; // of a lane, at most

// A row's experts, those of the largest logits, equal ones by number, and their weights: the softmax of all experts or of the
// chosen, or sigmoids, or those divided by their sum, which 2^-14 bounds from below. One row a SIMD-group. Grid: rows, 1.
// Threads: 32 (oracle/moe.go, Route).
kernel void moe_route(device const float *logits [[buffer(0)]], device const Row *rows [[buffer(1)]],
                      device float *routes [[buffer(2)]], constant RouteParams &p [[buffer(3)]], THREADS) {
	device const float *l = logits + ulong(group.x) * p.experts;
	uint ranks[routeLogits]; // of experts 32 i + lane; 0 once taken, and for none
	for (uint i = 0; i < routeLogits; i++) {
		const uint e = 32 * i + lane;
		// A rank of 0 is NaN's, below every number: one more makes room for what is not there.
		ranks[i] = e < p.experts ? max(rankOf(l[e]), 1u) : 0;
	}
	uint mine = 0; // the expert that this lane writes: the lane-th
	for (uint j = 0; j < p.taken; j++) {
		uint best = 0, at = 0;
		for (uint i = 0; i < routeLogits; i++) {
			if (ranks[i] > best) {
				best = ranks[i];
				at = i;
			}
		}
		const uint top = simd_max(best);
		// The least number of those with that rank.
		const uint e = maxExperts - simd_max(best == top ? maxExperts - (32 * at + lane) : 0u);
		if (best == top && e == 32 * at + lane) ranks[at] = 0;
		if (lane == j) mine = e;
	}
	const bool writes = lane < p.taken;
	const float logit = l[writes ? mine : 0];
	float weight = 0;
	if (p.sigmoid != 0) {
		weight = writes ? sigmoid(logit) : 0.0f;
		if (p.normalize != 0) weight = weight / max(simd_sum(weight), 0x1p-14f);
	} else {
		const float largest = simd_max(writes ? logit : -3.0e38f);
		float sum = 0;
		weight = writes ? precise::exp(logit - largest) : 0.0f;
		if (p.normalize != 0) {
			sum = weight;
		} else {
			for (uint e = lane; e < p.experts; e += 32) sum += precise::exp(l[e] - largest);
		}
		weight = weight / simd_sum(sum);
	}
	if (!writes) return;
	device float *out = routes + ulong(group.x) * 2 * p.taken;
	out[lane] = rows[group.x].padding != 0 ? -1.0f : float(mine);
	out[p.taken + lane] = weight * p.scale;
}
KERNEL(moe_route);

// Slots in the order of their experts, and tiles of them. An expert's slots stand in their own order. Grid: 1. Threads: 256.
// Threadgroup memory: 8 bytes an expert.
kernel void moe_group(device const float *routes [[buffer(0)]], device uint *order [[buffer(1)]],
                      device Tile *tiles [[buffer(2)]], constant GroupParams &p [[buffer(3)]], THREADS) {
	threadgroup uint *counts = (threadgroup uint *)shared, *firsts = counts + p.experts;
	const uint slots = p.rows * p.taken;
	for (uint e = index; e < p.experts; e += 256) {
		uint n = 0;
		for (uint s = 0; s < slots; s++) n += routes[s / p.taken * 2 * p.taken + s % p.taken] == float(e) ? 1 : 0;
		counts[e] = n;
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	uint used = 0;
	for (uint e = index; e < p.experts; e += 256) {
		uint first = 0, tile = 0;
		for (uint i = 0; i < e; i++) {
			first += counts[i];
			tile += (counts[i] + expertRows - 1) / expertRows;
		}
		for (uint n = 0; n < counts[e]; n += expertRows) {
			tiles[tile + n / expertRows].expert = e;
			tiles[tile + n / expertRows].first = first + n;
			tiles[tile + n / expertRows].count = min(uint(expertRows), counts[e] - n);
		}
		firsts[e] = first;
	}
	for (uint i = 0; i < p.experts; i++) used += (counts[i] + expertRows - 1) / expertRows;
	for (uint i = used + index; i < p.tiles; i += 256) tiles[i].count = 0;
	for (uint e = index; e < p.experts; e += 256) {
		uint at = firsts[e];
		for (uint s = 0; s < slots; s++)
			if (routes[s / p.taken * 2 * p.taken + s % p.taken] == float(e)) order[at++] = s;
	}
}
KERNEL(moe_group);

// A projection of each slot's expert: up to 8 slots of one expert and 64 outputs a threadgroup, as project.metal multiplies.
// Row slot / share of x is the slot's input, row slot of dst its result. Grid: outputs / 64 rounded up, tiles. Threads: 256.
// Threadgroup memory: 4096 bytes.
template <class F>
kernel void experts(device const float *x [[buffer(0)]], device const uchar *plane0 [[buffer(1)]],
                    device const uchar *plane1 [[buffer(2)]], device const uchar *meta [[buffer(3)]],
                    device const uint *order [[buffer(4)]], device const Tile *tiles [[buffer(5)]],
                    device float *dst [[buffer(6)]], constant ExpertParams &p [[buffer(7)]], THREADS) {
	threadgroup float *inputs = (threadgroup float *)shared; // [slot][row]
	const Tile tile = tiles[group.y];
	if (tile.count == 0) return;
	const uint out0 = group.x * tileRows + simd * 8, r = matrixRow(lane), pair = matrixPair(lane);
	const uint n = tile.expert * p.stride + min(out0 + r, p.outputs - 1);
	simdgroup_float8x8 sums[1];
	sums[0] = simdgroup_float8x8(0);
	for (uint from = 0; from < p.cols; from += blockCols) {
		const uint span = min(blockCols, p.cols - from);
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (uint i = index; i < span * expertRows; i += projectThreads) {
			const uint row = i / span, c = i % span;
			float v = 0;
			if (row < tile.count) v = x[ulong(order[tile.first + row] / p.share) * p.cols + from + c];
			inputs[(c / 32 * 32 + slotOf(c)) * expertRows + row] = v;
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
		multiplyBlock<F, 1>(sums, inputs, plane0, plane1, meta, n, p.cols / 32, from, span, pair, 1);
	}
	if (out0 + r >= p.outputs) return;
	for (uint i = 0; i < 2; i++) {
		const uint row = 2 * pair + i;
		if (row >= tile.count) continue;
		conclude(dst + ulong(order[tile.first + row]) * p.outputs + out0 + r, sums[0].thread_elements()[i], p.epilogue);
	}
}

#define SPLASH_EXPERTS(suffix, F) INSTANCE(experts_##suffix, experts<F>);
SPLASH_FORMATS(SPLASH_EXPERTS)

// The weighted sum of a row's slots in their order, or added to dst. Grid: width / 256 rounded up, rows. Threads: 256
// (oracle/moe.go, AddExperts).
kernel void moe_combine(device const float *results [[buffer(0)]], device const float *routes [[buffer(1)]],
                        device float *dst [[buffer(2)]], constant CombineParams &p [[buffer(3)]], THREADS) {
	const uint i = group.x * 256 + index;
	if (i >= p.width) return;
	device const float *route = routes + ulong(group.y) * 2 * p.taken;
	device float *to = dst + ulong(group.y) * p.width + i;
	float sum = p.add != 0 ? *to : 0.0f;
	for (uint j = 0; j < p.taken; j++)
		if (route[j] >= 0) sum += route[p.taken + j] * results[(ulong(group.y) * p.taken + j) * p.width + i];
	*to = sum;
}
KERNEL(moe_combine);

// The shared expert's result y, times the sigmoid of gate . x where it is gated, added to dst. Rows that fill up a cycle are
// left. Grid: rows, 1. Threads: 256. Threadgroup memory: 4 bytes a SIMD-group (oracle/moe.go, AddGated).
kernel void add_gated(device const float *y [[buffer(0)]], device const float *x [[buffer(1)]],
                      device const float *gate [[buffer(2)]], device const Row *rows [[buffer(3)]],
                      device float *dst [[buffer(4)]], constant SharedParams &p [[buffer(5)]], THREADS) {
	threadgroup float *sums = (threadgroup float *)shared;
	if (rows[group.x].padding != 0) return;
	const ulong at = ulong(group.x) * p.width;
	float weight = 1;
	if (p.gated != 0) {
		float sum = 0;
		for (uint i = index; i < p.width; i += 256) sum += gate[i] * x[at + i];
		sum = simd_sum(sum);
		if (lane == 0) sums[simd] = sum;
		threadgroup_barrier(mem_flags::mem_threadgroup);
		sum = 0;
		for (uint s = 0; s < 8; s++) sum += sums[s];
		weight = sigmoid(sum);
	}
	for (uint i = index; i < p.width; i += 256) dst[at + i] += weight * y[at + i];
}
KERNEL(add_gated);
