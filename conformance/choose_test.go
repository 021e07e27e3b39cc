//go:build cgo

package conformance_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/internal/model"
	"splash/metal"
	"splash/oracle"
)

// A chooserTest is a chooser of the metal backend and what it reads.
type chooserTest struct {
	*testing.T
	d     *metal.Device
	c     *metal.Chooser
	rng   *rand.Rand
	vocab int
}

func newChooser(t *testing.T, vocab int, s *oracle.Selector) *chooserTest {
	t.Helper()
	if err := metal.Usable(); err != nil {
		t.Skip(err)
	}
	d, err := metalDevice()
	if err != nil {
		t.Fatal(err)
	}
	c, err := metal.NewChooser(d, vocab, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &chooserTest{t, d, c, rand.New(rand.NewPCG(41, uint64(vocab))), vocab}
}

// buffer is a device's memory of drawn values, many of them equal: multiples of a quarter.
func (t *chooserTest) buffer(n int, scale float64) (*metal.Buffer, []float32) {
	t.Helper()
	b, err := t.d.NewBuffer(4 * n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Free)
	x := b.Float32s()
	for i := range x {
		x[i] = float32(math.Round(4*scale*t.rng.NormFloat64()) / 4)
	}
	return b, slices.Clone(x)
}

// codebook is a matrix of values that BF16 holds.
type codebook struct {
	values []float64
	rank   int
}

func (m codebook) Dims() (int, int)         { return len(m.values) / m.rank, m.rank }
func (m codebook) Row(dst []float64, i int) { copy(dst, m.values[i*m.rank:(i+1)*m.rank]) }

func newCodebook(rng *rand.Rand, vocab, rank int) codebook {
	m := codebook{rank: rank}
	for range vocab * rank {
		m.values = append(m.values, float64(rng.IntN(255)-127)/256)
	}
	return m
}

func (t *chooserTest) uniforms() *[oracle.Draws]float64 {
	var u [oracle.Draws]float64
	oracle.CycleUniforms(&u, t.rng.Uint64(), 3)
	return &u
}

// TestChooseWalks holds the walks of a draft's lanes to the oracle: the same proposals and candidates, and near confidences.
func TestChooseWalks(t *testing.T) {
	const vocab, rank, lanes = 9001, 256, 3
	rng := rand.New(rand.NewPCG(41, 1))
	s := &oracle.Selector{Predecessor: newCodebook(rng, vocab, rank), Successor: newCodebook(rng, vocab, rank)}
	c := newChooser(t, vocab, s)
	logits, x := c.buffer(lanes*oracle.Proposals*vocab, 2)
	states, y := c.buffer(lanes*oracle.Proposals*rank, 0.5)
	walks, all := make([]oracle.Walk, lanes), make([]model.DraftLane, lanes)
	for i := range all {
		all[i] = model.DraftLane{
			Anchor: int32(7 * i), Temperature: 0.8 * float64(i), Uniforms: c.uniforms(), Walk: &walks[i], Candidates: new([]int32),
		}
	}
	if err := c.c.Walk(logits, states, all); err != nil {
		t.Fatal(err)
	}
	lattice := oracle.NewLattice(oracle.Proposals, 16)
	for i := range all {
		for j := range oracle.Proposals {
			row := i*oracle.Proposals + j
			lattice.Fill(s, j, all[i].Anchor, widened(x[row*vocab:(row+1)*vocab]), widened(y[row*rank:(row+1)*rank]))
		}
		want := lattice.Greedy()
		if all[i].Temperature > 0 {
			want = lattice.Sample(all[i].Temperature, all[i].Uniforms[oracle.DrawProposal:])
			if diff := cmp.Diff(lattice.Tokens, *all[i].Candidates); diff != "" {
				t.Errorf("lane %d: candidates %s", i, diff)
			}
		}
		near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-5 })
		if diff := cmp.Diff(want, walks[i], near); diff != "" {
			t.Errorf("lane %d: %s", i, diff)
		}
	}
}

// TestChooseVerifyRows holds the rows of a cycle to the oracle's budget.
func TestChooseVerifyRows(t *testing.T) {
	c := newChooser(t, 8, nil)
	m := oracle.Prior()
	for range 60 {
		lanes := 1 + c.rng.IntN(4)
		rows, want, limits := make([]int, lanes), make([]int, lanes), make([]int, lanes)
		confidence, survival := make([][]float64, lanes), make([][oracle.Proposals]float64, lanes)
		for l := range rows {
			limits[l] = 1 + c.rng.IntN(oracle.CycleRows)
			for range oracle.Proposals {
				confidence[l] = append(confidence[l], float64(c.rng.IntN(9))/8)
			}
			m.Survival(&survival[l], confidence[l])
		}
		base, row := float64(1+c.rng.IntN(12)), float64(1+c.rng.IntN(4))/2
		if err := c.c.VerifyRows(rows, confidence, limits, &m, base, row); err != nil {
			t.Fatal(err)
		}
		oracle.VerifyRows(want, survival, limits, base, row)
		if diff := cmp.Diff(want, rows); diff != "" {
			t.Errorf("%d lanes: %s", lanes, diff)
		}
	}
}

// TestChooseTokens holds cycles of greedy and sampled lanes, with penalties and masks, to the oracle: the same tokens.
func TestChooseTokens(t *testing.T) {
	const vocab = 300
	c := newChooser(t, vocab, nil)
	policies := []oracle.Policy{
		{}, {Temperature: 0.75, TopP: 0.875}, {Temperature: 1, TopK: 20, Repetition: 1.25}, {MinP: 0.5, Presence: 0.5, Frequency: 0.25},
		{Temperature: 1.5, MinP: 0.0625, Frequency: 1}, {Temperature: 0.5},
	}
	var lanes []model.Choice
	var masks [][]uint64
	rows := 0
	for i := range 96 {
		l := model.Choice{
			First: rows, Rows: 1 + 3*i%8, Left: 5, Policy: &policies[i%len(policies)], Uniforms: c.uniforms(), Walk: new(oracle.Walk),
			Stops: []int32{1, 2, 3},
		}
		for token := range int32(20) {
			l.Occurred = append(l.Occurred, model.Occurrence{Token: 3 * token, Count: token % 3})
		}
		masks = append(masks, nil)
		if i%5 == 1 {
			var rows []uint64
			for range l.Rows * ((vocab + 63) / 64) {
				rows = append(rows, c.rng.Uint64()|c.rng.Uint64())
			}
			masks[i] = rows
			l.Masks = func(dst []uint64) bool { return copy(dst, rows) == len(dst) && i != 6 }
		}
		for range oracle.Proposals {
			c.propose(&l)
		}
		if i%4 == 0 {
			l.Stops = append(l.Stops, l.Walk.Tokens[i%oracle.Proposals]) // another's is none of this lane's
		}
		rows += l.Rows
		lanes = append(lanes, l)
	}
	logits, x := c.buffer(rows*vocab, 3)
	// The proposals are likely, so that some are accepted.
	first := 0
	for i := range lanes {
		for r := range min(lanes[i].Rows, oracle.Proposals) {
			if c.rng.IntN(6) > 0 {
				x[(first+r)*vocab+int(lanes[i].Walk.Tokens[r])] = 7 + float32(c.rng.IntN(9))/4
			}
		}
		first += lanes[i].Rows
	}
	copy(logits.Float32s(), x)
	if err := c.c.Accept(logits, lanes); err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for i := range lanes {
		l := &lanes[i]
		if i == 6 { // whose masks cannot be made
			if l.Chosen || !slices.Equal(logits.Float32s()[l.First*vocab:(l.First+l.Rows)*vocab], x[l.First*vocab:(l.First+l.Rows)*vocab]) {
				t.Error("a lane without masks was chosen for")
			}
			continue
		}
		accepted, tokens := chosen(l, x[l.First*vocab:(l.First+l.Rows)*vocab], masks[i], vocab)
		kept := oracle.Retain(tokens, l.Left, func(t int32) bool { return slices.Contains(l.Stops, t) })
		want = append(want, fmt.Sprint(i, accepted, kept, tokens))
		got = append(got, fmt.Sprint(i, l.Accepted, l.Retained, l.Tokens))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestChooseNothing: where the largest logit is no finite number, or a mask leaves none, there is no token.
func TestChooseNothing(t *testing.T) {
	const vocab = 70
	c := newChooser(t, vocab, nil)
	policies := []oracle.Policy{{}, {Temperature: 0.75}, {Temperature: 1, TopK: 3, TopP: 0.5}}
	values := []float32{float32(math.NaN()), float32(math.Inf(-1)), float32(math.Inf(1)), 1}
	logits, _ := c.buffer(len(policies)*len(values)*vocab, 1)
	x := logits.Float32s()
	var lanes []model.Choice
	for i := range policies {
		for _, v := range values {
			l := model.Choice{First: len(lanes), Rows: 1, Left: 1, Policy: &policies[i], Uniforms: c.uniforms()}
			row := x[l.First*vocab : (l.First+1)*vocab]
			if v > 0 {
				row[66] = v
			} else {
				for j := range row {
					row[j] = v
				}
			}
			if v == 1 {
				l.Masks = func(rows []uint64) bool { clear(rows); return true }
			}
			lanes = append(lanes, l)
		}
	}
	if err := c.c.Accept(logits, lanes); err != nil {
		t.Fatal(err)
	}
	for i := range lanes {
		if l := &lanes[i]; l.Accepted != 0 || len(l.Tokens) != 1 || l.Tokens[0] != oracle.NoToken {
			t.Errorf("%+v, largest %v: %d accepted of %v", *l.Policy, values[i%len(values)], l.Accepted, l.Tokens)
		}
	}
}

// propose adds a proposal to a lane's walk, drawn from even candidates.
func (t *chooserTest) propose(l *model.Choice) {
	order := t.rng.Perm(t.vocab)[:16]
	for _, token := range order {
		l.Candidates, l.Walk.Q = append(l.Candidates, int32(token)), append(l.Walk.Q, 1.0/16)
	}
	l.Walk.Tokens = append(l.Walk.Tokens, int32(order[t.rng.IntN(16)]))
}

// chosen is what the oracle makes of a lane with such masks.
func chosen(l *model.Choice, logits []float32, masks []uint64, vocab int) (accepted int, tokens []int32) {
	row := func(r int) []float64 {
		x := widened(logits[r*vocab : (r+1)*vocab])
		var prompt, output []int32
		for _, o := range l.Occurred {
			prompt = append(prompt, o.Token)
			for range o.Count {
				output = append(output, o.Token)
			}
		}
		l.Policy.Penalize(x, prompt, slices.Concat(output, l.Walk.Tokens[:r]))
		for i := range x {
			if masks != nil && masks[r*((vocab+63)/64)+i/64]>>(i%64)&1 == 0 {
				x[i] = math.Inf(-1)
			}
		}
		return x
	}
	if l.Policy.Temperature == 0 {
		var choices []int32
		for r := range l.Rows {
			choices = append(choices, int32(oracle.Argmax(row(r))))
		}
		n := oracle.AcceptGreedy(l.Walk.Tokens, choices, l.Rows)
		return n, choices[:n+1]
	}
	var drafted []oracle.Proposal
	for j, token := range l.Walk.Tokens {
		drafted = append(drafted, oracle.Proposal{Token: token, Candidates: l.Candidates[16*j : 16*j+16], Q: l.Walk.Q[16*j : 16*j+16]})
	}
	n, last := oracle.AcceptSampled(drafted, func(r int) []oracle.Weighted { return l.Policy.Target(row(r)) }, l.Rows, l.Uniforms)
	return n, append(slices.Clone(l.Walk.Tokens[:n]), last)
}
