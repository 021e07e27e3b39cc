package engine_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/cpu"
	"splash/internal/engine"
	"splash/internal/gguf"
	"splash/internal/model"
	"splash/internal/reference"
	"splash/internal/vision"
	"splash/planner"
)

// A seeing is a tiny target beside its vision tower.
type seeing struct {
	plan    *planner.Plan
	weights planner.Weights
	tower   *vision.Tower
}

func openSeeing(t *testing.T, family string) *seeing {
	t.Helper()
	open := func(g *fixtures.GGUF, err error) *gguf.File {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		f, err := g.Open()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	f := open((&fixtures.Recipe{Family: family, Seed: 1, Formats: fixtures.Uniform(dequant.Q8_0)}).GGUF())
	p, err := planner.PlanGGUF(f.Header)
	if err != nil {
		t.Fatal(err)
	}
	projector := open((&fixtures.Tower{Family: family, Seed: 1, Type: dequant.BF16}).Projector())
	plan, err := planner.PlanProjector(projector.Header, p.Family.Vision)
	if err != nil {
		t.Fatal(err)
	}
	tower, err := vision.Load(plan, vision.FromGGUF(projector))
	if err != nil {
		t.Fatal(err)
	}
	return &seeing{p, planner.OpenGGUF(f, p), tower}
}

// request is a prompt of text around images of 8 x 8 patches, whose colors the seeds say.
func (s *seeing) request(text []int32, seeds ...byte) engine.Request {
	r := engine.Request{Prompt: slices.Clone(text[:20]), MaxTokens: 12}
	for i, seed := range seeds {
		pixels := make([]byte, 3*128*128)
		for k := range pixels {
			pixels[k] = byte(k/3%128)*seed ^ byte(k/384)
		}
		r.Images = append(r.Images, engine.Image{
			Start: len(r.Prompt), Rows: 4, Cols: 4, Digest: [32]byte{seed},
			Encode: func(ctx context.Context) ([]float32, error) { return s.tower.Encode(ctx, pixels, 8, 8) },
		})
		for range 16 {
			r.Prompt = append(r.Prompt, s.plan.Family.Image)
		}
		r.Prompt = append(r.Prompt, text[20+i:30+i]...)
	}
	return r
}

func (s *seeing) engine(t *testing.T, b model.Backend, cache int64) *engine.Engine {
	t.Helper()
	n, err := model.New(b, s.plan, s.weights, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(n, engine.Options{Context: 512, Chunk: 24, Lanes: 1, Cache: cache, Hidden: s.plan.Layout.Hidden})
	t.Cleanup(e.Close)
	return e
}

func (s *seeing) backends(t *testing.T) map[string]func() model.Backend {
	return map[string]func() model.Backend{
		"oracle": func() model.Backend { return reference.New(s.plan, 32) },
		"cpu": func() model.Backend {
			b, err := cpu.New(s.plan, 32, cpu.Options{Exact: true, KV: cpu.KVFloat, Workers: 2})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { b.Close() })
			return b
		},
	}
}

// text30 is some tokens of the tiny vocabulary.
func text30() []int32 {
	text := make([]int32, 40)
	for i := range text {
		text[i] = int32(31*i+17) % 1900
	}
	return text
}

// TestDemoImageText says with an image, on the oracle backend and on cpu, the same; and something else with another image.
func TestDemoImageText(t *testing.T) {
	for _, family := range []string{"tiny-qwen35", "tiny-qwen4exp"} {
		s := openSeeing(t, family)
		said := map[string][]int32{}
		for name, open := range s.backends(t) {
			e := s.engine(t, open(), -1)
			said[name] = say(t, e, s.request(text30(), 3))
			said[name+" of another"] = say(t, e, s.request(text30(), 90))
		}
		if d := cmp.Diff(said["oracle"], said["cpu"]); d != "" {
			t.Errorf("%s: the oracle and cpu say other things: %s", family, d)
		}
		if d := cmp.Diff(said["oracle of another"], said["cpu of another"]); d != "" {
			t.Errorf("%s: the oracle and cpu say other things of another image: %s", family, d)
		}
		if slices.Equal(said["oracle"], said["oracle of another"]) {
			t.Errorf("%s: the same is said of both images", family)
		}
	}
}

// TestDemoImageReuse scores prompts that begin like one that was read before, as far as the images are the same: the logits
// have the bits of a cold run.
func TestDemoImageReuse(t *testing.T) {
	s := openSeeing(t, "tiny-qwen35")
	for name, open := range s.backends(t) {
		warm := s.engine(t, open(), 0)
		for _, c := range []struct {
			seeds  []byte
			cached int
		}{
			{[]byte{3, 90}, 0}, {[]byte{3, 90}, 64}, {[]byte{3, 91}, 0}, {[]byte{3, 91}, 64}, {[]byte{3, 92}, 32}, {[]byte{4, 90}, 0},
			{[]byte{3, 90}, 64},
		} {
			r := s.request(text30(), c.seeds...)
			r.Score = []int32{0, 5, 700, 1999}
			got, cached := scores(t, warm, r)
			want, _ := scores(t, s.engine(t, open(), -1), r)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s, images %v: other logits than a cold run's: %s", name, c.seeds, d)
			}
			if cached != c.cached {
				t.Errorf("%s, images %v: %d tokens are reused, want %d", name, c.seeds, cached, c.cached)
			}
		}
	}
}

func scores(t *testing.T, e *engine.Engine, r engine.Request) ([]float32, int) {
	t.Helper()
	stream, err := e.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for more := true; more; {
		_, more = stream.Next(nil)
	}
	if _, err := stream.End(); err != nil {
		t.Fatal(err)
	}
	return stream.Scores(), stream.Cached()
}

// TestDemoImageDraft decodes after an image with a draft, which sees the image through the target's layers: the text is the
// target's own.
func TestDemoImageDraft(t *testing.T) {
	s := openSeeing(t, "tiny-qwen35")
	r := s.request(text30(), 3)
	want := say(t, s.engine(t, reference.New(s.plan, 32), -1), r)
	files, err := (&fixtures.Draft{Family: "tiny-qwen35"}).Files()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := (&fixtures.Draft{Family: "tiny-qwen35"}).WriteDir(dir); err != nil {
		t.Fatal(err)
	}
	sizes, err := planner.PlanDraft(files.Config, s.plan)
	if err != nil {
		t.Fatal(err)
	}
	c, err := planner.OpenDraft(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tensors, err := planner.PlanDraftTensors(sizes, c)
	if err != nil {
		t.Fatal(err)
	}
	n, err := model.New(reference.New(s.plan, 64), s.plan, s.weights, model.Options{Taps: sizes.Taps})
	if err != nil {
		t.Fatal(err)
	}
	source := model.DraftSource{Sizes: sizes, Tensors: tensors, Weights: planner.OpenSafetensors(c, s.plan)}
	draft, err := model.NewDraft(n, source)
	if err != nil {
		t.Fatal(err)
	}
	proposer, err := engine.NewProposer(draft, source, engine.GreedyWalk)
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(n, engine.Options{
		Context: 512, Chunk: 24, Lanes: 1, Cache: -1, Hidden: s.plan.Layout.Hidden, Proposer: proposer, Vocab: s.plan.Layout.Vocab,
	})
	defer e.Close()
	if d := cmp.Diff(want, say(t, e, r)); d != "" {
		t.Error(d)
	}
	if got := e.Speculation(); got.Cycles == 0 {
		t.Error("nothing was drafted")
	}
}
