package conformance_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"splash/dequant"
	"splash/internal/cpu"
	_ "splash/internal/cpu/amxtest"
	"splash/internal/model"
	"splash/internal/reference"
	"splash/oracle"
	"splash/planner"
)

// An operatorBackend is held, operator by operator, to the oracle backend. What it rounds is part of its bounds.
type operatorBackend struct {
	name string
	open func(p *planner.Plan, maxRows int) (model.Backend, error)

	// activations reports whether inputs of products beside weights in blocks are rounded to 8 bits in units of 32.
	activations bool
	// bf16 reports whether inputs beside BF16 weights are rounded to bfloat16, in products of whole units.
	bf16 bool
	// kv is the unit roundoff of stored keys and values, codes what they stray beside it by the largest of their head.
	kv, codes float64
	// planes reports whether experts are read as planes, which take rows in whole tiles.
	planes bool
	// attends says that the row differs from the one before it in the keys and values alone.
	attends bool
	// only names the formats of planes that the backend has; nil is all.
	only []string
}

// float32Roundoff and bf16Roundoff are unit roundoffs.
const (
	float32Roundoff = 0x1p-24
	bf16Roundoff    = 0x1p-8     // eight significant bits
	codeRoundoff    = 0.51 / 127 // half of the distance of two codes of 8 bits, and what computing them adds
)

func operatorBackends() []operatorBackend {
	if m := mutant(); m != nil {
		return []operatorBackend{*m}
	}
	var all []operatorBackend
	for _, l := range cpu.Levels() {
		for _, exact := range []bool{false, true} {
			o, kv, name := cpu.Options{Level: l.String(), Workers: 2, Exact: exact}, bf16Roundoff, "cpu "+l.String()
			if exact {
				o.KV, kv, name = cpu.KVFloat, float32Roundoff, name+" exact"
			}
			open := func(p *planner.Plan, maxRows int) (model.Backend, error) { return cpu.New(p, maxRows, o) }
			all = append(all, operatorBackend{name: name, open: open, activations: !exact, kv: kv, bf16: !exact && l == cpu.AVX512BF16})
		}
	}
	return append(all, metalBackends()...)
}

// eachOperatorBackend runs f for every backend, and for those of other keys and values where it attends.
func eachOperatorBackend(t *testing.T, f func(t *testing.T, b operatorBackend)) {
	attends := strings.Contains(t.Name(), "Attention")
	for _, b := range operatorBackends() {
		if attends || !b.attends {
			t.Run(b.name, func(t *testing.T) { f(t, b) })
		}
	}
}

// A pair is a backend and the oracle, which are told the same and give the same handles.
type pair struct {
	t      testing.TB
	layout planner.Layout
	truth  *reference.Backend
	got    model.Backend
	rows   int
	r      *rand.Rand
	worst  float64 // error by bound
	values int     // that were compared

	wants    map[[2]int][]float64            // what the oracle gave, by buffer and row
	position func(index int) oracle.Position // of a row of a pass; nil: text's
}

// newPair opens both for passes of so many rows.
func newPair(t testing.TB, b operatorBackend, rows int, layout planner.Layout) *pair {
	t.Helper()
	layout.Vocab, layout.Context, layout.Epsilon = rows, rows, 1e-6
	if layout.Attention.RopeBase == 0 {
		layout.Attention.RopeBase, layout.Attention.RopeDim = 1e7, 64
	}
	p := &pair{t: t, layout: layout, rows: rows, r: rand.New(rand.NewPCG(21, 22))}
	plan := &planner.Plan{Layout: layout}
	got, err := b.open(plan, rows)
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := got.(interface{ Close() error }); ok {
		t.Cleanup(func() { c.Close() })
	}
	p.got, p.truth = got, reference.New(plan, rows)
	return p
}

// want is a row of a buffer after the last pass, by the oracle.
func (p *pair) want(h model.Buffer, row int) []float64 {
	at := [2]int{int(h), row}
	if p.wants == nil {
		p.wants = make(map[[2]int][]float64)
	}
	if p.wants[at] == nil {
		p.wants[at] = p.truth.ReadFloat64(h, row)
	}
	return p.wants[at]
}

// each runs f on both. It must do the same to them.
func (p *pair) each(f func(b model.Backend)) {
	f(p.truth)
	f(p.got)
}

// given is weights that a test made.
type given []dequant.Matrix

func (g given) Matrices(*planner.Tensor) ([]dequant.Matrix, error) { return g, nil }

func (p *pair) matrix(t planner.Tensor, m dequant.Matrix) (h model.Matrix) {
	p.t.Helper()
	t.Rows, t.Cols = m.Rows, m.Cols
	p.each(func(b model.Backend) {
		var err error
		if h, err = b.LoadMatrix(given{m}, &t); err != nil {
			p.t.Fatal(err)
		}
	})
	return h
}

func (p *pair) experts(all []dequant.Matrix) (h model.Experts) {
	p.t.Helper()
	t := planner.Tensor{Name: "experts", Role: planner.Experts, Rows: all[0].Rows, Cols: all[0].Cols, Experts: len(all)}
	p.each(func(b model.Backend) {
		var err error
		if h, err = b.LoadExperts(given(all), &t); err != nil {
			p.t.Fatal(err)
		}
	})
	return h
}

func (p *pair) vector(values []float32) (h model.Vector) {
	p.t.Helper()
	m := floatMatrix(values, 1, len(values))
	p.each(func(b model.Backend) {
		var err error
		if h, err = b.LoadVector(given{m}, &planner.Tensor{Name: "v", Rows: 1, Cols: len(values)}); err != nil {
			p.t.Fatal(err)
		}
	})
	return h
}

func (p *pair) buffer(width int) (h model.Buffer) {
	p.t.Helper()
	p.each(func(b model.Backend) {
		var err error
		if h, err = b.Buffer(width, model.AllRows); err != nil {
			p.t.Fatal(err)
		}
	})
	return h
}

// input is a buffer whose rows are those of the values, which a table of F32 holds: Embed writes them.
func (p *pair) input(values []float32, width int) input {
	p.t.Helper()
	m := p.matrix(planner.Tensor{Name: "table", Role: planner.TokenTable}, floatMatrix(values, len(values)/width, width))
	return input{p.buffer(width), m}
}

type input struct {
	buffer model.Buffer
	table  model.Matrix
}

func (in input) set(b model.Backend) { b.Embed(in.buffer, in.table) }

// normals are n normal deviates, some of them far out, as activations have them.
func (p *pair) normals(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(p.r.NormFloat64())
		if p.r.IntN(100) == 0 {
			x[i] *= 20
		}
	}
	return x
}

// pass runs one pass of all rows, each a segment's, on new lanes.
func (p *pair) pass(segments []int, f func(b model.Backend)) {
	p.t.Helper()
	p.wants = nil
	tokens := make([]int32, p.rows)
	for i := range tokens {
		tokens[i] = int32(i)
	}
	p.each(func(b model.Backend) {
		pass, at := &model.Pass{}, 0
		for _, n := range segments {
			lane, err := b.NewLane()
			if err != nil {
				p.t.Fatal(err)
			}
			s := model.Segment{Lane: lane, Tokens: tokens[at : at+n]}
			for i := 0; i < n && p.position != nil; i++ {
				s.Positions = append(s.Positions, p.position(i))
			}
			pass.Segments = append(pass.Segments, s)
			at += n
		}
		if err := b.Begin(pass); err != nil {
			p.t.Fatal(err)
		}
		f(b)
		if err := b.End(); err != nil {
			p.t.Fatal(err)
		}
		for i := range pass.Segments {
			b.FreeLane(pass.Segments[i].Lane)
		}
	})
}

// compare holds every element of a buffer to its bound.
func (p *pair) compare(h model.Buffer, what string, bound func(row, i int) float64) {
	p.t.Helper()
	for row := range p.rows {
		want, got := p.want(h, row), p.got.Read(h, row)
		for i, w := range want {
			q := math.Abs(float64(got[i])-w) / bound(row, i)
			if float64(got[i]) == w {
				q = 0
			}
			p.values++
			if !(q <= p.worst) {
				p.worst = q
			}
			if !(q <= 1) {
				p.t.Fatalf("%s: row %d element %d is %v, want %v: an error of %.3g bounds", what, row, i, got[i], w, q)
			}
		}
	}
}

func floatMatrix(values []float32, rows, cols int) dequant.Matrix {
	m := dequant.Matrix{Format: dequant.Lookup(dequant.F32), Rows: rows, Cols: cols}
	for _, v := range values {
		b := math.Float32bits(v)
		m.Data = append(m.Data, byte(b), byte(b>>8), byte(b>>16), byte(b>>24))
	}
	return m
}

// blocks is a matrix of random blocks of finite and ordinary values.
func (p *pair) blocks(f *dequant.Format, rows, cols int) dequant.Matrix {
	m := dequant.Matrix{Format: f, Rows: rows, Cols: cols, Data: make([]byte, rows*f.RowBytes(cols))}
	values := make([]float32, f.Block)
	for at := 0; at < len(m.Data); at += f.Bytes {
		for ok := false; !ok; {
			for i := range f.Bytes {
				m.Data[at+i] = byte(p.r.Uint32())
			}
			f.Decode(values, m.Data[at:at+f.Bytes])
			ok = true
			for _, v := range values {
				a := math.Abs(float64(v))
				ok = ok && a < 1e6 && (v == 0 || a > 1e-9)
			}
		}
	}
	return m
}

// A decoded is a matrix's values, and for each the size of what it is computed from: in formats with a minimum, the
// difference of two numbers up to twice the largest value about.
type decoded struct {
	cols         int
	values, size []float64
	rounded      bool // its products take rounded inputs, where the backend does so
	bf16         bool
}

func decode(m dequant.Matrix) decoded {
	d := decoded{cols: m.Cols, rounded: m.Format.Block > 1 && m.Format.Type != dequant.FP8Rows}
	d.bf16 = m.Format.Type == dequant.BF16 && m.Cols%32 == 0
	row := make([]float32, m.Cols)
	for i := range m.Rows {
		m.DecodeRow(row, i)
		for at := 0; at < m.Cols; at += 32 {
			most := 0.0
			for _, v := range row[at:min(at+32, m.Cols)] {
				most = math.Max(most, math.Abs(float64(v)))
			}
			for _, v := range row[at:min(at+32, m.Cols)] {
				d.values = append(d.values, float64(v))
				d.size = append(d.size, math.Abs(float64(v))+3*most)
			}
		}
	}
	return d
}

// step is the most that rounding takes from a value of a unit, in units of its largest magnitude: half of a 127th, and
// what computing the quotient adds.
const step = (0.5 + 127*4*float32Roundoff) / 127

// productBound bounds the error of a product of row r of the weights and x: what the rounding of x makes of it, and the
// roundings of the sum.
func (b *operatorBackend) productBound(w *decoded, r int, x []float64) float64 {
	var rounding, halves, size float64
	for at := 0; at < w.cols; at += 32 {
		most := 0.0
		for _, v := range x[at:min(at+32, w.cols)] {
			most = math.Max(most, math.Abs(v))
		}
		for i := at; i < min(at+32, w.cols); i++ {
			rounding += math.Abs(w.values[r*w.cols+i]) * most * step
			size += w.size[r*w.cols+i] * (math.Abs(x[i]) + most*step)
			halves += math.Abs(w.values[r*w.cols+i] * x[i])
		}
	}
	switch {
	case w.bf16 && b.bf16:
		rounding = halves * bf16Roundoff
	case !w.rounded || !b.activations:
		rounding = 0
	}
	return rounding + float64(w.cols/8+16)*float32Roundoff*size
}

func widened(x []float32) []float64 {
	w := make([]float64, len(x))
	for i, v := range x {
		w[i] = float64(v)
	}
	return w
}

// productFormats are all that a projection may be stored in, as far as the backend has them.
func (b *operatorBackend) productFormats() []*dequant.Format {
	var all []*dequant.Format
	for _, f := range dequant.Formats() {
		if f.Decodes() && b.has(f.Type) {
			all = append(all, f)
		}
	}
	return all
}

// has reports whether the backend has kernels for a format.
func (b *operatorBackend) has(t dequant.Type) bool {
	f := planner.LookupImage(t)
	return b.only == nil || f == nil || slices.Contains(b.only, f.Name)
}

// projectShapes are sizes of weights and numbers of inputs: of whole and of broken tiles, and in products of rounded inputs
// of those rows that are taken sixteen at once.
func (b *operatorBackend) projectShapes() []struct{ rows, cols, inputs int } {
	type shape = struct{ rows, cols, inputs int }
	all := []shape{{16, 256, 1}, {37, 768, 8}, {5, 1280, 13}}
	if b.activations {
		all = append(all, shape{21, 256, 35})
	}
	if *full {
		for _, inputs := range []int{1, 2, 3, 5, 7, 8, 9, 31, 64, 70} {
			all = append(all, shape{64, 512, inputs}, shape{130, 256, inputs}, shape{1, 4352, inputs})
		}
	}
	return all
}

// TestProject multiplies weights of every format, of whole and of broken tiles, by one row to thirteen, stored and added.
func TestProject(t *testing.T) {
	eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
		for _, f := range b.productFormats() {
			for _, shape := range b.projectShapes() {
				p := newPair(t, b, shape.inputs, planner.Layout{})
				m := p.blocks(f, shape.rows, shape.cols)
				x, base := p.normals(shape.inputs*shape.cols), p.normals(shape.inputs*shape.rows)
				in, add := p.input(x, shape.cols), p.input(base, shape.rows)
				w, out := p.matrix(planner.Tensor{Name: f.Name}, m), p.buffer(shape.rows)
				p.pass([]int{shape.inputs}, func(b model.Backend) {
					in.set(b)
					add.set(b)
					b.Project(out, in.buffer, w, model.Store)
					b.Project(add.buffer, in.buffer, w, model.Add)
				})
				d, wide := decode(m), widened(x)
				bound := func(row, i int) float64 { return b.productBound(&d, i, wide[row*shape.cols:][:shape.cols]) }
				p.compare(out, f.Name, bound)
				p.compare(add.buffer, f.Name+" added", func(row, i int) float64 {
					sum := math.Abs(float64(base[row*shape.rows+i])) + math.Abs(p.want(out, row)[i])
					return bound(row, i)*1.0001 + 2*float32Roundoff*sum
				})
				p.report(b, "project")
			}
		}
	})
}

// TestProjectOrders multiplies weights whose rows or columns the file has in another order than the network, or whose
// input is rotated.
func TestProjectOrders(t *testing.T) {
	order := func(from, size int) *planner.HeadOrder {
		return &planner.HeadOrder{From: from, Size: size, KeyHeads: 2, PerKey: 3}
	}
	signs := make([]int8, 1024)
	for i := range signs {
		signs[i] = int8(1 - i*i%7%2*2)
	}
	for _, c := range []struct {
		name       string
		tensor     planner.Tensor
		rows, cols int
	}{
		{"rows by heads", planner.Tensor{RowOrder: order(32, 64)}, 32 + 6*64, 256},
		{"rows one by one", planner.Tensor{RowOrder: order(0, 1)}, 6, 256},
		{"columns", planner.Tensor{ColOrder: order(0, 128)}, 20, 768},
		{"rotated", planner.Tensor{Signs: signs}, 20, 1024},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
				for _, kind := range []dequant.Type{dequant.Q8_0, dequant.Q4_K, dequant.F32} {
					const inputs = 3
					p := newPair(t, b, inputs, planner.Layout{})
					m := p.blocks(dequant.Lookup(dequant.Q8_0), c.rows, c.cols)
					if kind != dequant.Q8_0 {
						m = p.blocks(dequant.Lookup(kind), c.rows, c.cols)
					}
					x := p.normals(inputs * c.cols)
					in, w, out := p.input(x, c.cols), p.matrix(c.tensor, m), p.buffer(c.rows)
					p.pass([]int{inputs}, func(b model.Backend) {
						in.set(b)
						b.Project(out, in.buffer, w, model.Store)
					})
					d := decode(m)
					p.compare(out, c.name, func(row, i int) float64 {
						// Rotated inputs are sums of 1024 of these by 32; permuted ones have their neighbours' scale.
						largest := 0.0
						for _, v := range x[row*c.cols : (row+1)*c.cols] {
							largest = math.Max(largest, math.Abs(float64(v)))
						}
						if c.tensor.Signs != nil {
							largest *= 32
						}
						at := c.tensor.RowOrder.Source(i)
						uniform := make([]float64, c.cols)
						for j := range uniform {
							uniform[j] = largest
						}
						return b.productBound(&d, at, uniform)
					})
					p.report(b, "project in orders")
				}
			})
		})
	}
}

// TestEmbed reads rows of every format bit for bit.
func TestEmbed(t *testing.T) {
	eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
		for _, f := range b.productFormats() {
			p := newPair(t, b, 5, planner.Layout{})
			m := p.blocks(f, 5, 256)
			if f.Type == dequant.MXFP4 {
				m.Data[0], m.Data[f.Bytes] = 0, 1 // powers of two that are subnormal
			}
			table := p.matrix(planner.Tensor{Name: f.Name, Role: planner.TokenTable}, m)
			out := p.buffer(256)
			p.pass([]int{2, 3}, func(b model.Backend) { b.Embed(out, table) })
			p.compare(out, f.Name, func(int, int) float64 { return 1e-300 })
			p.report(b, "embed")
		}
	})
}

// TestGateUp runs silu(gate x) (up x), with halves in two formats, and both in each.
func TestGateUp(t *testing.T) {
	eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
		kinds := [][2]dequant.Type{{dequant.Q6_K, dequant.Q4_K}, {dequant.Q8_0, dequant.F16}}
		for _, f := range b.productFormats() {
			kinds = append(kinds, [2]dequant.Type{f.Type, f.Type})
		}
		for i, kinds := range kinds {
			if i < 2 && b.only != nil {
				continue
			}
			const inputs, rows, cols = 3, 40, 256
			p := newPair(t, b, inputs, planner.Layout{})
			gate, up := p.blocks(dequant.Lookup(kinds[0]), rows, cols), p.blocks(dequant.Lookup(kinds[1]), rows, cols)
			x := p.normals(inputs * cols)
			for i := range x {
				x[i] /= 64
			}
			in := p.input(x, cols)
			g, u, out := p.matrix(planner.Tensor{Name: "gate"}, gate), p.matrix(planner.Tensor{Name: "up"}, up), p.buffer(rows)
			gateOut, upOut := p.buffer(rows), p.buffer(rows)
			p.pass([]int{inputs}, func(b model.Backend) {
				in.set(b)
				b.GateUp(out, in.buffer, g, u, nil)
				b.Project(gateOut, in.buffer, g, model.Store)
				b.Project(upOut, in.buffer, u, model.Store)
			})
			dg, du, wide := decode(gate), decode(up), widened(x)
			p.compare(out, fmt.Sprint(kinds), func(row, i int) float64 {
				in := wide[row*cols : (row+1)*cols]
				bg, bu := b.productBound(&dg, i, in), b.productBound(&du, i, in)
				vg, vu := p.want(gateOut, row)[i], p.want(upOut, row)[i]
				silu := math.Abs(vg / (1 + math.Exp(-vg)))
				// SiLU is at most its argument and 1.1 steep.
				return 1.1*bg*(math.Abs(vu)+bu) + silu*bu + 32*float32Roundoff*(math.Abs(vg)+bg)*(math.Abs(vu)+bu)
			})
			p.report(b, "gate and up")
		}
	})
}

// TestNorms normalizes rows, and heads with their gates.
func TestNorms(t *testing.T) {
	eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
		for _, width := range []int{256, 1024, 5120} {
			p := newPair(t, b, 3, planner.Layout{})
			values := p.normals(3 * width)
			for i := range width {
				values[i] /= 1024 // the mean square is near epsilon
			}
			x, z := p.input(values, width), p.input(p.normals(3*width), width)
			w, head := p.vector(p.normals(width)), p.vector(p.normals(128))
			out, silu, sigmoid := p.buffer(width), p.buffer(width), p.buffer(width)
			p.pass([]int{3}, func(b model.Backend) {
				x.set(b)
				z.set(b)
				b.RMSNorm(out, x.buffer, w, 1e-6, nil)
				b.GatedNorm(silu, x.buffer, z.buffer, head, false, nil)
				b.GatedNorm(sigmoid, x.buffer, z.buffer, head, true, nil)
			})
			for _, h := range []model.Buffer{out, silu, sigmoid} {
				p.compare(h, "norm", func(row, i int) float64 {
					// Half the roundings of the sum of squares, and a few of the factors.
					return (float64(width/32+8) + 16) * float32Roundoff * math.Abs(p.want(h, row)[i])
				})
			}
			p.report(b, "norms")
		}
	})
}
