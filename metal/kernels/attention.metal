#include "prelude.h"
#include "math.h"
#include "attention.h"

constant uint attentionGroups = 4; // SIMD-groups that share a head's keys
constant uint laneDims = 8;        // elements of a head that a lane holds at most

// A Place is where a token of a KV head stands in a layer's pages.
struct Place {
	ulong page;
	uint token; // of the heads' tokens, one head's after the other's
};

inline Place placeIn(device const uint *table, uint tablePages, uint lane, uint index, uint head) {
	return Place{table[lane * tablePages + index / pageTokens], head * pageTokens + index % pageTokens};
}

// Where a token's elements begin, and what they are multiples of. Codes of 8 bits have scales behind those of a page.
template <class T> inline device const T *elementsAt(device const T *cache, Place at, uint kvHeads, uint dim) {
	return cache + (at.page * kvHeads * pageTokens + at.token) * dim;
}
template <class T> inline float scaleOf(device const T *, Place, uint, uint) { return 1; }

inline ulong codePage(Place at, uint kvHeads, uint dim) { return at.page * kvHeads * pageTokens * (dim + scaleBytes); }
inline ulong scaleAt(Place at, uint kvHeads, uint dim) {
	return codePage(at, kvHeads, dim) + ulong(kvHeads) * pageTokens * dim + at.token * scaleBytes;
}
inline device const char *elementsAt(device const char *cache, Place at, uint kvHeads, uint dim) {
	return cache + codePage(at, kvHeads, dim) + at.token * dim;
}
inline float scaleOf(device const char *cache, Place at, uint kvHeads, uint dim) {
	return *(device const float *)(cache + scaleAt(at, kvHeads, dim));
}

// Keeps a head of a token.
template <class T>
inline void keep(device T *cache, Place at, uint kvHeads, uint dim, threadgroup const float *x, uint lane) {
	device T *to = cache + (at.page * kvHeads * pageTokens + at.token) * dim;
	for (uint i = lane; i < dim; i += 32) to[i] = T(x[i]);
}

// As codes of BF16 values, the largest of them 127: round(127 x / M), ties to even.
inline void keep(device char *cache, Place at, uint kvHeads, uint dim, threadgroup const float *x, uint lane) {
	float most = 0;
	for (uint i = lane; i < dim; i += 32) most = max(most, fabs(float(bfloat(x[i]))));
	most = simd_max(most);
	device char *to = cache + codePage(at, kvHeads, dim) + at.token * dim;
	for (uint i = lane; i < dim; i += 32) {
		const float code = most > 0 ? rint(float(bfloat(x[i])) * 127.0f / most) : 0.0f;
		to[i] = char(int(min(max(code, -127.0f), 127.0f)));
	}
	if (lane == 0) *(device float *)(cache + scaleAt(at, kvHeads, dim)) = most / 127.0f;
}

// Queries and keys, normalized and rotated; keys and values stored as T. Queries stay where they are. Pair i of a head is
// its elements i and i + pairs, its angle the F32 product of the place and freq_i; the places of pairs alternate over t, h, w
// (oracle/rope.go). Grid: heads + 2 KV heads, rows. Threads: 32. Threadgroup memory: dim floats.
template <class T>
kernel void prepare(device float *q [[buffer(0)]], device const float *k [[buffer(1)]],
                    device const float *v [[buffer(2)]], device const float *qNorm [[buffer(3)]],
                    device const float *kNorm [[buffer(4)]], device const float *freq [[buffer(5)]],
                    device const Row *rows [[buffer(6)]], device const uint *table [[buffer(7)]],
                    device T *keys [[buffer(8)]], device T *values [[buffer(9)]],
                    constant PrepareParams &p [[buffer(10)]], THREADS) {
	threadgroup float *turned = (threadgroup float *)shared;
	const Row row = rows[group.y];
	if (group.x >= p.heads + p.kvHeads) {
		const uint head = group.x - p.heads - p.kvHeads;
		device const float *from = v + (ulong(group.y) * p.kvHeads + head) * p.dim;
		for (uint i = lane; i < p.dim; i += 32) turned[i] = from[i];
		simdgroup_barrier(mem_flags::mem_threadgroup);
		keep(values, placeIn(table, p.tablePages, row.lane, row.index, head), p.kvHeads, p.dim, turned, lane);
		return;
	}
	const bool query = group.x < p.heads;
	const uint head = query ? group.x : group.x - p.heads;
	const uint stride = query && p.gated != 0 ? 2 * p.dim : p.dim;
	device float *out = q + (ulong(group.y) * p.heads + head) * stride;
	device const float *x = query ? out : k + (ulong(group.y) * p.kvHeads + head) * stride;
	device const float *w = query ? qNorm : kNorm;
	const bool normalize = (query ? p.qNorm : p.kNorm) != 0;
	float inv = 1;
	if (normalize) {
		float sum = 0;
		for (uint i = lane; i < p.dim; i += 32) sum += x[i] * x[i];
		inv = 1 / precise::sqrt(simd_sum(sum) / float(p.dim) + p.epsilon);
	}
	for (uint i = lane; i < p.dim; i += 32) {
		if (i >= p.pairs && i < 2 * p.pairs) continue; // with its partner
		float a = x[i] * inv * (normalize ? w[i] : 1.0f);
		if (i < p.pairs) {
			const uint j = i + p.pairs;
			float b = x[j] * inv * (normalize ? w[j] : 1.0f);
			float angle = float(i % 3 == 0 ? row.t : i % 3 == 1 ? row.h : row.w) * freq[i];
			float c = precise::cos(angle), s = precise::sin(angle);
			turned[j] = b * c + a * s;
			a = a * c - b * s;
		}
		turned[i] = a;
	}
	simdgroup_barrier(mem_flags::mem_threadgroup);
	if (query) {
		for (uint i = lane; i < p.dim; i += 32) out[i] = turned[i];
		return;
	}
	keep(keys, placeIn(table, p.tablePages, row.lane, row.index, head), p.kvHeads, p.dim, turned, lane);
}
INSTANCE(attention_prepare, prepare<bfloat>);
INSTANCE(attention_prepare_f32, prepare<float>);
INSTANCE(attention_prepare_int8, prepare<char>);

// Causal attention of one head of one row a threadgroup, over the stored keys of the row's window: softmax of q . k scale,
// with the head's sink, in one pass whose sums are rescaled when the maximum grows; then the gate. The SIMD-groups share the
// keys. Grid: heads, rows. Threads: 128. Threadgroup memory: 4 (dim + 2) floats (oracle/attention.go).
template <class T>
kernel void attend(device const float *q [[buffer(0)]], device const Row *rows [[buffer(1)]],
                      device const uint *table [[buffer(2)]], device const T *keys [[buffer(3)]],
                      device const T *values [[buffer(4)]], device const float *sinks [[buffer(5)]],
                      device const uint *blocks [[buffer(6)]], device float *dst [[buffer(7)]],
                      constant AttentionParams &p [[buffer(8)]], THREADS) {
	threadgroup float *parts = (threadgroup float *)shared; // of each SIMD-group: maximum, sum, dim values
	const Row row = rows[group.y];
	const uint kvHead = group.x / (p.heads / p.kvHeads), per = p.dim / 32;
	device const float *in = q + (ulong(group.y) * p.heads + group.x) * (p.gated != 0 ? 2 * p.dim : p.dim);
	float query[laneDims], sum[laneDims];
	for (uint i = 0; i < per; i++) {
		query[i] = in[i * 32 + lane] * p.scale;
		sum[i] = 0;
	}
	// A finite least score, so that no difference of two is not a number.
	float top = -3.0e38f, total = 0;
	const uint first = p.window != 0 && row.index + 1 > p.window ? row.index + 1 - p.window : 0;
	// The i-th token that the row sees is first + i, or that of its blocks and what is after them.
	const uint complete = p.block != 0 ? (row.index + 1) / p.block : 0;
	const bool sparse = complete > p.budget;
	const uint chosen = p.budget * p.block, tokens = sparse ? chosen + row.index + 1 - complete * p.block : row.index + 1 - first;
	device const uint *mine = blocks + ulong(group.y) * p.budget;
	for (uint i = simd; i < tokens; i += attentionGroups) {
		uint t = first + i;
		if (sparse) t = i < chosen ? mine[i / p.block] * p.block + i % p.block : complete * p.block + i - chosen;
		const Place at = placeIn(table, p.tablePages, row.lane, t, kvHead);
		device const T *key = elementsAt(keys, at, p.kvHeads, p.dim), *value = elementsAt(values, at, p.kvHeads, p.dim);
		float score = 0;
		for (uint j = 0; j < per; j++) score += query[j] * float(key[j * 32 + lane]);
		score = simd_sum(score) * scaleOf(keys, at, p.kvHeads, p.dim);
		const float now = max(top, score), scale = precise::exp(top - now), weight = precise::exp(score - now);
		const float share = weight * scaleOf(values, at, p.kvHeads, p.dim);
		for (uint j = 0; j < per; j++) sum[j] = sum[j] * scale + share * float(value[j * 32 + lane]);
		total = total * scale + weight;
		top = now;
	}
	threadgroup float *part = parts + simd * (p.dim + 2);
	if (lane == 0) {
		part[0] = top;
		part[1] = total;
	}
	for (uint i = 0; i < per; i++) part[2 + i * 32 + lane] = sum[i];
	threadgroup_barrier(mem_flags::mem_threadgroup);
	top = p.sinks != 0 ? sinks[group.x] : -3.0e38f;
	for (uint s = 0; s < attentionGroups; s++) top = max(top, parts[s * (p.dim + 2)]);
	total = p.sinks != 0 ? precise::exp(sinks[group.x] - top) : 0.0f;
	for (uint s = 0; s < attentionGroups; s++)
		total += parts[s * (p.dim + 2) + 1] * precise::exp(parts[s * (p.dim + 2)] - top);
	for (uint i = index; i < p.dim; i += 32 * attentionGroups) {
		float o = 0;
		for (uint s = 0; s < attentionGroups; s++)
			o += parts[s * (p.dim + 2) + 2 + i] * precise::exp(parts[s * (p.dim + 2)] - top);
		o = o / total;
		if (p.gated != 0) o *= sigmoid(in[p.dim + i]);
		dst[(ulong(group.y) * p.heads + group.x) * p.dim + i] = o;
	}
}
INSTANCE(attention, attend<bfloat>);
INSTANCE(attention_f32, attend<float>);
INSTANCE(attention_int8, attend<char>);
