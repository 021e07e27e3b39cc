package oracle_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/oracle"
)

func TestTopCandidates(t *testing.T) {
	inf, nan, zero := math.Inf(1), math.NaN(), math.Copysign(0, -1)
	const none = oracle.NoToken
	for _, c := range []struct {
		name   string
		k      int
		logits []float64
		tokens []int32
		unary  []float64
	}{
		{"by value", 3, []float64{1, 3, 2, 4}, []int32{3, 1, 2}, []float64{4, 3, 2}},
		{"ties by id", 3, []float64{1, 2, 1, 2, 2}, []int32{1, 3, 4}, []float64{2, 2, 2}},
		{"ties at the end", 2, []float64{1, 1, 2, 1}, []int32{2, 0}, []float64{2, 1}},
		{"zeros are equal", 3, []float64{zero, 0, zero, 0}, []int32{0, 1, 2}, []float64{0, 0, 0}},
		{"infinities", 4, []float64{-inf, 1, -inf, inf, -inf}, []int32{3, 1, 0, 2}, []float64{inf, 1, -inf, -inf}},
		{"NaN never", 4, []float64{nan, 1, nan, 2}, []int32{3, 1, none, none}, []float64{2, 1, -inf, -inf}},
		{"all NaN", 2, []float64{nan, nan}, []int32{none, none}, []float64{-inf, -inf}},
		{"too few", 4, []float64{5, -inf}, []int32{0, 1, none, none}, []float64{5, -inf, -inf, -inf}},
		{"one", 1, []float64{1, 3, 3}, []int32{1}, []float64{3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tokens, unary := make([]int32, c.k), make([]float64, c.k)
			fill(unary, nan)
			oracle.TopCandidates(tokens, unary, c.logits)
			if diff := cmp.Diff(c.tokens, tokens); diff != "" {
				t.Errorf("tokens (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(c.unary, unary); diff != "" {
				t.Errorf("unary (-want +got)\n%s", diff)
			}
		})
	}
}

// TestTopCandidatesSorted holds the list to a sort of the whole vocabulary, with many ties.
func TestTopCandidatesSorted(t *testing.T) {
	for seed := range uint64(30) {
		n := 7 + 31*int(seed)
		logits := normals(seed, n)
		for i := range logits {
			logits[i] = math.Round(3*logits[i]) / 3
			if i%13 == 5 {
				logits[i] = math.Inf(-1)
			}
		}
		all := make([]int32, n)
		for i := range all {
			all[i] = int32(i)
		}
		slices.SortFunc(all, func(a, b int32) int {
			switch x, y := logits[a], logits[b]; {
			case x > y:
				return -1
			case x < y:
				return 1
			}
			return int(a - b)
		})
		for len(all) < 16 {
			all = append(all, oracle.NoToken)
		}
		tokens, unary := make([]int32, 16), make([]float64, 16)
		oracle.TopCandidates(tokens, unary, logits)
		if diff := cmp.Diff(all[:16], tokens); diff != "" {
			t.Errorf("seed %d (-want +got)\n%s", seed, diff)
		}
	}
}

func TestVerifyInput(t *testing.T) {
	for token, want := range map[int32]int32{0: 0, 5: 5, 6: 5, 100: 5, oracle.NoToken: 5} {
		if got := oracle.VerifyInput(token, 6); got != want {
			t.Errorf("input of %d = %d, want %d", token, got, want)
		}
	}
}

// workedSelector is draft.md 13.4: rank 4, six tokens, anchor 0.
func workedSelector() (*oracle.Selector, [][]float64, [][]float64) {
	selector := &oracle.Selector{
		Predecessor: dense(6, 4, 1, .5, 1, -.75, .5, 1, -.5, -.75, -.75, .25, -.25, -.75,
			-.25, .25, .75, .25, -1, 1, -.25, .75, 1, -.75, 0, .75),
		Successor: dense(6, 4, .25, .25, 0, .25, 0, 1, .75, 1, -.5, -1, -.25, .75,
			-.25, -.25, .5, 0, 0, -.5, .75, -.75, -.75, .5, .75, -.5),
	}
	states := [][]float64{{-.5, .5, 0, 1}, {-1, -1, 1.5, -1}, {-.5, 1, 1, -1}}
	logits := [][]float64{{-1.5, 3, -.5, -1.75, 1.25, 1.75}, {-1.25, -1, 2.5, 2, 0, 1}, {.5, 3, .5, -1.5, -1.25, -.5}}
	return selector, states, logits
}

func workedLattice() *oracle.Lattice {
	selector, states, logits := workedSelector()
	l := oracle.NewLattice(3, 4)
	for j := range logits {
		l.Fill(selector, j, 0, logits[j], states[j])
	}
	return l
}

func TestLattice(t *testing.T) {
	l := workedLattice()
	if diff := cmp.Diff([]int32{1, 5, 4, 2, 2, 3, 5, 4, 1, 0, 2, 5}, l.Tokens); diff != "" {
		t.Errorf("candidates (-want +got)\n%s", diff)
	}
	wantNear(t, "edges of the anchor", l.Edges[:4], []float64{-0.5, 0.875, 0.4375, -0.5625}, 0)
	wantNear(t, "edges of position 1", l.Edges[16:32], []float64{
		2, 0, -1.0625, -0.625,
		-0.8125, 0.0625, 1.5, 0.1875,
		0.03125, -0.1875, -1.15625, 0.78125,
		0.53125, -0.3125, -1.34375, -0.71875,
	}, 0)
	wantNear(t, "edges of position 2", l.Edges[32:], []float64{
		0.8125, 0.34375, 0.1875, -0.71875,
		0.5625, 0.03125, -0.6875, 0.71875,
		-1.5, -0.5, 0.4375, 0.375,
		0.0625, 0.1875, -1.75, 0.3125,
	}, 0)
}

// The digits beyond those of draft.md 13.4 are of Python's math module.
func TestWalks(t *testing.T) {
	l := workedLattice()
	ahead, expected := l.LookAhead()
	wantNear(t, "V_0", []float64{expected}, []float64{1.0504045443948689}, 1e-12)
	for _, c := range []struct {
		name       string
		walk       oracle.Walk
		choices    []int
		tokens     []int32
		confidence []float64
		q          []float64
	}{
		{"greedy", l.Greedy(), []int{1, 2, 0}, []int32{5, 5, 1},
			[]float64{0.43494580047130588, 0.45695292246771935, 0.50255684335423445}, nil},
		{"sampled", l.Sample(0.8, []float64{0.25, 0.75, 0.999}), []int{0, 0, 3}, []int32{1, 2, 5},
			[]float64{0.43494580047130588, 0.91035949302248997, 0.90757686020294093},
			[]float64{
				0.39324614320175838, 0.4597513199021902, 0.14242431479877832, 0.0045782220972731451,
				0.95335822247600943, 0.041887636940258113, 0.0031799507914873583, 0.0015741897922451195,
				0.95563294400989252, 0.023369608345278899, 0.019223315466871005, 0.0017741321779576448,
			}},
		{"look-ahead", ahead, []int{0, 0, 0}, []int32{1, 2, 1},
			[]float64{0.43494580047130588, 0.91035949302248997, 0.90757686020294093}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.choices, c.walk.Choices); diff != "" {
				t.Errorf("choices (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(c.tokens, c.walk.Tokens); diff != "" {
				t.Errorf("tokens (-want +got)\n%s", diff)
			}
			wantNear(t, "confidence", c.walk.Confidence, c.confidence, 1e-12)
			wantNear(t, "q", c.walk.Q, c.q, 1e-12)
		})
	}
}

// TestLookAheadBest tries every path of random lattices: none has a larger expected number of accepted proposals, and
// the greedy one may have a smaller one.
func TestLookAheadBest(t *testing.T) {
	const k, positions = 4, 4
	better := 0
	for seed := range uint64(40) {
		l := randomLattice(seed, positions, k, 5)
		length := func(choices []int) (sum float64) {
			p, before := 1.0, 0
			for j, i := range choices {
				scores := make([]float64, k)
				l.Scores(scores, j, before)
				var total float64
				for _, s := range scores {
					total += math.Exp(s)
				}
				p *= math.Exp(scores[i]) / total
				sum += p
				before = i
			}
			return sum
		}
		best := 0.0
		for path := range k * k * k * k {
			best = max(best, length([]int{path % k, path / k % k, path / k / k % k, path / k / k / k}))
		}
		walk, expected := l.LookAhead()
		wantNear(t, fmt.Sprintf("seed %d: value", seed), []float64{expected, length(walk.Choices)}, []float64{best, best}, 1e-12)
		if length(l.Greedy().Choices) < best-1e-9 {
			better++
		}
	}
	if better == 0 {
		t.Error("look-ahead was never better than the greedy walk")
	}
}

// randomLattice has candidates 0 .. k-1 of a vocabulary at every position.
func randomLattice(seed uint64, positions, k int, vocab int32) *oracle.Lattice {
	l := oracle.NewLattice(positions, k)
	for i := range l.Tokens {
		l.Tokens[i] = int32(i%k) % vocab
	}
	copy(l.Unary, normals(2*seed, len(l.Unary)))
	copy(l.Edges, normals(2*seed+1, len(l.Edges)))
	return l
}

func TestConfidence(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		scores []float64
		want   float64
	}{
		{[]float64{0, 0, 0, 0}, 0.25},
		{[]float64{math.Log(3), 0}, 0.75},
		{[]float64{1000, 1000 + math.Log(3), -inf}, 0.75},
		{[]float64{5, -inf, -inf}, 1},
		{[]float64{nan, 1, 2}, nan},
		{[]float64{inf, 1}, nan},
		{[]float64{-inf, -inf}, nan},
		{[]float64{nan, nan}, nan},
	} {
		got := oracle.Confidence(c.scores)
		if !near(got, c.want, 1e-12) && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("confidence of %v = %v, want %v", c.scores, got, c.want)
		}
	}
}

// TestWalksOfNonFinite goes through lattices whose scores are not numbers to choose by.
func TestWalksOfNonFinite(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		name           string
		scores         []float64
		greedy, sample int
		ahead          float64
	}{
		{"a NaN", []float64{nan, 1, 2}, 2, 2, 0},
		{"a NaN after the largest", []float64{3, 1, nan}, 0, 2, 0},
		{"all NaN", []float64{nan, nan, nan}, 0, 2, 0},
		{"none", []float64{-inf, -inf, -inf}, 0, 2, 0},
		{"two left", []float64{-inf, 1, 1}, 1, 1, 0.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := oracle.NewLattice(1, 3)
			copy(l.Tokens, []int32{7, 8, 9})
			copy(l.Unary, c.scores)
			if got := l.Greedy().Choices[0]; got != c.greedy {
				t.Errorf("greedy choice %d, want %d", got, c.greedy)
			}
			if got := l.Sample(1, []float64{0.25}).Choices[0]; got != c.sample {
				t.Errorf("sampled choice %d, want %d", got, c.sample)
			}
			walk, value := l.LookAhead()
			if walk.Choices[0] != 0 && c.ahead == 0 || value != c.ahead {
				t.Errorf("look-ahead choice %d, value %v, want %v", walk.Choices[0], value, c.ahead)
			}
		})
	}
}

// TestSampleEdges draws at the ends of the uniforms: a candidate of probability 0 is never taken.
func TestSampleEdges(t *testing.T) {
	l := oracle.NewLattice(1, 3)
	copy(l.Tokens, []int32{7, 8, 9})
	copy(l.Unary, []float64{math.Inf(-1), 0, 0})
	for u, want := range map[float64]int{0: 1, 0.4999: 1, 0.5: 2, 1 - 0x1p-24: 2} {
		if got := l.Sample(0.7, []float64{u}).Choices[0]; got != want {
			t.Errorf("draw %v takes candidate %d, want %d", u, got, want)
		}
	}
}
