package oracle

import "math"

// RMSNorm writes x_i / sqrt(mean_j(x_j^2) + eps) * w_i to dst, over the whole of x. w multiplies: a checkpoint that
// stores w - 1 has been given its 1 before. dst may be x.
//
// Source: Zhang and Sennrich, Root Mean Square Layer Normalization, 2019; eps inside the root as in the Qwen3.5
// reference implementations.
func RMSNorm(dst, x, w []float64, eps float64) {
	inv := 1 / math.Sqrt(meanSquare(x)+eps)
	for i, v := range x {
		dst[i] = v * inv * w[i]
	}
}

func meanSquare(x []float64) float64 { return Dot(x, x) / float64(len(x)) }

// L2Norm writes x / max(sqrt(sum x^2), eps) to dst: the normalization of the gated delta net's queries and keys, as the
// public GGUF runtime computes it. A zero vector gives zero. dst may be x.
func L2Norm(dst, x []float64, eps float64) {
	inv := 1 / math.Max(math.Sqrt(Dot(x, x)), eps)
	for i, v := range x {
		dst[i] = v * inv
	}
}

// Sigmoid is 1 / (1 + e^-x), without overflow for any finite x.
func Sigmoid(x float64) float64 {
	if x >= 0 {
		return 1 / (1 + math.Exp(-x))
	}
	e := math.Exp(x)
	return e / (1 + e)
}

// SiLU is x * Sigmoid(x).
func SiLU(x float64) float64 { return x * Sigmoid(x) }

// Softplus is log(1 + e^x), computed as max(x, 0) + log1p(e^-|x|).
func Softplus(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// Softmax replaces the scores s by exp(s_j - m) / sum exp(s - m), m the largest of them. A score of -Inf becomes 0.
func Softmax(s []float64) { softmax(s, math.Inf(-1)) }

// SoftmaxSink is Softmax with one more score, the sink, in the maximum and the denominator but not in the result: the
// weights sum to less than 1 (models.md 2.3).
func SoftmaxSink(s []float64, sink float64) { softmax(s, sink) }

func softmax(s []float64, sink float64) {
	m := sink
	for _, v := range s {
		m = math.Max(m, v)
	}
	sum := math.Exp(sink - m)
	for i, v := range s {
		s[i] = math.Exp(v - m)
		sum += s[i]
	}
	for i := range s {
		s[i] /= sum
	}
}
