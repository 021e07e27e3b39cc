#include "prelude.h"
#include "math.h"
#include "draft.h"

constant uint draftGroups = 4;              // SIMD-groups that share a KV head's keys
constant uint draftPer = draftDim / 32;     // elements of a head that a lane holds
constant uint draftPart = draftDim + 2;     // floats of a head's part: maximum, sum, values

// What rows hold, rounded to BF16; with a mask, the rows of a segment after its first are the mask's embedding, which is BF16
// already. Grid: width / 256 rounded up, segments. Threads: 256 (oracle/draft.go, DraftRows).
kernel void draft_rows(device float *x [[buffer(0)]], device const float *mask [[buffer(1)]],
                       device const Segment *segments [[buffer(2)]], constant DraftRowsParams &p [[buffer(3)]], THREADS) {
	const uint i = group.x * 256 + index;
	if (i >= p.width) return;
	const Segment s = segments[group.y];
	for (uint r = 0; r < s.rows; r++) {
		device float *to = x + ulong(s.first + r) * p.width + i;
		*to = r > 0 && p.mask != 0 ? mask[i] : float(bfloat(*to));
	}
}
KERNEL(draft_rows);

// One tap of the rows, rounded to BF16, in its columns of dst. Row i is row list[i] of the tap. Grid: width / 256 rounded up,
// rows. Threads: 256.
kernel void draft_taps(device const float *x [[buffer(0)]], device const uint *list [[buffer(1)]],
                       device float *dst [[buffer(2)]], constant DraftTapsParams &p [[buffer(3)]], THREADS) {
	const uint i = group.x * 256 + index;
	if (i >= p.width) return;
	dst[ulong(group.y) * p.stride + p.offset + i] = float(bfloat(x[ulong(list[group.y]) * p.width + i]));
}
KERNEL(draft_taps);

// The two-tap convolution of a segment's rows: dst_r = x_r (base_0 + d_r0) + x_{r-1} (base_1 + d_r1), d the dynamic kernel of
// row r, which the channels of a group share; zeros stand before row 0. A thread has one channel of a segment, so dst may be
// x. base is [side][tap][hidden], dynamic [rows][side][tap][groups]. Grid: hidden / 256 rounded up, segments. Threads: 256
// (oracle/draft.go, DraftConvolve).
kernel void draft_conv(device const float *x [[buffer(0)]], device const float *dynamic [[buffer(1)]],
                       device const float *base [[buffer(2)]], device const Segment *segments [[buffer(3)]],
                       device float *dst [[buffer(4)]], constant DraftConvParams &p [[buffer(5)]], THREADS) {
	const uint channel = group.x * 256 + index;
	if (channel >= p.hidden) return;
	const Segment s = segments[group.y];
	const uint groups = p.hidden / p.group;
	const float now = base[2 * p.side * p.hidden + channel], before = base[(2 * p.side + 1) * p.hidden + channel];
	float last = 0;
	for (uint r = 0; r < s.rows; r++) {
		const ulong row = s.first + r;
		device const float *d = dynamic + row * 4 * groups + 2 * p.side * groups + channel / p.group;
		device float *to = dst + row * p.hidden + channel;
		const float v = x[row * p.hidden + channel];
		float y = v * (now + d[0]);
		if (r > 0) y += last * (before + d[groups]);
		last = v;
		*to = p.add != 0 ? *to + y : y;
	}
}
KERNEL(draft_conv);

// What a head is divided by in its norm. All lanes of a SIMD-group take part.
inline float draftNorm(device const float *x, float epsilon, uint lane) {
	float sum = 0;
	for (uint i = lane; i < draftDim; i += 32) sum += x[i] * x[i];
	return precise::sqrt(simd_sum(sum) / float(draftDim) + epsilon);
}

// Elements i and i + draftDim / 2 of a head, normalized and rotated by the place's angle.
inline float2 draftTurn(device const float *x, device const float *w, float norm, uint i, float angle) {
	const uint j = i + draftDim / 2;
	const float a = x[i] / norm * w[i], b = x[j] / norm * w[j], c = precise::cos(angle), s = precise::sin(angle);
	return float2(a * c - b * s, b * c + a * s);
}

// A block's queries and keys, normalized and rotated where they are; row r of a segment is at place index + r. Grid:
// (draftPerKV + 1) KV heads, rows. Threads: 32.
kernel void draft_heads(device float *q [[buffer(0)]], device float *k [[buffer(1)]],
                        device const float *qNorm [[buffer(2)]], device const float *kNorm [[buffer(3)]],
                        device const float *freq [[buffer(4)]], device const Row *rows [[buffer(5)]],
                        constant DraftHeadsParams &p [[buffer(6)]], THREADS) {
	const uint queries = draftPerKV * p.kvHeads;
	const bool query = group.x < queries;
	device float *x = query ? q + (ulong(group.y) * queries + group.x) * draftDim
	                        : k + (ulong(group.y) * p.kvHeads + group.x - queries) * draftDim;
	device const float *w = query ? qNorm : kNorm;
	const float norm = draftNorm(x, p.epsilon, lane), place = float(rows[group.y].index);
	for (uint i = lane; i < draftDim / 2; i += 32) {
		const float2 y = draftTurn(x, w, norm, i, place * freq[i]);
		x[i] = y.x;
		x[i + draftDim / 2] = y.y;
	}
}
KERNEL(draft_heads);

// The context of committed rows in the lanes' rings: keys normalized and rotated, and values. Of rows of a segment that share
// a slot the last is kept. Grid: 2 KV heads, rows of the longest segment, segments. Threads: 32.
kernel void draft_store(device const float *k [[buffer(0)]], device const float *v [[buffer(1)]],
                        device const float *kNorm [[buffer(2)]], device const float *freq [[buffer(3)]],
                        device const Segment *segments [[buffer(4)]], device bfloat *keys [[buffer(5)]],
                        device bfloat *values [[buffer(6)]], constant DraftHeadsParams &p [[buffer(7)]], THREADS) {
	const Segment s = segments[group.z];
	if (group.y >= s.rows || group.y + p.window < s.rows) return;
	const uint place = s.index + group.y;
	const bool value = group.x >= p.kvHeads;
	const uint head = value ? group.x - p.kvHeads : group.x;
	const ulong from = (ulong(s.first + group.y) * p.kvHeads + head) * draftDim;
	const ulong to = ((ulong(s.lane) * p.window + place % p.window) * p.kvHeads + head) * draftDim;
	if (value) {
		for (uint i = lane; i < draftDim; i += 32) values[to + i] = bfloat(v[from + i]);
		return;
	}
	const float norm = draftNorm(k + from, p.epsilon, lane);
	for (uint i = lane; i < draftDim / 2; i += 32) {
		const float2 y = draftTurn(k + from, kNorm, norm, i, float(place) * freq[i]);
		keys[to + i] = bfloat(y.x);
		keys[to + i + draftDim / 2] = bfloat(y.y);
	}
}
KERNEL(draft_store);

// Attention of the queries of one KV head of a block's row: over the places of the ring that the row's window leaves, and over
// every row of the block, later ones too. The SIMD-groups take the keys in turn, each key once for all its queries; their
// parts are put together in a fixed order, so that a row's result depends on nothing beside it. Grid: KV heads, rows of the
// longest segment, segments. Threads: 128. Threadgroup memory: 16 (draftDim + 2) floats (oracle/draft.go, Attend).
kernel void draft_attention(device const float *q [[buffer(0)]], device const float *k [[buffer(1)]],
                            device const float *v [[buffer(2)]], device const Segment *segments [[buffer(3)]],
                            device const bfloat *keys [[buffer(4)]], device const bfloat *values [[buffer(5)]],
                            device float *dst [[buffer(6)]], constant DraftHeadsParams &p [[buffer(7)]], THREADS) {
	threadgroup float *parts = (threadgroup float *)shared; // [SIMD-group][query][draftPart]
	const Segment s = segments[group.z];
	if (group.y >= s.rows) return;
	const ulong width = ulong(p.kvHeads) * draftDim, column = group.x * draftDim + lane;
	const ulong out = (ulong(s.first + group.y) * p.kvHeads + group.x) * draftPerKV * draftDim;
	float query[draftPerKV][draftPer], sum[draftPerKV][draftPer], top[draftPerKV], total[draftPerKV];
	for (uint h = 0; h < draftPerKV; h++) {
		for (uint i = 0; i < draftPer; i++) {
			query[h][i] = q[out + h * draftDim + i * 32 + lane] * p.scale;
			sum[h][i] = 0;
		}
		// A finite least score, so that no difference of two is not a number.
		top[h] = -3.0e38f;
		total[h] = 0;
	}
	const uint place = s.index + group.y, first = place + 1 > p.window ? min(place + 1 - p.window, s.index) : 0;
	for (uint t = first + simd; t < s.index + s.rows; t += draftGroups) {
		float key[draftPer], value[draftPer];
		if (t < s.index) {
			const ulong at = (ulong(s.lane) * p.window + t % p.window) * width + column;
			for (uint i = 0; i < draftPer; i++) {
				key[i] = float(keys[at + i * 32]);
				value[i] = float(values[at + i * 32]);
			}
		} else {
			const ulong at = ulong(s.first + t - s.index) * width + column;
			for (uint i = 0; i < draftPer; i++) {
				key[i] = k[at + i * 32];
				value[i] = v[at + i * 32];
			}
		}
		for (uint h = 0; h < draftPerKV; h++) {
			float score = 0;
			for (uint i = 0; i < draftPer; i++) score += query[h][i] * key[i];
			score = simd_sum(score);
			const float now = max(top[h], score), scale = precise::exp(top[h] - now), weight = precise::exp(score - now);
			for (uint i = 0; i < draftPer; i++) sum[h][i] = sum[h][i] * scale + weight * value[i];
			total[h] = total[h] * scale + weight;
			top[h] = now;
		}
	}
	for (uint h = 0; h < draftPerKV; h++) {
		threadgroup float *mine = parts + (simd * draftPerKV + h) * draftPart;
		if (lane == 0) {
			mine[0] = top[h];
			mine[1] = total[h];
		}
		for (uint i = 0; i < draftPer; i++) mine[2 + i * 32 + lane] = sum[h][i];
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	for (uint h = 0; h < draftPerKV; h++) {
		float most = -3.0e38f, all = 0, o = 0;
		for (uint g = 0; g < draftGroups; g++) most = max(most, parts[(g * draftPerKV + h) * draftPart]);
		for (uint g = 0; g < draftGroups; g++) {
			threadgroup const float *part = parts + (g * draftPerKV + h) * draftPart;
			const float scale = precise::exp(part[0] - most);
			all += part[1] * scale;
			o += part[2 + index] * scale;
		}
		dst[out + h * draftDim + index] = o / all;
	}
}
KERNEL(draft_attention);
