package engine

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/gonum/stat/distuv"

	"splash/internal/model"
	"splash/oracle"
)

// script is a proposer that knows the fake network: its greedy proposals are what the network will say up to a chosen
// error, its sampled ones drawn from a distribution of their own. It also holds the engine to the order of its calls.
type script struct {
	net   *fake
	errAt func() int // proposals that are right

	rows  map[model.Lane]int // rows whose context was made
	fault error
}

func newScript(f *fake, right func() int) *script {
	s := &script{net: f, errAt: right, rows: map[model.Lane]int{}}
	f.freed = func(l model.Lane) { delete(s.rows, l) }
	f.resumed = func(l model.Lane, rows int) { s.rows[l] = rows }
	return s
}

func (s *script) Propose(lanes []DraftLane) error {
	for i := range lanes {
		l := &lanes[i]
		h := s.net.history[l.Lane]
		if s.rows[l.Lane] != len(h)-1 {
			s.fault = fmt.Errorf("lane %d has %d rows, context of %d", l.Lane, len(h)-1, s.rows[l.Lane])
		}
		w := oracle.Walk{}
		if l.Temperature > 0 {
			s.sampled(l, &w)
		} else {
			s.greedy(l, &w, h[len(h)-1])
		}
		*l.Walk = w
	}
	return nil
}

func (s *script) greedy(l *DraftLane, w *oracle.Walk, h uint64) {
	right, token := s.errAt(), l.Anchor
	logits := make([]float32, s.net.vocab)
	for j := range oracle.Proposals {
		h = step(h, token)
		fillLogits(logits, h)
		token = int32(oracle.Argmax(logits))
		if j >= right {
			token = (token + 1) % int32(s.net.vocab)
		}
		w.Tokens = append(w.Tokens, token)
		w.Confidence = append(w.Confidence, 0.9)
	}
}

// sampled draws each proposal from a lopsided distribution over the candidates.
func (s *script) sampled(l *DraftLane, w *oracle.Walk) {
	*l.Candidates = (*l.Candidates)[:0]
	for j := range oracle.Proposals {
		var sum float64
		for i := range candidates {
			token := oracle.NoToken
			if i < s.net.vocab {
				token = int32(s.net.vocab - 1 - i)
			}
			*l.Candidates = append(*l.Candidates, token)
			q := float64(1 + i*i%5)
			if token == oracle.NoToken {
				q = 0
			}
			w.Q = append(w.Q, q)
			sum += q
		}
		q := w.Q[j*candidates:]
		for i := range q {
			q[i] /= sum
		}
		u, at := l.Uniforms[oracle.DrawProposal+j], 0
		for c := q[0]; c <= u; c += q[at] {
			at++
		}
		w.Tokens = append(w.Tokens, (*l.Candidates)[j*candidates+at])
		w.Confidence = append(w.Confidence, 0.5)
	}
}

func (s *script) Commit(p *model.Pass) error {
	for _, seg := range p.Segments {
		rows := len(s.net.history[seg.Lane]) - 1
		if s.rows[seg.Lane] += len(seg.Tokens); s.rows[seg.Lane] != rows {
			s.fault = fmt.Errorf("lane %d: context of %d rows, %d are kept", seg.Lane, s.rows[seg.Lane], rows)
		}
	}
	return nil
}

// TestDraftDoesNotChangeGreedyText decodes with proposals that are right for any number of positions.
func TestDraftDoesNotChangeGreedyText(t *testing.T) {
	var requests []Request
	var want [][]int32
	for i, n := range []int{1, 37, 400, 3} {
		r := Request{Prompt: prompt(n, uint64(i)), MaxTokens: 40 + 7*i, Policy: oracle.Policy{Frequency: float64(i%2) * 0.3}}
		if i == 3 {
			r.Stop = []int32{5, 6, 7}
		}
		requests = append(requests, r)
		want = append(want, text(t, r))
	}
	random := rand.New(rand.NewPCG(5, 6))
	for name, right := range map[string]func() int{
		"never": func() int { return 0 }, "always": func() int { return 7 }, "sometimes": func() int { return random.IntN(8) },
	} {
		for _, rows := range []Rows{AllRows, BudgetRows} {
			f := newFake(97)
			s := newScript(f, right)
			e := New(f, Options{Context: 4096, Chunk: 64, Proposer: s, Rows: rows, Vocab: 97})
			got := make([][]int32, len(requests))
			var wg sync.WaitGroup
			for i, r := range requests {
				wg.Go(func() { got[i] = collect(t, e, r) })
			}
			wg.Wait()
			figures := e.Speculation()
			e.Close()
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s, rows %d: %s", name, rows, d)
			}
			if s.fault != nil {
				t.Errorf("%s: %v", name, s.fault)
			}
			if name == "always" && rows == AllRows && figures.Counts.TokensPerCycle() < 5 {
				t.Errorf("%.2f tokens a cycle of a draft that is always right", figures.Counts.TokensPerCycle())
			}
			if name == "never" && figures.Counts.TokensPerCycle() != 1 {
				t.Errorf("%.2f tokens a cycle of a draft that is never right", figures.Counts.TokensPerCycle())
			}
		}
	}
}

// TestDraftKeepsTheDistribution compares the first three tokens of 20,000 seeded requests, decoded with proposals from
// another distribution, with the target's own by a chi-square test.
func TestDraftKeepsTheDistribution(t *testing.T) {
	for name, policy := range map[string]oracle.Policy{
		"temperature": {Temperature: 1.2}, "top-k": {Temperature: 1, TopK: 3}, "top-p": {Temperature: 0.9, TopP: 0.7},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(5)
			keepsTheDistribution(t, f, f, 20_000, policy)
		})
	}
}

// keepsTheDistribution compares so many seeded requests on a network, which is a fake one or made of it.
func keepsTheDistribution(t *testing.T, net model.Network, f *fake, samples int, policy oracle.Policy) {
	p := []int32{1, 2, 3}
	o := Options{Context: 64, Proposer: newScript(f, nil), Vocab: f.vocab, Lanes: 64, Queue: samples, Chunk: 512}
	e := New(net, o)
	defer e.Close()
	counts := map[[3]int32]int{}
	var streams []*Stream
	for seed := range samples {
		s, err := e.Submit(context.Background(), Request{Prompt: p, MaxTokens: 3, Policy: policy, Seed: uint64(seed)})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	for _, s := range streams {
		var got []int32
		for more := true; more; {
			got, more = s.Next(got)
		}
		if _, err := s.End(); err != nil {
			t.Fatal(err)
		}
		counts[[3]int32(got)]++
	}
	chiSquare(t, counts, samples, exact(p, policy, f.vocab))
}

// exact is the distribution of the three tokens after a prompt.
func exact(prompt []int32, policy oracle.Policy, vocab int) map[[3]int32]float64 {
	h := uint64(1)
	for _, token := range prompt {
		h = step(h, token)
	}
	out := map[[3]int32]float64{}
	var walk func(h uint64, at int, tokens [3]int32, p float64)
	walk = func(h uint64, at int, tokens [3]int32, p float64) {
		if at == 3 {
			out[tokens] = p
			return
		}
		logits := make([]float32, vocab)
		fillLogits(logits, h)
		wide := make([]float64, vocab)
		for i, x := range logits {
			wide[i] = float64(x)
		}
		kept := policy.Target(wide)
		var sum float64
		for _, w := range kept {
			sum += w.Weight
		}
		for _, w := range kept {
			tokens[at] = w.Token
			walk(step(h, w.Token), at+1, tokens, p*w.Weight/sum)
		}
	}
	walk(h, 0, [3]int32{}, 1)
	return out
}

// chiSquare fails where counts so far from the expected ones come by chance less than once in 100,000 runs. Outcomes that
// are expected less than five times are taken together.
func chiSquare(t *testing.T, counts map[[3]int32]int, n int, want map[[3]int32]float64) {
	t.Helper()
	var statistic, rareWant float64
	cells, rare, seen := 0, 0, 0
	for outcome, p := range want {
		got := counts[outcome]
		seen += got
		if p*float64(n) < 5 {
			rare += got
			rareWant += p * float64(n)
			continue
		}
		d := float64(got) - p*float64(n)
		statistic += d * d / (p * float64(n))
		cells++
	}
	if seen != n {
		t.Errorf("%d of %d outcomes are none of the target's", n-seen, n)
	}
	if rareWant > 0 {
		d := float64(rare) - rareWant
		statistic += d * d / math.Max(rareWant, 1)
		cells++
	}
	chance := distuv.ChiSquared{K: float64(cells - 1)}.Survival(statistic)
	t.Logf("chi-square %.1f over %d outcomes: chance %.3f", statistic, cells, chance)
	if chance < 1e-5 {
		t.Errorf("chi-square %.1f over %d outcomes comes by chance %.2g", statistic, cells, chance)
	}
}

// TestStalledCycle drives the budget with a virtual clock: one stalled cycle must not make the next ones verify their
// anchors alone.
func TestStalledCycle(t *testing.T) {
	var clock time.Time
	f := newFake(97)
	s := newScript(f, func() int { return 7 })
	e := newEngine(f, Options{Context: 1 << 20, Proposer: s, Rows: BudgetRows, Vocab: 97, Now: func() time.Time { return clock }})
	stall := false
	f.fail = func(p *model.Pass) error {
		rows, _ := p.Rows()
		clock = clock.Add(time.Duration(20+2*rows) * time.Millisecond)
		if stall {
			clock = clock.Add(2 * time.Second)
		}
		return nil
	}
	for range 4 {
		e.waiting = append(e.waiting, newStream(context.Background(), Request{Prompt: prompt(5, 1)}, 1<<20))
	}
	e.admit()
	for range 200 {
		e.step()
	}
	before := append([]int(nil), e.rows...)
	stall = true
	e.step()
	stall = false
	for range 3 {
		e.step()
		total, was := 0, 0
		for i, r := range e.rows {
			total, was = total+r, was+before[i]
		}
		if total <= len(e.rows) || total < was/2 {
			t.Errorf("after a stalled cycle the lanes verify %v rows, before it %v", e.rows, before)
		}
	}
}

// TestSoak runs 10,000 cycles with random requests, cancellations and joins, then looks for what is left.
func TestSoak(t *testing.T) {
	f := newFake(97)
	random := rand.New(rand.NewPCG(8, 9))
	s := newScript(f, func() int { return random.IntN(8) })
	e := newEngine(f, Options{Context: 4096, Proposer: s, Rows: BudgetRows, Vocab: 97, Queue: 64})
	clients := rand.New(rand.NewPCG(10, 11))
	var cancels []context.CancelFunc
	var streams []*Stream
	cycle := func() {
		if len(e.waiting) < 8 && clients.IntN(4) == 0 {
			ctx, cancel := context.WithCancel(context.Background())
			st := newStream(ctx, Request{
				Prompt: prompt(1+clients.IntN(300), clients.Uint64()), MaxTokens: 1 + clients.IntN(100), Seed: clients.Uint64(),
				Policy: oracle.Policy{Temperature: float64(clients.IntN(2))},
			}, 4096)
			e.waiting = append(e.waiting, st)
			cancels, streams = append(cancels, cancel), append(streams, st)
		}
		if len(cancels) > 0 && clients.IntN(20) == 0 {
			cancels[clients.IntN(len(cancels))]()
		}
		e.admit()
		if len(e.active) > 0 {
			e.step()
		}
	}
	end := func() {
		for _, cancel := range cancels {
			cancel()
		}
		e.admit()
		for i, st := range streams {
			if st.reason == running {
				t.Fatalf("request %d did not end", i)
			}
		}
		cancels, streams = nil, nil
		e.prefixes.clear()
		f.saved = nil
		clear(f.history)
	}
	for range 1000 {
		cycle()
	}
	end()
	start := heapInUse()
	for e.stats.passes.Load() < 11_000 {
		cycle()
		if len(cancels) > 500 {
			end()
		}
	}
	end()
	if len(e.active) != 0 || e.Stats().Active != 0 || s.fault != nil {
		t.Errorf("%d active, fault %v", len(e.active), s.fault)
	}
	if left := heapInUse() - start; left > 256<<10 {
		t.Errorf("%d bytes are left after %d cycles", left, e.stats.passes.Load())
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
