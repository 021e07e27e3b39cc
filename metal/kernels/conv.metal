#include "prelude.h"
#include "math.h"
#include "conv.h"

// Causal depthwise convolution over the rows of a segment, then SiLU; tap taps - 1 is the newest input, inputs before the
// lane's first are zero. A thread has one channel of a segment, so dst may be x. kept is [lanes][convKept][channels]: taking
// rows back is forgetting that they are there. Grid: channels / 256 rounded up, segments. Threads: 256 (oracle/conv.go).
kernel void conv(device const float *x [[buffer(0)]], device const float *w [[buffer(1)]],
                 device const Segment *segments [[buffer(2)]], device float *kept [[buffer(3)]],
                 device float *dst [[buffer(4)]], constant ConvParams &p [[buffer(5)]], THREADS) {
	const uint channel = group.x * 256 + index;
	if (channel >= p.channels) return;
	const Segment s = segments[group.y];
	device float *past = kept + ulong(s.lane) * convKept * p.channels + channel;
	device const float *taps = w + channel * p.taps;
	float inputs[convTaps]; // the newest last
	for (uint j = 1; j < p.taps; j++) {
		const uint back = p.taps - j;
		inputs[j] = s.index >= back ? past[ulong((s.index - back) % convKept) * p.channels] : 0.0f;
	}
	for (uint r = 0; r < s.rows; r++) {
		const ulong at = ulong(s.first + r) * p.channels + channel;
		for (uint j = 1; j < p.taps; j++) inputs[j - 1] = inputs[j];
		inputs[p.taps - 1] = x[at];
		past[ulong((s.index + r) % convKept) * p.channels] = x[at];
		float sum = 0;
		for (uint j = 0; j < p.taps; j++) sum += taps[j] * inputs[j];
		dst[at] = silu(sum);
	}
}
KERNEL(conv);
