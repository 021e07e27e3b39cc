package oracle

import (
	"cmp"
	"math"
	"slices"
)

// minRouteSum bounds the sum of the chosen scores from below before it divides: 2^-14, the smallest normal F16, as in
// the public GGUF runtime. It binds for sigmoid scores alone: k of E softmax scores sum to k/E or more.
const minRouteSum = 0x1p-14

// A Router says how the experts of a token are chosen and weighed.
type Router struct {
	Sigmoid   bool    // scores are sigmoids of the logits instead of a softmax over all experts
	Normalize bool    // the chosen scores are divided by their sum
	Scale     float64 // the weights are multiplied by it; 0 means 1
}

// Route chooses the len(experts) experts of the largest logits ([experts in all]) and writes their ids and weights, the
// largest first. Equal logits go to the lower id; NaN ranks below every number. The order is taken from the logits, as
// both score functions rise with them: where scores saturate, the logits still differ.
//
// With softmax scores and Normalize the weights are exp(l_i - l_max) / sum over the chosen of the same, the form that
// loses no chosen expert to underflow over all of them. len(experts) must not exceed len(logits).
//
// Source: Shazeer et al., Outrageously Large Neural Networks, 2017; ties and the bound as in splash and the public GGUF
// runtime (models.md 5, 8.2).
func (r Router) Route(experts []int, weights, logits []float64) {
	copy(experts, byScore(logits)[:len(experts)])
	switch {
	case r.Sigmoid:
		for i, e := range experts {
			weights[i] = Sigmoid(logits[e])
		}
		if r.Normalize {
			normalizeRoutes(weights)
		}
	case r.Normalize:
		for i, e := range experts {
			weights[i] = logits[e]
		}
		Softmax(weights)
	default:
		scores := slices.Clone(logits)
		Softmax(scores)
		for i, e := range experts {
			weights[i] = scores[e]
		}
	}
	if r.Scale != 0 {
		for i := range weights {
			weights[i] *= r.Scale
		}
	}
}

func normalizeRoutes(weights []float64) {
	var sum float64
	for _, w := range weights {
		sum += w
	}
	sum = math.Max(sum, minRouteSum)
	for i := range weights {
		weights[i] /= sum
	}
}

// byScore returns the indices of scores, the largest score first, ties by rising index, NaN last.
func byScore(scores []float64) []int {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	return order
}

// An Expert is the SwiGLU of one expert: Gate and Up are [width, hidden], Down is [hidden, width].
type Expert struct{ Gate, Up, Down Matrix }

// AddExperts adds weights_i expert_i(x) to dst ([hidden]) for the chosen experts, in their order: by falling score, as
// [Router.Route] gives them. dst holds the residual, or zeros, and must not be x.
func AddExperts(dst, x []float64, experts []int, weights []float64, all []Expert) {
	y := make([]float64, len(x))
	for i, e := range experts {
		SwiGLU(y, x, all[e].Gate, all[e].Up, all[e].Down)
		for j, v := range y {
			dst[j] += weights[i] * v
		}
	}
}

// AddGated adds y, the shared expert's output for x, to dst after the chosen experts': times Sigmoid(gate . x), or as it
// is where gate is nil. All are [hidden].
func AddGated(dst, y, x, gate []float64) {
	w := 1.0
	if gate != nil {
		w = Sigmoid(Dot(gate, x))
	}
	for i, v := range y {
		dst[i] += w * v
	}
}

// A MoE is a layer of routed experts and, where Shared is not nil, one that every token takes.
type MoE struct {
	Router     Router
	TopK       int
	Inp        Matrix // router projection, [experts, hidden]
	Experts    []Expert
	Shared     *Expert
	SharedGate []float64 // [hidden]; nil: the shared expert's output is added as it is
}

// Add adds the layer's output for x ([hidden]) to dst ([hidden]): first the chosen experts' weighted outputs by falling
// score, then the shared expert's. dst holds the residual, or zeros, and must not be x.
func (m *MoE) Add(dst, x []float64) {
	logits := make([]float64, len(m.Experts))
	MatVec(logits, m.Inp, x)
	experts, weights := make([]int, m.TopK), make([]float64, m.TopK)
	m.Router.Route(experts, weights, logits)
	AddExperts(dst, x, experts, weights, m.Experts)
	if s := m.Shared; s != nil {
		y := make([]float64, len(x))
		SwiGLU(y, x, s.Gate, s.Up, s.Down)
		AddGated(dst, y, x, m.SharedGate)
	}
}
