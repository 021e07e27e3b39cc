#include "prelude.h"
#include "math.h"
#include "gdn.h"

constant uint gdnColumns = 8; // values of a SIMD-group
constant uint gdnPer = gdnDim / 32;

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
	float S[gdnColumns][gdnPer];
	for (uint j = 0; j < gdnColumns; j++)
		for (uint i = 0; i < gdnPer; i++) S[j][i] = s.index == s.kept ? 0.0f : state[j * gdnDim + i * 32 + lane];
	for (uint r = 0; r < s.kept; r++) {
		device const float *update = slots + ((ulong(s.slot) * gdnKept + r) * p.valueHeads + head) * gdnUpdate;
		const float g = update[2 * gdnDim];
		for (uint j = 0; j < gdnColumns; j++) {
			const float delta = update[gdnDim + column + j];
			for (uint i = 0; i < gdnPer; i++) S[j][i] = S[j][i] * g + update[i * 32 + lane] * delta;
		}
	}
	const uint from = s.rows > gdnKept ? s.rows - gdnKept : 0;
	for (uint r = 0; r < s.rows; r++) {
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
		const float g = precise::exp(decay[head] * softplus(alpha[row * p.valueHeads + head] + bias[head]));
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
