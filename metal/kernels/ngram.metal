#include "prelude.h"
#include "math.h"
#include "ngram.h"

// Sums of four numbers over a threadgroup of 256: each thread has every sum.
inline void sumFour(thread float *v, threadgroup float *sums, uint simd, uint lane) {
	for (uint k = 0; k < 4; k++) v[k] = simd_sum(v[k]);
	if (lane == 0)
		for (uint k = 0; k < 4; k++) sums[4 * simd + k] = v[k];
	threadgroup_barrier(mem_flags::mem_threadgroup);
	for (uint k = 0; k < 4; k++) {
		v[k] = 0;
		for (uint s = 0; s < 8; s++) v[k] += sums[4 * s + k];
	}
}

// What the n-gram embedding gives a stream: Y = gate value, of the gate of the normalized key and stream, and its norm Z, which
// the convolution reads. Grid: streams, rows. Threads: 256. Threadgroup memory: 16 bytes a SIMD-group (oracle/ple.go, Add).
kernel void ngram_gate(device const float *streams [[buffer(0)]], device const float *key [[buffer(1)]],
                       device const float *value [[buffer(2)]], device const float *keyNorm [[buffer(3)]],
                       device const float *queryNorm [[buffer(4)]], device const float *convNorm [[buffer(5)]],
                       device float *y [[buffer(6)]], device float *z [[buffer(7)]], constant NGramParams &p [[buffer(8)]],
                       THREADS) {
	const ulong at = (ulong(group.y) * p.streams + group.x) * p.width, from = ulong(group.y) * p.width;
	const uint norm = group.x * p.width;
	float v[4] = {0, 0, 0, 0}; // squares of the key, of the stream, of the value; the product of key and stream
	for (uint i = index; i < p.width; i += 256) {
		const float k = key[at + i], q = streams[at + i], e = value[from + i];
		v[0] += k * k;
		v[1] += q * q;
		v[2] += e * e;
		v[3] += k * keyNorm[norm + i] * (q * queryNorm[norm + i]);
	}
	sumFour(v, (threadgroup float *)shared, simd, lane);
	const float width = float(p.width);
	const float keyRoot = precise::sqrt(v[0] / width + p.epsilon), queryRoot = precise::sqrt(v[1] / width + p.epsilon);
	const float t = v[3] / (keyRoot * queryRoot * precise::sqrt(width));
	const float root = precise::sqrt(max(fabs(t), 1e-6f));
	const float gate = sigmoid(t > 0 ? root : t < 0 ? -root : 0.0f);
	const float inv = 1 / precise::sqrt(gate * gate * (v[2] / width) + p.epsilon);
	for (uint i = index; i < p.width; i += 256) {
		const float e = gate * value[from + i];
		y[at + i] = e;
		z[at + i] = e * inv * convNorm[norm + i];
	}
}
KERNEL(ngram_gate);

// Adds Y and the dilated causal convolution of Z, after SiLU, to the streams, over the rows of a segment. A thread has one
// channel. kept is [lanes][ngramKept][channels]. Grid: channels / 256 rounded up, segments. Threads: 256 (oracle/ple.go,
// DilatedConv).
kernel void ngram_conv(device const float *y [[buffer(0)]], device const float *z [[buffer(1)]],
                       device const float *w [[buffer(2)]], device const Segment *segments [[buffer(3)]],
                       device float *kept [[buffer(4)]], device float *streams [[buffer(5)]],
                       constant NGramParams &p [[buffer(6)]], THREADS) {
	const uint channels = p.streams * p.width, channel = group.x * 256 + index;
	if (channel >= channels) return;
	const Segment s = segments[group.y];
	device float *past = kept + ulong(s.lane) * ngramKept * channels + channel;
	for (uint r = 0; r < s.rows; r++) {
		const uint now = s.index + r;
		const ulong at = ulong(s.first + r) * channels + channel;
		past[ulong(now % ngramKept) * channels] = z[at];
		float sum = 0;
		for (uint j = 0; j < p.taps; j++) {
			const uint back = p.dilation * (p.taps - 1 - j);
			if (now >= back) sum += w[channel * p.taps + j] * past[ulong((now - back) % ngramKept) * channels];
		}
		streams[at] += y[at] + silu(sum);
	}
}
KERNEL(ngram_conv);
