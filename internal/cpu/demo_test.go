package cpu_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/fixtures"
	"splash/internal/cpu"
	"splash/internal/engine"
	"splash/internal/gguf"
	"splash/internal/model"
	"splash/internal/safetensors"
	"splash/planner"
)

const demoContext = 4096

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
	if err := json.Unmarshal(fixtures.PebblePrompts, &file); err != nil {
		t.Fatal(err)
	}
	return file.Prompts
}

// A demo is the demonstration model and its draft on a cpu backend.
type demo struct {
	net    model.Network
	draft  *model.Draft
	source model.DraftSource
}

func loadDemo(t testing.TB, target []byte, maxRows int, o cpu.Options) demo {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := gguf.FromBytes("pebble", target)
	check(err)
	t.Cleanup(func() { f.Close() })
	p, err := planner.PlanGGUF(f.Header)
	check(err)
	sizes, err := planner.PlanDraft(fixtures.PebbleDraftConfig, p)
	check(err)
	c, err := safetensors.FromBytes("the draft", fixtures.PebbleDraft)
	check(err)
	t.Cleanup(func() { c.Close() })
	tensors, err := planner.PlanDraftTensors(sizes, c)
	check(err)
	b, err := cpu.New(p, maxRows, o)
	check(err)
	t.Cleanup(func() { b.Close() })
	n, err := model.New(b, p, planner.OpenGGUF(f, p), model.Options{Taps: sizes.Taps})
	check(err)
	source := model.DraftSource{Sizes: sizes, Tensors: tensors, Weights: planner.OpenSafetensors(c, p)}
	d, err := model.NewDraft(n, source)
	check(err)
	return demo{n, d, source}
}

func (d demo) engine(t testing.TB, o engine.Options, drafted bool) *engine.Engine {
	t.Helper()
	if drafted {
		proposer, err := engine.NewProposer(d.draft, d.source, engine.GreedyWalk)
		if err != nil {
			t.Fatal(err)
		}
		o.Proposer = proposer
	}
	e := engine.New(d.net, o)
	t.Cleanup(e.Close)
	return e
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

// demoTokensPerCycle are those of the demonstration pair in the F32 implementation that trained it
// (fixtures/pebble/README.md).
const demoTokensPerCycle = 5.557

// demoNoise is how far rounding moves the gap between two logits of the demonstration model, which are of order 10.
const demoNoise = 0.5

// TestDemo answers the demonstration prompts with and without the draft, four at a time: the same text, and as far as no
// choice is closer than rounding can tell, that of the implementation that trained the model.
func TestDemo(t *testing.T) {
	prompts := demoPrompts(t)
	if testing.Short() {
		prompts = prompts[:8]
	}
	eachLevel(t, func(t *testing.T, l cpu.Level) {
		o := engine.Options{Context: demoContext, Vocab: 4096}
		d := loadDemo(t, fixtures.Pebble, o.MaxRows(), cpu.Options{Level: l.String()})
		var answers [2][][]int32
		for i, drafted := range []bool{false, true} {
			e := d.engine(t, o, drafted)
			answers[i] = make([][]int32, len(prompts))
			var wg sync.WaitGroup
			room := make(chan struct{}, 4)
			for j, p := range prompts {
				wg.Go(func() {
					room <- struct{}{}
					defer func() { <-room }()
					answers[i][j] = generate(t, e, p.IDs, len(p.Greedy), p.Greedy[len(p.Greedy)-1])
				})
			}
			wg.Wait()
			if drafted {
				s := e.Speculation()
				got := s.Counts.TokensPerCycle()
				t.Logf("%.3f tokens a cycle, %.3f in the README", got, demoTokensPerCycle)
				if !testing.Short() && got < 0.95*demoTokensPerCycle {
					t.Errorf("%.3f tokens a cycle, want %.3f less 5%%", got, demoTokensPerCycle)
				}
			}
			e.Close()
		}
		if diff := cmp.Diff(answers[0], answers[1]); diff != "" {
			t.Errorf("with and without the draft: %s", diff)
		}
		held := 0
		for j, p := range prompts {
			if p.Margin > demoNoise {
				held++
				if diff := cmp.Diff(p.Greedy, answers[0][j]); diff != "" {
					t.Errorf("%s: %s", p.Question, diff)
				}
			}
		}
		t.Logf("%d of %d prompts held to the golden text", held, len(prompts))
	})
}

// TestNothingIsAllocated runs decode cycles of the demonstration pair: a pass of the target over eight rows, rows taken
// back, the draft's context and its block.
func TestNothingIsAllocated(t *testing.T) {
	eachLevel(t, func(t *testing.T, l cpu.Level) {
		d := loadDemo(t, fixtures.Pebble, 64, cpu.Options{Level: l.String()})
		lane := newLane(t, d.net)
		forward(t, d.net, lane, demoPrompts(t)[0].IDs)
		tokens := []int32{5, 6, 7, 8, 9, 10, 11, 12}
		verify := &model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: tokens, Outputs: 8}}}
		context := &model.Pass{Kind: model.ContextPass, Segments: []model.Segment{{Lane: lane, Tokens: tokens[:1]}}}
		block := &model.Pass{Kind: model.DraftPass, Segments: []model.Segment{{Lane: lane, Tokens: tokens, Outputs: 7}}}
		cycle := func() {
			err := d.net.Forward(verify)
			if err == nil {
				err = d.net.Backend().Rollback(lane, 7)
			}
			if err == nil {
				err = d.draft.Commit(context)
			}
			if err == nil {
				err = d.draft.Block(block)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			cycle()
		}
		if n := testing.AllocsPerRun(20, cycle); n != 0 {
			t.Errorf("%v allocations a cycle", n)
		}
	})
}
