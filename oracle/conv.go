package oracle

// Conv is one row of a causal depthwise convolution over time without bias, then SiLU: dst_c = silu(sum_j w[c][j]
// x_j[c]) for the taps j = 0 .. n-1, x_{n-1} the newest input and x_0 the oldest; inputs before the sequence are zero
// rows. w is [channels][taps]. history holds the taps-1 rows before the newest, oldest first, one after another, and is
// advanced by x. dst may be x.
//
// Source: Gu and Dao, Mamba, 2023; tap order as in the Qwen3.5 checkpoints.
func Conv(dst, history, x, w []float64) {
	channels := len(x)
	before := len(history) / channels
	for c, newest := range x {
		taps := w[c*(before+1) : (c+1)*(before+1)]
		var sum float64
		for j := range before {
			sum += taps[j] * history[j*channels+c]
		}
		sum += taps[before] * newest
		for j := 1; j < before; j++ {
			history[(j-1)*channels+c] = history[j*channels+c]
		}
		history[(before-1)*channels+c] = newest
		dst[c] = SiLU(sum)
	}
}
