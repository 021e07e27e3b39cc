//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"splash/dequant"
	"splash/oracle"
	"splash/planner"
)

// TestGateUp holds silu(G x) (U x) of every format to the oracle, and sees that its bits are those of a projection whose SiLU is
// stored and of one that multiplies it.
func TestGateUp(t *testing.T) {
	const cols = 256
	b := newBench(t)
	image, all := everyFormat(t, 128, cols, randomMatrix)
	memory := b.wrap(image.Data)
	var r ratio
	for i, f := range planner.ImageFormats() {
		m := all[f.Name]
		// The rows of the one matrix are others than those of the other, and fill no tile.
		p := gateParams{rows: cUint(1 + i%8), cols: cols, outputs: 52, gateFirst: cUint(i % 2 * 64), upFirst: cUint(4 + i%3)}
		testGate(b, planesOf(memory, image.Tensor(f.Name)), f.Name, m, p, &r)
	}
	r.report(t, "gate and up")
}

// TestGateUpParts takes sums of several parts, and rows of two tiles.
func TestGateUpParts(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(17, 18))
	m := randomMatrix(rng, dequant.Q8_0, 128, partCols+192)
	image := planes(t, map[string]dequant.Matrix{"q80": m})
	var r ratio
	testGate(b, planesOf(b.wrap(image.Data), image.Tensor("q80")), "q80", m,
		gateParams{rows: 10, cols: cUint(m.Cols), outputs: 66, upFirst: 60}, &r)
	r.report(t, "gate and up, parts")
}

func testGate(b *bench, pl planeBuffers, format string, m dequant.Matrix, p gateParams, r *ratio) {
	b.t.Helper()
	rows, outputs := int(p.rows), int(p.outputs)
	rng := rand.New(rand.NewPCG(19, uint64(rows)))
	x := normals(rng, rows*m.Cols)
	for i := range x {
		x[i] /= 16
	}
	in, dst, apart := filled(b, x), empty[float32](b, rows*outputs), empty[float32](b, rows*outputs)
	g, _ := projectGrid(1, outputs)
	g.y = (rows + 7) / 8
	add(&b.commands, b.kernel("gate_up_"+format), g, p, in.from(0), pl.plane0, pl.plane1, pl.meta, pl.plane0, pl.plane1, pl.meta, dst.from(0))
	for i, first := range []cUint{p.gateFirst, p.upFirst} {
		add(&b.commands, b.kernel("project_"+format), g, projectParams{
			rows: p.rows, cols: p.cols, outputs: p.outputs, first: first, epilogue: []cUint{epilogueSiLU, epilogueMultiply}[i],
		}, in.from(0), pl.plane0, pl.plane1, pl.meta, apart.from(0))
	}
	b.run()
	if !slices.Equal(view[float32](dst), view[float32](apart)) {
		b.t.Errorf("%s: both at once are other bits than one after the other", format)
	}
	checkGate(r, format, view[float32](dst), x, m, p)
}

// checkGate holds results to the oracle: each sum is within (K+2) u of the sum of its products' magnitudes, SiLU is at most 1.1
// steep and at most its argument, and its exponential within a few units.
func checkGate(r *ratio, format string, got, x []float32, m dequant.Matrix, p gateParams) {
	values, w, magnitudes, inputs := make([]float32, m.Cols), make([]float64, m.Cols), make([]float64, m.Cols), make([]float64, m.Cols)
	dot := func(n, row int) (y, bound float64) {
		m.DecodeRow(values, n)
		for i, v := range values {
			w[i], magnitudes[i] = float64(v), math.Abs(float64(v))
			inputs[i] = math.Abs(float64(x[row*m.Cols+i]))
		}
		return oracle.Dot(w, wide(x[row*m.Cols:(row+1)*m.Cols])), float64(m.Cols+2) * u * oracle.Dot(magnitudes, inputs)
	}
	for row := range int(p.rows) {
		for n := range int(p.outputs) {
			gate, bg := dot(int(p.gateFirst)+n, row)
			up, bu := dot(int(p.upFirst)+n, row)
			silu := oracle.SiLU(gate)
			bound := 1.1*bg*(math.Abs(up)+bu) + math.Abs(silu)*bu + 20*u*math.Abs(silu*up)
			r.check(got[row*int(p.outputs)+n], silu*up, bound+1e-30, "%s row %d, output %d", format, row, n)
		}
	}
}

// BenchmarkGateUp multiplies 8 rows by two matrices of Q4_K, at once and one after the other.
func BenchmarkGateUp(bench *testing.B) {
	const rows, cols, outputs = 8, 2048, 1024
	b := newFastBench(bench)
	m := randomMatrix(rand.New(rand.NewPCG(23, 24)), dequant.Q4_K, 2*outputs, cols)
	image := planes(bench, map[string]dequant.Matrix{"q4k": m})
	pl := planesOf(b.wrap(image.Data), image.Tensor("q4k"))
	in, dst := filled(b, normals(rand.New(rand.NewPCG(25, 26)), rows*cols)), empty[float32](b, rows*outputs)
	g, _ := projectGrid(rows, outputs)
	bench.Run("once", func(bench *testing.B) {
		for bench.Loop() {
			add(&b.commands, b.kernel("gate_up_q4k"), g, gateParams{rows: rows, cols: cols, outputs: outputs, upFirst: outputs},
				in.from(0), pl.plane0, pl.plane1, pl.meta, pl.plane0, pl.plane1, pl.meta, dst.from(0))
			b.run()
		}
	})
	bench.Run("apart", func(bench *testing.B) {
		for bench.Loop() {
			for i, epilogue := range []cUint{epilogueSiLU, epilogueMultiply} {
				add(&b.commands, b.kernel("project_q4k"), g, projectParams{
					rows: rows, cols: cols, outputs: outputs, first: cUint(i * outputs), epilogue: epilogue,
				}, in.from(0), pl.plane0, pl.plane1, pl.meta, dst.from(0))
			}
			b.run()
		}
	})
}
