package conformance_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"splash/internal/model"
	"splash/internal/reference"
	"splash/oracle"
	"splash/planner"
)

// A keptForm is a backend that rounds the keys and values that it keeps: an element is off by at most so much of itself, and so much of
// the largest of its head.
type keptForm struct {
	name       string
	self, head float64
	open       func(t testing.TB, p *planner.Plan, maxRows int) model.Backend
}

// TestKeptText runs the tiny models of files, and one of every architecture and container, as they are served, with keys and values in
// BF16 and in codes of 8 bits, along the greedy text of the oracle, which rounds neither. The text is the same; or where it first
// differs, the oracle's logits of the two tokens are closer than rounding can move them.
//
// How far that is: to first order a logit moves by the sum of g_i e_i over the kept elements, e_i what each is off, |e_i| <= u_i. With
// random signs e_i = +-u_i, independent, the root mean square of that is s = |g u|, which two runs of the oracle whose keys and values
// are so disturbed measure over all logits of a row; and by Hoeffding's inequality, errors that are independent and not of one side
// move it by more than 6 s with a probability below 2 exp(-18), 1 in 30 million. The bound of a logit is 6 s and the tolerance of F32,
// that of the difference of two twice as much. Routers and sparse attention choose, which is not of first order: the largest s of
// a row stands for all rows of theirs.
func TestKeptText(t *testing.T) {
	for _, name := range tinyModels {
		t.Run(name, func(t *testing.T) {
			p, w := openFile(t, tinyPath(name+".gguf"))
			testKeptText(t, p, w, 12, 6)
		})
	}
	for _, m := range inContainers() {
		t.Run(m.String(), func(t *testing.T) {
			p, w := m.open(t)
			if m.recipe.Family == "tiny-rotated" {
				testKeptText(t, p, w, 4, 2) // it is wide
				return
			}
			testKeptText(t, p, w, 12, 6)
		})
	}
}

func testKeptText(t *testing.T, p *planner.Plan, w planner.Weights, prompted, count int) {
	prompt := secondTokens(t, prompted)
	n := build(t, p, w, prompted+count, model.Options{})
	exact := n.Backend().(*reference.Backend)
	want, text := continued(t, n, prompt, count)
	tokens := append(slices.Clone(prompt), text...)
	chooses := p.Layout.MoE.Experts > 0 || p.Layout.QSA.Heads > 0
	for _, f := range servedModels() {
		spread := make([]float64, len(tokens))
		for seed := range uint64(2) {
			exact.Keep = f.disturb(seed)
			for i, row := range logitsAlong(t, n, tokens) {
				spread[i] = math.Hypot(spread[i], rmsOf(row, want[i])/math.Sqrt2)
			}
		}
		exact.Keep = nil
		if chooses {
			largest := slices.Max(spread)
			for i := range spread {
				spread[i] = largest
			}
		}
		kept, err := model.New(f.open(t, p, len(tokens)), p, w, model.Options{})
		if err != nil {
			t.Fatal(err)
		}
		f.check(t, logitsAlong(t, kept, tokens), want, spread, prompted-1)
	}
}

// disturb moves every element as far as rounding does at most, up or down by chance.
func (f *keptForm) disturb(seed uint64) func(keys, values []float64, dim int) {
	rng := rand.New(rand.NewPCG(seed, 61))
	return func(keys, values []float64, dim int) {
		for _, x := range [][]float64{keys, values} {
			for head := range slices.Chunk(x, dim) {
				largest := most(head)
				for i, v := range head {
					off := f.self*math.Abs(v) + f.head*largest
					head[i] += off * float64(2*rng.IntN(2)-1)
				}
			}
		}
	}
}

// logitsAlong are those of every token, in one pass of a new lane.
func logitsAlong(t testing.TB, n model.Network, tokens []int32) (rows [][]float32) {
	t.Helper()
	lane := newLane(t, n)
	defer n.Backend().FreeLane(lane)
	forward(t, n, lane, tokens)
	for i := range tokens {
		rows = append(rows, slices.Clone(n.Logits(i)))
	}
	return rows
}

// rmsOf is the root mean square of what two rows differ by.
func rmsOf(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum += d * d
	}
	return math.Sqrt(sum / float64(len(a)))
}

// check holds logits along a text, whose first token is that after row from, to the oracle's.
func (f *keptForm) check(t *testing.T, got, want [][]float32, spread []float64, from int) {
	t.Helper()
	zeros := make([]float32, len(want[0]))
	worst, tie, differs := 0.0, 0.0, "the text is the oracle's"
	for i := range want {
		bound := 6*spread[i] + modelTolerance*rmsOf(want[i], zeros)
		worst = math.Max(worst, maxDiff(got[i], want[i])/bound)
		if a, b := oracle.Argmax(want[i]), oracle.Argmax(got[i]); i >= from && a != b && tie == 0 {
			tie = float64(want[i][a]-want[i][b]) / (2 * bound)
			differs = fmt.Sprintf("token %d of the text is the oracle's second, whose logit is nearer by %.3f of the bound", i-from, tie)
		}
	}
	t.Logf("%s: logits within %.3f of the bound; %s", f.name, worst, differs)
	if !(worst <= 1) || !(tie <= 1) {
		t.Errorf("%s: logits stray %.3g of the bound; %s", f.name, worst, differs)
	}
}
