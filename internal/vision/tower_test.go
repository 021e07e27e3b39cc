package vision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/gguf"
	"splash/internal/safetensors"
	"splash/oracle"
	"splash/planner"
)

const tiny = "tiny-qwen35"

// fromGGUF loads a projector.
func fromGGUF(g *fixtures.GGUF) (*Tower, error) {
	f, err := g.Open()
	if err != nil {
		return nil, err
	}
	p, err := planner.PlanProjector(f.Header, planner.FamilyByName(tiny).Vision)
	if err != nil {
		return nil, err
	}
	return Load(p, FromGGUF(f))
}

func tinyTower(t testing.TB) *Tower {
	t.Helper()
	g, err := (&fixtures.Tower{Family: tiny, Seed: 1, Type: dequant.BF16}).Projector()
	if err != nil {
		t.Fatal(err)
	}
	tower, err := fromGGUF(g)
	if err != nil {
		t.Fatal(err)
	}
	return tower
}

// weights are all of a tower's bits.
func (t *Tower) weights() []byte {
	var b bytes.Buffer
	fmt.Fprint(&b, t.embed, t.positions, t.blocks, t.norm, t.in, t.out)
	return b.Bytes()
}

func TestContainers(t *testing.T) {
	want := tinyTower(t)
	projector := func(kind dequant.Type) *Tower {
		g, err := (&fixtures.Tower{Family: tiny, Seed: 1, Type: kind}).Projector()
		if err != nil {
			t.Fatal(err)
		}
		got, err := fromGGUF(g)
		if err != nil {
			t.Fatalf("%v: %v", kind, err)
		}
		return got
	}
	if !bytes.Equal(projector(dequant.F32).weights(), want.weights()) {
		t.Error("F32: other weights")
	}
	// F16 has rounded the smallest weights to its subnormal grid; what that keeps is still BF16.
	for i, b := range projector(dequant.F16).in.weight {
		got, want := dequant.FromBF16(b), dequant.FromBF16(want.in.weight[i])
		if d := math.Abs(float64(got - want)); d > 1.0/(1<<25) || d > 0 && math.Abs(float64(want)) >= 1.0/(1<<14) {
			t.Fatalf("F16: weight %d is %g, want %g", i, got, want)
		}
	}
	for _, transformers := range []bool{false, true} {
		c := &fixtures.Checkpoint{Config: map[string]any{}}
		if err := (&fixtures.Tower{Family: tiny, Seed: 1}).AddTo(c, transformers); err != nil {
			t.Fatal(err)
		}
		f, err := c.Open()
		if err != nil {
			t.Fatal(err)
		}
		p, err := planner.PlanTower(f, planner.FamilyByName(tiny).Vision)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Load(p, FromCheckpoint(f))
		if err != nil || !bytes.Equal(got.weights(), want.weights()) {
			t.Errorf("transformers %v: %v, or other weights", transformers, err)
		}
		config, err := c.ConfigJSON()
		if err == nil {
			err = planner.CheckVisionConfig(config, planner.FamilyByName(tiny).Vision)
		}
		if err == nil {
			err = planner.CheckProcessor(c.Files["preprocessor_config.json"])
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func TestRefused(t *testing.T) {
	projector := func(kind dequant.Type) *fixtures.GGUF {
		g, err := (&fixtures.Tower{Family: tiny, Seed: 1, Type: kind}).Projector()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	values := func(name string, v float32) *fixtures.GGUF {
		g := projector(dequant.BF16)
		old := g.Tensor(name)
		all := make([]float32, old.Dims[0])
		all[3] = v
		g.Drop(name)
		g.AddFloats(name, all...)
		return g
	}
	for _, c := range []struct {
		name, want string
		g          *fixtures.GGUF
	}{
		{"more bits than BF16", "v.post_ln.bias is not bf16-exact; it needs an F32 path: value 3 is 1.0000001", values("v.post_ln.bias", 1.0000001)},
		{"infinite", "vision tensor v.blk.1.ln2.weight is not finite: value 3 is +Inf", values("v.blk.1.ln2.weight", float32(math.Inf(1)))},
		{"no number", "vision tensor mm.2.bias is not finite: value 3 is NaN", values("mm.2.bias", float32(math.NaN()))},
	} {
		if _, err := fromGGUF(c.g); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.name, err, c.want)
		}
	}
	p := &planner.VisionPlan{Layout: *planner.FamilyByName(tiny).Vision, Format: "gguf"}
	if _, err := Load(p, nil); err == nil || err.Error() != "vision: the plan has no tensor v.patch_embd.weight" {
		t.Errorf("%v", err)
	}
	f, err := projector(dequant.BF16).Open()
	if err != nil {
		t.Fatal(err)
	}
	p, err = planner.PlanProjector(f.Header, planner.FamilyByName(tiny).Vision)
	if err != nil {
		t.Fatal(err)
	}
	short := func(string) ([]byte, error) { return make([]byte, 5), nil }
	if _, err := Load(p, short); err == nil || !strings.Contains(err.Error(), "vision tensor v.patch_embd.weight holds 5 bytes, not ") {
		t.Errorf("%v", err)
	}
	if _, err := FromCheckpoint(&safetensors.Checkpoint{})("a"); err == nil || !strings.Contains(err.Error(), "tensor a is missing") {
		t.Errorf("%v", err)
	}
	if _, err := FromGGUF(&gguf.File{Header: &gguf.Header{}})("a"); err == nil || !strings.Contains(err.Error(), "tensor a is missing") {
		t.Errorf("%v", err)
	}
}

// reference is the tower as the oracle has it.
func (t *Tower) reference() *oracle.Vision {
	v := &t.layout
	wide := func(x []float32) []float64 {
		out := make([]float64, len(x))
		for i, f := range x {
			out[i] = float64(f)
		}
		return out
	}
	full := func(a *affine) oracle.Affine {
		d := oracle.Dense{Rows: a.rows, Cols: a.cols, Values: make([]float64, len(a.weight))}
		for i, bits := range a.weight {
			d.Values[i] = float64(dequant.FromBF16(bits))
		}
		return oracle.Affine{Weight: d, Bias: wide(a.bias)}
	}
	layer := func(n norm) oracle.LayerNorm { return oracle.LayerNorm{Weight: wide(n.weight), Bias: wide(n.bias)} }
	o := &oracle.Vision{
		Heads: v.Heads, Patch: v.Patch, Frames: v.Temporal, Merge: v.Merge, Side: v.Side, Eps: v.Epsilon,
		Embed: full(&t.embed), Positions: wide(t.positions), Norm: layer(t.norm), MergeIn: full(&t.in), MergeOut: full(&t.out),
	}
	for i := range t.blocks {
		b := &t.blocks[i]
		o.Blocks = append(o.Blocks, oracle.VisionBlock{
			Norm1: layer(b.norm1), Norm2: layer(b.norm2), QKV: full(&b.qkv), Proj: full(&b.proj), Up: full(&b.up), Down: full(&b.down),
		})
	}
	return o
}

func randomPixels(seed uint64, gridH, gridW int) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	pixels := make([]byte, 3*256*gridH*gridW)
	for i := range pixels {
		pixels[i] = byte(r.UintN(256))
	}
	return pixels
}

// TestEncode holds whole images to the oracle: what float32 loses on the way is little beside the last rounding to BF16,
// 2^-8 of a value. Operators have bounds of their own below.
func TestEncode(t *testing.T) {
	bothWays(t, tinyTower(t), func(t *testing.T, tower *Tower) { encodes(t, tower) })
}

// bothWays runs a test with the machine's kernels, and in plain Go.
func bothWays(t *testing.T, tower *Tower, test func(t *testing.T, tower *Tower)) {
	plain := *tower
	plain.host = nil
	t.Run("plain", func(t *testing.T) { test(t, &plain) })
	if tower.host != nil {
		t.Run("kernels", func(t *testing.T) { test(t, tower) })
	}
}

func encodes(t *testing.T, tower *Tower) {
	truth := tower.reference()
	worst := 0.0
	for _, grid := range [][2]int{{2, 2}, {2, 10}, {8, 8}, {10, 6}} {
		pixels := randomPixels(uint64(grid[0]), grid[0], grid[1])
		got, err := tower.Encode(t.Context(), pixels, grid[0], grid[1])
		if err != nil {
			t.Fatal(err)
		}
		want := truth.Encode(pixels, grid[0], grid[1])
		if len(got) != len(want)*tower.Width() {
			t.Fatalf("%v: %d values, want %d", grid, len(got), len(want)*tower.Width())
		}
		for r, row := range want {
			most := 0.0
			for _, v := range row {
				most = max(most, math.Abs(v))
			}
			for i, v := range row {
				g := float64(got[r*tower.Width()+i])
				ratio := math.Abs(g-v) / (math.Abs(v)/(1<<8) + most/(1<<17))
				worst = max(worst, ratio)
			}
			if math.IsNaN(float64(got[r*tower.Width()])) {
				t.Fatalf("%v: no numbers", grid)
			}
		}
	}
	t.Logf("worst error over bound %.3f", worst)
	if !(worst <= 1) {
		t.Errorf("the worst error is %.3f of its bound", worst)
	}
}

func TestEncodeRefused(t *testing.T) {
	tower := tinyTower(t)
	for _, grid := range [][2]int{{0, 2}, {2, 3}, {3, 2}, {4, 4}, {-2, -2}} {
		if _, err := tower.Encode(t.Context(), make([]byte, 3*256*4), grid[0], grid[1]); err == nil {
			t.Errorf("%v is a grid of 2 x 2 patches' pixels", grid)
		}
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := tower.Encode(ctx, randomPixels(1, 4, 4), 4, 4); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
}

// u is the unit roundoff of float32.
const u = 1.0 / (1 << 24)

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// within fails above a bound, and keeps the worst ratio.
type within struct {
	*testing.T
	worst float64
}

func (w *within) value(what string, got, want, bound float64) {
	ratio := math.Abs(got-want) / bound
	if !(ratio <= 1) {
		w.Errorf("%s: %g, want %g: %g of the bound", what, got, want, ratio)
	}
	w.worst = max(w.worst, ratio)
}

// TestOperators holds the operators to the oracle's on the same float32 inputs.
func TestOperators(t *testing.T) {
	bothWays(t, tinyTower(t), operators)
}

func operators(t *testing.T, tower *Tower) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, cols := range []int{1, 2, 7, 144, 577} {
		t.Run(fmt.Sprintf("affine %d", cols), func(t *testing.T) {
			w := &within{T: t}
			const rows, n = 10, 3
			a := affine{rows: rows, cols: cols, bias: random(r, rows)}
			for _, v := range random(r, rows*cols) {
				a.weight = append(a.weight, dequant.ToBF16(v))
			}
			x, got := random(r, n*cols), make([]float32, n*rows)
			tower.apply(&a, &worker{}, got, x)
			for i := range n {
				for j := range rows {
					want, sum := float64(a.bias[j]), math.Abs(float64(a.bias[j]))
					for k := range cols {
						p := float64(x[i*cols+k]) * float64(dequant.FromBF16(a.weight[j*cols+k]))
						want, sum = want+p, sum+math.Abs(p)
					}
					// A product, and every sum it is part of: half of the columns, and two more.
					w.value("affine", float64(got[i*rows+j]), want, u*float64(cols/2+4)*sum)
				}
			}
			t.Logf("worst error over bound %.3f", w.worst)
		})
	}
	t.Run("norm", func(t *testing.T) {
		w := &within{T: t}
		n := norm{random(r, 144), random(r, 144)}
		x, got, want := random(r, 288), make([]float32, 288), make([]float64, 144)
		n.apply(got, x, 1e-6)
		truth := (&Tower{norm: n}).reference().Norm
		for i := range 2 {
			in := make([]float64, 144)
			for j := range in {
				in[j] = float64(x[144*i+j])
			}
			truth.Apply(want, in, 1e-6)
			for j := range want { // one rounding
				w.value("norm", float64(got[144*i+j]), want[j], u*math.Abs(want[j])+1e-12)
			}
		}
	})
	t.Run("rotate", func(t *testing.T) {
		w := &within{T: t}
		x := random(r, 72)
		want := make([]float64, 72)
		for i, v := range x {
			want[i] = float64(v)
		}
		freq := oracle.VisionFrequencies(72)
		oracle.VisionRope(want, 17, 203, freq)
		var k worker
		k.angles(17, 203, freq)
		k.rotate(x)
		for i := range x { // one rounding
			w.value("rotated", float64(x[i]), want[i], u*math.Abs(want[i])+1e-14)
		}
	})
	t.Run("gelu", func(t *testing.T) {
		for _, x := range append(random(r, 100), 0, -40, 40) {
			w := &within{T: t}
			w.value("tanh form", float64(geluTanh(x)), oracle.GELUTanh(float64(x)), u*math.Abs(oracle.GELUTanh(float64(x)))+1e-45)
			w.value("erf form", float64(geluErf(x)), oracle.GELUErf(float64(x)), u*math.Abs(oracle.GELUErf(float64(x)))+1e-45)
		}
	})
	t.Run("attention", func(t *testing.T) { attention(&within{T: t}, tower, r) })
}

// attention holds every head's attention to the oracle's. A score's error d moves its weight by a factor of e^d, and an
// exponential has an error of 8 roundings, so that no result moves by more than twice those and the roundings of the sums,
// times the weighted sum of the values' magnitudes.
func attention(w *within, tower *Tower, r *rand.Rand) {
	v := &tower.layout
	x := tower.run(w.Context(), 6, 8)
	n, dim := x.patches(), v.HeadDim()
	qkv := random(r, 3*n*v.Hidden)
	still := &worker{sin: make([]float64, dim/2), cos: slices.Repeat([]float64{1}, dim/2)}
	for p := range n {
		x.keep(still, p, qkv[3*p*v.Hidden:][:3*v.Hidden], float32(1/math.Sqrt(float64(dim))))
	}
	x.attend()
	head := func(of, h int, change func(float64) float64) [][]float64 {
		all := make([][]float64, n)
		for p := range all {
			for _, f := range qkv[(3*p+of)*v.Hidden+h*dim:][:dim] {
				all[p] = append(all[p], change(float64(f)))
			}
		}
		return all
	}
	same := func(x float64) float64 { return x }
	for h := range v.Heads {
		q, k := head(0, h, same), head(1, h, same)
		want, size := head(0, h, same), head(0, h, same) // of that shape
		oracle.VisionAttention(want, q, k, head(2, h, same))
		oracle.VisionAttention(size, q, k, head(2, h, math.Abs))
		qs, ks := head(0, h, math.Abs), head(1, h, math.Abs)
		for p := range n {
			most := 0.0
			for j := range n {
				most = max(most, oracle.Dot(qs[p], ks[j])/math.Sqrt(float64(dim)))
			}
			score := u * float64(dim/2+5) * most // a query's scaling, the product and its sums
			for d := range dim {
				bound := (2*score + u*float64(n+24)) * size[p][d]
				w.value("attention", float64(x.h[p*v.Hidden+h*dim+d]), want[p][d], bound)
			}
		}
	}
	w.Logf("worst error over bound %.3f", w.worst)
}

func TestBytes(t *testing.T) {
	v := planner.FamilyByName(tiny).Vision
	matrices, vectors := v.Hidden*3*2*256+v.Merged()*v.Merged()+v.Out*v.Merged(), v.Hidden+v.Merged()+v.Out+2*v.Hidden+64*v.Hidden
	block := 3*v.Hidden*v.Hidden + v.Hidden*v.Hidden + 2*v.Hidden*v.FFN
	matrices += v.Depth * block
	vectors += v.Depth * (4*v.Hidden + 3*v.Hidden + v.Hidden + v.FFN + v.Hidden)
	if got, want := tinyTower(t).Bytes(), int64(2*matrices+4*vectors); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}

func BenchmarkEncode(b *testing.B) {
	tower := tinyTower(b)
	pixels := randomPixels(1, 16, 16)
	for b.Loop() {
		if _, err := tower.Encode(b.Context(), pixels, 16, 16); err != nil {
			b.Fatal(err)
		}
	}
}
