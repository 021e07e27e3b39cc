package engine

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/internal/model"
	"splash/oracle"
)

// fake is a network whose logits are a hash of every token its lane has seen, so that a row computed in the wrong lane, at
// the wrong index or twice changes the text.
type fake struct {
	vocab   int
	history map[model.Lane][]uint64 // a hash after each row
	logits  [][]float32
	outputs int
	maxRows int
	fail    func(p *model.Pass) error
	freed   func(l model.Lane)
	saved   [][]uint64
	resumed func(l model.Lane, rows int)
	nan     bool
}

func newFake(vocab int) *fake {
	return &fake{vocab: vocab, history: map[model.Lane][]uint64{}, maxRows: 1 << 20}
}

func (f *fake) Backend() model.Backend { return fakeBackend{fake: f} }

// fakeBackend has what the engine calls of a backend.
type fakeBackend struct {
	model.Backend // the operators are never called
	*fake
}

func (f fakeBackend) Rollback(l model.Lane, n int) error {
	h := f.history[l]
	f.history[l] = h[:len(h)-n]
	return nil
}

func (f fakeBackend) Save(l model.Lane) (model.Checkpoint, int64, error) {
	f.saved = append(f.saved, slices.Clone(f.history[l]))
	return model.Checkpoint(len(f.saved) - 1), int64(8 * len(f.history[l])), nil
}

func (f fakeBackend) Resume(l model.Lane, c model.Checkpoint) error {
	f.history[l] = slices.Clone(f.saved[c])
	if f.resumed != nil {
		f.resumed(l, len(f.saved[c])-1)
	}
	return nil
}

func (f fakeBackend) Drop(c model.Checkpoint) { f.saved[c] = nil }

func (f fakeBackend) NewLane() (model.Lane, error) {
	for l := model.Lane(0); ; l++ {
		if _, ok := f.history[l]; !ok {
			f.history[l] = []uint64{1}
			return l, nil
		}
	}
}

func (f fakeBackend) FreeLane(l model.Lane) {
	delete(f.history, l)
	if f.freed != nil {
		f.freed(l)
	}
}

func (f *fake) Forward(p *model.Pass) error {
	if f.fail != nil {
		if err := f.fail(p); err != nil {
			return err
		}
	}
	f.outputs = 0
	rows := 0
	for _, s := range p.Segments {
		h := f.history[s.Lane][len(f.history[s.Lane])-1]
		for i, t := range s.Tokens {
			h = f.see(step(h, t), &s, i)
			rows++
			f.history[s.Lane] = append(f.history[s.Lane], h)
			if i >= len(s.Tokens)-s.Outputs {
				f.fill(h)
			}
		}
	}
	if rows > f.maxRows {
		return errors.New("too many rows")
	}
	return nil
}

func (f *fake) fill(h uint64) {
	if f.outputs == len(f.logits) {
		f.logits = append(f.logits, make([]float32, f.vocab))
	}
	row := f.logits[f.outputs]
	f.outputs++
	fillLogits(row, h)
	if f.nan {
		row[0] = float32(math.NaN())
		for i := range row {
			row[i] = row[0]
		}
	}
}

// step is the hash after one more token.
func step(h uint64, token int32) uint64 {
	return h*6364136223846793005 + uint64(token) + 1442695040888963407
}

func fillLogits(row []float32, h uint64) {
	for i := range row {
		h ^= h >> 29
		h *= 0xBF58476D1CE4E5B9
		row[i] = float32(h>>40) / (1 << 22)
	}
}

func (f *fake) Logits(i int) []float32     { return f.logits[i] }
func (f *fake) Tap(tap, row int) []float32 { return nil }

func (f *fake) Ends() (table, head model.Matrix, taps []model.Buffer) { return 0, 0, nil }

// text runs a request alone on a fresh engine.
func text(t *testing.T, r Request) []int32 {
	t.Helper()
	e := New(newFake(97), Options{Context: 1 << 20})
	defer e.Close()
	return collect(t, e, r)
}

func collect(t *testing.T, e *Engine, r Request) []int32 {
	t.Helper()
	s, err := e.Submit(context.Background(), r)
	if err != nil {
		t.Error(err)
		return nil
	}
	var tokens []int32
	for more := true; more; {
		tokens, more = s.Next(tokens)
	}
	if why, err := s.End(); err != nil || why != Length && why != Stop {
		t.Errorf("ended %v: %v", why, err)
	}
	return tokens
}

func prompt(n int, seed uint64) []int32 {
	r := rand.New(rand.NewPCG(seed, 0))
	p := make([]int32, n)
	for i := range p {
		p[i] = r.Int32N(97)
	}
	return p
}

func TestRequestsDoNotTouch(t *testing.T) {
	var requests []Request
	for i, n := range []int{1, 37, 400, 3, 1000, 64, 65, 2} {
		requests = append(requests, Request{
			Prompt: prompt(n, uint64(i)), MaxTokens: 20 + 7*i, Seed: uint64(i),
			Policy: oracle.Policy{Temperature: float64(i%2) * 0.8, TopK: 20, TopP: 0.95, Frequency: float64(i%3) * 0.1},
		})
	}
	var want [][]int32
	for _, r := range requests {
		want = append(want, text(t, r))
	}
	for _, chunk := range []int{1, 3, 64, 5000} {
		f := newFake(97)
		o := Options{Context: 1 << 24, Chunk: chunk, Lanes: 3, Queue: 100}
		f.maxRows = o.MaxRows()
		e := New(f, o)
		got := make([][]int32, len(requests))
		var wg sync.WaitGroup
		for i, r := range requests {
			wg.Go(func() { got[i] = collect(t, e, r) })
		}
		// A cancelled request among them leaves no trace.
		ctx, cancel := context.WithCancel(context.Background())
		s, err := e.Submit(ctx, Request{Prompt: prompt(9, 99)})
		if err != nil {
			t.Fatal(err)
		}
		s.Next(nil)
		cancel()
		wg.Wait()
		for more := true; more; _, more = s.Next(nil) {
		}
		if why, err := s.End(); why != Cancelled || !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled request ended %v: %v", why, err)
		}
		e.Close()
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("chunk %d: %s", chunk, d)
		}
		if len(f.history) != 0 {
			t.Errorf("chunk %d: %d lanes left", chunk, len(f.history))
		}
	}
}

func TestStopAndLength(t *testing.T) {
	r := Request{Prompt: prompt(5, 1), MaxTokens: 10}
	all := text(t, r)
	if len(all) != 10 {
		t.Fatalf("%d tokens of 10", len(all))
	}
	e := New(newFake(97), Options{Context: 16})
	defer e.Close()
	r.Stop = []int32{all[4]}
	if got := collect(t, e, r); len(got) > 5 || got[len(got)-1] != all[4] {
		t.Errorf("stopped after %v", got)
	}
	// Without a limit the context is one: 5 tokens of prompt, 11 of output.
	if got := collect(t, e, Request{Prompt: prompt(5, 1)}); len(got) != 11 {
		t.Errorf("%d tokens fill a context of 16", len(got))
	}
}

func TestRefusals(t *testing.T) {
	e := New(newFake(97), Options{Context: 16, Queue: 1, Lanes: 1})
	for name, r := range map[string]Request{
		"empty":    {},
		"too long": {Prompt: prompt(16, 1)},
		"no room":  {Prompt: prompt(10, 1), MaxTokens: 7},
		"negative": {Prompt: prompt(1, 1), MaxTokens: -1},
	} {
		if _, err := e.Submit(context.Background(), r); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	e.Close()
	if _, err := e.Submit(context.Background(), Request{Prompt: prompt(1, 1)}); !errors.Is(err, ErrStopped) {
		t.Errorf("a stopped engine says %v", err)
	}
}

func TestQueue(t *testing.T) {
	hold := make(chan struct{})
	f := newFake(97)
	f.fail = func(*model.Pass) error { <-hold; return nil }
	e := New(f, Options{Context: 64, Queue: 2, Lanes: 1})
	var streams []*Stream
	var full int
	for range 6 {
		s, err := e.Submit(context.Background(), Request{Prompt: prompt(3, 1), MaxTokens: 2})
		if errors.Is(err, ErrQueueFull) {
			full++
			continue
		}
		streams = append(streams, s)
		for e.Stats().Active == 0 {
			runtime.Gosched()
		}
	}
	if len(streams) != 3 || full != 3 {
		t.Errorf("%d running or waiting, %d refused", len(streams), full)
	}
	// One that waits and is cancelled ends without a lane.
	close(hold)
	for _, s := range streams {
		for more := true; more; _, more = s.Next(nil) {
		}
		if why, _ := s.End(); why != Length {
			t.Errorf("ended %v", why)
		}
		if tm := s.Timing(); tm.First.Before(tm.Started) || tm.Ended.Before(tm.First) || tm.Started.Before(tm.Submitted) {
			t.Errorf("timing %+v", tm)
		}
	}
	e.Close()
}

func TestCloseEndsRequests(t *testing.T) {
	e := New(newFake(97), Options{Context: 1 << 20, Lanes: 1})
	var streams []*Stream
	for range 3 {
		s, err := e.Submit(context.Background(), Request{Prompt: prompt(3, 1)})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	e.Close()
	for _, s := range streams {
		for more := true; more; _, more = s.Next(nil) {
		}
		if why, err := s.End(); why != Cancelled || !errors.Is(err, ErrStopped) {
			t.Errorf("ended %v: %v", why, err)
		}
	}
}

func TestFaults(t *testing.T) {
	broken := errors.New("device lost")
	for name, c := range map[string]struct {
		fail func(*model.Pass) error
		nan  bool
		want error
	}{
		"error": {fail: func(*model.Pass) error { return broken }, want: broken},
		"panic": {fail: func(*model.Pass) error { panic("index out of range") }},
		"nan":   {nan: true, want: ErrNotFinite},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(97)
			e := New(f, Options{Context: 64})
			defer e.Close()
			if got := collect(t, e, Request{Prompt: prompt(3, 1), MaxTokens: 4}); len(got) != 4 {
				t.Fatalf("%d tokens before the fault", len(got))
			}
			for e.Stats().Active != 0 {
				runtime.Gosched()
			}
			f.fail, f.nan = c.fail, c.nan
			s, err := e.Submit(context.Background(), Request{Prompt: prompt(3, 1), MaxTokens: 4})
			if err != nil {
				t.Fatal(err)
			}
			for more := true; more; _, more = s.Next(nil) {
			}
			why, err := s.End()
			if why != Failed || err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("ended %v: %v", why, err)
			}
			for e.Stats().Active != 0 {
				runtime.Gosched()
			}
			f.fail, f.nan = nil, false
			if got := collect(t, e, Request{Prompt: prompt(3, 1), MaxTokens: 4}); len(got) != 4 {
				t.Errorf("%d tokens after the fault", len(got))
			}
			if got := e.Stats().Failures; got != 1 {
				t.Errorf("%d failures", got)
			}
		})
	}
}

// TestSampler holds the sampler to package oracle's formula.
func TestSampler(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	var p sampler
	for range 3000 {
		n := 1 + r.IntN(200) // some of more tokens than top-p looks at first
		logits, wide := make([]float32, n), make([]float64, n)
		for i := range logits {
			logits[i] = float32(r.IntN(12)) / 4 // many ties
			if r.IntN(20) == 0 && i > 0 {
				logits[i] = float32(math.Inf(-1))
			}
			wide[i] = float64(logits[i])
		}
		policy := oracle.Policy{Temperature: 0.1 + r.Float64(), TopK: r.IntN(n + 3)}
		if r.IntN(2) == 0 {
			policy.TopP = r.Float64()
		}
		if r.IntN(2) == 0 {
			policy.MinP = r.Float64()
		}
		prompt, output := make([]int32, r.IntN(5)), make([]int32, r.IntN(5))
		for _, side := range [][]int32{prompt, output} {
			for i := range side {
				side[i] = r.Int32N(int32(n))
			}
		}
		if r.IntN(2) == 0 {
			policy.Repetition, policy.Presence, policy.Frequency = 1.5, 0.25, 0.5
		}
		request := Request{Prompt: prompt, Policy: policy, Seed: r.Uint64()}
		if len(prompt) == 0 {
			request.Prompt = []int32{0}
		}
		s := newStream(context.Background(), request, 1000)
		s.start(0, 0)
		for _, token := range output {
			s.accept(token)
		}
		policy.Penalize(wide, request.Prompt, output)
		want := oracle.Draw(policy.Target(wide), oracle.Uniform(request.Seed, 1))
		s.uniforms[oracle.DrawCorrection] = oracle.Uniform(request.Seed, 1)
		got, _, err := p.verify(s, logits, 0, true)
		if err != nil || got != want {
			t.Fatalf("drew %d (%v), the formula %d: %+v of %v", got, err, want, policy, logits)
		}
	}
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	for name, policy := range map[string]oracle.Policy{
		"greedy":  {},
		"sampled": {Temperature: 0.8, TopK: 20, TopP: 0.95, MinP: 0.01},
		"all":     {Temperature: 0.8, TopP: 0.95},
		"penalty": {Temperature: 0.8, TopK: 20, Repetition: 1.1, Presence: 0.1},
	} {
		e := newEngine(newFake(97), Options{Context: 1 << 20})
		for range 4 {
			s := newStream(context.Background(), Request{Prompt: prompt(5, 1), Policy: policy}, 1<<20)
			s.tokens = make([]int32, 0, 4096)
			e.waiting = append(e.waiting, s)
		}
		e.admit()
		for range 300 {
			e.admit()
			e.step()
		}
		if n := testing.AllocsPerRun(200, func() { e.admit(); e.step() }); n != 0 {
			t.Errorf("%s: a pass of four lanes allocates %v times", name, n)
		}
	}
}

func TestHangUpFreesLane(t *testing.T) {
	f := newFake(97)
	e := New(f, Options{Context: 1 << 20, Lanes: 1})
	defer e.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := e.Submit(ctx, Request{Prompt: prompt(3, 1)}); err != nil {
		t.Fatal(err)
	}
	// It cannot run before the first one's lane is free, and nobody reads that one's tokens.
	if got := collect(t, e, Request{Prompt: prompt(3, 1), MaxTokens: 4}); len(got) != 4 {
		t.Errorf("%d tokens", len(got))
	}
}
