//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/gguf"
	"splash/internal/model"
	"splash/internal/reference"
	"splash/oracle"
	"splash/planner"
)

// A target is an opened model.
type target struct {
	plan    *planner.Plan
	weights planner.Weights
}

func openFile(t testing.TB, f *gguf.File) target {
	t.Helper()
	t.Cleanup(func() { f.Close() })
	p, err := planner.PlanGGUF(f.Header)
	if err != nil {
		t.Fatal(err)
	}
	return target{p, planner.OpenGGUF(f, p)}
}

func openTiny(t testing.TB, name string) target {
	t.Helper()
	f, err := gguf.Open(filepath.Join("..", "fixtures", "tiny", name+".gguf"))
	if err != nil {
		t.Fatal(err)
	}
	return openFile(t, f)
}

func openRecipe(t testing.TB, r fixtures.Recipe) target {
	t.Helper()
	g, err := r.GGUF()
	if err != nil {
		t.Fatal(err)
	}
	f, err := g.Open()
	if err != nil {
		t.Fatal(err)
	}
	return openFile(t, f)
}

// backend makes the target's images and a backend on them.
func (m target) backend(t testing.TB, d *Device, o Options) *Backend {
	t.Helper()
	images := makeImages(t, Source{Plan: m.plan, Weights: m.weights})
	b, err := New(d, m.plan, images, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// makeImages makes the images of a source in a directory, and maps them.
func makeImages(t testing.TB, s Source) *planner.Images {
	t.Helper()
	plan, err := s.imagePlan()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := planner.MakeImages(context.Background(), dir, plan, s.Weights, nil, nil); err != nil {
		t.Fatal(err)
	}
	images, err := planner.OpenImages(context.Background(), dir, plan, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { images.Close() })
	return images
}

func (m target) network(t testing.TB, b model.Backend, o model.Options) model.Network {
	t.Helper()
	n, err := model.New(b, m.plan, m.weights, o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func newLane(t testing.TB, n model.Network) model.Lane {
	t.Helper()
	l, err := n.Backend().NewLane()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func forward(t testing.TB, n model.Network, lane model.Lane, tokens []int32) {
	t.Helper()
	p := &model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: tokens, Outputs: len(tokens)}}}
	if err := n.Forward(p); err != nil {
		t.Fatal(err)
	}
}

type manifest struct {
	Tokens []int32
	Files  map[string]struct{ Greedy []int32 }
}

func readManifest(t testing.TB) (m manifest) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "fixtures", "tiny", "manifest.json"))
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func greedy(t testing.TB, n model.Network, prompt []int32, count int) []int32 {
	t.Helper()
	lane := newLane(t, n)
	forward(t, n, lane, prompt)
	out := []int32{int32(oracle.Argmax(n.Logits(len(prompt) - 1)))}
	for len(out) < count {
		forward(t, n, lane, out[len(out)-1:])
		out = append(out, int32(oracle.Argmax(n.Logits(0))))
	}
	return out
}

var tinyModels = []string{"tiny-qwen35-BF16", "tiny-qwen35-Q8_0", "tiny-qwen35-Q4_K_M", "tiny-qwen35-IQ4_XS", "tiny-qwen35-MIX"}

// Logits may stray from the oracle's, in units of their root mean square: with keys and values in F32 by what rounding of sums of
// a few hundred products amounts to in four layers, with BF16 by what 2^-9 of every key and value does in the one layer that has
// them.
const (
	wideTolerance = 0x1p-15
	tolerance     = 0x1p-6
)

// TestTinyModels runs the tiny models. With keys and values in F32 the greedy text is that of the public runtime; in BF16 the
// logits along that text are near the oracle's.
func TestTinyModels(t *testing.T) {
	m := readManifest(t)
	d := open(t, Devices()[0])
	for _, name := range tinyModels {
		t.Run(name, func(t *testing.T) {
			x := openTiny(t, name)
			r := x.network(t, reference.New(x.plan, 64), model.Options{})
			n := x.network(t, x.backend(t, d, Options{MaxRows: 64, WideKV: true}), model.Options{})
			compareLogits(t, n, r, m.Tokens, wideTolerance)
			want := m.Files[name].Greedy
			if !strings.HasSuffix(name, "Q4_K_M") {
				want = want[:6] // one whole text is enough of these
			}
			if diff := cmp.Diff(want, greedy(t, n, m.Tokens, len(want))); diff != "" {
				t.Error(diff)
			}
			n = x.network(t, x.backend(t, d, Options{MaxRows: 24}), model.Options{})
			compareLogits(t, n, r, m.Tokens[:24], tolerance)
		})
	}
}

func compareLogits(t testing.TB, n, reference model.Network, tokens []int32, tolerance float64) {
	t.Helper()
	forward(t, reference, newLane(t, reference), tokens)
	forward(t, n, newLane(t, n), tokens)
	worst := 0.0
	for i := range tokens {
		got, want := n.Logits(i), reference.Logits(i)
		largest, sum := 0.0, 0.0
		for j := range want {
			largest = math.Max(largest, math.Abs(float64(got[j]-want[j])))
			if got[j] != got[j] {
				t.Fatalf("logit %d of row %d is not a number", j, i)
			}
			sum += float64(want[j]) * float64(want[j])
		}
		worst = math.Max(worst, largest/math.Sqrt(sum/float64(len(want))))
	}
	t.Logf("logits stray %.2g of their root mean square, %.2g is allowed", worst, tolerance)
	if !(worst <= tolerance) {
		t.Errorf("logits stray %.3g of their root mean square", worst)
	}
}

// TestInt8KV runs a tiny model with keys and values in codes of 8 bits: every one strays up to a 254th of the largest of its head.
func TestInt8KV(t *testing.T) {
	tokens := readManifest(t).Tokens[:24]
	x := openTiny(t, "tiny-qwen35-Q8_0")
	n := x.network(t, x.backend(t, open(t, Devices()[0]), Options{MaxRows: 24, Int8KV: true}), model.Options{})
	compareLogits(t, n, x.network(t, reference.New(x.plan, 24), model.Options{}), tokens, 4*tolerance)
}

// TestGeneratedModels runs models from planes made in memory. (Package conformance has models of every architecture.)
func TestGeneratedModels(t *testing.T) {
	tokens := readManifest(t).Tokens[:12]
	d := open(t, Devices()[0])
	for _, r := range []fixtures.Recipe{
		{Family: "tiny-qwen35-tied", Formats: fixtures.Uniform(dequant.F16)},
		{Family: "tiny-qwen35moe", Formats: fixtures.Projections(dequant.IQ2XS), Fused: true},
	} {
		r.Seed = 7
		t.Run(r.Family, func(t *testing.T) {
			x := openRecipe(t, r)
			b, err := New(d, x.plan, nil, Options{MaxRows: 32, WideKV: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { b.Close() })
			n := x.network(t, b, model.Options{Taps: []int{1}})
			o := x.network(t, reference.New(x.plan, 32), model.Options{Taps: []int{1}})
			compareLogits(t, n, o, tokens, wideTolerance)
			if got, want := n.Tap(0, 0)[5], o.Tap(0, 0)[5]; math.Abs(float64(got-want)) > wideTolerance {
				t.Errorf("tap %v, want %v", got, want)
			}
			if got, want := greedy(t, n, tokens, 4), greedy(t, o, tokens, 4); !slices.Equal(got, want) {
				t.Errorf("greedy text %v, the oracle's %v", got, want)
			}
		})
	}
}

// TestLanes runs two lanes in passes together, with rows taken back and a state saved and resumed, and compares with lanes that
// ran alone: a lane's logits do not depend on its neighbours.
func TestLanes(t *testing.T) {
	tokens := readManifest(t).Tokens
	x := openTiny(t, "tiny-qwen35-Q4_K_M")
	d := open(t, Devices()[0])
	b := x.backend(t, d, Options{MaxRows: 64})
	n := x.network(t, b, model.Options{})
	alone := newLane(t, n)
	forward(t, n, alone, tokens[:40])
	var want [][]float32
	for i := range 40 {
		want = append(want, slices.Clone(n.Logits(i)))
	}
	b.FreeLane(alone)

	first, second := newLane(t, n), newLane(t, n)
	pass := &model.Pass{Segments: []model.Segment{
		{Lane: first, Tokens: tokens[:20], Outputs: 1}, {Lane: second, Tokens: append(slices.Clone(tokens[:10]), 7, 8, 9), Outputs: 1},
	}}
	if err := n.Forward(pass); err != nil {
		t.Fatal(err)
	}
	near(t, n.Logits(0), want[19], "beside another lane")
	if err := b.Rollback(second, 3); err != nil {
		t.Fatal(err)
	}
	saved, bytes, err := b.Save(second)
	if err != nil || bytes <= 0 {
		t.Fatal(bytes, err)
	}
	for i := 10; i < 14; i++ {
		forward(t, n, second, tokens[i:i+1])
		near(t, n.Logits(0), want[i], "after rows were taken back")
	}
	third := newLane(t, n) // beyond the lanes that the states had room for
	if err := b.Resume(third, saved); err != nil {
		t.Fatal(err)
	}
	forward(t, n, third, tokens[10:14])
	near(t, n.Logits(3), want[13], "after a checkpoint")
	if err := b.Rollback(third, 2); err != nil {
		t.Fatal(err)
	}
	forward(t, n, third, tokens[12:40])
	near(t, n.Logits(27), want[39], "past a page")
	b.Drop(saved)
	for _, bad := range []int{-1, 9} {
		if err := b.Rollback(third, bad); err == nil {
			t.Errorf("%d rows taken back", bad)
		}
	}
}

// near compares logits of the same rows in passes of other shapes: the tiles of the projections sum in the same order, so the
// bits are the same.
func near(t testing.TB, got, want []float32, what string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: the logits differ", what)
	}
}

// TestCheckpointsSharePages saves a lane again and again: what is kept grows by what is new, lanes that resume write to no page of
// others, and every page comes back.
func TestCheckpointsSharePages(t *testing.T) {
	tokens := readManifest(t).Tokens
	x := openTiny(t, "tiny-qwen35-Q8_0")
	b := x.backend(t, open(t, Devices()[0]), Options{MaxRows: 48})
	n := x.network(t, b, model.Options{})
	lane := newLane(t, n)
	forward(t, n, lane, tokens[:44])
	want := slices.Clone(n.Logits(40))
	b.FreeLane(lane)

	lane = newLane(t, n)
	forward(t, n, lane, tokens[:32])
	first, all, err := b.Save(lane)
	if err != nil {
		t.Fatal(err)
	}
	if _, again, err := b.Save(lane); err != nil || all-again != b.pageBytes() {
		t.Errorf("%d bytes, then %d for the same; a page of %d is shared: %v", all, again, b.pageBytes(), err)
	}
	// The lane takes rows of a page that is shared back and writes others there, as do lanes that resume.
	for _, l := range []model.Lane{lane, newLane(t, n)} {
		if l != lane {
			if err := b.Resume(l, first); err != nil {
				t.Fatal(err)
			}
		} else if err := b.Rollback(l, 5); err != nil {
			t.Fatal(err)
		}
		forward(t, n, l, []int32{9, 8, 7, 6, 5, 4, 3})
	}
	other := newLane(t, n)
	if err := b.Resume(other, first); err != nil {
		t.Fatal(err)
	}
	forward(t, n, other, tokens[32:44])
	near(t, n.Logits(8), want, "after a checkpoint whose pages others hold")
	for l, x := range b.lanes {
		if x != nil {
			b.FreeLane(model.Lane(l))
		}
	}
	for c, x := range b.saved {
		if x != nil {
			b.Drop(model.Checkpoint(c))
		}
	}
	if len(b.pages.free) != b.pages.capacity {
		t.Errorf("%d of %d pages came back", len(b.pages.free), b.pages.capacity)
	}
}

// TestPassAllocates: a cycle of a lane allocates nothing of its own, on any architecture.
func TestPassAllocates(t *testing.T) {
	d := open(t, Devices()[0])
	for _, family := range []string{"tiny-qwen35", "tiny-qwen35moe", "tiny-flint", "tiny-qwen4exp"} {
		x := openRecipe(t, fixtures.Recipe{Family: family, Formats: fixtures.Uniform(dequant.Q8_0)})
		b, err := New(d, x.plan, nil, Options{MaxRows: 30})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		n := x.network(t, b, model.Options{})
		lane := newLane(t, n)
		forward(t, n, lane, make([]int32, 30)) // past the blocks that a sparse row sees
		pass := &model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: []int32{5, 6}, Outputs: 1}}}
		got := testing.AllocsPerRun(5, func() {
			if err := n.Forward(pass); err != nil {
				t.Fatal(err)
			}
			if err := b.Rollback(lane, 2); err != nil {
				t.Fatal(err)
			}
		})
		if got != 0 {
			t.Errorf("%s: %v allocations a cycle", family, got)
		}
	}
}

// TestRefusals: what the backend does not run is refused by name.
func TestRefusals(t *testing.T) {
	d := open(t, Devices()[0])
	for want, change := range map[string]func(l *planner.Layout){
		"attention heads of 512": func(l *planner.Layout) { l.Attention.HeadDim = 512 },
		"GDN heads of 64":        func(l *planner.Layout) { l.GDN.HeadDim = 64 },
		"33 of 64 experts":       func(l *planner.Layout) { l.MoE.Experts, l.MoE.Taken = 64, 33 },
		"blocks of 5":            func(l *planner.Layout) { l.QSA = planner.QSALayout{Heads: 1, HeadDim: 128, Block: 5} },
		"20 apart":               func(l *planner.Layout) { l.PLE = planner.PLELayout{Heads: 1, Kernel: 4, Dilation: 20} },
	} {
		p := *openTiny(t, "tiny-qwen35-Q8_0").plan
		change(&p.Layout)
		if _, err := New(d, &p, nil, Options{MaxRows: 8}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	x := openTiny(t, "tiny-qwen35-Q8_0")
	b := x.backend(t, d, Options{MaxRows: 8})
	n := x.network(t, b, model.Options{})
	lane := newLane(t, n)
	for name, p := range map[string]*model.Pass{
		"no rows":       {Segments: []model.Segment{{Lane: lane}}},
		"9 rows":        {Segments: []model.Segment{{Lane: lane, Tokens: make([]int32, 9)}}},
		"no such lane":  {Segments: []model.Segment{{Lane: 9, Tokens: make([]int32, 1)}}},
		"no such token": {Segments: []model.Segment{{Lane: lane, Tokens: []int32{4096}}}},
		"a lane twice":  {Segments: []model.Segment{{Lane: lane, Tokens: make([]int32, 1)}, {Lane: lane, Tokens: make([]int32, 1)}}},
		"a draft":       {Kind: model.DraftPass, Segments: []model.Segment{{Lane: lane, Tokens: make([]int32, 1)}}},
	} {
		if err := n.Forward(p); err == nil {
			t.Errorf("%s: the pass ran", name)
		}
	}
	forward(t, n, lane, []int32{1, 2})
}
