#include "prelude.h"
#include "math.h"
#include "order.h"
#include "selector.h"

constant uint topThreads = 256;

// A token's key: its place in the order, the first the largest. 0: it is no candidate.
inline ulong keyOf(float logit, uint token) {
	const uint place = placeOf(logit);
	return place == 0 ? 0 : ulong(place) << 32 | (noToken - token);
}

struct LogitItems {
	device const float *x;
	ulong key(uint i) { return keyOf(x[i], i); }
};

struct CandidateItems {
	device const Candidate *x;
	ulong key(uint i) { return x[i].token == noToken ? 0 : keyOf(x[i].logit, x[i].token); }
};

// The largest key below another of every topThreads-th item.
template <class Items> inline ulong topBelow(Items items, uint from, uint to, ulong below) {
	ulong most = 0;
	for (uint i = from; i < to; i += topThreads) {
		const ulong key = items.key(i);
		if (key < below) most = max(most, key);
	}
	return most;
}

// The first candidates of items [from, to), in order. Every thread keeps the first of its own that is left, and looks for
// the next when that is taken. best has two words a SIMD-group.
template <class Items>
inline void topOf(Items items, uint from, uint to, uint count, device Candidate *dst, threadgroup uint *best, uint index,
                  uint simd, uint lane) {
	ulong mine = topBelow(items, from + index, to, ~ulong(0));
	for (uint c = 0; c < count; c++) {
		const uint high = simd_max(uint(mine >> 32)), low = simd_max(uint(mine >> 32) == high ? uint(mine) : 0);
		threadgroup_barrier(mem_flags::mem_threadgroup);
		if (lane == 0) {
			best[2 * simd] = high;
			best[2 * simd + 1] = low;
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
		ulong won = 0;
		for (uint s = 0; s < topThreads / 32; s++) won = max(won, ulong(best[2 * s]) << 32 | best[2 * s + 1]);
		if (index == 0) {
			dst[c].token = won == 0 ? noToken : noToken - uint(won);
			dst[c].logit = won == 0 ? -infinity() : numberAt(uint(won >> 32));
		}
		if (won != 0 && mine == won) mine = topBelow(items, from + index, to, won);
	}
}

// The first candidates of a shard of a row's logits. dst is [rows][shards][count]. Grid: shards, rows. Threads: 256.
// Threadgroup memory: 8 bytes a SIMD-group (oracle/selector.go, TopCandidates).
kernel void top_candidates(device const float *logits [[buffer(0)]], device Candidate *dst [[buffer(1)]],
                           constant TopParams &p [[buffer(2)]], THREADS) {
	const LogitItems items = {logits + ulong(group.y) * p.items};
	const uint shards = (p.items + p.shard - 1) / p.shard, from = group.x * p.shard;
	topOf(items, from, min(from + p.shard, p.items), p.count, dst + (ulong(group.y) * shards + group.x) * p.count,
	      (threadgroup uint *)shared, index, simd, lane);
}
KERNEL(top_candidates);

// The first of the candidates of all shards of a row, which are its items. Grid: rows. Threads: 256. Threadgroup memory: 8
// bytes a SIMD-group.
kernel void top_merge(device const Candidate *all [[buffer(0)]], device Candidate *dst [[buffer(1)]],
                      constant TopParams &p [[buffer(2)]], THREADS) {
	const CandidateItems items = {all + ulong(group.x) * p.items};
	topOf(items, 0, p.items, p.count, dst + ulong(group.x) * p.count, (threadgroup uint *)shared, index, simd, lane);
}
KERNEL(top_merge);

// What each candidate of a position is worth after each of the position before: sum_d A[before][d] state[d] B[candidate][d].
// Before position 0 stands the anchor alone. edges is [lanes][positions][candidates before][candidates]. A SIMD-group takes
// one token before at a time. Grid: positions, lanes. Threads: 256 (oracle/selector.go, Edges).
kernel void draft_edges(device const Candidate *candidates [[buffer(0)]], device const float *state [[buffer(1)]],
                        device const uint *anchors [[buffer(2)]], device const bfloat *before [[buffer(3)]],
                        device const bfloat *after [[buffer(4)]], device float *edges [[buffer(5)]],
                        constant SelectParams &p [[buffer(6)]], THREADS) {
	const ulong row = ulong(group.y) * p.positions + group.x;
	device const Candidate *to = candidates + row * p.candidates;
	device const float *s = state + row * p.rank;
	const uint count = group.x == 0 ? 1 : p.candidates;
	for (uint i = simd; i < count; i += 8) {
		const uint from = group.x == 0 ? anchors[group.y] : candidates[(row - 1) * p.candidates + i].token;
		device const bfloat *a = before + ulong(min(from, p.vocab - 1)) * p.rank;
		for (uint j = 0; j < p.candidates; j++) {
			device const bfloat *b = after + ulong(min(to[j].token, p.vocab - 1)) * p.rank;
			float sum = 0;
			for (uint d = lane; d < p.rank; d += 32) sum += float(a[d]) * s[d] * float(b[d]);
			sum = simd_sum(sum);
			if (lane == 0) edges[(row * p.candidates + i) * p.candidates + j] = sum;
		}
	}
}
KERNEL(draft_edges);

// A lane's walk through its candidates: the best score at each position, or, at a temperature, a draw from the softmax, which
// q keeps, [lanes][positions][candidates]. The confidence is the largest probability at temperature 1; NaN where a score is
// not finite enough. A lane of the SIMD-group has one candidate. Grid: lanes. Threads: 32. Threadgroup memory: 4 bytes a
// candidate (oracle/selector.go, Greedy and Sample).
kernel void draft_select(device const Candidate *candidates [[buffer(0)]], device const float *edges [[buffer(1)]],
                         device const float *temperatures [[buffer(2)]], device const float *uniforms [[buffer(3)]],
                         device Walk *walks [[buffer(4)]], device float *q [[buffer(5)]],
                         constant SelectParams &p [[buffer(6)]], THREADS) {
	threadgroup float *shares = (threadgroup float *)shared;
	device Walk *walk = walks + group.x;
	const float temperature = temperatures[group.x], none = as_type<float>(0x7fc00000u);
	const bool mine = lane < p.candidates;
	uint last = 0;
	for (uint j = 0; j < p.positions; j++) {
		const ulong row = ulong(group.x) * p.positions + j, at = row * p.candidates;
		float score = -infinity();
		if (mine) score = candidates[at + lane].logit + edges[(at + last) * p.candidates + lane];
		const float top = simd_max(score == score ? score : -infinity());
		const float all = simd_sum(mine ? precise::exp(score - top) : 0.0f);
		uint choice = p.candidates - 1;
		if (temperature > 0) {
			float share = mine ? precise::exp((score - top) / temperature) : 0.0f;
			share /= simd_sum(share);
			if (mine) {
				shares[lane] = share;
				q[at + lane] = share;
			}
			threadgroup_barrier(mem_flags::mem_threadgroup);
			float sum = 0;
			const float u = uniforms[group.x * draws + 1 + j];
			for (uint i = 0; i < p.candidates; i++) {
				sum += shares[i];
				if (sum > u) {
					choice = i;
					break;
				}
			}
			threadgroup_barrier(mem_flags::mem_threadgroup);
		} else {
			// The first of the largest; candidate 0 where none is above -infinity.
			choice = top == -infinity() ? 0 : mostCandidates - simd_max(mine && score == top ? mostCandidates - lane : 0u);
		}
		if (lane == 0) {
			walk->choices[j] = choice;
			walk->tokens[j] = candidates[at + choice].token;
			walk->confidence[j] = fabs(top) == infinity() ? none : 1 / all;
		}
		last = choice;
	}
}
KERNEL(draft_select);

// The rows each lane of a cycle verifies: its first, then those of the largest survivals over all lanes while they are worth
// their cost. Equal survivals go to the lower proposal, then to the lower lane. A lane of the SIMD-group has one of the lanes.
// Grid: 1. Threads: 32 (oracle/budget.go, VerifyRows).
kernel void draft_verify_rows(device const Walk *walks [[buffer(0)]], device const uint *limits [[buffer(1)]],
                              device Verify *dst [[buffer(2)]], constant VerifyParams &p [[buffer(3)]], THREADS) {
	const bool mine = lane < p.lanes;
	const uint limit = mine ? limits[lane] : 1;
	float survival[cycleRows];
	float product = 1;
	for (uint j = 0; j < proposals; j++) {
		const float c = mine ? walks[lane].confidence[j] : 0.0f;
		// A comparison with NaN fails.
		const bool probability = c >= 0 && c <= 1;
		const float inside = min(max(c, 0x1p-12f), 1 - 0x1p-12f);
		const float x = precise::log(inside / (1 - inside));
		product = probability ? product * sigmoid(p.slope * x + p.intercept[j]) : 0.0f;
		survival[j] = product;
		if (mine) dst[lane].survival[j] = product;
	}
	survival[proposals] = 0;
	uint rows = 1;
	float expected = float(p.lanes), n = float(p.lanes);
	for (uint taken = 0; taken < p.lanes * proposals; taken++) {
		const float next = mine && rows < limit ? survival[rows - 1] : 0.0f, most = simd_max(next);
		if (!(most > 0) || !(most * (p.base + p.row * n) > expected * p.row)) break;
		// Of equal ones that with the fewest rows, and of those the lowest lane.
		const uint turn = next == most && mine && rows < limit ? 64 * (cycleRows - rows) + 63 - lane : 0;
		if (simd_max(turn) == turn && turn != 0) rows++;
		expected += most;
		n += 1;
	}
	if (mine) dst[lane].rows = p.full != 0 ? limit : rows;
}
KERNEL(draft_verify_rows);
