package conformance_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/internal/engine"
	"splash/internal/model"
	"splash/oracle"
)

const demoContext = 4096

func demoPath(name string) string { return filepath.Join("..", "fixtures", "pebble", name) }

// A demoPrompt is one of the demonstration model's prompts, with what another implementation made of it in F32.
type demoPrompt struct {
	Question string
	IDs      []int32 `json:"ids"`
	Greedy   []int32 `json:"greedy_ids"`
	Margin   float64 // the smallest gap between the two best logits on the way
}

func demoPrompts(t testing.TB) []demoPrompt {
	t.Helper()
	var file struct{ Prompts []demoPrompt }
	data, err := os.ReadFile(demoPath("prompts.json"))
	if err == nil {
		err = json.Unmarshal(data, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file.Prompts
}

func generate(t testing.TB, e *engine.Engine, prompt []int32, tokens int, stop ...int32) []int32 {
	t.Helper()
	s, err := e.Submit(context.Background(), engine.Request{Prompt: prompt, MaxTokens: tokens, Stop: stop})
	if err != nil {
		t.Error(err)
		return nil
	}
	var out []int32
	for more := true; more; {
		out, more = s.Next(out)
	}
	if _, err := s.End(); err != nil {
		t.Error(err)
	}
	return out
}

// TestDemoPrompts compares the greedy answers of the demonstration model, in the weights it was trained to, with those of
// the implementation that trained it, where no choice was closer than F32 arithmetic can tell.
func TestDemoPrompts(t *testing.T) {
	o := engine.Options{Context: demoContext}
	_, n := load(t, demoPath("pebble-BF16.gguf"), o.MaxRows(), model.Options{})
	e := engine.New(n, o)
	defer e.Close()
	prompts := demoPrompts(t)
	var wg sync.WaitGroup
	room := make(chan struct{}, 4)
	for _, p := range prompts {
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			got := generate(t, e, p.IDs, len(p.Greedy))
			if d := cmp.Diff(p.Greedy, got); d != "" && p.Margin > 1e-3 {
				t.Errorf("%s: %s", p.Question, d)
			}
		})
	}
	wg.Wait()
}

// TestDemoTextDoesNotDependOnCuts gives the demonstration model prompts of many lengths, in passes of every size, alone and
// beside others, some of which are cancelled: the greedy text stays the same.
func TestDemoTextDoesNotDependOnCuts(t *testing.T) {
	all := demoPrompts(t)
	var long []int32
	for len(long) < 130 {
		long = append(long, all[len(long)%len(all)].IDs...)
	}
	prompts := [][]int32{long[:1], long[:37], long[:130], all[0].IDs, all[30].IDs}
	const tokens = 16
	want := make([][]int32, len(prompts))
	for i, c := range []struct{ chunk, lanes int }{{demoContext, 1}, {1, 4}, {3, 1}, {64, 1}, {64, 4}} {
		o := engine.Options{Context: demoContext, Chunk: c.chunk, Lanes: c.lanes}
		_, n := load(t, demoPath("pebble-Q8_0.gguf"), o.MaxRows(), model.Options{})
		e := engine.New(n, o)
		got := make([][]int32, len(prompts))
		if c.lanes == 1 {
			for j, p := range prompts {
				got[j] = generate(t, e, p, tokens)
			}
		} else {
			together(t, e, prompts, got, tokens)
		}
		e.Close()
		if i == 0 {
			want = got
		} else if d := cmp.Diff(want, got); d != "" {
			t.Errorf("passes of %d rows, %d lanes: %s", c.chunk, c.lanes, d)
		}
	}
}

// together runs the prompts at once, in random order, beside a request that is cancelled on its way.
func together(t *testing.T, e *engine.Engine, prompts, got [][]int32, tokens int) {
	var wg sync.WaitGroup
	for _, j := range rand.Perm(len(prompts)) {
		wg.Go(func() { got[j] = generate(t, e, prompts[j], tokens) })
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := e.Submit(ctx, engine.Request{Prompt: prompts[2]})
	if err != nil {
		t.Error(err)
		return
	}
	s.Next(nil)
	cancel()
	wg.Wait()
}

// TestDemoCuts cuts 5 and 200 tokens in every way that has gone wrong somewhere: the logits have the same bits.
func TestDemoCuts(t *testing.T) {
	var tokens []int32
	for _, p := range demoPrompts(t) {
		tokens = append(tokens, p.IDs...)
	}
	_, n := load(t, demoPath("pebble-Q8_0.gguf"), 256, model.Options{})
	for rows, cuts := range map[int][][]int{
		5:   {{4, 1}, {1}, {2, 3}},
		200: {{63, 137}, {64, 136}, {65, 135}, {127, 73}, {128, 72}},
	} {
		want := rowsOf(t, n, tokens[:rows], []int{rows})
		for _, cut := range cuts {
			if at := firstDifference(want, rowsOf(t, n, tokens[:rows], cut)); at >= 0 {
				t.Errorf("%d tokens in passes of %v: the logits of row %d differ", rows, cut, at)
			}
		}
	}
}

// BenchmarkDemoDecode is the oracle backend's speed on the demonstration model: tokens a second, one lane.
func BenchmarkDemoDecode(b *testing.B) {
	_, n := load(b, demoPath("pebble-Q8_0.gguf"), 256, model.Options{})
	lane, err := n.Backend().NewLane()
	if err != nil {
		b.Fatal(err)
	}
	prompt := demoPrompts(b)[0].IDs
	forwardB(b, n, lane, prompt)
	token := int32(oracle.Argmax(n.Logits(0)))
	for b.Loop() {
		forwardB(b, n, lane, []int32{token})
		token = int32(oracle.Argmax(n.Logits(0)))
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
}

func forwardB(b *testing.B, n model.Network, lane model.Lane, tokens []int32) {
	p := &model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: tokens, Outputs: 1}}}
	if err := n.Forward(p); err != nil {
		b.Fatal(err)
	}
}

// TestReuseHasTheBitsOfAColdRun saves a lane, resumes another, and compares logits with a run that read everything.
func TestReuseHasTheBitsOfAColdRun(t *testing.T) {
	var tokens []int32
	for _, p := range demoPrompts(t) {
		tokens = append(tokens, p.IDs...)
	}
	_, n := load(t, demoPath("pebble-Q8_0.gguf"), 256, model.Options{})
	b := n.Backend()
	want := rowsOf(t, n, tokens[:128], []int{96, 32})
	lane := newLane(t, n)
	forward(t, n, lane, tokens[:96])
	saved, bytes, err := b.Save(lane)
	if err != nil || bytes <= 0 {
		t.Fatalf("saved %d bytes: %v", bytes, err)
	}
	forward(t, n, lane, tokens[200:250]) // the lane goes elsewhere
	for range 2 {
		other := newLane(t, n)
		if err := b.Resume(other, saved); err != nil {
			t.Fatal(err)
		}
		forward(t, n, other, tokens[96:128])
		for i := range 32 {
			if !slices.Equal(want[96+i], n.Logits(i)) {
				t.Fatalf("row %d differs from a cold run's", 96+i)
			}
		}
		if err := b.Resume(other, saved); err == nil {
			t.Error("a lane with rows resumed")
		}
	}
	b.Drop(saved)
	if err := b.Resume(newLane(t, n), saved); err == nil {
		t.Error("a dropped checkpoint was resumed")
	}
}
