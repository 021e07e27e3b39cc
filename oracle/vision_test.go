package oracle_test

import (
	"math"
	"math/cmplx"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/gonum/mat"

	"splash/oracle"
)

func TestPatchPlace(t *testing.T) {
	// A grid of 4 x 6 patches: six rows of the result, each of 2 x 2 patches.
	var places [24][2]int
	for n := range places {
		places[n][0], places[n][1] = oracle.PatchPlace(n, 6, 2)
	}
	want := [24][2]int{
		{0, 0}, {0, 1}, {1, 0}, {1, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {0, 4}, {0, 5}, {1, 4}, {1, 5},
		{2, 0}, {2, 1}, {3, 0}, {3, 1}, {2, 2}, {2, 3}, {3, 2}, {3, 3}, {2, 4}, {2, 5}, {3, 4}, {3, 5},
	}
	if diff := cmp.Diff(want, places); diff != "" {
		t.Error(diff)
	}
}

func TestPatchValues(t *testing.T) {
	// Two patches of 2 x 2 pixels beside each other, whose channels are 0, 51, .. and so on.
	pixels := []byte{0, 51, 102, 255, 204, 153, 1, 2, 3, 4, 5, 6, 51, 0, 255, 102, 204, 0, 7, 8, 9, 10, 11, 12}
	got := make([]float64, 24)
	oracle.PatchValues(got, pixels, 0, 0, 2, 2, 2)
	red, green, blue := []float64{-1, 1, -0.6, -0.2}, []float64{-0.6, 0.6, -1, 0.6}, []float64{-0.2, 0.2, 1, -1}
	var want []float64
	for _, channel := range [][]float64{red, green, blue} {
		want = append(append(want, channel...), channel...)
	}
	wantNear(t, "values", got, want, 1e-15)
	oracle.PatchValues(got, pixels, 0, 1, 2, 2, 2)
	wantNear(t, "the patch beside", got[:4], []float64{1/127.5 - 1, 4/127.5 - 1, 7/127.5 - 1, 10/127.5 - 1}, 1e-15)
}

func TestPositionTaps(t *testing.T) {
	for _, c := range []struct {
		i, n, side int
		want       [2]oracle.Tap
	}{
		{0, 1, 48, [2]oracle.Tap{{0, 1}, {1, 0}}},
		{0, 4, 48, [2]oracle.Tap{{0, 1}, {1, 0}}},
		{3, 4, 48, [2]oracle.Tap{{47, 1}, {47, 0}}},
		{1, 4, 48, [2]oracle.Tap{{15, 1 - 2.0/3}, {16, 2.0 / 3}}}, // 47/3
		{5, 48, 48, [2]oracle.Tap{{5, 1}, {6, 0}}},
		{1, 3, 2, [2]oracle.Tap{{0, 0.5}, {1, 0.5}}},
		{95, 96, 48, [2]oracle.Tap{{47, 1}, {47, 0}}},
	} {
		got := oracle.PositionTaps(c.i, c.n, c.side)
		for k := range got {
			if got[k].Index != c.want[k].Index || !near(got[k].Weight, c.want[k].Weight, 1e-13) {
				t.Errorf("line %d of %d: %v, want %v", c.i, c.n, got, c.want)
				break
			}
		}
	}
	// The middle of a table of 2 x 2 is the mean of its corners.
	x := []float64{100}
	oracle.AddPosition(x, []float64{1, 2, 3, 6}, 1, 1, 3, 3, 2)
	wantNear(t, "position", x, []float64{103}, 1e-13)
}

func TestLayerNorm(t *testing.T) {
	n := oracle.LayerNorm{Weight: []float64{1, 2, 1, 0.5}, Bias: []float64{0, 1, 0, -1}}
	x := []float64{1, 2, 3, 6} // mean 3, variance 14/4
	n.Apply(x, x, 0.5)         // over sqrt 4
	wantNear(t, "norm", x, []float64{-1, 0, 0, -0.25}, 1e-15)
}

func TestGELU(t *testing.T) {
	// Erf form: x times the normal distribution's integral, whose values are tabulated.
	for x, want := range map[float64]float64{0: 0, 1: 0.8413447460685429, -1: -0.15865525393145707, 2: 2 * 0.9772498680518208} {
		wantNear(t, "erf form", []float64{oracle.GELUErf(x)}, []float64{want}, 1e-15)
	}
	// Tanh form at 1: tanh(0.7978845608 * 1.044715) = tanh(0.83356196892...).
	e := math.Exp(2 * 0.7978845608 * 1.044715)
	wantNear(t, "tanh form", []float64{oracle.GELUTanh(1), oracle.GELUTanh(-1)}, []float64{e / (e + 1), -1 / (e + 1)}, 1e-15)
	if d := oracle.GELUTanh(1) - oracle.GELUErf(1); d == 0 || math.Abs(d) > 1e-3 {
		t.Errorf("the forms differ by %g at 1", d)
	}
}

func TestVisionRope(t *testing.T) {
	freq := oracle.VisionFrequencies(8)
	wantNear(t, "frequencies", freq, []float64{1, 0.01}, 1e-15)
	x := []float64{1, 1, 1, 1, 0, 0, 0, 0}
	oracle.VisionRope(x, 2, 3, freq)
	wantNear(t, "rotated", x, []float64{
		math.Cos(2), math.Cos(0.02), math.Cos(3), math.Cos(0.03), math.Sin(2), math.Sin(0.02), math.Sin(3), math.Sin(0.03),
	}, 1e-15)
	if f := oracle.VisionFrequencies(72); len(f) != 18 || !near(f[9], 0.01, 1e-15) {
		t.Errorf("%d frequencies, the tenth %g", len(f), f[9])
	}
}

func TestImagePositions(t *testing.T) {
	// The example of models.md 10: an image of 2 x 3 after three tokens of text.
	got, next := oracle.ImagePositions(nil, 3, 2, 3)
	want := []oracle.Position{{3, 3, 3}, {3, 3, 4}, {3, 3, 5}, {3, 4, 3}, {3, 4, 4}, {3, 4, 5}}
	if diff := cmp.Diff(want, got); diff != "" || next != 6 {
		t.Errorf("%s, then %d", diff, next)
	}
	if _, next = oracle.ImagePositions(nil, 10, 5, 2); next != 15 {
		t.Errorf("after a tall image: %d", next)
	}
}

// randomVision is a small tower of drawn weights.
func randomVision(r *rand.Rand) *oracle.Vision {
	const hidden, ffn, out, side = 16, 24, 12, 5
	values := func(n int, scale float64) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = scale * r.NormFloat64()
		}
		return v
	}
	affine := func(rows, cols int) oracle.Affine {
		return oracle.Affine{
			Weight: oracle.Dense{Rows: rows, Cols: cols, Values: values(rows*cols, 1/math.Sqrt(float64(cols)))}, Bias: values(rows, 0.3),
		}
	}
	norm := func() oracle.LayerNorm { return oracle.LayerNorm{Weight: values(hidden, 1), Bias: values(hidden, 0.5)} }
	t := &oracle.Vision{
		Heads: 2, Patch: 4, Frames: 2, Merge: 2, Side: side, Eps: 1e-6,
		Embed: affine(hidden, 96), Positions: values(side*side*hidden, 1), Norm: norm(),
		MergeIn: affine(4*hidden, 4*hidden), MergeOut: affine(out, 4*hidden),
	}
	for range 3 {
		t.Blocks = append(t.Blocks, oracle.VisionBlock{
			Norm1: norm(), Norm2: norm(), QKV: affine(3*hidden, hidden), Proj: affine(hidden, hidden),
			Up: affine(ffn, hidden), Down: affine(hidden, ffn),
		})
	}
	return t
}

func TestVisionAgainstMatrices(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	tower := randomVision(r)
	const gridH, gridW = 4, 6
	pixels := make([]byte, 3*gridH*gridW*16)
	for i := range pixels {
		pixels[i] = byte(r.UintN(256))
	}
	got := tower.Encode(pixels, gridH, gridW)
	want := matrixVision(tower, pixels, gridH, gridW)
	if len(got) != gridH*gridW/4 {
		t.Fatalf("%d rows", len(got))
	}
	for i := range got {
		wantNear(t, "row", got[i], want[i], 1e-11)
	}
}

// matrixVision is the tower once more, written apart: matrices of all patches in the order of the picture, rotations as
// products of complex numbers, and the merge as a gather at the end.
func matrixVision(v *oracle.Vision, pixels []byte, gridH, gridW int) [][]float64 {
	n, hidden := gridH*gridW, len(v.Embed.Bias)
	apply := func(a oracle.Affine, x *mat.Dense) *mat.Dense {
		w := a.Weight.(oracle.Dense)
		var y mat.Dense
		y.Mul(x, mat.NewDense(w.Rows, w.Cols, w.Values).T())
		y.Apply(func(_, j int, value float64) float64 { return value + a.Bias[j] }, &y)
		return &y
	}
	norm := func(l oracle.LayerNorm, x *mat.Dense) *mat.Dense {
		y := mat.DenseCopyOf(x)
		for i := range n {
			row := mat.Row(nil, i, x)
			mean := mat.Sum(x.RowView(i)) / float64(hidden)
			deviation := 0.0
			for _, value := range row {
				deviation += value*value/float64(hidden) - mean*mean/float64(hidden)
			}
			for j, value := range row {
				y.Set(i, j, (value-mean)/math.Sqrt(deviation+v.Eps)*l.Weight[j]+l.Bias[j])
			}
		}
		return y
	}
	patches := mat.NewDense(n, 6*v.Patch*v.Patch, nil)
	for y := range gridH * v.Patch {
		for x := range gridW * v.Patch {
			for c := range 3 {
				value := float64(pixels[(y*gridW*v.Patch+x)*3+c])/127.5 - 1
				for frame := range 2 {
					patches.Set(y/v.Patch*gridW+x/v.Patch, ((c*2+frame)*v.Patch+y%v.Patch)*v.Patch+x%v.Patch, value)
				}
			}
		}
	}
	x := apply(v.Embed, patches)
	at := func(i, of int) float64 { return float64(i) * float64(v.Side-1) / float64(of-1) }
	for i := range n {
		py, px := at(i/gridW, gridH), at(i%gridW, gridW)
		for ty := range v.Side {
			for tx := range v.Side {
				weight := math.Max(0, 1-math.Abs(py-float64(ty))) * math.Max(0, 1-math.Abs(px-float64(tx)))
				for j := range hidden {
					x.Set(i, j, x.At(i, j)+weight*v.Positions[(ty*v.Side+tx)*hidden+j])
				}
			}
		}
	}
	for _, b := range v.Blocks {
		qkv := apply(b.QKV, norm(b.Norm1, x))
		dim := hidden / v.Heads
		turn := func(m mat.Matrix) *mat.Dense {
			y := mat.DenseCopyOf(m)
			for i := range n {
				for pair := range dim / 2 {
					place := i / gridW
					if pair >= dim/4 {
						place = i % gridW
					}
					angle := float64(place) / math.Pow(10000, float64(pair%(dim/4))/float64(dim/4))
					z := complex(m.At(i, pair), m.At(i, pair+dim/2)) * cmplx.Exp(complex(0, angle))
					y.Set(i, pair, real(z))
					y.Set(i, pair+dim/2, imag(z))
				}
			}
			return y
		}
		out := mat.NewDense(n, hidden, nil)
		for h := range v.Heads {
			q, k := turn(qkv.Slice(0, n, h*dim, (h+1)*dim)), turn(qkv.Slice(0, n, hidden+h*dim, hidden+(h+1)*dim))
			var scores mat.Dense
			scores.Mul(q, k.T())
			scores.Apply(func(_, _ int, s float64) float64 { return math.Exp(s / math.Sqrt(float64(dim))) }, &scores)
			for i := range n {
				row := scores.RawRowView(i)
				sum := mat.Sum(scores.RowView(i))
				for j := range row {
					row[j] /= sum
				}
			}
			out.Slice(0, n, h*dim, (h+1)*dim).(*mat.Dense).Mul(&scores, qkv.Slice(0, n, 2*hidden+h*dim, 2*hidden+(h+1)*dim))
		}
		x.Add(x, apply(b.Proj, out))
		wide := apply(b.Up, norm(b.Norm2, x))
		wide.Apply(func(_, _ int, s float64) float64 {
			return s / (1 + math.Exp(-2*0.7978845608*(s+0.044715*math.Pow(s, 3))))
		}, wide)
		x.Add(x, apply(b.Down, wide))
	}
	x = norm(v.Norm, x)
	rows := mat.NewDense(n/4, 4*hidden, nil)
	for i := range n {
		y, c := i/gridW, i%gridW
		for j := range hidden {
			rows.Set(y/2*(gridW/2)+c/2, (y%2*2+c%2)*hidden+j, x.At(i, j))
		}
	}
	wide := apply(v.MergeIn, rows)
	wide.Apply(func(_, _ int, s float64) float64 { return s * math.Erfc(-s/math.Sqrt2) / 2 }, wide)
	y := apply(v.MergeOut, wide)
	all := make([][]float64, n/4)
	for i := range all {
		all[i] = mat.Row(nil, i, y)
	}
	return all
}
