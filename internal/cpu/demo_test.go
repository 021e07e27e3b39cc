package cpu_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/fixtures"
	"splash/internal/cpu"
	"splash/internal/engine"
	"splash/internal/gguf"
	"splash/internal/model"
	"splash/internal/reference"
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
	return loadDemoOn(t, target, func(p *planner.Plan) (model.Backend, error) {
		b, err := cpu.New(p, maxRows, o)
		if err == nil {
			t.Cleanup(func() { b.Close() })
		}
		return b, err
	})
}

func loadDemoOn(t testing.TB, target []byte, open func(p *planner.Plan) (model.Backend, error)) demo {
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
	b, err := open(p)
	check(err)
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
	eachLevel(t, func(t *testing.T, l cpu.Level) {
		prompts := demoPrompts(t)
		switch {
		case slow(l) && l == cpu.AMX:
			prompts = prompts[:2]
		case testing.Short() || slow(l):
			prompts = prompts[:8]
		}
		testDemo(t, l, fixtures.Pebble, prompts)
	})
}

// TestDemoBF16 is TestDemo with BF16 weights, at the levels that differ in how they multiply these.
func TestDemoBF16(t *testing.T) {
	target, err := os.ReadFile(filepath.Join("..", "..", "fixtures", "pebble", "pebble-BF16.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	eachLevel(t, func(t *testing.T, l cpu.Level) {
		if l != cpu.AVX512BF16 && l != cpu.AMX {
			return
		}
		prompts := demoPrompts(t)
		if testing.Short() || slow(l) {
			prompts = prompts[:1]
		}
		testDemo(t, l, target, prompts)
	})
}

func testDemo(t *testing.T, l cpu.Level, target []byte, prompts []demoPrompt) {
	few := len(prompts) < 40
	o := engine.Options{Context: demoContext, Vocab: 4096}
	d := loadDemo(t, target, o.MaxRows(), cpu.Options{Level: l.String()})
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
			if !few && got < 0.95*demoTokensPerCycle {
				t.Errorf("%.3f tokens a cycle, want %.3f less 5%%", got, demoTokensPerCycle)
			}
		}
		e.Close()
	}
	if diff := cmp.Diff(answers[0], answers[1]); diff != "" {
		t.Errorf("with and without the draft: %s", diff)
	}
	held, same := 0, 0
	for j, p := range prompts {
		diff := cmp.Diff(p.Greedy, answers[0][j])
		if diff == "" {
			same++
		}
		if p.Margin > demoNoise {
			held++
			if diff != "" {
				t.Errorf("%s: %s", p.Question, diff)
			}
		}
	}
	t.Logf("%d of %d prompts held to the golden text, %d have it", held, len(prompts), same)
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

// TestDraftAgainstReference drafts a block beside the oracle backend, under the exact options. Taps and ring are rounded
// to BF16 on both sides, where a last bit more or less decides one place of eight bits.
func TestDraftAgainstReference(t *testing.T) {
	prompt := demoPrompts(t)[3].IDs
	block := append([]int32{prompt[0]}, 4095, 4095, 4095, 4095, 4095, 4095, 4095)
	outputs := func(d demo) (logits, states [][]float32) {
		lane := newLane(t, d.net)
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, part := range [][]int32{prompt[:len(prompt)/2], prompt[len(prompt)/2:]} {
			forward(t, d.net, lane, part)
			check(d.draft.Commit(&model.Pass{Kind: model.ContextPass, Segments: []model.Segment{{Lane: lane, Tokens: part}}}))
		}
		check(d.draft.Block(&model.Pass{Kind: model.DraftPass, Segments: []model.Segment{{Lane: lane, Tokens: block, Outputs: 7}}}))
		for i := range 7 {
			logits = append(logits, slices.Clone(d.draft.Logits(i)))
			states = append(states, slices.Clone(d.draft.State(i)))
		}
		return logits, states
	}
	wantLogits, wantStates := outputs(loadDemoOn(t, fixtures.Pebble, func(p *planner.Plan) (model.Backend, error) {
		return reference.New(p, 256), nil
	}))
	eachLevel(t, func(t *testing.T, l cpu.Level) {
		logits, states := outputs(loadDemo(t, fixtures.Pebble, 256, exact(l)))
		for i := range logits {
			if d := maxDiff(logits[i], wantLogits[i]); !(d <= 0.05) {
				t.Errorf("row %d: logits stray %.3g", i, d)
			}
			if d := maxDiff(states[i], wantStates[i]); !(d <= 0.05) {
				t.Errorf("row %d: the selector's state strays %.3g", i, d)
			}
		}
		t.Logf("row 0 within %.2g", maxDiff(logits[0], wantLogits[0]))
	})
}

// BenchmarkDemo answers the demonstration prompts one after another, with the draft and without: tokens a second.
func BenchmarkDemo(b *testing.B) {
	o := engine.Options{Context: demoContext, Vocab: 4096}
	for _, drafted := range []bool{true, false} {
		b.Run(map[bool]string{true: "drafted", false: "plain"}[drafted], func(b *testing.B) {
			d := loadDemo(b, fixtures.Pebble, o.MaxRows(), cpu.Options{})
			e := d.engine(b, o, drafted)
			prompts, tokens := demoPrompts(b), 0
			best := 0.0
			for b.Loop() {
				for _, p := range prompts {
					began := time.Now()
					n := len(generate(b, e, p.IDs, 64))
					best = max(best, float64(n)/time.Since(began).Seconds())
					tokens += n
				}
			}
			b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
			b.ReportMetric(best, "tokens/s-best")
			b.ReportMetric(0, "ns/op")
		})
	}
}
