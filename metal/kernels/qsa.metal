#include "prelude.h"
#include "math.h"
#include "qsa.h"

constant uint indexPer = 4; // elements of a head that a lane holds at most

// Where token index of a lane has its place in pages of so many tokens' records.
inline ulong recordAt(device const uint *table, uint tablePages, uint lane, uint index, uint records) {
	return ulong(table[lane * tablePages + index / pageTokens]) * records + index % pageTokens * records / pageTokens;
}

// A head of dim values, element 32 i + lane in x[i], normalized and rotated at a place (oracle/qsa.go). The partner of an
// element is read through memory.
inline void turn(thread float *x, device const float *w, device const float *freq, int t, int h, int v, constant IndexParams &p,
                 threadgroup float *memory, uint lane) {
	float sum = 0;
	for (uint i = 0; i < p.dim / 32; i++) sum += x[i] * x[i];
	const float inv = 1 / precise::sqrt(simd_sum(sum) / float(p.dim) + p.epsilon);
	for (uint i = 0; i < p.dim / 32; i++) memory[32 * i + lane] = x[i] * inv * w[32 * i + lane];
	simdgroup_barrier(mem_flags::mem_threadgroup);
	for (uint i = 0; i < p.dim / 32; i++) {
		const uint e = 32 * i + lane, pair = e % p.pairs;
		x[i] = memory[e];
		if (e >= 2 * p.pairs) continue;
		const float angle = float(pair % 3 == 0 ? t : pair % 3 == 1 ? h : v) * freq[pair];
		const float c = precise::cos(angle), s = precise::sin(angle);
		x[i] = e < p.pairs ? x[i] * c - memory[e + p.pairs] * s : x[i] * c + memory[pair] * s;
	}
}

// The rows' queries normalized and rotated in place, and their raw keys kept, as projected, with their places. Grid: heads + 1,
// rows. Threads: 32. Threadgroup memory: 4 dim bytes.
kernel void index_prepare(device float *q [[buffer(0)]], device const float *k [[buffer(1)]],
                          device const float *qNorm [[buffer(2)]], device const float *freq [[buffer(3)]],
                          device const Row *rows [[buffer(4)]], device const uint *table [[buffer(5)]],
                          device float *raw [[buffer(6)]], constant IndexParams &p [[buffer(7)]], THREADS) {
	const Row row = rows[group.y];
	if (group.x == p.heads) {
		const uint record = p.dim + indexPlace;
		device float *to = raw + recordAt(table, p.tablePages, row.lane, row.index, pageTokens * record);
		for (uint i = lane; i < p.dim; i += 32) to[i] = k[ulong(group.y) * p.dim + i];
		if (lane == 0) {
			to[p.dim] = as_type<float>(row.t);
			to[p.dim + 1] = as_type<float>(row.h);
			to[p.dim + 2] = as_type<float>(row.w);
		}
		return;
	}
	device float *query = q + (ulong(group.y) * p.heads + group.x) * p.dim;
	float x[indexPer];
	for (uint i = 0; i < p.dim / 32; i++) x[i] = query[32 * i + lane];
	turn(x, qNorm, freq, row.t, row.h, row.w, p, (threadgroup float *)shared, lane);
	for (uint i = 0; i < p.dim / 32; i++) query[32 * i + lane] = x[i];
}
KERNEL(index_prepare);

// The key of each block that a row completes: the mean of its raw keys, normalized, rotated at the place of its first token.
// Grid: 1, rows. Threads: 32. Threadgroup memory: 4 dim bytes (oracle/qsa.go, IndexerKey).
kernel void index_pool(device const float *raw [[buffer(0)]], device const float *kNorm [[buffer(1)]],
                       device const float *freq [[buffer(2)]], device const Row *rows [[buffer(3)]],
                       device const uint *table [[buffer(4)]], device float *pooled [[buffer(5)]],
                       constant IndexParams &p [[buffer(6)]], THREADS) {
	const Row row = rows[group.y];
	if ((row.index + 1) % p.block != 0) return;
	const uint first = row.index + 1 - p.block, record = p.dim + indexPlace;
	device const float *from = raw + recordAt(table, p.tablePages, row.lane, first, pageTokens * record);
	float x[indexPer];
	for (uint i = 0; i < p.dim / 32; i++) {
		float sum = 0;
		for (uint t = 0; t < p.block; t++) sum += from[t * record + 32 * i + lane];
		x[i] = sum / float(p.block);
	}
	turn(x, kNorm, freq, as_type<int>(from[p.dim]), as_type<int>(from[p.dim + 1]), as_type<int>(from[p.dim + 2]), p,
	     (threadgroup float *)shared, lane);
	device float *to = pooled + recordAt(table, p.tablePages, row.lane, first, pageTokens / p.block * p.dim);
	for (uint i = 0; i < p.dim / 32; i++) to[32 * i + lane] = x[i];
}
KERNEL(index_pool);

// The score of each complete block for each row that has more of them than it may see: sum over heads of max(q . key, 0) /
// sqrt(dim). One block a SIMD-group. Grid: blocks / 8 rounded up, rows. Threads: 256 (oracle/qsa.go, IndexerScore).
kernel void index_score(device const float *q [[buffer(0)]], device const float *pooled [[buffer(1)]],
                        device const Row *rows [[buffer(2)]], device const uint *table [[buffer(3)]],
                        device float *scores [[buffer(4)]], constant IndexParams &p [[buffer(5)]], THREADS) {
	const Row row = rows[group.y];
	const uint b = group.x * 8 + simd, complete = (row.index + 1) / p.block;
	if (complete <= p.budget || b >= complete) return;
	device const float *key = pooled + recordAt(table, p.tablePages, row.lane, b * p.block, pageTokens / p.block * p.dim);
	float score = 0;
	for (uint h = 0; h < p.heads; h++) {
		device const float *query = q + (ulong(group.y) * p.heads + h) * p.dim;
		float sum = 0;
		for (uint i = lane; i < p.dim; i += 32) sum += query[i] * key[i];
		score += max(simd_sum(sum), 0.0f);
	}
	if (lane == 0) scores[ulong(group.y) * p.stride + b] = score / precise::sqrt(float(p.dim));
}
KERNEL(index_score);

// The sum of a number over a threadgroup of 256, which is a whole number below 2^24.
inline uint countAll(uint n, threadgroup float *sums, uint simd, uint lane) {
	const float sum = simd_sum(float(n));
	threadgroup_barrier(mem_flags::mem_threadgroup);
	if (lane == 0) sums[simd] = sum;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	float all = 0;
	for (uint s = 0; s < 8; s++) all += sums[s];
	return uint(all);
}

// The budget blocks of the largest scores of a row that has more complete ones, equal scores by the earlier block, in their
// order in the sequence. A thread has a run of blocks. Grid: rows, 1. Threads: 256. Threadgroup memory: 2080 bytes
// (oracle/qsa.go, SparseSeen).
kernel void index_select(device const float *scores [[buffer(0)]], device const Row *rows [[buffer(1)]],
                         device uint *blocks [[buffer(2)]], constant IndexParams &p [[buffer(3)]], THREADS) {
	threadgroup float *sums = (threadgroup float *)shared;
	threadgroup uint *above = (threadgroup uint *)(sums + 8), *equal = above + 256;
	const uint complete = (rows[group.x].index + 1) / p.block;
	if (complete <= p.budget) return;
	device const float *score = scores + ulong(group.x) * p.stride;
	const uint run = (complete + 255) / 256, from = min(index * run, complete), to = min(from + run, complete);
	// The largest rank that at least budget blocks reach, bit by bit.
	uint least = 0;
	for (uint bit = 0x80000000u; bit != 0; bit /= 2) {
		uint n = 0;
		for (uint b = from; b < to; b++) n += rankOf(score[b]) >= (least | bit) ? 1 : 0;
		if (countAll(n, sums, simd, lane) >= p.budget) least |= bit;
	}
	uint more = 0, same = 0;
	for (uint b = from; b < to; b++) {
		const uint rank = rankOf(score[b]);
		more += rank > least ? 1 : 0;
		same += rank == least ? 1 : 0;
	}
	above[index] = more;
	equal[index] = same;
	uint left = p.budget - countAll(more, sums, simd, lane); // of the equal ones, those that are taken
	uint at = 0;
	for (uint i = 0; i < index; i++) {
		const uint taken = min(equal[i], left);
		at += above[i] + taken;
		left -= taken;
	}
	device uint *out = blocks + ulong(group.x) * p.budget;
	for (uint b = from; b < to; b++) {
		const uint rank = rankOf(score[b]);
		const bool tied = rank == least && left > 0;
		if (tied) left--;
		if (tied || rank > least) out[at++] = b;
	}
}
KERNEL(index_select);
