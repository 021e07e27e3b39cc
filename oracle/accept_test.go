package oracle_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/gonum/stat/distuv"

	"splash/oracle"
)

// TestCycleUniforms is draft.md 13.5: seed 42's draws 1 and 16, the first token's uniform and the first cycle's last.
func TestCycleUniforms(t *testing.T) {
	if got := oracle.FirstUniform(42) * (1 << 24); got != 12441394 {
		t.Errorf("first uniform %v", got)
	}
	var u [oracle.Draws]float64
	oracle.CycleUniforms(&u, 42, 0)
	if u[1]*(1<<24) != 2682851 || u[2]*(1<<24) != 4674151 || u[oracle.DrawCorrection]*(1<<24) != 3413074 {
		t.Errorf("first cycle's uniforms %v", u)
	}
	// Every cycle goes on where the last one ended.
	draw := uint64(2)
	for n := range uint64(3) {
		oracle.CycleUniforms(&u, 7, n)
		for i := 1; i < oracle.Draws; i++ {
			if u[i] != oracle.Uniform(7, draw) {
				t.Errorf("cycle %d, index %d is not draw %d", n, i, draw)
			}
			draw++
		}
	}
}

// TestGreedyCycle is draft.md 13.6; 90 and 91 stop.
func TestGreedyCycle(t *testing.T) {
	stops := func(token int32) bool { return token == 90 || token == 91 }
	proposals := []int32{1, 2, 3, 4, 5, 6, 7}
	for _, c := range []struct {
		d, y                         []int32
		verify, left                 int
		accepted, retained, reported int
		emit, end                    bool
	}{
		{proposals, []int32{1, 2, 3, 4, 5, 6, 7, 8}, 8, 100, 7, 8, 7, false, false},
		{proposals, []int32{1, 2, 9, 4, 5, 6, 7, 8}, 8, 100, 2, 3, 2, false, false},
		{proposals, []int32{9, 2, 3, 4, 5, 6, 7, 8}, 8, 100, 0, 1, 0, false, false},
		{proposals, []int32{1, 2, 3, 4, 5, 6, 7, 8}, 4, 100, 3, 4, 3, false, false},
		{proposals, []int32{1, 2, 3, 4, 5, 6, 7, 8}, 1, 100, 0, 1, 0, false, false},
		{proposals, []int32{1, 2, 3, 4, 5, 6, 7, 8}, 3, 3, 2, 3, 2, false, true},
		{[]int32{1, 90, 3, 4, 5, 6, 7}, []int32{1, 90, 3, 4, 5, 6, 7, 8}, 8, 100, 7, 2, 1, true, true},
		{proposals, []int32{1, 2, 91, 4, 5, 6, 7, 8}, 8, 100, 2, 3, 2, true, true},
		// One token less than the budget: the new anchor is its last, and needs no row.
		{proposals, []int32{1, 2, 3, 4, 5, 6, 7, 8}, 2, 3, 1, 2, 1, true, true},
		// No more is kept than may be put out.
		{proposals, []int32{1, 2, 3, 4, 5, 6, 7, 8}, 8, 3, 7, 3, 2, false, true},
		// An id past the vocabulary is nobody's choice.
		{[]int32{1, oracle.NoToken, 3, 4, 5, 6, 7}, []int32{1, 2, 3, 4, 5, 6, 7, 8}, 8, 100, 1, 2, 1, false, false},
	} {
		t.Run(fmt.Sprint(c.d, c.y, c.verify), func(t *testing.T) {
			accepted := oracle.AcceptGreedy(c.d, c.y, c.verify)
			tokens := c.y[:accepted+1]
			retained := oracle.Retain(tokens, c.left, stops)
			if accepted != c.accepted || retained != c.retained {
				t.Errorf("accepted %d, retained %d, want %d and %d", accepted, retained, c.accepted, c.retained)
			}
			emit, end := oracle.Finish(stops(tokens[retained-1]), c.left-retained)
			if emit != c.emit || end != c.end {
				t.Errorf("new anchor emitted %v, end %v, want %v and %v", emit, end, c.emit, c.end)
			}
			var counts oracle.SpeculationCounts
			counts.Add(c.verify, accepted, retained)
			if counts.Accepted != c.reported || counts.Tokens != c.retained {
				t.Errorf("reported %d of %d tokens, want %d of %d", counts.Accepted, counts.Tokens, c.reported, c.retained)
			}
		})
	}
}

// TestSpeculationCounts is draft.md 13.12.
func TestSpeculationCounts(t *testing.T) {
	var c oracle.SpeculationCounts
	if c.TokensPerCycle() != 0 || c.AcceptanceRate() != 0 {
		t.Error("rates before any cycle are not 0")
	}
	for _, lane := range [][2]int{{8, 7}, {8, 3}, {5, 4}, {1, 0}, {6, 2}} {
		c.Add(lane[0], lane[1], lane[1]+1)
	}
	want := oracle.SpeculationCounts{LaneCycles: 5, Drafted: 23, Accepted: 16, Tokens: 21}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("counts (-want +got)\n%s", diff)
	}
	wantNear(t, "rates", []float64{c.TokensPerCycle(), c.AcceptanceRate()}, []float64{4.2, 16. / 23}, 1e-12)
}

// TestSampledAcceptance is draft.md 13.7: the target's distribution there, and what becomes of each of four candidates.
func TestSampledAcceptance(t *testing.T) {
	policy := oracle.Policy{Temperature: 0.8, MinP: 0.1, TopK: 5, TopP: 0.85}
	logits := []float64{2, 1, 2.5, 0, 1.5, -1, 2, 0.5}
	candidates, q := []int32{4, 2, 0, 7}, []float64{0.4, 0.3, 0.2, 0.1}
	propose := func(token int32) *oracle.Proposal {
		return &oracle.Proposal{Token: token, Candidates: candidates, Q: q}
	}
	target := policy.Target(logits)
	for _, c := range []struct {
		token int32
		u     float64
		want  bool
	}{
		{4, 0.3038835, true}, {4, 0.3038836, false}, {4, 0, true},
		{2, 1 - 0x1p-24, true}, {0, 1 - 0x1p-24, true},
		{7, 0, false}, {oracle.NoToken, 0, false},
		{6, 1 - 0x1p-24, true}, // not a candidate: q is 0
		{3, 0, false},          // neither: no p
	} {
		if got := propose(c.token).Accepts(target, c.u); got != c.want {
			t.Errorf("proposal %d at %v accepted %v, want %v", c.token, c.u, got, c.want)
		}
	}
	nan := &oracle.Proposal{Token: 2, Candidates: candidates, Q: []float64{math.NaN(), math.NaN(), math.NaN(), math.NaN()}}
	if nan.Accepts(target, 0) {
		t.Error("a proposal whose q is NaN was accepted")
	}

	got := make(map[int32]float64)
	for _, w := range propose(4).Residual(nil, target) {
		got[w.Token] = w.Weight
	}
	wantNear(t, "residual", []float64{got[0], got[2], got[4], got[6]},
		[]float64{0.063855897739356127, 0.29289170383054886, 0, 0.53526142851899028}, 1e-12)

	// Draws of the correction: refused at row 0, and of the whole distribution of row 0 when nothing was tested.
	for u, want := range map[float64][2]int32{0.1: {2, 0}, 0.5: {6, 2}, 0.95: {6, 6}} {
		var uniforms [oracle.Draws]float64
		uniforms[oracle.DrawAccept], uniforms[oracle.DrawCorrection] = 0.9, u
		rows := func(int) []oracle.Weighted { return policy.Target(logits) }
		accepted, token := oracle.AcceptSampled([]oracle.Proposal{*propose(4)}, rows, 2, &uniforms)
		if accepted != 0 || token != want[0] {
			t.Errorf("u %v: accepted %d, then %d, want the residual's %d", u, accepted, token, want[0])
		}
		accepted, token = oracle.AcceptSampled(nil, rows, 1, &uniforms)
		if accepted != 0 || token != want[1] {
			t.Errorf("u %v: accepted %d, then %d, want the distribution's %d", u, accepted, token, want[1])
		}
	}
}

// TestAcceptanceExamples are the last ones of draft.md 13.7.
func TestAcceptanceExamples(t *testing.T) {
	weights := func(w ...float64) (target []oracle.Weighted) {
		for i, v := range w {
			if v > 0 {
				target = append(target, oracle.Weighted{Token: int32(i), Weight: v})
			}
		}
		return target
	}
	p := &oracle.Proposal{Token: 3, Candidates: []int32{3, 4, 5}, Q: []float64{0.5, 0.3, 0.2}}
	target := weights(0, 0, 0, 0.2, 0.5, 0.3)
	if !p.Accepts(target, 0.399) || p.Accepts(target, 0.401) {
		t.Error("3 is not accepted up to 0.4")
	}
	for _, token := range []int32{4, 5} {
		if p.Token = token; !p.Accepts(target, 1-0x1p-24) {
			t.Errorf("%d is not always accepted", token)
		}
	}
	rest := p.Residual(nil, target)
	wantNear(t, "residual", []float64{rest[0].Weight, rest[1].Weight, rest[2].Weight}, []float64{0, 0.2, 0.1}, 1e-12)

	// Weights that are not normalized; nothing remains of them, so a refusal draws from the target: half and half.
	p = &oracle.Proposal{Token: 3, Candidates: []int32{3, 4}, Q: []float64{0.5, 0.5}}
	target = weights(0, 0, 0, 0.3, 0.3)
	rest = p.Residual(nil, target)
	wantNear(t, "target again", []float64{rest[0].Weight, rest[1].Weight}, []float64{0.3, 0.3}, 0)
	if oracle.Draw(rest, 0.49) != 3 || oracle.Draw(rest, 0.51) != 4 {
		t.Error("a refusal without a residual does not draw from the target")
	}
}

// A toy is a target and a draft of a vocabulary so small that the output's distribution can be written down. Both know the
// last token alone, the target with its policy's penalties for those before; the draft is wrong in its own way, and its
// confidences follow its draws.
type toy struct {
	vocab  int
	policy oracle.Policy
	logits [][]float64 // of the target, by the token before
	unary  [][]float64 // of the draft, by position
	edges  [][]float64 // of the draft, by the token before
}

func newToy(seed uint64, vocab int, policy oracle.Policy) *toy {
	t := &toy{vocab: vocab, policy: policy}
	for i := range uint64(vocab) {
		t.logits = append(t.logits, normals(100*seed+i, vocab))
		t.edges = append(t.edges, normals(100*seed+50+i, vocab))
		for j := range t.edges[i] {
			t.edges[i][j] *= 3 // confidences from a half to nearly one
		}
	}
	for j := range uint64(oracle.Proposals) {
		t.unary = append(t.unary, normals(100*seed+80+j, vocab))
	}
	return t
}

// lattice is what the draft makes of an anchor, with k of the vocabulary's tokens as candidates.
func (t *toy) lattice(anchor int32, k int) *oracle.Lattice {
	l := oracle.NewLattice(oracle.Proposals, k)
	before := []int32{anchor}
	for j := range oracle.Proposals {
		oracle.TopCandidates(l.Candidates(j), l.Unary[j*k:(j+1)*k], t.unary[j])
		for p, token := range before {
			for i, next := range l.Candidates(j) {
				l.Edges[(j*k+p)*k+i] = t.edges[token][next]
			}
		}
		before = l.Candidates(j)
	}
	return l
}

// cycle decodes the tokens after history, whose last is the anchor and whose first the prompt: the accepted proposals and
// the target's own. rows chooses how many are verified, from the confidences.
func (t *toy) cycle(history []int32, u *[oracle.Draws]float64, rows func(confidence []float64) int) []int32 {
	const k = 3
	l := t.lattice(history[len(history)-1], k)
	walk := l.Sample(t.policy.Temperature, u[oracle.DrawProposal:])
	proposals := make([]oracle.Proposal, oracle.Proposals)
	for j := range proposals {
		proposals[j] = oracle.Proposal{Token: walk.Tokens[j], Candidates: l.Candidates(j), Q: walk.Q[j*k : (j+1)*k]}
	}
	target := func(row int) []oracle.Weighted {
		before := append(history[:len(history):len(history)], walk.Tokens[:row]...)
		logits := append([]float64(nil), t.logits[before[len(before)-1]]...)
		t.policy.Penalize(logits, before[:1], before[1:])
		return t.policy.Target(logits)
	}
	accepted, token := oracle.AcceptSampled(proposals, target, rows(walk.Confidence), u)
	return append(walk.Tokens[:accepted:accepted], token)
}

// chances is the target's distribution after a prompt of one token and at most one more: the policy's definition, written
// out.
func (t *toy) chances(history ...int32) []float64 {
	x, temperature := append([]float64(nil), t.logits[history[len(history)-1]]...), t.policy.Temperature
	w, top := make([]float64, t.vocab), math.Inf(-1)
	for i := range x {
		if r := t.policy.Repetition; r > 0 && slices.Contains(history, int32(i)) {
			x[i] = math.Min(x[i]/r, x[i]*r) // for r > 1
		}
		if slices.Contains(history[1:], int32(i)) {
			x[i] -= t.policy.Presence + t.policy.Frequency
		}
		top = math.Max(top, x[i])
	}
	for i, v := range x {
		if v >= top+temperature*math.Log(t.policy.MinP) {
			w[i] = math.Exp((v - top) / temperature)
		}
	}
	above := func(i int) (n int, sum float64) { // of the weights larger than w[i]
		for _, v := range w {
			if v > w[i] {
				n++
				sum += v
			}
		}
		return n, sum
	}
	if k := t.policy.TopK; k > 0 {
		kept := make([]float64, t.vocab)
		for i := range w {
			if n, _ := above(i); n < k {
				kept[i] = w[i]
			}
		}
		w = kept
	}
	if p := t.policy.TopP; p > 0 {
		kept, total := make([]float64, t.vocab), 0.0
		for _, v := range w {
			total += v
		}
		for i := range w {
			if _, sum := above(i); sum <= p*total {
				kept[i] = w[i]
			}
		}
		w = kept
	}
	total := 0.0
	for _, v := range w {
		total += v
	}
	for i := range w {
		w[i] /= total
	}
	return w
}

// TestSampledDistribution samples two tokens after an anchor 20,000 times a case and holds them to the target's
// distribution by a chi-square test: with a fixed number of verified rows, with the budget's rows, which depend on
// confidences and so on earlier draws, and with rows that change at random.
func TestSampledDistribution(t *testing.T) {
	model := oracle.Prior()
	budget := func(confidence []float64) int {
		survival := make([][oracle.Proposals]float64, 1)
		model.Survival(&survival[0], confidence)
		rows := []int{0}
		oracle.VerifyRows(rows, survival, []int{oracle.CycleRows}, 6, 1)
		return rows[0]
	}
	fixed := func(n int) func([]float64) int { return func([]float64) int { return n } }
	for _, c := range []struct {
		name   string
		policy oracle.Policy
		rows   func([]float64) int
	}{
		{"temperature 1, one row", oracle.Policy{Temperature: 1}, fixed(1)},
		{"temperature 1, two rows", oracle.Policy{Temperature: 1}, fixed(2)},
		{"temperature 1, all rows", oracle.Policy{Temperature: 1}, fixed(8)},
		{"temperature 0.6, three rows", oracle.Policy{Temperature: 0.6}, fixed(3)},
		{"temperature 1.7, all rows", oracle.Policy{Temperature: 1.7}, fixed(8)},
		{"top-k, all rows", oracle.Policy{Temperature: 1, TopK: 3}, fixed(8)},
		{"top-k, two rows", oracle.Policy{Temperature: 1.2, TopK: 2}, fixed(2)},
		{"top-p, all rows", oracle.Policy{Temperature: 1, TopP: 0.8}, fixed(8)},
		{"top-p, four rows", oracle.Policy{Temperature: 0.8, TopP: 0.6}, fixed(4)},
		{"min-p, all rows", oracle.Policy{Temperature: 1, MinP: 0.2}, fixed(8)},
		{"all three, five rows", oracle.Policy{Temperature: 0.9, MinP: 0.05, TopK: 4, TopP: 0.9}, fixed(5)},
		{"penalties, all rows", oracle.Policy{Temperature: 1, Repetition: 1.5, Presence: 0.3, Frequency: 0.4}, fixed(8)},
		{"penalties and top-k, three rows", oracle.Policy{Temperature: 1, TopK: 4, Repetition: 1.3, Frequency: 1}, fixed(3)},
		{"budget", oracle.Policy{Temperature: 1}, budget},
		{"budget, top-k", oracle.Policy{Temperature: 1.3, TopK: 4}, budget},
		{"budget, top-p", oracle.Policy{Temperature: 0.7, TopP: 0.9}, budget},
	} {
		t.Run(c.name, func(t *testing.T) {
			const vocab, samples = 6, 20000
			toy := newToy(3, vocab, c.policy)
			count := make([]float64, vocab*vocab)
			verified := make(map[int]int)
			rows := func(confidence []float64) int {
				n := c.rows(confidence)
				verified[n]++
				return n
			}
			for seed := range uint64(samples) {
				var u [oracle.Draws]float64
				oracle.CycleUniforms(&u, seed, 0)
				tokens := toy.cycle([]int32{0}, &u, rows)
				if len(tokens) == 1 {
					oracle.CycleUniforms(&u, seed, 1)
					tokens = append(tokens, toy.cycle([]int32{0, tokens[0]}, &u, rows)...)
				}
				count[int(tokens[0])*vocab+int(tokens[1])]++
			}
			if c.name == "budget" && len(verified) < 3 {
				t.Errorf("the budget chose rows %v only", verified)
			}
			expected := make([]float64, vocab*vocab)
			for a, p := range toy.chances(0) {
				for b, q := range toy.chances(0, int32(a)) {
					expected[a*vocab+b] = samples * p * q
				}
			}
			if p := chiSquare(t, count, expected); p < 1e-3 {
				t.Errorf("such counts have probability %.2g\n got %v\nwant %.0f", p, count, expected)
			}
		})
	}
}

// chiSquare is the probability that counts drawn from the expected ones lie as far from them as these. Cells expected
// below 5 are taken together; a count where none is possible fails the test.
func chiSquare(t *testing.T, count, expected []float64) float64 {
	t.Helper()
	var sum, restCount, restExpected float64
	cells := 0
	for i, e := range expected {
		if e == 0 && count[i] > 0 {
			t.Errorf("cell %d: %v samples of an impossible outcome", i, count[i])
		}
		if e < 5 {
			restCount, restExpected = restCount+count[i], restExpected+e
			continue
		}
		sum += (count[i] - e) * (count[i] - e) / e
		cells++
	}
	if restExpected >= 1 {
		sum += (restCount - restExpected) * (restCount - restExpected) / restExpected
		cells++
	}
	return distuv.ChiSquared{K: float64(cells - 1)}.Survival(sum)
}
