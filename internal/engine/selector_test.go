package engine

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"splash/oracle"
)

// blockRows are a block's rows at hand.
type blockRows struct{ logits, states [][]float32 }

func (b *blockRows) Logits(row int) []float32 { return b.logits[row] }
func (b *blockRows) State(row int) []float32  { return b.states[row] }

// randomBlock makes a block of a vocabulary, with equal logits, infinite ones and NaN among them.
func randomBlock(rng *rand.Rand, rows, vocab, rank int) *blockRows {
	var b blockRows
	for range rows {
		logits, state := make([]float32, vocab), make([]float32, rank)
		for i := range logits {
			switch rng.IntN(40) {
			case 0:
				logits[i] = float32(math.NaN())
			case 1:
				logits[i] = float32(math.Inf(-1))
			case 2, 3, 4:
				logits[i] = 2
			default:
				logits[i] = float32(rng.NormFloat64())
			}
		}
		for i := range state {
			state[i] = float32(rng.NormFloat64())
		}
		b.logits, b.states = append(b.logits, logits), append(b.states, state)
	}
	return &b
}

func randomSelector(rng *rand.Rand, vocab, rank int) oracle.Selector {
	values := func() []float64 {
		v := make([]float64, vocab*rank)
		for i := range v {
			v[i] = rng.NormFloat64()
		}
		return v
	}
	return oracle.Selector{
		Predecessor: oracle.Dense{Rows: vocab, Cols: rank, Values: values()},
		Successor:   oracle.Dense{Rows: vocab, Cols: rank, Values: values()},
	}
}

// TestSelectorWalks holds the selector's walks to the oracle's, to the bit.
func TestSelectorWalks(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	bits := cmp.Comparer(func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) || a != a && b != b })
	for _, vocab := range []int{1, 7, 16, 17, 500} {
		for trial := range 40 {
			rank := 1 + rng.IntN(40)
			codes := randomSelector(rng, vocab, rank)
			first := oracle.Proposals * rng.IntN(2)
			block := randomBlock(rng, first+oracle.Proposals, vocab, rank)
			for k, n := range map[int]int{candidates: 2, 3: 1} {
				c := newSelector(codes, k)
				for range n { // again, in the room of the walk before
					for _, temperature := range []float64{0, 0.7} {
						checkWalk(t, c, block, first, temperature, int32(rng.IntN(vocab)), rng, bits)
					}
				}
			}
			if t.Failed() {
				t.Fatalf("vocabulary %d, trial %d", vocab, trial)
			}
		}
	}
}

func checkWalk(t *testing.T, c *selector, block *blockRows, first int, temperature float64, anchor int32, rng *rand.Rand, bits cmp.Option) {
	t.Helper()
	var u [oracle.Draws]float64
	for i := range u {
		u[i] = rng.Float64()
	}
	lattice := oracle.NewLattice(oracle.Proposals, c.k)
	for j := range oracle.Proposals {
		lattice.Fill(&c.Selector, j, anchor, widen(nil, block.logits[first+j]), widen(nil, block.states[first+j]))
	}
	want, slots := lattice.Greedy(), []int32(nil)
	if temperature > 0 {
		want, slots = lattice.Sample(temperature, u[oracle.DrawProposal:]), lattice.Tokens
	}
	var got oracle.Walk
	var kept []int32
	c.walk(&DraftLane{Anchor: anchor, Temperature: temperature, Uniforms: &u, Walk: &got, Candidates: &kept}, block, first)
	if d := cmp.Diff(want, got, bits, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("temperature %g: %s", temperature, d)
	}
	if d := cmp.Diff(slots, kept, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("temperature %g, candidates: %s", temperature, d)
	}
}

func TestSelectorDoesNotAllocate(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const vocab, rank = 300, 64
	c, block := newSelector(randomSelector(rng, vocab, rank), candidates), randomBlock(rng, oracle.Proposals, vocab, rank)
	var u [oracle.Draws]float64
	for _, temperature := range []float64{0, 1} {
		var walk oracle.Walk
		var kept []int32
		l := DraftLane{Temperature: temperature, Uniforms: &u, Walk: &walk, Candidates: &kept}
		if n := testing.AllocsPerRun(20, func() { c.walk(&l, block, 0) }); n != 0 {
			t.Errorf("temperature %g: %g allocations", temperature, n)
		}
	}
}

func BenchmarkSelector(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	const vocab, rank = 32768, 256
	c, block := newSelector(randomSelector(rng, vocab, rank), candidates), randomBlock(rng, oracle.Proposals, vocab, rank)
	var walk oracle.Walk
	var kept []int32
	l := DraftLane{Walk: &walk, Candidates: &kept}
	b.ReportAllocs()
	for b.Loop() {
		c.walk(&l, block, 0)
	}
}
