//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/oracle"
)

// policyOf is the kernels' policy of the oracle's, and the oracle's of what that holds.
func policyOf(p oracle.Policy) (policy, oracle.Policy) {
	c := policy{
		temperature: cFloat(p.Temperature), minP: cFloat(p.MinP), topP: cFloat(p.TopP), topK: cUint(p.TopK),
		repetition: cFloat(p.Repetition), presence: cFloat(p.Presence), frequency: cFloat(p.Frequency),
	}
	if p.Repetition == 0 {
		c.repetition = 1
	}
	return c, oracle.Policy{
		Temperature: float64(c.temperature), MinP: float64(c.minP), TopP: float64(c.topP), TopK: p.TopK,
		Repetition: float64(c.repetition), Presence: float64(c.presence), Frequency: float64(c.frequency),
	}
}

// TestSamplingPenalties holds penalties to the oracle: a quotient or a product, and a difference.
func TestSamplingPenalties(t *testing.T) {
	b := newBench(t)
	const vocab, rows = 300, 3
	rng := rand.New(rand.NewPCG(31, 1))
	logits := normals(rng, rows*vocab)
	var list []occurrence
	var policies []policy
	want := wide(logits)
	for row, p := range []oracle.Policy{
		{Repetition: 1.3, Presence: 0.5, Frequency: 0.25}, {Presence: -1}, {Repetition: 0.8},
	} {
		c, p := policyOf(p)
		policies = append(policies, c)
		var prompt, output []int32
		count := make(map[int32]int)
		for range 60 {
			prompt, output = append(prompt, rng.Int32N(vocab)), append(output, rng.Int32N(vocab/3))
		}
		for _, token := range prompt {
			count[token] += 0
		}
		for _, token := range output {
			count[token]++
		}
		for token, n := range count {
			list = append(list, occurrence{row: cUint(row), token: cUint(token), count: cUint(n)})
		}
		p.Penalize(want[row*vocab:(row+1)*vocab], prompt, output)
	}
	buf := filled(b, logits)
	add(&b.commands, b.kernel("penalize"), grid{x: (len(list) + 255) / 256, y: 1, threads: 256},
		penaltyParams{occurrences: cUint(len(list)), vocab: vocab}, buf.from(0), filled(b, list).from(0), filled(b, policies).from(0))
	b.run()
	var r ratio
	for i, y := range want {
		r.check(view[float32](buf)[i], y, 8*u*(math.Abs(y)+math.Abs(float64(logits[i]))+8), "row %d, token %d", i/vocab, i%vocab)
	}
	r.report(t, "penalize")
}

func TestSamplingMask(t *testing.T) {
	b := newBench(t)
	const vocab, rows, words = 300, 2, 10
	rng := rand.New(rand.NewPCG(31, 2))
	logits, masks := normals(rng, rows*vocab), make([]uint32, rows*words)
	for i := range masks {
		masks[i] = rng.Uint32()
	}
	buf := filled(b, logits)
	add(&b.commands, b.kernel("mask_rows"), copyGrid(rows, vocab), headParams{vocab: vocab, words: words}, buf.from(0),
		filled(b, masks).from(0))
	b.run()
	for i, got := range view[float32](buf) {
		want := logits[i]
		if masks[i/vocab*words+i%vocab/32]>>(i%vocab%32)&1 == 0 {
			want = float32(math.Inf(-1))
		}
		if got != want {
			t.Fatalf("row %d, token %d: %v, want %v", i/vocab, i%vocab, got, want)
		}
	}
}

// targets runs the kernel of the rows' targets.
func (b *bench) targets(logits []float32, policies []policy) (*Buffer, *Buffer) {
	b.t.Helper()
	rows := len(policies)
	x, dst := filled(b, logits), empty[rowTarget](b, rows)
	add(&b.commands, b.kernel("head_target"), targetGrid(rows), headParams{vocab: cUint(len(logits) / rows)}, x.from(0),
		filled(b, policies).from(0), dst.from(0))
	b.run()
	return x, dst
}

// samplingPolicies are of every kind and mixture.
var samplingPolicies = []oracle.Policy{
	{}, {Temperature: 1}, {Temperature: 0.7, MinP: 0.05}, {Temperature: 1.3, TopK: 1}, {Temperature: 0.8, TopK: 20},
	{Temperature: 1, TopP: 0.9}, {Temperature: 0.6, TopP: 0.95, TopK: 20}, {Temperature: 2, TopP: 0.5, MinP: 0.01},
	{Temperature: 0.8, MinP: 0.1, TopK: 5, TopP: 0.85}, {Temperature: 1, TopP: 0.999999}, {Temperature: 1, TopK: 100000},
	{Temperature: 1, MinP: 1}, {Temperature: 0.05, TopP: 0.3}, {Temperature: 1, TopP: 1},
}

// samplingLogits are rows of logits: drawn, with many ties, with infinities and no numbers, all equal, in turn.
func samplingLogits(rng *rand.Rand, row, vocab int) []float32 {
	x := normals(rng, vocab)
	for i := range x {
		switch row % 4 {
		case 0:
			x[i] *= 3
		case 1:
			x[i] = float32(math.Round(2*float64(x[i]))) / 2
		case 2:
			if i%3 == 0 {
				x[i] = float32(math.Inf(-1))
			} else if i%7 == 0 {
				x[i] = float32(math.NaN())
			}
		case 3:
			x[i] = -1.5
		}
	}
	return x
}

// TestSamplingTargets holds what policies keep to the oracle, token for token, and its sums of weights: a sum of exponentials, in
// runs of a thread each.
func TestSamplingTargets(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(31, 3))
	var r ratio
	for _, vocab := range []int{8, 31, 300, 1000} {
		var logits []float32
		var policies []policy
		var oracles []oracle.Policy
		for i := range 4 * len(samplingPolicies) {
			c, o := policyOf(samplingPolicies[i/4])
			policies, oracles = append(policies, c), append(oracles, o)
			logits = append(logits, samplingLogits(rng, i, vocab)...)
		}
		_, dst := b.targets(logits, policies)
		for i, got := range view[rowTarget](dst) {
			x := logits[i*vocab : (i+1)*vocab]
			checkTarget(t, &r, x, oracles[i], got, fmt.Sprintf("vocabulary %d, row %d, %+v", vocab, i, oracles[i]))
		}
	}
	inf := float32(math.Inf(-1))
	_, dst := b.targets([]float32{inf, inf, float32(math.NaN()), float32(math.NaN())}, make([]policy, 2))
	for _, got := range view[rowTarget](dst) {
		if got.best != math.MaxUint32 || got.sum != 0 {
			t.Errorf("without a number: %+v", got)
		}
	}
	r.report(t, "head_target")
}

// placeOf is a token's place in the order (kernels/order.h).
func placeOf(x float32) uint32 {
	bits := math.Float32bits(x + 0)
	switch {
	case x != x:
		return 0
	case x == 0:
		return 1 << 31
	case bits>>31 != 0:
		return ^bits
	}
	return bits | 1<<31
}

func checkTarget(t *testing.T, r *ratio, x []float32, p oracle.Policy, got rowTarget, what string) {
	t.Helper()
	best := oracle.Argmax(x)
	if int(got.best) != best || float32(got.top) != x[best] {
		t.Fatalf("%s: best token %d of %v, want %d of %v", what, got.best, got.top, best, x[best])
	}
	if p.Temperature == 0 {
		sum := 0.0
		for _, v := range x {
			if v == v {
				sum += math.Exp(float64(v) - float64(x[best]))
			}
		}
		r.check(float32(got.sum), sum, float64(len(x)/256+32)*u*sum, "%s: sum", what)
		return
	}
	want := p.Target(wide(x))
	var tokens, kept []int
	sum := 0.0
	for _, w := range want {
		tokens = append(tokens, int(w.Token))
		sum += w.Weight
	}
	for id, v := range x {
		if at := placeOf(v); at > uint32(got.place) || at == uint32(got.place) && id <= int(got.last) {
			kept = append(kept, id)
		}
	}
	last := 0.0
	if len(want) > 0 {
		last = want[len(want)-1].Weight
	}
	slices.Sort(tokens)
	if diff := cmp.Diff(tokens, kept); diff != "" && !(onEdge(p, x, sum, last) && len(kept)-len(tokens) <= 1 && len(tokens)-len(kept) <= 1) {
		t.Fatalf("%s: %s", what, diff)
	} else if diff != "" {
		return
	}
	// A weight strays by its exponent's roundings, of at most 60 or so in units.
	r.check(float32(got.sum), sum, float64(len(x)/256+200)*u*sum, "%s: sum", what)
}

// onEdge reports whether the sum that top-p keeps, or what it is without its last weight, is where it cuts to the last unit.
func onEdge(p oracle.Policy, x []float32, sum, last float64) bool {
	limit := p.TopP
	p.TopP = 0
	all := 0.0
	for _, w := range p.Target(wide(x)) {
		all += w.Weight
	}
	return math.Abs(sum-limit*all) <= 4*u*all || math.Abs(sum-last-limit*all) <= 4*u*all
}

// An acceptance is lanes of cycles, for the kernel and for the oracle.
type acceptance struct {
	vocab, k   int
	lanes      []acceptLane
	walks      []walk
	candidates []candidate
	q          []float32
	uniforms   []float32
	stops      []uint32
	logits     []float32
	policies   []policy
}

func (b *bench) accept(a *acceptance) []accepted {
	b.t.Helper()
	ends := []uint32{uint32(a.walks[0].tokens[0]), uint32(a.walks[0].tokens[1])} // another's
	for i := range a.lanes {
		a.lanes[i].stop, a.lanes[i].stops = cUint(len(ends)), cUint(len(a.stops))
	}
	ends = append(ends, a.stops...)
	x, targets := b.targets(a.logits, a.policies)
	dst := empty[accepted](b, len(a.lanes))
	add(&b.commands, b.kernel("decode_accept"), targetGrid(len(a.lanes)), acceptParams{
		vocab: cUint(a.vocab), candidates: cUint(a.k),
	}, x.from(0), targets.from(0), filled(b, a.lanes).from(0), filled(b, a.walks).from(0), filled(b, a.candidates).from(0),
		filled(b, a.q).from(0), filled(b, a.uniforms).from(0), filled(b, ends).from(0), dst.from(0))
	b.run()
	return slices.Clone(view[accepted](dst))
}

// TestSamplingAccept holds whole cycles of greedy and sampled lanes, with every number of rows, to the oracle: the same tokens.
func TestSamplingAccept(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(31, 4))
	const vocab, k, lanes = 300, 16, 96
	a := &acceptance{vocab: vocab, k: k, stops: []uint32{5, 77}}
	oracles := make([]oracle.Policy, lanes)
	for lane := range lanes {
		var c policy
		c, oracles[lane] = policyOf(samplingPolicies[lane%len(samplingPolicies)])
		verify := 1 + lane%8
		a.lanes = append(a.lanes, acceptLane{
			first: cUint(len(a.policies)), verify: cUint(verify), left: cUint(verify + rng.IntN(3)), temperature: c.temperature,
		})
		a.draftLane(rng, lane, c)
		if verify == oracle.CycleRows {
			a.stops = append(a.stops, uint32(a.walks[lane].tokens[1]))
		}
		for i := range draftDraws {
			x := float32(rng.IntN(1<<24)) / (1 << 24)
			if lane%16 == 3 && i == oracle.DrawCorrection {
				x = 1 - 0x1p-24
			}
			a.uniforms = append(a.uniforms, x)
		}
	}
	a.candidates[3*draftProposals*k].token, a.walks[3].tokens[0] = math.MaxUint32, math.MaxUint32
	a.q[4*draftProposals*k] = float32(math.NaN())
	counts := make(map[int]int)
	for lane, got := range b.accept(a) {
		want := a.oracle(lane, oracles[lane])
		counts[int(want.accepted)]++
		if diff := cmp.Diff(fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got)); diff != "" {
			t.Errorf("lane %d, %+v, %d rows: %s", lane, oracles[lane], a.lanes[lane].verify, diff)
		}
	}
	t.Logf("lanes by accepted proposals: %v", counts)
	if len(counts) < 6 {
		t.Errorf("lanes by accepted proposals: %v", counts)
	}
}

// draftLane adds the rows and the draft of a lane: proposals are often the target's likeliest tokens.
func (a *acceptance) draftLane(rng *rand.Rand, lane int, c policy) {
	var w walk
	for r := range draftProposals {
		x := samplingLogits(rng, 0, a.vocab)
		if r < int(a.lanes[lane].verify) {
			a.logits, a.policies = append(a.logits, x...), append(a.policies, c)
		}
		order := rng.Perm(a.vocab)
		likely := oracle.Argmax(x)
		order[0], order[slices.Index(order, likely)] = likely, order[0]
		shares, sum := make([]float32, a.k), float32(0)
		for i := range shares {
			shares[i] = rng.Float32() + 0.01
			if i == 0 {
				shares[i] += 3
			}
			sum += shares[i]
		}
		for i := range shares {
			a.candidates, a.q = append(a.candidates, candidate{token: cUint(order[i])}), append(a.q, shares[i]/sum)
		}
		at := 0
		if rng.IntN(6) == 0 {
			at = rng.IntN(a.k)
		}
		w.tokens[r] = cUint(order[at])
	}
	if a.lanes[lane].verify == 8 {
		a.logits, a.policies = append(a.logits, samplingLogits(rng, 0, a.vocab)...), append(a.policies, c)
	}
	a.walks = append(a.walks, w)
}

// oracle is what the oracle makes of a lane.
func (a *acceptance) oracle(lane int, p oracle.Policy) (out accepted) {
	l := &a.lanes[lane]
	verify := int(l.verify)
	row := func(r int) []float64 { return wide(a.logits[(int(l.first)+r)*a.vocab:][:a.vocab]) }
	var drafted, tokens []int32
	for _, token := range a.walks[lane].tokens {
		drafted = append(drafted, int32(token))
	}
	var n int
	if p.Temperature == 0 {
		var choices []int32
		for r := range verify {
			choices = append(choices, int32(oracle.Argmax(row(r))))
		}
		n = oracle.AcceptGreedy(drafted, choices, verify)
		tokens = choices[:n+1]
	} else {
		var u [oracle.Draws]float64
		copy(u[:], wide(a.uniforms[lane*draftDraws:(lane+1)*draftDraws]))
		all := make([]oracle.Proposal, draftProposals)
		for j := range all {
			at := (lane*draftProposals + j) * a.k
			all[j] = oracle.Proposal{Token: drafted[j], Q: wide(a.q[at : at+a.k])}
			for _, c := range a.candidates[at : at+a.k] {
				all[j].Candidates = append(all[j].Candidates, int32(c.token))
			}
		}
		var last int32
		n, last = oracle.AcceptSampled(all, func(r int) []oracle.Weighted { return p.Target(row(r)) }, verify, &u)
		tokens = append(drafted[:n:n], last)
	}
	retained := oracle.Retain(tokens, int(l.left), func(t int32) bool { return slices.Contains(a.stops, uint32(t)) })
	out.accepted, out.retained = cUint(n), cUint(retained)
	for i := range out.tokens {
		out.tokens[i] = math.MaxUint32
		if i < len(tokens) {
			out.tokens[i] = cUint(tokens[i])
		}
	}
	return out
}

// TestSamplingWorked are the worked examples of the specification: greedy cycles and their ends, and draws from a target and from
// what a refused proposal leaves of it (draft.md 13.6, 13.7).
func TestSamplingWorked(t *testing.T) {
	b := newBench(t)
	const vocab, none = 100, math.MaxUint32
	for _, c := range []struct {
		drafted, choices   []int
		verify, left       int
		accepted, retained cUint
	}{
		{[]int{1, 2, 3, 4, 5, 6, 7}, []int{1, 2, 3, 4, 5, 6, 7, 8}, 8, 100, 7, 8},
		{[]int{1, 2, 3, 4, 5, 6, 7}, []int{1, 2, 9, 4, 5, 6, 7, 8}, 8, 100, 2, 3},
		{[]int{1, 2, 3, 4, 5, 6, 7}, []int{9, 2, 3, 4, 5, 6, 7, 8}, 8, 100, 0, 1},
		{[]int{1, 2, 3, 4, 5, 6, 7}, []int{1, 2, 3, 4, 5, 6, 7, 8}, 4, 100, 3, 4},
		{[]int{1, 2, 3, 4, 5, 6, 7}, []int{1, 2, 3, 4, 5, 6, 7, 8}, 1, 100, 0, 1},
		{[]int{1, 2, 3, 4, 5, 6, 7}, []int{1, 2, 3, 4, 5, 6, 7, 8}, 3, 3, 2, 3},
		{[]int{1, 90, 3, 4, 5, 6, 7}, []int{1, 90, 3, 4, 5, 6, 7, 8}, 8, 100, 7, 2},
		{[]int{1, 2, 3, 4, 5, 6, 7}, []int{1, 2, 91, 4, 5, 6, 7, 8}, 8, 100, 2, 3},
	} {
		a := &acceptance{
			vocab: vocab, k: 1, stops: []uint32{90, 91}, lanes: []acceptLane{{verify: cUint(c.verify), left: cUint(c.left)}},
			candidates: make([]candidate, draftProposals), q: make([]float32, draftProposals), uniforms: make([]float32, draftDraws),
			logits: make([]float32, vocab*c.verify), policies: make([]policy, c.verify), walks: make([]walk, 1),
		}
		for j, token := range c.drafted {
			a.walks[0].tokens[j] = cUint(token)
		}
		for r := range c.verify {
			a.logits[r*vocab+c.choices[r]] = 1
		}
		got := b.accept(a)[0]
		if got.accepted != c.accepted || got.retained != c.retained || got.tokens[c.accepted] != cUint(c.choices[c.accepted]) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	endless := &acceptance{
		vocab: 4, k: 1, lanes: []acceptLane{{verify: 1, left: 9}}, logits: []float32{0, 1, float32(math.Inf(1)), 2}, policies: make([]policy, 1),
		walks: make([]walk, 1), candidates: make([]candidate, draftProposals), q: make([]float32, draftProposals),
		uniforms: make([]float32, draftDraws),
	}
	if got := b.accept(endless)[0]; got.tokens[0] != none {
		t.Errorf("of a logit without end: %+v", got)
	}
	logits := []float32{2, 1, 2.5, 0, 1.5, -1, 2, .5}
	p, _ := policyOf(oracle.Policy{Temperature: 0.8, MinP: 0.1, TopK: 5, TopP: 0.85})
	for _, c := range []struct {
		verify, proposal cUint
		accept, correct  float32
		want             []cUint
	}{
		{1, 0, 0, 0.1, []cUint{0}}, {1, 0, 0, 0.5, []cUint{2}}, {1, 0, 0, 0.95, []cUint{6}},
		{2, 4, 0.30388, 0.1, []cUint{4, 0}}, {2, 4, 0.30389, 0.1, []cUint{2}}, {2, 4, 0.9, 0.5, []cUint{6}}, {2, 4, 0.9, 0.95, []cUint{6}},
		{2, 2, 0.9999, 0.5, []cUint{2, 2}}, {2, 7, 0, 0.1, []cUint{2}}, {2, none, 0, 0.1, []cUint{2}},
	} {
		a := &acceptance{
			vocab: 8, k: 4, lanes: []acceptLane{{verify: c.verify, left: 9, temperature: p.temperature}}, logits: slices.Concat(logits, logits),
			policies: []policy{p, p}, walks: make([]walk, 1), uniforms: make([]float32, draftDraws),
			candidates: []candidate{{token: 4}, {token: 2}, {token: 0}, {token: 7}}, q: []float32{.4, .3, .2, .1},
		}
		a.candidates, a.q = append(a.candidates, make([]candidate, 24)...), append(a.q, make([]float32, 24)...)
		a.walks[0].tokens[0] = c.proposal
		a.uniforms[oracle.DrawAccept], a.uniforms[oracle.DrawCorrection] = c.accept, c.correct
		if got := b.accept(a)[0]; fmt.Sprint(got.tokens[:len(c.want)]) != fmt.Sprint(c.want) || int(got.accepted) != len(c.want)-1 {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}
