package conformance_test

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/conformance"
	"splash/dequant"
	"splash/fixtures"
	"splash/internal/cpu"
	"splash/internal/engine"
	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// A modelBackend runs whole models in float32, so that its logits are near the oracle's and its greedy text is the oracle's.
type modelBackend struct {
	name string
	open func(t testing.TB, p *planner.Plan, maxRows int) model.Backend
	// draft gives the backend a draft's weights, where it does not take them as it takes a target's; it may be nil.
	draft func(t testing.TB, b model.Backend, s *model.DraftSource)
}

func modelBackends() []modelBackend {
	exact := func(t testing.TB, p *planner.Plan, maxRows int) model.Backend {
		b, err := cpu.New(p, maxRows, cpu.Options{Exact: true, KV: cpu.KVFloat, Workers: 2})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}
	return append([]modelBackend{{name: "cpu exact", open: exact}}, metalModels()...)
}

// modelTolerance bounds how far logits stray from the oracle's, in units of their root mean square: what rounding of sums of a few
// hundred products to float32 amounts to in a few layers.
const modelTolerance = 0x1p-15

// architectures are models of every architecture, in every container that the architecture has; in full, also in every format of a
// GGUF.
func architectures() []storedModel {
	all := fixtures.LinearTypes
	models := inContainers()
	for _, family := range []string{"tiny-qwen35", "tiny-qwen35moe", "tiny-qwen4exp", "tiny-flint"} {
		for i := 0; *full && i < len(all()); i++ {
			models = append(models, inGGUF(fixtures.Recipe{Family: family, Seed: 9, Formats: fixtures.Uniform(all()[i])}))
		}
	}
	return models
}

// inContainers are models of every architecture, in every container that the architecture has.
func inContainers() []storedModel {
	all := fixtures.LinearTypes
	return []storedModel{
		inGGUF(fixtures.Recipe{Family: "tiny-qwen35-tied", Formats: fixtures.Mixed(all()...)}),
		inGGUF(fixtures.Recipe{Family: "tiny-qwen35moe", Formats: fixtures.Mixed(all()...), Fused: true, Predict: 2}),
		inGGUF(fixtures.Recipe{Family: "tiny-qwen4exp", Formats: fixtures.Mixed(all()...), Experts: 8}),
		inGGUF(fixtures.Recipe{Family: "tiny-flint", Formats: fixtures.Mixed(all()...), Scaled: true}),
		inGGUF(fixtures.Recipe{Family: "tiny-rotated", Formats: fixtures.Uniform(dequant.PQ2_0), Rotated: true}),
		in(fixtures.MLX, rounded("tiny-qwen35", fixtures.Mixed(fixtures.MLXTypes()...))),
		in(fixtures.MLX, rounded("tiny-qwen35moe", fixtures.Mixed(fixtures.MLXTypes()...))),
		in(fixtures.ModelOptimizer, rounded("tiny-qwen35", byLayer(dequant.NVFP4, dequant.FP8Rows))),
		in(fixtures.ModelOptimizer, rounded("tiny-qwen35moe", byLayer(dequant.NVFP4, dequant.FP8Rows))),
		in(fixtures.CompressedTensors, rounded("tiny-qwen35-tied", byLayer(dequant.FP8Rows, dequant.NVFP4))),
		in(fixtures.CompressedTensors, rounded("tiny-qwen35moe", byLayer(dequant.FP8Rows, dequant.NVFP4))),
	}
}

// TestModels runs a model of every architecture and container on every backend: a prompt in two passes, whose logits are near the
// oracle's, and greedy text, which is the oracle's.
func TestModels(t *testing.T) {
	for _, m := range architectures() {
		t.Run(m.String(), func(t *testing.T) {
			p, w := m.open(t)
			prompt, count := secondTokens(t, 22), 8
			if m.recipe.Family == "tiny-rotated" {
				prompt, count = prompt[:8], 4 // it is wide
			}
			truth := build(t, p, w, len(prompt), model.Options{})
			want, text := continued(t, truth, prompt, count)
			for _, b := range modelBackends() {
				n, err := model.New(b.open(t, p, len(prompt)), p, w, model.Options{})
				if err != nil {
					t.Fatal(err)
				}
				got, gotText := continued(t, n, prompt, count)
				stray := strayOf(got, want)
				t.Logf("%-12s logits stray %.2g of their root mean square, %.2g is allowed", b.name, stray, modelTolerance)
				if !(stray <= modelTolerance) {
					t.Errorf("%s: logits stray %g", b.name, stray)
				}
				if d := cmp.Diff(text, gotText); d != "" {
					t.Errorf("%s: other text: %s", b.name, d)
				}
			}
		})
	}
}

// continued are the logits of a prompt, in two passes, and the greedy text of so many tokens after it.
func continued(t testing.TB, n model.Network, prompt []int32, count int) (rows [][]float32, text []int32) {
	t.Helper()
	lane := newLane(t, n)
	defer n.Backend().FreeLane(lane)
	for _, part := range [][]int32{prompt[:len(prompt)/3], prompt[len(prompt)/3:]} {
		forward(t, n, lane, part)
		for i := range part {
			rows = append(rows, slices.Clone(n.Logits(i)))
		}
	}
	for len(text) < count {
		text = append(text, int32(oracle.Argmax(rows[len(rows)-1])))
		chosen := forwardChosen(t, n, lane, text[len(text)-1:])
		rows = append(rows, slices.Clone(n.Logits(0)))
		if best := oracle.Argmax(rows[len(rows)-1]); chosen != oracle.NoToken && int(chosen) != best {
			t.Errorf("the backend chooses token %d, whose logit is not the largest: that is %d's", chosen, best)
		}
	}
	return rows, text
}

// forwardChosen runs a row and returns the token that the backend chooses after it, where it chooses tokens.
func forwardChosen(t testing.TB, n model.Network, lane model.Lane, token []int32) int32 {
	t.Helper()
	p := &model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: token, Outputs: 1}}}
	_, chooses := n.Backend().(model.Chooser)
	if chooses {
		p.Choices = []model.Choice{{Rows: 1, Left: 1, Policy: new(oracle.Policy)}}
	}
	if err := n.Forward(p); err != nil {
		t.Fatal(err)
	}
	if !chooses {
		return oracle.NoToken
	}
	return p.Choices[0].Tokens[0]
}

// strayOf is the largest difference of rows of logits by the root mean square of their row.
func strayOf(got, want [][]float32) (worst float64) {
	for i, row := range want {
		sum := 0.0
		for _, v := range row {
			sum += float64(v) * float64(v)
		}
		q := maxDiff(got[i], row) / math.Sqrt(sum/float64(len(row)))
		if !(q <= worst) {
			worst = q
		}
	}
	return worst
}

// TestModelsGolden holds every backend to the golden logits and hidden states of the public runtime.
func TestModelsGolden(t *testing.T) {
	for _, name := range tinyModels {
		g, err := conformance.ReadGolden(tinyPath(name + ".logits.bin"))
		if err != nil {
			t.Fatal(err)
		}
		p, w := openFile(t, tinyPath(name+".gguf"))
		for _, b := range modelBackends() {
			taps := []int{0, 1, 2, 3}
			n, err := model.New(b.open(t, p, len(g.Tokens)), p, w, model.Options{Taps: taps})
			if err != nil {
				t.Fatal(err)
			}
			forward(t, n, newLane(t, n), g.Tokens)
			worst, hidden := 0.0, 0.0
			for i := range g.Tokens {
				worst = math.Max(worst, maxDiff(n.Logits(i), g.Logits[i]))
				for _, l := range taps {
					hidden = math.Max(hidden, maxDiff(n.Tap(l, i), g.Hidden[l][i]))
				}
			}
			t.Logf("%-24s %-12s logits within %.2g, hidden states within %.2g", name, b.name, worst, hidden)
			if !(worst <= goldenTolerance) || !(hidden <= goldenTolerance) {
				t.Errorf("%s, %s: logits stray %g, hidden states %g; %g is allowed", name, b.name, worst, hidden, goldenTolerance)
			}
		}
	}
}

// reading is a backend whose logits are read, also where it chooses tokens.
type reading struct{ model.Backend }

// TestModelsDraft decodes with a draft on every backend, nearly every cycle of which takes rows back: the greedy text is that of the
// oracle backend without one. Where the backend chooses tokens it is so with tokens that it chooses and with logits that are read,
// with the draft and without.
func TestModelsDraft(t *testing.T) {
	prompt := secondTokens(t, 8)
	const tokens = 8
	for _, family := range []string{"tiny-qwen35", "tiny-qwen35moe", "tiny-qwen4exp", "tiny-flint"} {
		t.Run(family, func(t *testing.T) {
			m := inGGUF(fixtures.Recipe{Family: family, Seed: 5, Formats: fixtures.Uniform(dequant.Q8_0)})
			p, w := m.open(t)
			o := engine.Options{Context: 256, Vocab: p.Layout.Vocab, Chunk: 16, Lanes: 1}
			alone := engine.New(build(t, p, w, o.MaxRows(), model.Options{}), o)
			want := generate(t, alone, prompt, tokens)
			alone.Close()
			source := generatedDraft(t, p, fixtures.Draft{Family: family, Block: 16, Mask: family == "tiny-flint"})
			for _, b := range modelBackends() {
				for _, read := range []bool{false, true} {
					n, proposer, chooses := openPair(t, &b, p, w, source, o, read)
					for _, drafted := range []bool{true, false} {
						if diff := cmp.Diff(want, generateWith(t, n, o, proposer, drafted, prompt, tokens)); diff != "" {
							t.Errorf("%s, logits read %v, drafted %v: %s", b.name, read, drafted, diff)
						}
						if !chooses {
							break
						}
					}
					if !chooses {
						break
					}
				}
			}
		})
	}
}

// openPair opens a backend for a target and its draft, and says whether it chooses tokens. It does not where logits are to be read.
func openPair(
	t *testing.T, b *modelBackend, p *planner.Plan, w planner.Weights, source model.DraftSource, o engine.Options, read bool,
) (n model.Network, proposer engine.Proposer, chooses bool) {
	opened := b.open(t, p, o.MaxRows())
	if b.draft != nil {
		b.draft(t, opened, &source)
	}
	_, chooses = opened.(model.Chooser)
	if read {
		opened = reading{opened}
	}
	n, proposer = besides(t, opened, p, w, source)
	return n, proposer, chooses
}

// generateWith is what a new engine generates, with a draft or without.
func generateWith(
	t *testing.T, n model.Network, o engine.Options, p engine.Proposer, drafted bool, prompt []int32, tokens int,
) []int32 {
	t.Helper()
	if drafted {
		o.Proposer = p
	}
	e := engine.New(n, o)
	defer e.Close()
	got := generate(t, e, prompt, tokens)
	if s := e.Speculation(); drafted && s.Counts.LaneCycles == 0 {
		t.Error("no cycle was drafted for")
	}
	return got
}

// TestModelsBits runs prompts in passes of every cut, takes rows back, and runs several lanes in a pass, on every backend: a row's
// logits have the same bits whatever is beside it.
func TestModelsBits(t *testing.T) {
	for _, family := range []string{"tiny-qwen35", "tiny-qwen35moe", "tiny-qwen4exp", "tiny-flint"} {
		tokens := secondTokens(t, 13)
		if family == "tiny-qwen4exp" {
			tokens = secondTokens(t, 22) // more blocks of keys than a row sees
		}
		p, w := inGGUF(fixtures.Recipe{Family: family, Seed: 3, Formats: fixtures.Uniform(dequant.Q4_0)}).open(t)
		for _, b := range modelBackends() {
			t.Run(family+" "+b.name, func(t *testing.T) {
				n, err := model.New(b.open(t, p, 64), p, w, model.Options{})
				if err != nil {
					t.Fatal(err)
				}
				want := rowsOf(t, n, tokens, []int{len(tokens)})
				for _, cut := range [][]int{{4, 9, 9}, {1, 2, 10, 9}} {
					if at := firstDifference(want, rowsOf(t, n, tokens, cut)); at >= 0 {
						t.Errorf("in passes of %v: the logits of row %d differ", cut, at)
					}
				}
				first, second := newLane(t, n), newLane(t, n)
				forward(t, n, second, tokens[:3])
				wrong := append(slices.Clone(tokens[3:9]), 7, 8, 9)
				pass := &model.Pass{Segments: []model.Segment{
					{Lane: first, Tokens: tokens[:12], Outputs: 12}, {Lane: second, Tokens: wrong, Outputs: 9},
				}}
				if err := n.Forward(pass); err != nil {
					t.Fatal(err)
				}
				for i := range 12 + 6 {
					row := i
					if i >= 12 {
						row = 3 + i - 12
					}
					if !slices.Equal(n.Logits(i), want[row]) {
						t.Fatalf("beside another lane: row %d differs", row)
					}
				}
				if err := n.Backend().Rollback(second, 3); err != nil {
					t.Fatal(err)
				}
				forward(t, n, second, tokens[9:])
				for i := range tokens[9:] {
					if !slices.Equal(n.Logits(i), want[9+i]) {
						t.Fatalf("after rows were taken back: row %d differs", 9+i)
					}
				}
			})
		}
	}
}
