package conformance_test

import (
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/internal/engine"
	"splash/internal/model"
	"splash/internal/reference"
	"splash/planner"
)

// loadPair builds the demonstration model and its draft on the oracle backend.
func loadPair(t testing.TB, target string, o engine.Options, unrounded bool) (model.Network, engine.Proposer) {
	t.Helper()
	p, w := openFile(t, demoPath(target))
	config, err := os.ReadFile(demoPath("draft/config.json"))
	if err != nil {
		t.Fatal(err)
	}
	sizes, err := planner.PlanDraft(config, p)
	if err != nil {
		t.Fatal(err)
	}
	c, err := planner.OpenDraft(demoPath("draft"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	tensors, err := planner.PlanDraftTensors(sizes, c)
	if err != nil {
		t.Fatal(err)
	}
	n, err := model.New(reference.New(p, o.MaxRows()), p, w, model.Options{Taps: sizes.Taps})
	if err != nil {
		t.Fatal(err)
	}
	source := model.DraftSource{Sizes: sizes, Tensors: tensors, Weights: planner.OpenSafetensors(c, p), Unrounded: unrounded}
	d, err := model.NewDraft(n, source)
	if err != nil {
		t.Fatal(err)
	}
	proposer, err := engine.NewProposer(d, source, engine.GreedyWalk)
	if err != nil {
		t.Fatal(err)
	}
	return n, proposer
}

// Tokens a cycle of the demonstration pair, in the F32 implementation that trained it (fixtures/pebble/README.md).
const demoTokensPerCycle = 5.557

func TestDraftTokensPerCycle(t *testing.T) {
	prompts := demoPrompts(t)
	o := engine.Options{Context: demoContext, Vocab: 4096}
	n, proposer := loadPair(t, "pebble-BF16.gguf", o, false)
	o.Proposer = proposer
	e := engine.New(n, o)
	defer e.Close()
	var wg sync.WaitGroup
	room := make(chan struct{}, 4)
	for _, p := range prompts {
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			stop := p.Greedy[len(p.Greedy)-1]
			got := generate(t, e, p.IDs, len(p.Greedy), stop)
			if d := cmp.Diff(p.Greedy, got); d != "" && p.Margin > 1e-3 {
				t.Errorf("%s: %s", p.Question, d)
			}
		})
	}
	wg.Wait()
	s := e.Speculation()
	got := s.Counts.TokensPerCycle()
	t.Logf("%d tokens in %d cycles: %.3f a cycle, %.3f in the README; accepted 0 to 7: %v",
		s.Counts.Tokens, s.Counts.LaneCycles, got, demoTokensPerCycle, s.Histogram)
	if got < 0.95*demoTokensPerCycle {
		t.Errorf("%.3f tokens a cycle, want %.3f less 5%%", got, demoTokensPerCycle)
	}
}

// TestDraftKeepsGreedyText answers 200 prompts, the demonstration model's and their continuations, with the draft and
// without it: token for token the same.
func TestDraftKeepsGreedyText(t *testing.T) {
	var prompts [][]int32
	for _, p := range demoPrompts(t) {
		for k := 0; k < 6 && len(p.IDs) < 30 && len(prompts) < 200; k++ {
			prompts = append(prompts, slices.Concat(p.IDs, p.Greedy[:min(k, len(p.Greedy))]))
		}
	}
	if len(prompts) != 200 {
		t.Fatalf("%d prompts", len(prompts))
	}
	o := engine.Options{Context: demoContext, Vocab: 4096, Queue: len(prompts)}
	var answers [2][][]int32
	for i := range answers {
		n, proposer := loadPair(t, "pebble-Q8_0.gguf", o, false)
		with := o
		if i == 1 {
			with.Proposer = proposer
		}
		e := engine.New(n, with)
		answers[i] = make([][]int32, len(prompts))
		var wg sync.WaitGroup
		for j, p := range prompts {
			wg.Go(func() { answers[i][j] = generate(t, e, p, 12) })
		}
		wg.Wait()
		if s := e.Speculation(); i == 1 {
			t.Logf("%.3f tokens a cycle", s.Counts.TokensPerCycle())
		}
		e.Close()
	}
	if d := cmp.Diff(answers[0], answers[1]); d != "" {
		t.Error(d)
	}
}
