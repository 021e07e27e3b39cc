package oracle

// GroupedRMSNorm is RMSNorm of each of groups equal parts of x by itself; w spans all of x. dst may be x.
func GroupedRMSNorm(dst, x, w []float64, groups int, eps float64) {
	n := len(x) / groups
	for g := range groups {
		part := func(s []float64) []float64 { return s[g*n : (g+1)*n] }
		RMSNorm(part(dst), part(x), part(w), eps)
	}
}

// A HyperMix reads one layer's input out of n parallel residual streams of H values each, and says how much of the
// layer's output each stream takes. rank is its low rank.
type HyperMix struct {
	Norm   []float64 // [n*H], the multiplier
	Down   Matrix    // [rank, n*H]
	Up     Matrix    // [n*H, rank]
	Inject Matrix    // [n, n*H]; nil for the mix before the head, after which nothing is written
}

// Read writes the layer's input h ([H]) and the streams' injection weights inject ([n], nil for a mix without them) for
// the streams ([n*H], stream after stream):
//
//	N = grouped rms(streams);  gate = sigmoid(Up silu(Down N / n))
//	h_i = 1/n sum_s gate_{s,i} N_{s,i};  inject_s = 2 sigmoid((Inject N)_s / n)
//
// It is the normalized streams that are mixed. A zero row of Inject gives 1, a plain residual addition.
//
// Source: Zhu et al., Hyper-Connections, 2024; this low-rank form as transformers' Qwen4Exp (models.md 7.2).
func (m *HyperMix) Read(h, inject, streams []float64, eps float64) {
	n := len(streams) / len(h)
	normed := make([]float64, len(streams))
	GroupedRMSNorm(normed, streams, m.Norm, n, eps)

	rank, _ := m.Down.Dims()
	low, gate := make([]float64, rank), make([]float64, len(streams))
	MatVec(low, m.Down, normed)
	for i := range low {
		low[i] = SiLU(low[i] / float64(n))
	}
	MatVec(gate, m.Up, low)

	clear(h)
	for i, v := range normed {
		h[i%len(h)] += Sigmoid(gate[i]) * v
	}
	for i := range h {
		h[i] /= float64(n)
	}
	if m.Inject == nil {
		return
	}
	MatVec(inject, m.Inject, normed)
	for s, v := range inject {
		inject[s] = 2 * Sigmoid(v/float64(n))
	}
}

// HyperWrite adds inject_s y to stream s, in place: streams [n*H], inject [n], y [H]. It is the raw streams that grow.
func HyperWrite(streams, inject, y []float64) {
	for s, w := range inject {
		for i, v := range y {
			streams[s*len(y)+i] += w * v
		}
	}
}

// HyperMean writes the mean of the streams ([n*H]) to dst ([H]).
func HyperMean(dst, streams []float64) {
	n := len(streams) / len(dst)
	clear(dst)
	for i, v := range streams {
		dst[i%len(dst)] += v
	}
	for i := range dst {
		dst[i] /= float64(n)
	}
}

// HyperTap writes what a draft reads of the streams ([n*H]): the mean as it is stored, summed in F32 in stream order,
// times 1/n in F32 (n is a power of two), rounded once to BF16 (draft.md 3).
func HyperTap(dst, streams []float64) {
	n := len(streams) / len(dst)
	for i := range dst {
		var sum float32
		for s := range n {
			sum += float32(streams[s*len(dst)+i])
		}
		dst[i] = float64(roundBF16(sum / float32(n)))
	}
}
