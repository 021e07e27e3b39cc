package oracle_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/oracle"
)

// normals returns n seeded values of a normal distribution.
func normals(seed uint64, n int) []float64 {
	r := rand.New(rand.NewPCG(seed, 0))
	x := make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	return x
}

func dense(rows, cols int, values ...float64) oracle.Dense {
	return oracle.Dense{Rows: rows, Cols: cols, Values: values}
}

func TestRoute(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	log := math.Log
	for _, c := range []struct {
		name    string
		router  oracle.Router
		logits  []float64
		experts []int
		weights []float64
	}{
		// models.md 17.4.
		{"softmax", oracle.Router{Normalize: true}, []float64{0.2, 1.5, -0.3, 1.5, 0.9},
			[]int{1, 3, 4}, []float64{0.392339702879, 0.392339702879, 0.215320594242}},
		{"sigmoid", oracle.Router{Sigmoid: true, Normalize: true}, []float64{0.2, 1.5, -0.3, 1.5, 0.9},
			[]int{1, 3, 4}, []float64{0.348482594346, 0.348482594346, 0.303034811308}},
		// Logits that are logarithms make the scores ratios of small numbers.
		{"scores as they are", oracle.Router{}, []float64{0, log(2), log(5)}, []int{2, 1}, []float64{5. / 8, 2. / 8}},
		{"divided by their sum", oracle.Router{Normalize: true}, []float64{0, log(2), log(5)},
			[]int{2, 1}, []float64{5. / 7, 2. / 7}},
		{"scaled", oracle.Router{Normalize: true, Scale: 3.5}, []float64{0, log(2), log(5)},
			[]int{2, 1}, []float64{2.5, 1}},
		{"sigmoid as it is", oracle.Router{Sigmoid: true}, []float64{0, log(3), -log(4)},
			[]int{1, 0, 2}, []float64{0.75, 0.5, 0.2}},
		// sigmoid(-30) and sigmoid(-31), each over 2^-14.
		{"sum clamped", oracle.Router{Sigmoid: true, Normalize: true}, []float64{-31, -30},
			[]int{1, 0}, []float64{1.5331529472146307e-09, 5.640154494517016e-10}},
		{"all tied", oracle.Router{Normalize: true}, []float64{1, 1, 1, 1}, []int{0, 1, 2, 3}, []float64{.25, .25, .25, .25}},
		{"saturated sigmoids keep their order", oracle.Router{Sigmoid: true, Normalize: true}, []float64{40, 50, 45},
			[]int{1, 2}, []float64{0.5, 0.5}},
		{"NaN last", oracle.Router{Normalize: true}, []float64{nan, -inf, -3, 1},
			[]int{3, 2}, []float64{1 / (1 + math.Exp(-4)), 1 / (1 + math.Exp(4))}},
		{"no underflow among the chosen", oracle.Router{Normalize: true}, []float64{-2000, -2000 - log(3), -3000},
			[]int{0, 1}, []float64{0.75, 0.25}},
		{"one of two zeros", oracle.Router{Normalize: true}, []float64{math.Copysign(0, -1), 0}, []int{0}, []float64{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			experts, weights := make([]int, len(c.experts)), make([]float64, len(c.experts))
			c.router.Route(experts, weights, c.logits)
			if diff := cmp.Diff(c.experts, experts); diff != "" {
				t.Errorf("experts (-want +got)\n%s", diff)
			}
			wantNear(t, "weights", weights, c.weights, 1e-12)
		})
	}
}

// TestRouteRanks holds the choice to its definition: an expert is chosen when fewer than k others have a larger logit, or
// an equal one and a lower id.
func TestRouteRanks(t *testing.T) {
	const n, k = 64, 10
	for seed := range uint64(50) {
		logits := normals(seed, n)
		for i := range logits {
			logits[i] = math.Round(4*logits[i]) / 4 // many ties
		}
		experts, weights := make([]int, k), make([]float64, k)
		oracle.Router{Normalize: true}.Route(experts, weights, logits)
		var sum float64
		for _, e := range experts {
			sum += math.Exp(logits[e])
		}
		for place, e := range experts {
			before := 0
			for i, l := range logits {
				if l > logits[e] || l == logits[e] && i < e {
					before++
				}
			}
			if before != place {
				t.Errorf("seed %d: expert %d has place %d, want %d", seed, e, place, before)
			}
			wantNear(t, "weight", weights[place:place+1], []float64{math.Exp(logits[e]) / sum}, 1e-12)
		}
	}
}

func TestMoE(t *testing.T) {
	m := oracle.MoE{
		Router: oracle.Router{Normalize: true},
		TopK:   2,
		Inp:    dense(3, 2, 1, 0.5, -0.25, -1, 0.75, -0.5),
	}
	for i := range 3 {
		e := float64(i)
		m.Experts = append(m.Experts, oracle.Expert{
			Gate: dense(2, 2, e+1, 0.5, 0.25, -e),
			Up:   dense(2, 2, 1, -1, 0.5*e, 2),
			Down: dense(2, 2, 1, 0.25, -0.5, e),
		})
	}
	shared := &oracle.Expert{
		Gate: dense(2, 2, 1, 1, 0.5, -0.5), Up: dense(2, 2, 0.25, 1, 1, 0), Down: dense(2, 2, 2, 0, 0, -1),
	}
	// Worked with Python's math module and sums by fsum; the residual is (10, -20).
	for _, c := range []struct {
		name   string
		shared *oracle.Expert
		gate   []float64
		want   []float64
	}{
		{"gated", shared, []float64{0.3, 0.2}, []float64{9.60230884643052, -29.12310786036289}},
		{"without a gate", shared, nil, []float64{9.999785999287383, -29.319554209788063}},
		{"routed alone", nil, nil, []float64{9.260197090519895, -28.95402492047306}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m.Shared, m.SharedGate = c.shared, c.gate
			dst := []float64{10, -20}
			m.Add(dst, []float64{0.5, -1.5})
			wantNear(t, "output", dst, c.want, 1e-12)
		})
	}
}

// TestMoEOrder tells the order of the sum by what is lost in it: the residual 1 drowns in the first expert's 1e16, the
// second takes that back, and the shared expert's 1 remains.
func TestMoEOrder(t *testing.T) {
	one := func(down float64) oracle.Expert {
		return oracle.Expert{Gate: dense(1, 1, 40), Up: dense(1, 1, 1), Down: dense(1, 1, down/40)} // silu(40) is 40
	}
	shared := one(1)
	m := oracle.MoE{
		Router:  oracle.Router{Normalize: true},
		TopK:    2,
		Inp:     dense(3, 1, 0, 1, 1),
		Experts: []oracle.Expert{one(7), one(2e16), one(-2e16)},
		Shared:  &shared,
	}
	dst := []float64{1}
	m.Add(dst, []float64{1})
	if dst[0] != 1 {
		t.Errorf("output %v, want 1", dst[0])
	}
}
