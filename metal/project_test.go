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

// everyFormat is an image of a matrix of every format, each under its format's name.
func everyFormat(t testing.TB, rows, cols int, random func(*rand.Rand, dequant.Type, int, int) dequant.Matrix) (
	*planner.ImageFile, map[string]dequant.Matrix) {
	rng := rand.New(rand.NewPCG(1, uint64(rows*cols)))
	all := make(map[string]dequant.Matrix)
	for _, f := range planner.ImageFormats() {
		all[f.Name] = random(rng, sourceType(f), rows, cols)
	}
	return planes(t, all), all
}

// anyBytes is a matrix of any bytes: its scales may be subnormal, infinite or no numbers.
func anyBytes(rng *rand.Rand, kind dequant.Type, rows, cols int) dequant.Matrix {
	m := dequant.Matrix{Format: dequant.Lookup(kind), Rows: rows, Cols: cols}
	m.Data = make([]byte, rows*m.Format.RowBytes(cols))
	if kind == dequant.FP8Rows {
		m.Data, m.Global = make([]byte, rows*cols), []float32{0.01}
	}
	for i := range m.Data {
		m.Data[i] = byte(rng.Uint32())
	}
	return m
}

// TestPlanes holds what the kernels decode of every format to dequant's values, bit for bit, of any bytes: every row of a matrix
// of several tiles and blocks, in an order of its own. One NaN is as good as another.
func TestPlanes(t *testing.T) {
	const rows, cols = 128, 768
	b := newBench(t)
	image, all := everyFormat(t, rows, cols, anyBytes)
	memory := b.wrap(image.Data)
	list := make([]rowInfo, rows)
	for i := range list {
		list[i].token = cUint((i*37 + 5) % rows)
	}
	numbers, dst := filled(b, list), empty[float32](b, rows*cols)
	want := make([]float32, cols)
	for _, f := range planner.ImageFormats() {
		p := planesOf(memory, image.Tensor(f.Name))
		add(&b.commands, b.kernel("gather_"+f.Name), gatherGrid(rows, cols), gatherParams{cols: cols},
			p.plane0, p.plane1, p.meta, numbers.from(0), dst.from(0))
		b.run()
		m := all[f.Name]
		for i := range list {
			m.DecodeRow(want, int(list[i].token))
			for c, v := range view[float32](dst)[i*cols : (i+1)*cols] {
				if math.Float32bits(v) != math.Float32bits(want[c]) && (v == v || want[c] == want[c]) {
					t.Fatalf("%s: row %d, column %d is %v (%08x), want %v (%08x)", f.Name, list[i].token, c, v,
						math.Float32bits(v), want[c], math.Float32bits(want[c]))
				}
			}
		}
	}
}

// projectCase is one projection: a slice of the rows of a matrix, some rows of inputs, what becomes of them.
type projectCase struct {
	rows, first, outputs int
	epilogue             int
	order                *planner.HeadOrder
}

// TestProject holds the projections of every format, in tiles of 8 and 64 rows, to the oracle on dequant's values. The
// bound is that of a sum of K products in any order, (K+2) u sum |w||x|, and of the epilogue.
func TestProject(t *testing.T) {
	const rows, cols = 128, 256
	b := newBench(t)
	image, all := everyFormat(t, rows, cols, randomMatrix)
	memory := b.wrap(image.Data)
	var narrow, wide ratio
	for i, f := range planner.ImageFormats() {
		// Every format in both tiles; rows that fill no tile and outputs that begin within one in turn.
		c := projectCase{rows: 1 + i%8, outputs: rows, epilogue: i % 4}
		if i%3 == 1 {
			c.first, c.outputs = 68, 52
		}
		testProject(b, memory, image.Tensor(f.Name), all[f.Name], c, &narrow)
		testProject(b, memory, image.Tensor(f.Name), all[f.Name], projectCase{rows: 9 + 11*i%70, outputs: 64}, &wide)
	}
	narrow.report(t, "project")
	wide.report(t, "project, wide")
}

// TestProjectShapes holds projections of other shapes: one block of columns and a half, many rows, inputs in grouped order
// under columns in tiled order.
func TestProjectShapes(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(3, 4))
	all := map[string]dequant.Matrix{
		"q40": randomMatrix(rng, dequant.Q4_0, 64, 192), "q80": randomMatrix(rng, dequant.Q8_0, 64, 64),
		"q6k": randomMatrix(rng, dequant.Q6_K, 64, 512), "af4g64": randomMatrix(rng, dequant.Affine(4, 64), 128, 512),
	}
	image := planes(t, all)
	memory := b.wrap(image.Data)
	var r ratio
	for name, c := range map[string]projectCase{
		"q40": {rows: 33, outputs: 64}, "q80": {rows: 2, outputs: 64, epilogue: epilogueAdd},
		"q6k":    {rows: 3, outputs: 60, order: &planner.HeadOrder{Size: 128, KeyHeads: 2, PerKey: 2}},
		"af4g64": {rows: 70, first: 64, outputs: 64, order: &planner.HeadOrder{Size: 64, KeyHeads: 2, PerKey: 4}},
	} {
		testProject(b, memory, image.Tensor(name), all[name], c, &r)
	}
	r.report(t, "project, shapes")
}

// TestProjectSplit holds sums of several parts to the oracle, and sees that they are the same bits in one threadgroup, in one a
// part, and in the wide tile.
func TestProjectSplit(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(3, 5))
	const cols, outputs = 2*partCols + 64, 60
	m := randomMatrix(rng, dequant.Q8_0, 64, cols)
	image := planes(t, map[string]dequant.Matrix{"q80": m})
	pl := planesOf(b.wrap(image.Data), image.Tensor("q80"))
	var r ratio
	for epilogue := range 4 {
		rows := 3 + 8*epilogue
		x, before := normals(rng, rows*cols), normals(rng, rows*outputs)
		p := projectParams{rows: cUint(rows), cols: cols, outputs: outputs, epilogue: cUint(epilogue)}
		in, whole, wide, split := filled(b, x), filled(b, before), filled(b, before), filled(b, before)
		sums := empty[float32](b, columnParts(cols)*rows*outputs)
		narrow, _ := projectGrid(1, outputs)
		narrow.y = (rows + 7) / 8
		add(&b.commands, b.kernel("project_q80"), narrow, p, in.from(0), pl.plane0, pl.plane1, pl.meta, whole.from(0))
		g, _ := projectGrid(64, outputs)
		add(&b.commands, b.kernel("project_wide_q80"), g, p, in.from(0), pl.plane0, pl.plane1, pl.meta, wide.from(0))
		p.split, narrow.z = 1, columnParts(cols)
		add(&b.commands, b.kernel("project_q80"), narrow, p, in.from(0), pl.plane0, pl.plane1, pl.meta, sums.from(0))
		add(&b.commands, b.kernel("project_sum"), sumGrid(outputs, rows),
			sumParams{rows: cUint(rows), outputs: outputs, parts: cUint(columnParts(cols)), epilogue: cUint(epilogue)}, sums.from(0), split.from(0))
		b.run()
		checkProject(&r, "project, split", view[float32](split), before, x, m, projectCase{rows: rows, outputs: outputs, epilogue: epilogue})
		if !slices.Equal(view[float32](whole), view[float32](split)) || !slices.Equal(view[float32](whole), view[float32](wide)) {
			t.Errorf("epilogue %d: split, whole and wide sums differ", epilogue)
		}
	}
	r.report(t, "project, split")
}

func testProject(b *bench, memory *Buffer, t *planner.ImageTensor, m dequant.Matrix, c projectCase, r *ratio) {
	rng := rand.New(rand.NewPCG(5, uint64(t.Rows+t.Cols)))
	x, before := normals(rng, c.rows*t.Cols), normals(rng, c.rows*c.outputs)
	in, dst := filled(b, x), filled(b, before)
	p := projectParams{
		rows: cUint(c.rows), cols: cUint(t.Cols), outputs: cUint(c.outputs), first: cUint(c.first), epilogue: cUint(c.epilogue),
	}
	if c.order != nil {
		p.head, p.keyHeads, p.perKey = cUint(c.order.Size), cUint(c.order.KeyHeads), cUint(c.order.PerKey)
	}
	g, wide := projectGrid(c.rows, c.outputs)
	name := "project_"
	if wide {
		name = "project_wide_"
	}
	pl := planesOf(memory, t)
	add(&b.commands, b.kernel(name+t.Name), g, p, in.from(0), pl.plane0, pl.plane1, pl.meta, dst.from(0))
	b.run()
	checkProject(r, name+t.Name, view[float32](dst), before, x, m, c)
}

// checkProject holds a projection's result to the oracle.
func checkProject(r *ratio, name string, got, before, x []float32, m dequant.Matrix, c projectCase) {
	w, values := make([]float64, m.Cols), make([]float32, m.Cols)
	magnitudes, inputs := make([]float64, m.Cols), make([]float64, m.Cols)
	for n := range c.outputs {
		m.DecodeRow(values, c.first+n)
		for i := range w {
			w[i] = float64(values[c.order.Source(i)])
			magnitudes[i] = math.Abs(w[i])
		}
		for row := range c.rows {
			for i, v := range x[row*m.Cols : (row+1)*m.Cols] {
				inputs[i] = math.Abs(float64(v))
			}
			y := oracle.Dot(w, wide(x[row*m.Cols:(row+1)*m.Cols]))
			bound := float64(m.Cols+2) * u * oracle.Dot(magnitudes, inputs)
			old := float64(before[row*c.outputs+n])
			switch c.epilogue {
			case epilogueAdd:
				y += old
				bound += u * math.Abs(y)
			case epilogueSiLU:
				// The slope of SiLU is below 1.1; its exponential is within a few units.
				y = oracle.SiLU(y)
				bound = 1.1*bound + 16*u*math.Abs(y)
			case epilogueMultiply:
				y *= old
				bound = bound*math.Abs(old) + 2*u*math.Abs(y)
			}
			r.check(got[row*c.outputs+n], y, bound+1e-30, "%s row %d, output %d", name, row, n)
		}
	}
}

// TestProjectF32 holds the projection of F32 rows to the oracle.
func TestProjectF32(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(7, 8))
	var r ratio
	for _, c := range []projectCase{{rows: 1, outputs: 4, first: 4}, {rows: 5, outputs: 11, epilogue: epilogueAdd}} {
		const cols = 320
		w := normals(rng, (c.first+c.outputs)*cols)
		x, before := normals(rng, c.rows*cols), normals(rng, c.rows*c.outputs)
		dst, weights := filled(b, before), filled(b, w)
		add(&b.commands, b.kernel("project_f32"), grid{x: (c.outputs + 7) / 8, y: c.rows, threads: 256},
			projectParams{rows: cUint(c.rows), cols: cols, outputs: cUint(c.outputs), first: cUint(c.first), epilogue: cUint(c.epilogue)},
			filled(b, x).from(0), weights.from(0), dst.from(0))
		b.run()
		m := dequant.Matrix{Format: dequant.Lookup(dequant.F32), Rows: c.first + c.outputs, Cols: cols, Data: weights.bytes}
		checkProject(&r, "project_f32", view[float32](dst), before, x, m, c)
	}
	r.report(t, "project_f32")
}
