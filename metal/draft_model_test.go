//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/fixtures"
	"splash/internal/engine"
	"splash/internal/gguf"
	"splash/internal/model"
	"splash/internal/reference"
	"splash/internal/safetensors"
	"splash/oracle"
	"splash/planner"
)

// A draftPair is a draft and what its target is on.
type draftPair struct {
	target
	sizes   *planner.Draft
	tensors []planner.Tensor
	weights planner.Weights
}

// openDraft opens the draft in a directory.
func openDraft(t testing.TB, x target, dir string, config []byte) draftPair {
	t.Helper()
	sizes, err := planner.PlanDraft(config, x.plan)
	if err != nil {
		t.Fatal(err)
	}
	c, err := planner.OpenDraft(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return planDraft(t, x, sizes, c)
}

func planDraft(t testing.TB, x target, sizes *planner.Draft, c *safetensors.Checkpoint) draftPair {
	t.Helper()
	tensors, err := planner.PlanDraftTensors(sizes, c)
	if err != nil {
		t.Fatal(err)
	}
	return draftPair{x, sizes, tensors, planner.OpenSafetensors(c, x.plan)}
}

// tinyDraft makes a draft of a tiny model.
func tinyDraft(t testing.TB, x target, recipe fixtures.Draft) draftPair {
	t.Helper()
	files, err := recipe.Files()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := recipe.WriteDir(dir); err != nil {
		t.Fatal(err)
	}
	return openDraft(t, x, dir, files.Config)
}

func demoPair(t testing.TB) draftPair {
	t.Helper()
	f, err := gguf.FromBytes("pebble", fixtures.Pebble)
	if err != nil {
		t.Fatal(err)
	}
	x := openFile(t, f)
	sizes, err := planner.PlanDraft(fixtures.PebbleDraftConfig, x.plan)
	if err != nil {
		t.Fatal(err)
	}
	c, err := safetensors.FromBytes("the draft", fixtures.PebbleDraft)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return planDraft(t, x, sizes, c)
}

// A pairNetwork is a target and its draft on one backend.
type pairNetwork struct {
	model.Network
	draft  *model.Draft
	source model.DraftSource
}

func (p draftPair) on(t testing.TB, b model.Backend) pairNetwork {
	t.Helper()
	n := p.network(t, b, model.Options{Taps: p.sizes.Taps})
	source := model.DraftSource{Sizes: p.sizes, Tensors: p.tensors, Weights: p.weights}
	d, err := model.NewDraft(n, source)
	if err != nil {
		t.Fatal(err)
	}
	return pairNetwork{n, d, source}
}

// backend is one on a device, with the images of target and draft.
func (p draftPair) backend(t testing.TB, d *Device, o Options) *Backend {
	t.Helper()
	b := p.target.backend(t, d, o)
	images := makeImages(t, Source{Draft: p.sizes, Tensors: p.tensors, Weights: p.weights})
	if err := b.LoadDraft(images); err != nil {
		t.Fatal(err)
	}
	return b
}

// commit makes the context of the first rows of a lane's last segment.
func (n pairNetwork) commit(t testing.TB, lane model.Lane, tokens []int32) {
	t.Helper()
	p := &model.Pass{Kind: model.ContextPass, Segments: []model.Segment{{Lane: lane, Tokens: tokens}}}
	if err := n.draft.Commit(p); err != nil {
		t.Fatal(err)
	}
}

// block is the pass that drafts a block for each lane.
func (n pairNetwork) block(lanes []model.Lane, anchor int32) *model.Pass {
	p := &model.Pass{Kind: model.DraftPass}
	for _, l := range lanes {
		tokens := []int32{anchor}
		for range oracle.Proposals {
			tokens = append(tokens, n.source.Sizes.Mask)
		}
		p.Segments = append(p.Segments, model.Segment{Lane: l, Tokens: tokens, Outputs: oracle.Proposals})
	}
	return p
}

// draftTolerance is what logits and states of the draft may stray, in units of their root mean square, with keys and values of the
// target in F32: what is put in BF16 in the draft, taps, context and the block's first rows, falls to the other of two neighbours
// here and there.
const draftTolerance = 0x1p-8

// TestDraftBlocks drafts blocks of two lanes, one of them after rows that were taken back, and holds logits and states to the
// oracle's.
func TestDraftBlocks(t *testing.T) {
	tokens := readManifest(t).Tokens
	x := openTiny(t, "tiny-qwen35-Q8_0")
	d := open(t, Devices()[0])
	for name, recipe := range map[string]fixtures.Draft{
		"": {Family: x.plan.Family.Name}, "mask": {Family: x.plan.Family.Name, Block: 16, Mask: true, Layers: 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := tinyDraft(t, x, recipe)
			got := p.on(t, p.backend(t, d, Options{MaxRows: 64, WideKV: true}))
			want := p.on(t, reference.New(x.plan, 64))
			var lane model.Lane // the first of got
			for _, n := range []pairNetwork{want, got} {
				first, second := newLane(t, n), newLane(t, n)
				lane = first
				forward(t, n, second, tokens[:5])
				n.commit(t, second, tokens[:5])
				forward(t, n, first, tokens[:40])
				n.commit(t, first, tokens[:40])
				forward(t, n, first, tokens[40:48])
				if err := n.Backend().Rollback(first, 5); err != nil {
					t.Fatal(err)
				}
				n.commit(t, first, tokens[40:43])
				if err := n.draft.Block(n.block([]model.Lane{second, first}, tokens[0])); err != nil {
					t.Fatal(err)
				}
			}
			worst := 0.0
			for i := range 2 * oracle.Proposals {
				worst = max(worst, stray(got.draft.Logits(i), want.draft.Logits(i)), stray(got.draft.State(i), want.draft.State(i)))
			}
			t.Logf("the draft's logits and states stray %.2g of their root mean square, %.2g is allowed", worst, draftTolerance)
			if !(worst <= draftTolerance) {
				t.Errorf("the draft strays %.3g", worst)
			}
			checkResumed(t, got, lane, tokens[0])
		})
	}
}

// checkResumed drafts a block of a lane that resumes a checkpoint of another, whose block was the second of the last pass: the bits
// are the same.
func checkResumed(t *testing.T, n pairNetwork, lane model.Lane, anchor int32) {
	t.Helper()
	var want [][]float32
	for i := range oracle.Proposals {
		want = append(want, slices.Clone(n.draft.Logits(oracle.Proposals+i)))
	}
	saved, _, err := n.Backend().Save(lane)
	if err != nil {
		t.Fatal(err)
	}
	other := newLane(t, n)
	if err := n.Backend().Resume(other, saved); err != nil {
		t.Fatal(err)
	}
	if err := n.draft.Block(n.block([]model.Lane{other}, anchor)); err != nil {
		t.Fatal(err)
	}
	for i, w := range want {
		if !slices.Equal(n.draft.Logits(i), w) {
			t.Errorf("proposal %d of a lane that resumed differs", i)
		}
	}
}

// TestDraftAllocates: neither a block nor its context allocates anything of its own.
func TestDraftAllocates(t *testing.T) {
	x := openTiny(t, "tiny-qwen35-Q8_0")
	p := tinyDraft(t, x, fixtures.Draft{Family: x.plan.Family.Name, Layers: 1})
	n := p.on(t, p.backend(t, open(t, Devices()[0]), Options{MaxRows: 8}))
	lane := newLane(t, n)
	tokens := readManifest(t).Tokens[:2]
	forward(t, n, lane, tokens)
	context := &model.Pass{Kind: model.ContextPass, Segments: []model.Segment{{Lane: lane, Tokens: tokens}}}
	block := n.block([]model.Lane{lane}, 7)
	got := testing.AllocsPerRun(2, func() {
		err := n.draft.Commit(context)
		if err == nil {
			err = n.draft.Block(block)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// stray is how far values are from those wanted, in units of their root mean square.
func stray(got, want []float32) float64 {
	largest, sum := 0.0, 0.0
	for i, w := range want {
		largest = math.Max(largest, math.Abs(float64(got[i]-w)))
		if got[i] != got[i] {
			return math.Inf(1)
		}
		sum += float64(w) * float64(w)
	}
	return largest / math.Sqrt(sum/float64(len(want)))
}

// draftOptions are those of the engines of these tests.
func draftOptions(n pairNetwork) engine.Options {
	return engine.Options{Context: 1024, Chunk: 24, Vocab: n.source.Sizes.Vocab}
}

// generated are the greedy answers of a backend to prompts, all at once, and the tokens of a cycle.
func generated(t testing.TB, n pairNetwork, drafted bool, requests []engine.Request) ([][]int32, float64) {
	t.Helper()
	o := draftOptions(n)
	if drafted {
		proposer, err := engine.NewProposer(n.draft, n.source, engine.GreedyWalk)
		if err != nil {
			t.Fatal(err)
		}
		o.Proposer = proposer
	}
	e := engine.New(n.Network, o)
	defer e.Close()
	streams := make([]*engine.Stream, len(requests))
	for i, r := range requests {
		var err error
		if streams[i], err = e.Submit(context.Background(), r); err != nil {
			t.Fatal(err)
		}
	}
	answers := make([][]int32, len(requests))
	for i, s := range streams {
		for more := true; more; {
			answers[i], more = s.Next(answers[i])
		}
		if _, err := s.End(); err != nil {
			t.Error(err)
		}
	}
	figures := e.Speculation()
	return answers, figures.Counts.TokensPerCycle()
}

// TestDraftKeepsText: the greedy text of a tiny model with its draft, which is wrong as good as always, is the text without, and
// the oracle's.
func TestDraftKeepsText(t *testing.T) {
	tokens := readManifest(t).Tokens
	x := openTiny(t, "tiny-qwen35-Q4_K_M")
	p := tinyDraft(t, x, fixtures.Draft{Family: x.plan.Family.Name})
	d := open(t, Devices()[0])
	requests := []engine.Request{{Prompt: tokens[:30], MaxTokens: 4}, {Prompt: tokens[7:20], MaxTokens: 3}}
	rows := engine.Options{Chunk: 24}.MaxRows()
	b := p.backend(t, d, Options{MaxRows: rows, WideKV: true})
	n := p.on(t, b)
	if b.chooser.room[roomBefore] != nil || b.chooser.room[roomAfter] != nil {
		t.Error("the selector's codebooks are copied, though the draft's images have them")
	}
	without, _ := generated(t, n, false, requests)
	with, _ := generated(t, n, true, requests)
	want, _ := generated(t, p.on(t, reference.New(x.plan, rows)), false, requests)
	if diff := cmp.Diff(want, without); diff != "" {
		t.Errorf("without the draft: %s", diff)
	}
	if diff := cmp.Diff(want, with); diff != "" {
		t.Errorf("with the draft: %s", diff)
	}
}

// demoRequests are the first prompts of the demonstration model on whose way no choice is close, and what the implementation that
// trained it answers.
func demoRequests(t testing.TB, n int) (requests []engine.Request, want [][]int32) {
	t.Helper()
	var file struct {
		Prompts []struct {
			IDs    []int32 `json:"ids"`
			Greedy []int32 `json:"greedy_ids"`
			Margin float64
		}
	}
	if err := json.Unmarshal(fixtures.PebblePrompts, &file); err != nil {
		t.Fatal(err)
	}
	for _, p := range file.Prompts {
		if p.Margin > 4 && len(p.IDs) < 30 && len(p.Greedy) > 7 && len(want) < n {
			stop := p.Greedy[len(p.Greedy)-1:]
			requests = append(requests, engine.Request{Prompt: p.IDs, MaxTokens: len(p.Greedy), Stop: stop})
			want = append(want, p.Greedy)
		}
	}
	return requests, want
}

// TestDraftDemo answers prompts of the demonstration model with its draft and without: the same text, which is that of the
// implementation that trained the model, in cycles of several tokens.
func TestDraftDemo(t *testing.T) {
	requests, want := demoRequests(t, 3)
	p := demoPair(t)
	b := p.backend(t, open(t, Devices()[0]), Options{MaxRows: engine.Options{Chunk: 24}.MaxRows()})
	n := p.on(t, b)
	with, cycle := generated(t, n, true, requests)
	without, _ := generated(t, n, false, requests[:1])
	if diff := cmp.Diff(want, with); diff != "" {
		t.Errorf("with the draft: %s", diff)
	}
	if diff := cmp.Diff(want[:1], without); diff != "" {
		t.Errorf("without the draft: %s", diff)
	}
	t.Logf("%.2f tokens a cycle; %+v", cycle, b.Replays())
	if b.Replays().Replayed == 0 {
		t.Error("no pass of an engine is replayed")
	}
	if cycle < 3 {
		t.Errorf("%.2f tokens a cycle", cycle)
	}
}
