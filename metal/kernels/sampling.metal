#include "prelude.h"
#include "pick.h"
#include "sampling.h"

// Penalties of tokens that occurred: repetition divides a positive logit and multiplies another, presence and frequency are
// taken from those of tokens that were put out. A row has each token once. Grid: occurrences / 256 rounded up. Threads: 256
// (oracle/sampling.go, Penalize).
kernel void penalize(device float *logits [[buffer(0)]], device const Occurrence *list [[buffer(1)]],
                     device const Policy *policies [[buffer(2)]], constant PenaltyParams &p [[buffer(3)]], THREADS) {
	const uint i = group.x * 256 + index;
	if (i >= p.occurrences) return;
	const Occurrence o = list[i];
	device float *x = logits + ulong(o.row) * p.vocab + o.token;
	const Policy policy = policies[o.row];
	float y = *x;
	if (policy.repetition != 1) y = y > 0 ? y / policy.repetition : y * policy.repetition;
	if (o.count > 0) y -= policy.presence + policy.frequency * float(o.count);
	*x = y;
}
KERNEL(penalize);

// The tokens that a row's mask, a bit each, does not admit become -infinity. Grid: vocabulary / 256 rounded up, rows. Threads:
// 256.
kernel void mask_rows(device float *logits [[buffer(0)]], device const uint *masks [[buffer(1)]],
                      constant HeadParams &p [[buffer(2)]], THREADS) {
	const uint i = group.x * 256 + index;
	if (i >= p.vocab || (masks[ulong(group.y) * p.words + i / 32] >> (i % 32) & 1) != 0) return;
	logits[ulong(group.y) * p.vocab + i] = -infinity();
}
KERNEL(mask_rows);

// The largest of a threadgroup's values.
inline uint mostOf(uint value, threadgroup uint *found, uint simd, uint lane) {
	value = simd_max(value);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	if (lane == 0) found[simd] = value;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	for (uint i = 0; i < headSimds; i++) value = max(value, found[i]);
	return value;
}

// Every token that is kept weighs one.
struct Counted {
	Kept kept;
	float at(uint id) { return kept.holds(id) ? 1.0f : 0.0f; }
};

// The tokens at a place.
template <class F> struct Tied {
	F f;
	device const float *x;
	uint place;
	float at(uint id) { return placeOf(x[id]) == place ? f.at(id) : 0.0f; }
};

// The bounds of the shortest beginning, in order, of the kept tokens whose weights pass limit: kept's own where all of them do
// not. The place is found four bits at a time from sums by digit; ties are counted by id. bins has 16 words a SIMD-group.
template <class F>
inline void cut(F f, thread Kept &kept, uint vocab, float limit, threadgroup float *parts, threadgroup uint *found,
                threadgroup float *bins, uint index, uint simd, uint lane) {
	uint place = 0;
	float above = 0; // weight of the places above
	for (uint shift = 32; shift > 0;) {
		shift -= 4;
		float sums[16];
		for (uint b = 0; b < 16; b++) sums[b] = 0;
		for (uint i = index; i < vocab; i += headThreads) {
			const uint here = placeOf(kept.x[i]);
			if (shift < 28 && here >> (shift + 4) != place >> (shift + 4)) continue;
			const float w = f.at(i);
			for (uint b = 0; b < 16; b++) sums[b] += (here >> shift & 15) == b ? w : 0.0f;
		}
		for (uint b = 0; b < 16; b++) sums[b] = simd_sum(sums[b]);
		threadgroup_barrier(mem_flags::mem_threadgroup);
		if (lane == 0)
			for (uint b = 0; b < 16; b++) bins[simd * 16 + b] = sums[b];
		threadgroup_barrier(mem_flags::mem_threadgroup);
		// Where rounding keeps the sum of the digits below that of what they make up, the last digit that has any.
		uint digit = 16;
		float before = above;
		bool past = false;
		for (uint b = 16; b > 0 && !past;) {
			b--;
			float sum = 0;
			for (uint s = 0; s < headSimds; s++) sum += bins[s * 16 + b];
			if (!(sum > 0)) continue;
			digit = b;
			before = above;
			past = above + sum > limit;
			above += sum;
		}
		if (digit == 16 || (shift == 28 && !past)) return;
		above = before;
		place |= digit << shift;
	}
	const Tied<F> ties = {f, kept.x, place};
	sumRuns(ties, vocab, parts, simd, lane);
	kept.last = firstPast(ties, vocab, limit - above, parts, found, bins, simd, lane);
	kept.place = place;
}

// What each row's policy leaves of its tokens: min-p, with whole ties, then top-k, then top-p up to and including the token
// that passes it. A row whose logits are no numbers, or all -infinity, has no best token. Grid: rows. Threads: 256.
// Threadgroup memory: 4 bytes a thread, and 12 a SIMD-group, in units of 16 (oracle/sampling.go, Target and Argmax).
kernel void head_target(device const float *logits [[buffer(0)]], device const Policy *policies [[buffer(1)]],
                        device Target *targets [[buffer(2)]], constant HeadParams &p [[buffer(3)]], THREADS) {
	threadgroup float *bins = (threadgroup float *)shared, *parts = bins + headThreads;
	threadgroup uint *found = (threadgroup uint *)shared + headThreads + headSimds;
	const Policy policy = policies[group.x];
	device const float *x = logits + ulong(group.x) * p.vocab;
	uint most = 0;
	for (uint i = index; i < p.vocab; i += headThreads) most = max(most, placeOf(x[i]));
	most = mostOf(most, found, simd, lane);
	uint best = 0; // noToken less the lowest id
	for (uint i = index; i < p.vocab; i += headThreads)
		if (placeOf(x[i]) == most) best = max(best, noToken - i);
	best = noToken - mostOf(best, found, simd, lane);
	const bool any = most > leastPlace, greedy = policy.temperature == 0;
	const float top = numberAt(most);
	Kept kept = {x, leastPlace + 1, noToken, top, greedy ? 1.0f : policy.temperature};
	if (any && !greedy) {
		if (policy.minP > 0)
			kept.place = max(kept.place, placeOf(min(top + policy.temperature * precise::log(policy.minP), top)));
		const Counted counted = {kept};
		if (policy.topK > 0) cut(counted, kept, p.vocab, float(policy.topK) - 0.5f, parts, found, bins, index, simd, lane);
		if (policy.topP > 0 && policy.topP < 1) {
			sumRuns(kept, p.vocab, parts, simd, lane);
			cut(kept, kept, p.vocab, policy.topP * sumParts(parts), parts, found, bins, index, simd, lane);
		}
	}
	sumRuns(kept, p.vocab, parts, simd, lane);
	if (index != 0) return;
	device Target *to = targets + group.x;
	to->best = any ? best : noToken;
	to->top = any ? top : -infinity();
	to->place = kept.place;
	to->last = kept.last;
	to->sum = any ? sumParts(parts) : 0.0f;
}
KERNEL(head_target);
