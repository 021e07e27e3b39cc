#include "prelude.h"
#include "pick.h"
#include "sampling.h"
#include "accept.h"

// What a sampled walk drew a proposal from: the probability of a token is that of the first candidate that it is.
struct Shares {
	device const Candidate *candidates;
	device const float *q;
	uint count;
	float of(uint token) {
		for (uint i = 0; i < count; i++)
			if (candidates[i].token == token) return q[i];
		return 0;
	}
};

// What a refused proposal leaves of the target's weights.
struct Residual {
	Kept kept;
	Shares shares;
	float sum;
	float at(uint id) {
		const float w = kept.at(id);
		if (!(w > 0)) return 0;
		const float left = w - shares.of(id) * sum;
		return left < 0 ? 0.0f : left;
	}
};

inline Kept keptOf(device const float *logits, uint vocab, uint row, Target t, float temperature) {
	return Kept{logits + ulong(row) * vocab, t.place, t.last, t.top, temperature};
}

// A greedy row's token: none where its largest logit is no finite number.
inline uint bestOf(Target t) { return t.top < infinity() ? t.best : noToken; }

// A draw from the weights of f, whose sum is positive: noToken where it is not.
template <class F>
inline uint draw(F f, uint vocab, float u, threadgroup float *parts, threadgroup uint *found, threadgroup float *weights,
                 uint simd, uint lane) {
	sumRuns(f, vocab, parts, simd, lane);
	const float sum = sumParts(parts);
	// The sum is the same in every thread.
	return sum > 0 ? firstPast(f, vocab, u * sum, parts, found, weights, simd, lane) : noToken;
}

// What a lane's cycle comes to. A greedy lane accepts its leading proposals that are the target's own choices; a sampled one
// accepts a proposal with probability p / q, draws from what the first refused one leaves, and without a refusal from the whole
// distribution of its last row. What follows a token that stops is not retained. targets are those of head_target, by row.
// uniforms is [lanes][draws]. Grid: lanes. Threads: 256. Threadgroup memory: as head_target (oracle/accept.go).
kernel void decode_accept(device const float *logits [[buffer(0)]], device const Target *targets [[buffer(1)]],
                          device const AcceptLane *lanes [[buffer(2)]], device const Walk *walks [[buffer(3)]],
                          device const Candidate *candidates [[buffer(4)]], device const float *q [[buffer(5)]],
                          device const float *uniforms [[buffer(6)]], device const uint *ends [[buffer(7)]],
                          device Accepted *dst [[buffer(8)]], constant AcceptParams &p [[buffer(9)]], THREADS) {
	threadgroup float *weights = (threadgroup float *)shared, *parts = weights + headThreads;
	threadgroup uint *found = (threadgroup uint *)shared + headThreads + headSimds;
	const AcceptLane l = lanes[group.x];
	device const float *u = uniforms + group.x * draws;
	device const uint *stops = ends + l.stop;
	device const Walk *walk = walks + group.x;
	const ulong drafted = ulong(group.x) * proposals * p.candidates;
	uint a = 0, next = noToken;
	for (; a + 1 < l.verify; a++) {
		const uint token = walk->tokens[a];
		const Target t = targets[l.first + a];
		if (l.temperature == 0) {
			if (token != bestOf(t)) break;
			continue;
		}
		Shares shares = {candidates + drafted + a * p.candidates, q + drafted + a * p.candidates, p.candidates};
		Kept kept = keptOf(logits, p.vocab, l.first + a, t, l.temperature);
		const float weight = token < p.vocab ? kept.at(token) : 0.0f;
		if (!(u[cycleRows + a] * shares.of(token) < weight / t.sum)) break;
	}
	const Target t = targets[l.first + a];
	if (l.temperature == 0) {
		next = bestOf(t);
	} else {
		const Kept kept = keptOf(logits, p.vocab, l.first + a, t, l.temperature);
		if (a + 1 < l.verify) {
			const Shares shares = {candidates + drafted + a * p.candidates, q + drafted + a * p.candidates, p.candidates};
			const Residual residual = {kept, shares, t.sum};
			next = draw(residual, p.vocab, u[draws - 1], parts, found, weights, simd, lane);
		}
		if (next == noToken) next = draw(kept, p.vocab, u[draws - 1], parts, found, weights, simd, lane);
	}
	if (index != 0) return;
	device Accepted *to = dst + group.x;
	to->accepted = a;
	uint retained = min(a + 1, l.left);
	for (uint i = 0; i <= a; i++) {
		const uint token = i < a ? walk->tokens[i] : next;
		to->tokens[i] = token;
		for (uint s = 0; s < l.stops; s++)
			if (stops[s] == token && i < retained) retained = i + 1;
	}
	to->retained = retained;
}
KERNEL(decode_accept);
