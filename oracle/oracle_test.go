package oracle_test

import (
	"math"
	"testing"

	"splash/oracle"
)

// near reports whether two results of float64 arithmetic agree to the digits a worked vector prints.
func near(a, b, eps float64) bool { return math.Abs(a-b) <= eps }

func wantNear(t *testing.T, what string, got, want []float64, eps float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range got {
		if !near(got[i], want[i], eps) {
			t.Errorf("%s[%d] = %.15g, want %.15g", what, i, got[i], want[i])
		}
	}
}

// The vectors of this file are those of the specification (models.md 17, draft.md 13), worked out apart from this code.

func TestGDN(t *testing.T) {
	type row struct {
		q, k, v, o, s []float64
		a, b          float64
		beta, g       float64
		delta         []float64
	}
	rows := []row{
		{q: []float64{1, 2}, k: []float64{3, -4}, v: []float64{1, -2}, a: 0.3, b: 0.5,
			beta: 0.622459331202, g: 0.527761566071,
			delta: []float64{0.622459331202, -1.244918662404},
			o:     []float64{-0.196838900122, 0.393677800243},
			s:     []float64{0.373475591252, -0.746951182503, -0.497967455002, 0.995934910004}},
		{q: []float64{-1, 0.5}, k: []float64{0.5, 0.5}, v: []float64{0.25, 4}, a: -1.2, b: -0.25,
			beta: 0.437823499114, g: 0.817802243613,
			delta: []float64{0.140974909009, 1.688255927996},
			o:     []float64{-0.353473395549, 0.266396010095},
			s:     []float64{0.405113390914, 0.582917668368, -0.307554687494, 2.008253825183}},
	}
	// The vectors were made with eps inside the root, 1e-6 of a sum of order 1: they differ by that much.
	const eps = 2e-6
	state := make([]float64, 4)
	for i, r := range rows {
		q, k := make([]float64, 2), make([]float64, 2)
		oracle.L2Norm(q, r.q, 1e-6)
		oracle.L2Norm(k, r.k, 1e-6)
		for j := range q {
			q[j] /= math.Sqrt2
		}
		beta, g := oracle.GDNBeta(r.b), oracle.GDNDecay(r.a, 0.1, -0.7)
		wantNear(t, "beta, g", []float64{beta, g}, []float64{r.beta, r.g}, 1e-12)
		o, delta := make([]float64, 2), make([]float64, 2)
		before := append([]float64(nil), state...)
		oracle.GDNStep(o, delta, state, q, k, r.v, beta, g)
		wantNear(t, "delta", delta, r.delta, eps)
		wantNear(t, "o", o, r.o, eps)
		wantNear(t, "state", state, r.s, eps)
		oracle.GDNReplay(before, k, delta, g)
		for j := range before {
			if before[j] != state[j] {
				t.Errorf("row %d: replayed state %v, stepped %v", i, before, state)
			}
		}
	}
	o := []float64{-0.353473395549, 0.266396010095}
	w, z := []float64{0.9, 1.1}, []float64{0.5, -1.5}
	dst := make([]float64, 2)
	oracle.GatedNorm(dst, o, z, w, 1e-6, oracle.SiLU)
	wantNear(t, "silu gate", dst, []float64{-0.316347495624, -0.256201362731}, 1e-11)
	oracle.GatedNorm(dst, o, z, w, 1e-6, oracle.Sigmoid)
	wantNear(t, "sigmoid gate", dst, []float64{-0.632694991249, 0.170800908487}, 1e-11)
}

func TestConv(t *testing.T) {
	want := []float64{0.239475064045, -0.188770334399, -0.212606216265, 1.598635140533, 0.109966799462}
	history := make([]float64, 3)
	var got []float64
	for _, x := range []float64{1, -2, 0.5, 3, -1} {
		dst := []float64{x}
		oracle.Conv(dst, history, dst, []float64{0.1, -0.2, 0.3, 0.4})
		got = append(got, dst[0])
	}
	wantNear(t, "conv", got, want, 1e-12)
	wantNear(t, "history", history, []float64{0.5, 3, -1}, 0)
}

func TestSoftmaxSink(t *testing.T) {
	s := []float64{1, 2, -0.5}
	oracle.SoftmaxSink(s, 0.75)
	wantNear(t, "weights", s, []float64{0.211854856628, 0.575881207044, 0.047271208088}, 1e-12)
	s = []float64{math.Inf(-1), 0, 0}
	oracle.Softmax(s)
	wantNear(t, "masked", s, []float64{0, 0.5, 0.5}, 0)
}

func TestRope(t *testing.T) {
	f := oracle.RopeFrequencies(1e7, 64)
	if f[1] != 0.6042964 {
		t.Errorf("f_1 = %v", f[1])
	}
	x := make([]float64, 256)
	x[1], x[100] = 1, 7
	oracle.Rope(x, oracle.TextPosition(1000), f)
	wantNear(t, "pair 1", []float64{x[1], x[33], x[100]}, []float64{0.4441264997850, 0.8959640909036, 7}, 1e-12)

	// Interleaved sections: pair i turns with axis i mod 3.
	x = make([]float64, 64)
	for i := range 32 {
		x[i] = 1
	}
	oracle.Rope(x, oracle.Position{T: 0, H: 1, W: 2}, f)
	for i := range 32 {
		axis := []float64{0, 1, 2}[i%3]
		want := math.Cos(axis * float64(f[i]))
		if !near(x[i], want, 1e-7) {
			t.Errorf("pair %d: cosine %v, want %v", i, x[i], want)
		}
	}
}

func TestAttention(t *testing.T) {
	// One KV head of two dimensions, two query heads. Scores are q.k/sqrt(2), worked by hand with values that make the
	// exponentials exact powers: k along the query with length sqrt(2) ln 2 * n gives weights 2^n.
	ln := math.Ln2 * math.Sqrt2
	c := &oracle.Cache{KVHeads: 1, Dim: 2}
	c.Append([]float64{0, 0}, []float64{1, 0})
	c.Append([]float64{ln, 0}, []float64{0, 1})
	c.Append([]float64{2 * ln, 9}, []float64{4, 4})
	q := []float64{1, 0, -1, 0}
	o := make([]float64, 4)

	oracle.Attention(o, q, c, 2, nil, oracle.Mask{})
	wantNear(t, "causal", o, []float64{(1 + 16) / 7., (2 + 16) / 7., (1 + 1) / 1.75, (0.5 + 1) / 1.75}, 1e-12)
	oracle.Attention(o, q, c, 1, nil, oracle.Mask{})
	wantNear(t, "earlier row", o, []float64{1 / 3., 2 / 3., 1 / 1.5, 0.5 / 1.5}, 1e-12)
	oracle.Attention(o, q, c, 2, nil, oracle.Mask{Window: 2})
	wantNear(t, "window", o, []float64{16 / 6., 18 / 6., 1 / .75, 1.5 / .75}, 1e-12)
	oracle.Attention(o, q, c, 2, nil, oracle.Mask{Seen: []bool{true, false, true}})
	wantNear(t, "sparse", o, []float64{17 / 5., 16 / 5., 2 / 1.25, 1 / 1.25}, 1e-12)
	oracle.Attention(o, q, c, 2, []float64{0, math.Ln2}, oracle.Mask{})
	wantNear(t, "sinks", o, []float64{17 / 8., 18 / 8., 2 / 3.75, 1.5 / 3.75}, 1e-12)
}

func TestSwiGLU(t *testing.T) {
	gate := oracle.Dense{Rows: 2, Cols: 2, Values: []float64{1, 0, 0, 1}}
	up := oracle.Dense{Rows: 2, Cols: 2, Values: []float64{2, 0, 0, 3}}
	down := oracle.Dense{Rows: 1, Cols: 2, Values: []float64{1, -1}}
	dst := make([]float64, 1)
	oracle.SwiGLU(dst, []float64{1, -2}, gate, up, down)
	// silu(1) = 0.731058578630005, silu(-2) = -0.238405844044235
	wantNear(t, "ffn", dst, []float64{0.731058578630005*2 - 0.238405844044235*6}, 1e-14)
}

func TestSampling(t *testing.T) {
	logits := []float64{2, 1, 2.5, 0, 1.5, -1, 2, 0.5}
	p := oracle.Policy{Temperature: 0.8, MinP: 0.1, TopK: 5, TopP: 0.85}
	kept := p.Target(logits)
	want := []oracle.Weighted{{2, 1}, {0, 0.535261429}, {6, 0.535261429}, {4, 0.286504797}}
	if len(kept) != len(want) {
		t.Fatalf("kept %v", kept)
	}
	for i, w := range want {
		if kept[i].Token != w.Token || !near(kept[i].Weight, w.Weight, 1e-9) {
			t.Errorf("kept[%d] = %v, want %v", i, kept[i], w)
		}
	}
	for u, token := range map[float64]int32{0.1: 0, 0.5: 2, 0.95: 6} {
		if got := oracle.Draw(kept, u); got != token {
			t.Errorf("draw %v = %d, want %d", u, got, token)
		}
	}
	if got := oracle.Draw([]oracle.Weighted{{3, 0}, {1, 0}}, 0.5); got != -1 {
		t.Errorf("draw of nothing = %d", got)
	}
	x := []float64{math.NaN(), 1, math.Inf(-1), 1}
	if got := oracle.Argmax(x); got != 1 {
		t.Errorf("argmax = %d", got)
	}
	if kept := (oracle.Policy{Temperature: 1}).Target(x); len(kept) != 2 {
		t.Errorf("kept %v of NaN and -Inf", kept)
	}
}

func TestPenalize(t *testing.T) {
	x := []float64{2, -2, 1, 0.5}
	oracle.Policy{Repetition: 2, Presence: 0.25, Frequency: 0.5}.Penalize(x, []int32{0, 1, 1}, []int32{2, 2})
	wantNear(t, "penalized", x, []float64{1, -4, 0.5 - 0.25 - 1, 0.5}, 0)
}

func TestUniform(t *testing.T) {
	for _, c := range []struct {
		seed  uint64
		draws map[uint64]float64
	}{
		{0, map[uint64]float64{1: 14819496, 2: 7239838, 3: 443485, 16: 8698687}},
		{42, map[uint64]float64{1: 12441394, 2: 2682851, 3: 4674151, 16: 3413074}},
		{math.MaxUint64, map[uint64]float64{1: 14997873, 2: 15310840, 3: 3682296, 16: 11333281}},
	} {
		for k, want := range c.draws {
			if got := oracle.Uniform(c.seed, k) * (1 << 24); got != want {
				t.Errorf("seed %d draw %d = %v, want %v", c.seed, k, got, want)
			}
		}
	}
}
