// Sums over a vocabulary, and the first token at which one passes a limit. A SIMD-group sums a run of ids, so that the parts
// are in the order of ids; every sum is made in one fixed order. Weights are values of a function object's at(id).
#pragma once
#include "order.h"

constant uint headThreads = 256;
constant uint headSimds = headThreads / 32;

// What a policy leaves of a row's tokens, by their weights.
struct Kept {
	device const float *x;
	uint place, last;
	float top, temperature;
	bool holds(uint id) {
		const uint here = placeOf(x[id]);
		return here > place || (here == place && id <= last);
	}
	float at(uint id) { return holds(id) ? precise::exp((x[id] - top) / temperature) : 0.0f; }
};

// A Run is the ids of a SIMD-group.
struct Run {
	uint from, to;
};

inline Run runOf(uint vocab, uint simd) {
	const uint n = (vocab + headThreads - 1) / headThreads * 32, from = min(simd * n, vocab);
	return Run{from, min(from + n, vocab)};
}

// The weights of each SIMD-group's run, in parts.
template <class F>
inline void sumRuns(F f, uint vocab, threadgroup float *parts, uint simd, uint lane) {
	const Run run = runOf(vocab, simd);
	float sum = 0;
	for (uint block = run.from; block < run.to; block += 32) sum += simd_sum(block + lane < run.to ? f.at(block + lane) : 0.0f);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	if (lane == 0) parts[simd] = sum;
	threadgroup_barrier(mem_flags::mem_threadgroup);
}

inline float sumParts(threadgroup const float *parts) {
	float sum = 0;
	for (uint i = 0; i < headSimds; i++) sum += parts[i];
	return sum;
}

// The first id, in ascending order, at which the cumulative weight exceeds limit; where rounding leaves that unreached, the
// last id of positive weight; noToken without one. parts are those of sumRuns, found is memory of two words a SIMD-group,
// weights of a word a thread.
template <class F>
inline uint firstPast(F f, uint vocab, float limit, threadgroup const float *parts, threadgroup uint *found,
                      threadgroup float *weights, uint simd, uint lane) {
	const Run run = runOf(vocab, simd);
	float before = 0;
	for (uint i = 0; i < simd; i++) before += parts[i];
	threadgroup float *mine = weights + 32 * simd;
	uint past = 0, positive = 0; // noToken less an id; 0: none
	for (uint block = run.from; block < run.to; block += 32) {
		const float w = block + lane < run.to ? f.at(block + lane) : 0.0f;
		const float sum = simd_sum(w);
		positive = max(positive, simd_max(w > 0 ? block + lane + 1 : 0u));
		if (!(before + sum > limit)) {
			before += sum;
			continue;
		}
		mine[lane] = w;
		simdgroup_barrier(mem_flags::mem_threadgroup);
		for (uint i = 0; i < 32; i++) {
			before += mine[i];
			if (mine[i] > 0 && before > limit) {
				past = noToken - (block + i);
				break;
			}
		}
		if (past != 0) break;
		simdgroup_barrier(mem_flags::mem_threadgroup);
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	if (lane == 0) {
		found[2 * simd] = past;
		found[2 * simd + 1] = positive;
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	past = 0;
	positive = 0;
	for (uint i = 0; i < headSimds; i++) {
		past = max(past, found[2 * i]); // the lowest id
		positive = max(positive, found[2 * i + 1]);
	}
	return past != 0 ? noToken - past : positive != 0 ? positive - 1 : noToken;
}

// Words of threadgroup memory that sums and searches take: parts, found, weights.
constant uint pickWords = headSimds + 2 * headSimds + headThreads;
