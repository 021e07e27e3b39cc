#include "prelude.h"
#include "math.h"
#include "gdn.h"

constant uint gdnColumns = 8; // values of a SIMD-group
constant uint gdnPer = gdnDim / 32;
constant uint gdnBlocks = gdnDim / 8; // 8x8 matrices of a SIMD-group's part of a state

// The rows of a segment that are taken in chunks: whole ones, short of the last, whose updates are kept.
inline uint chunkedRows(Segment s) { return s.rows > gdnKept ? (s.rows - gdnKept) / gdnChunk * gdnChunk : 0; }

// The logarithm of a row's decay.
inline float logDecay(float decay, float alpha, float bias) { return decay * softplus(alpha + bias); }

// The gated delta rule over the rows of a segment, for 32 values of one head a threadgroup: S <- g S; delta = beta (v - S^T
// k); S <- S + k delta^T; o = S^T q. qkv is [rows][q | k | v].
//
// states is [lanes][value heads][value][key], F32, as they were before the last updates, which are kept beside them:
// updates is [lanes][2][gdnKept][value heads][key, delta, g]. The kernel first brings the state over the updates that the
// segment says still hold, by the operations that made them, so that a lane that takes rows back has the very state it had.
// Then it stores the state before the last gdnKept rows of the segment, and their updates in the other slot.
//
// Grid: gdnDim / 32, value heads, segments. Threads: 128 (oracle/gdn.go).
kernel void gdn(device const float *qkv [[buffer(0)]], device const float *beta [[buffer(1)]],
                device const float *alpha [[buffer(2)]], device const float *decay [[buffer(3)]],
                device const float *bias [[buffer(4)]], device const Segment *segments [[buffer(5)]],
                device float *states [[buffer(6)]], device float *updates [[buffer(7)]], device float *dst [[buffer(8)]],
                constant GDNParams &p [[buffer(9)]], THREADS) {
	const Segment s = segments[group.z];
	const uint head = group.y, keyHead = head / (p.valueHeads / p.keyHeads);
	const uint column = group.x * 32 + simd * gdnColumns;
	const uint keys = p.keyHeads * gdnDim, width = 2 * keys + p.valueHeads * gdnDim;
	device float *state = states + ((ulong(s.lane) * p.valueHeads + head) * gdnDim + column) * gdnDim;
	device float *slots = updates + ulong(s.lane) * 2 * gdnKept * p.valueHeads * gdnUpdate;
	const uint done = p.chunked != 0 ? chunkedRows(s) : 0;
	float S[gdnColumns][gdnPer];
	for (uint j = 0; j < gdnColumns; j++)
		for (uint i = 0; i < gdnPer; i++) S[j][i] = done == 0 && s.index == s.kept ? 0.0f : state[j * gdnDim + i * 32 + lane];
	for (uint r = 0; r < s.kept && done == 0; r++) {
		device const float *update = slots + ((ulong(s.slot) * gdnKept + r) * p.valueHeads + head) * gdnUpdate;
		const float g = update[2 * gdnDim];
		for (uint j = 0; j < gdnColumns; j++) {
			const float delta = update[gdnDim + column + j];
			for (uint i = 0; i < gdnPer; i++) S[j][i] = S[j][i] * g + update[i * 32 + lane] * delta;
		}
	}
	const uint from = s.rows > gdnKept ? s.rows - gdnKept : 0;
	for (uint r = done; r < s.rows; r++) {
		if (r == from)
			for (uint j = 0; j < gdnColumns; j++)
				for (uint i = 0; i < gdnPer; i++) state[j * gdnDim + i * 32 + lane] = S[j][i];
		const ulong row = s.first + r;
		device const float *in = qkv + row * width;
		float q[gdnPer], k[gdnPer], qq = 0, kk = 0;
		for (uint i = 0; i < gdnPer; i++) {
			q[i] = in[keyHead * gdnDim + i * 32 + lane];
			k[i] = in[keys + keyHead * gdnDim + i * 32 + lane];
			qq += q[i] * q[i];
			kk += k[i] * k[i];
		}
		const float qScale = 1 / (max(precise::sqrt(simd_sum(qq)), p.epsilon) * precise::sqrt(float(gdnDim)));
		const float kScale = 1 / max(precise::sqrt(simd_sum(kk)), p.epsilon);
		const float g = precise::exp(logDecay(decay[head], alpha[row * p.valueHeads + head], bias[head]));
		const float b = sigmoid(beta[row * p.valueHeads + head]);
		for (uint i = 0; i < gdnPer; i++) {
			q[i] *= qScale;
			k[i] *= kScale;
		}
		device float *update = slots + ((ulong(1 - s.slot) * gdnKept + r - from) * p.valueHeads + head) * gdnUpdate;
		for (uint j = 0; j < gdnColumns; j++) {
			float seen = 0, o = 0;
			for (uint i = 0; i < gdnPer; i++) {
				S[j][i] *= g;
				seen += k[i] * S[j][i];
			}
			const float delta = b * (in[2 * keys + head * gdnDim + column + j] - simd_sum(seen));
			for (uint i = 0; i < gdnPer; i++) {
				S[j][i] = S[j][i] + k[i] * delta;
				o += q[i] * S[j][i];
			}
			o = simd_sum(o);
			if (lane != 0) continue;
			dst[(row * p.valueHeads + head) * gdnDim + column + j] = o;
			if (r >= from) update[gdnDim + column + j] = delta;
		}
		if (r < from || group.x != 0 || simd != 0) continue;
		for (uint i = 0; i < gdnPer; i++) update[i * 32 + lane] = k[i];
		if (lane == 0) update[2 * gdnDim] = g;
	}
}
KERNEL(gdn);

// A part of a state as 8x8 matrices: of matrix b, element (r, c) is the value of key 8 b + r and column c. pair is the lane's.
inline void gdnLoad(thread simdgroup_float8x8 *S, device const float *state, uint r, uint pair, bool zero) {
	for (uint b = 0; b < gdnBlocks; b++)
		for (uint i = 0; i < 2; i++) S[b].thread_elements()[i] = zero ? 0.0f : state[(2 * pair + i) * gdnDim + 8 * b + r];
}

// The transpose of rows from x on, 8 of them, and columns 8 b to 8 b + 7.
inline simdgroup_float8x8 gdnTransposed(threadgroup const float *x, uint b, uint r, uint pair) {
	simdgroup_float8x8 m;
	for (uint i = 0; i < 2; i++) m.thread_elements()[i] = x[(2 * pair + i) * gdnDim + 8 * b + r];
	return m;
}

// The first rows of long segments, gdnChunk at a time, of 32 values of one head a threadgroup. With L_t the sum of the logarithms
// of the decays up to row t of the chunk, and S the state before it,
//
//	delta_t = beta_t (v_t - exp(L_t) S^T k_t - sum over i < t of exp(L_t - L_i) (k_i . k_t) delta_i)
//	o_t = exp(L_t) S^T q_t + sum over i <= t of exp(L_t - L_i) (k_i . q_t) delta_i
//	S <- exp(L_last) S + sum over i of exp(L_last - L_i) k_i delta_i^T
//
// which is the recurrence of gdn written out (Yang et al., Gated Delta Networks, 2025). Buffers and grid are those of gdn, which
// follows it with the rows that are left. Threadgroup memory: 2 (128 + 16) gdnChunk + 2 gdnChunk + 64 gdnChunk floats.
kernel void gdn_chunk(device const float *qkv [[buffer(0)]], device const float *beta [[buffer(1)]],
                      device const float *alpha [[buffer(2)]], device const float *decay [[buffer(3)]],
                      device const float *bias [[buffer(4)]], device const Segment *segments [[buffer(5)]],
                      device float *states [[buffer(6)]], device const float *updates [[buffer(7)]],
                      device float *dst [[buffer(8)]], constant GDNParams &p [[buffer(9)]], THREADS) {
	const Segment s = segments[group.z];
	const uint rows = chunkedRows(s);
	if (rows == 0) return;
	threadgroup float *keys = (threadgroup float *)shared, *queries = keys + gdnChunk * gdnDim;
	threadgroup float *keyKey = queries + gdnChunk * gdnDim, *queryKey = keyKey + gdnChunk * gdnChunk; // [row][earlier row]
	threadgroup float *logs = queryKey + gdnChunk * gdnChunk, *betas = logs + gdnChunk;
	threadgroup float *deltas = betas + gdnChunk + simd * 2 * gdnChunk * 8, *outs = deltas + gdnChunk * 8; // [row][column]
	const uint head = group.y, keyHead = head / (p.valueHeads / p.keyHeads), column = group.x * 32 + simd * 8;
	const uint keyWidth = p.keyHeads * gdnDim, width = 2 * keyWidth + p.valueHeads * gdnDim;
	const uint r = (lane / 4 & 4) + lane / 2 % 4, pair = (lane / 8 & 1) * 2 + lane % 2; // of the lane in an 8x8 matrix
	device float *state = states + ((ulong(s.lane) * p.valueHeads + head) * gdnDim + column) * gdnDim;
	device const float *slots = updates + ulong(s.lane) * 2 * gdnKept * p.valueHeads * gdnUpdate;
	simdgroup_float8x8 S[gdnBlocks];
	gdnLoad(S, state, r, pair, s.index == s.kept);
	for (uint t = 0; t < s.kept; t++) {
		device const float *update = slots + ((ulong(s.slot) * gdnKept + t) * p.valueHeads + head) * gdnUpdate;
		for (uint b = 0; b < gdnBlocks; b++)
			for (uint i = 0; i < 2; i++) {
				const float before = S[b].thread_elements()[i];
				S[b].thread_elements()[i] = before * update[2 * gdnDim] + update[8 * b + r] * update[gdnDim + column + 2 * pair + i];
			}
	}
	for (uint first = 0; first < rows; first += gdnChunk) {
		const ulong row0 = s.first + first;
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (uint t = simd; t < gdnChunk; t += 4) {
			device const float *in = qkv + (row0 + t) * width + keyHead * gdnDim;
			float q[gdnPer], k[gdnPer], qq = 0, kk = 0;
			for (uint i = 0; i < gdnPer; i++) {
				q[i] = in[i * 32 + lane];
				k[i] = in[keyWidth + i * 32 + lane];
				qq += q[i] * q[i];
				kk += k[i] * k[i];
			}
			const float qScale = 1 / (max(precise::sqrt(simd_sum(qq)), p.epsilon) * precise::sqrt(float(gdnDim)));
			const float kScale = 1 / max(precise::sqrt(simd_sum(kk)), p.epsilon);
			for (uint i = 0; i < gdnPer; i++) {
				queries[t * gdnDim + i * 32 + lane] = q[i] * qScale;
				keys[t * gdnDim + i * 32 + lane] = k[i] * kScale;
			}
			if (lane != 0) continue;
			float sum = 0; // of the logarithms up to the row
			for (uint i = 0; i <= t; i++) sum += logDecay(decay[head], alpha[(row0 + i) * p.valueHeads + head], bias[head]);
			logs[t] = sum;
			betas[t] = sigmoid(beta[(row0 + t) * p.valueHeads + head]);
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
		// Of the four 8x8 blocks of each product with the keys a SIMD-group makes one.
		for (uint which = 0; which < 2; which++) {
			threadgroup const float *x = (which == 0 ? keys : queries) + simd / 2 * 8 * gdnDim;
			simdgroup_float8x8 sum = simdgroup_float8x8(0), a;
			for (uint b = 0; b < gdnBlocks; b++) {
				simdgroup_load(a, x + 8 * b, gdnDim);
				simdgroup_multiply_accumulate(sum, a, gdnTransposed(keys + simd % 2 * 8 * gdnDim, b, r, pair), sum);
			}
			for (uint i = 0; i < 2; i++) {
				const uint t = simd / 2 * 8 + r, j = simd % 2 * 8 + 2 * pair + i;
				const bool seen = which == 0 ? j < t : j <= t;
				(which == 0 ? keyKey : queryKey)[t * gdnChunk + j] =
					seen ? sum.thread_elements()[i] * precise::exp(logs[t] - logs[j]) : 0.0f;
			}
		}
		for (uint half8 = 0; half8 < 2; half8++) {
			simdgroup_float8x8 ks = simdgroup_float8x8(0), qs = simdgroup_float8x8(0), a;
			for (uint b = 0; b < gdnBlocks; b++) {
				simdgroup_load(a, keys + half8 * 8 * gdnDim + 8 * b, gdnDim);
				simdgroup_multiply_accumulate(ks, a, S[b], ks);
				simdgroup_load(a, queries + half8 * 8 * gdnDim + 8 * b, gdnDim);
				simdgroup_multiply_accumulate(qs, a, S[b], qs);
			}
			simdgroup_store(ks, deltas + half8 * 64, 8);
			simdgroup_store(qs, outs + half8 * 64, 8);
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
		const float last = logs[gdnChunk - 1];
		if (lane < 8) {
			for (uint t = 0; t < gdnChunk; t++) {
				const float g = precise::exp(logs[t]);
				device const float *v = qkv + (row0 + t) * width + 2 * keyWidth + head * gdnDim + column;
				float seen = g * deltas[t * 8 + lane], o = g * outs[t * 8 + lane];
				for (uint i = 0; i < t; i++) seen += keyKey[t * gdnChunk + i] * deltas[i * 8 + lane];
				deltas[t * 8 + lane] = betas[t] * (v[lane] - seen);
				for (uint i = 0; i <= t; i++) o += queryKey[t * gdnChunk + i] * deltas[i * 8 + lane];
				dst[((row0 + t) * p.valueHeads + head) * gdnDim + column + lane] = o;
			}
			for (uint t = 0; t < gdnChunk; t++) deltas[t * 8 + lane] *= precise::exp(last - logs[t]);
		}
		simdgroup_barrier(mem_flags::mem_threadgroup);
		const float g = precise::exp(last);
		for (uint b = 0; b < gdnBlocks; b++)
			for (uint i = 0; i < 2; i++) S[b].thread_elements()[i] *= g;
		for (uint half8 = 0; half8 < 2; half8++) {
			simdgroup_float8x8 d;
			simdgroup_load(d, deltas + half8 * 64, 8);
			for (uint b = 0; b < gdnBlocks; b++)
				simdgroup_multiply_accumulate(S[b], gdnTransposed(keys + half8 * 8 * gdnDim, b, r, pair), d, S[b]);
		}
	}
	for (uint b = 0; b < gdnBlocks; b++)
		for (uint i = 0; i < 2; i++) state[(2 * pair + i) * gdnDim + 8 * b + r] = S[b].thread_elements()[i];
}
KERNEL(gdn_chunk);
