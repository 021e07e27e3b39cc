package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"splash/dequant"
	"splash/planner"
)

// least runs f for a while and returns the shortest time it took: other work on the machine makes the rest.
func least(b *testing.B, f func()) time.Duration {
	best := time.Hour
	for b.Loop() {
		for range 16 {
			began := time.Now()
			f()
			best = min(best, time.Since(began))
		}
	}
	b.ReportMetric(0, "ns/op")
	return best
}

// blocked is a matrix as a backend of the level loads it.
func blocked(t testing.TB, k *kernels, m dequant.Matrix) *matrix {
	t.Helper()
	b := &Backend{k: k}
	got, err := b.newMatrix(&planner.Tensor{Name: "w", Rows: m.Rows, Cols: m.Cols}, m)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// BenchmarkUnpack unpacks tiles that stay in the second cache, of every format and form, at the best level.
func BenchmarkUnpack(b *testing.B) {
	k, err := kernelsOf("")
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	const rows, cols = 64, 1024
	for _, stored := range blockMatrices(b, rows, cols, r) {
		f, name := stored.Format, stored.Format.Name
		if stored.Scales != nil {
			name += "-apart"
		}
		if stored.Global != nil && stored.Scales == nil {
			continue
		}
		b.Run(name, func(b *testing.B) {
			m, w := blocked(b, k, stored), &worker{}
			took := least(b, func() {
				for row := 0; row < rows; row += k.lanes {
					for at := 0; at < cols/unit; at += spanUnits {
						k.unpack(w, m, row, k.lanes, at, spanUnits)
					}
				}
			})
			b.ReportMetric(float64(took.Nanoseconds())*256/(rows*cols), "ns/256")
			b.ReportMetric(float64(rows*f.RowBytes(cols))/float64(took.Nanoseconds()), "GB/s")
		})
	}
	f := dequant.Lookup(dequant.FP8Rows)
	b.Run(f.Name, func(b *testing.B) {
		m, dst := randomMatrix(b, f, rows, cols, r), floats(cols)
		took := least(b, func() {
			for row := range rows {
				k.decodeRow(dst, &m, row)
			}
		})
		b.ReportMetric(float64(took.Nanoseconds())*256/(rows*cols), "ns/256")
		b.ReportMetric(float64(len(m.Data))/float64(took.Nanoseconds()), "GB/s")
	})
}

// BenchmarkProduct multiplies a tile by panels.
func BenchmarkProduct(b *testing.B) {
	k, err := kernelsOf("")
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, kind := range []dequant.Type{dequant.Q4_K, dequant.Q8_0, dequant.Q6_K, dequant.Q2_K} {
		for _, rows := range k.panels {
			b.Run(fmt.Sprintf("%s/%d", kind, rows), func(b *testing.B) {
				const cols = spanUnits * unit
				m, w := blocked(b, k, randomMatrix(b, dequant.Lookup(kind), k.lanes, cols, r)), &worker{}
				x := floats(rows * cols)
				for i := range x {
					x[i] = float32(r.NormFloat64())
				}
				back := &Backend{k: k, pool: newPool(1), workers: []*worker{w}}
				in := back.inputs.of(back, m, x, cols, rows)
				k.unpack(w, m, 0, k.lanes, 0, spanUnits)
				acc := floats(rows * k.lanes)
				took := least(b, func() {
					for range 16 {
						if rows == tileRows {
							k.together(acc, &w.tile, in.panels, 0)
						} else {
							k.product(acc, &w.tile, &in.panels[0], 0)
						}
					}
				})
				b.ReportMetric(float64(took.Nanoseconds())*256/float64(16*k.lanes*cols), "ns/256")
				b.ReportMetric(float64(16*k.lanes*cols*rows)/float64(took.Nanoseconds()), "GMAC/s")
			})
		}
	}
}

// BenchmarkTiles multiplies tiles, which stay in the second cache, by a panel, unpacking them on its way.
func BenchmarkTiles(b *testing.B) {
	k, err := kernelsOf("")
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, kind := range []dequant.Type{
		dequant.Q4_K, dequant.Q5_K, dequant.Q6_K, dequant.Q8_0, dequant.Q4_0, dequant.IQ4XS, dequant.IQ4NL, dequant.MXFP4,
		dequant.NVFP4, dequant.IQ2XXS, dequant.IQ3XXS, dequant.Affine(4, 64),
	} {
		for _, rows := range k.panels {
			b.Run(fmt.Sprintf("%s/%d", kind, rows), func(b *testing.B) {
				const tiles, cols = 8, 1024
				m, w := blocked(b, k, randomMatrix(b, dequant.Lookup(kind), tiles*k.lanes, cols, r)), &worker{}
				back := &Backend{k: k, pool: newPool(1), workers: []*worker{w}}
				x := floats(rows * cols)
				for i := range x {
					x[i] = float32(r.NormFloat64())
				}
				in := back.inputs.of(back, m, x, cols, rows)
				acc := floats(tiles * rows * k.lanes)
				took := least(b, func() { back.tileProducts(w, acc, m, in, 0, tiles) })
				b.ReportMetric(float64(took.Nanoseconds())*256/float64(m.rows*cols), "ns/256")
				b.ReportMetric(float64(m.rows*cols*rows)/float64(took.Nanoseconds()), "GMAC/s")
			})
		}
	}
}

// BenchmarkQuantize rounds rows of activations.
func BenchmarkQuantize(b *testing.B) {
	k, err := kernelsOf("")
	if err != nil {
		b.Fatal(err)
	}
	for _, rows := range []int{1, 8} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			const cols = 1024
			r := rand.New(rand.NewPCG(1, 2))
			m := blocked(b, k, randomMatrix(b, dequant.Lookup(dequant.Q4_K), 16, cols, r))
			back := &Backend{k: k, pool: newPool(1), workers: []*worker{{}}}
			x := floats(rows * cols)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			took := least(b, func() {
				back.inputs.reset()
				back.inputs.of(back, m, x, cols, rows)
			})
			b.ReportMetric(float64(took.Nanoseconds())/float64(rows*cols), "ns/value")
		})
	}
}

// BenchmarkStream multiplies a row of activations, and eight, by a matrix that no cache holds, and reads as many
// bytes without computing beside it: the median of stretches of a few megabytes.
func BenchmarkStream(b *testing.B) {
	k, err := kernelsOf("")
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, kind := range []dequant.Type{dequant.Q4_K, dequant.Q6_K, dequant.Q8_0, dequant.IQ4XS, dequant.BF16} {
		for _, cols := range []int{1024, 3584} {
			for _, inputs := range []int{1, 8} {
				f := dequant.Lookup(kind)
				b.Run(fmt.Sprintf("%s/%d/%d", f, cols, inputs), func(b *testing.B) { benchmarkStream(b, k, f, cols, inputs, r) })
			}
		}
	}
}

func benchmarkStream(b *testing.B, k *kernels, f *dequant.Format, cols, inputs int, r *rand.Rand) {
	const stretch = 2 << 20
	rows := 96 << 20 / f.RowBytes(cols) &^ 15
	small := randomMatrix(b, f, 64, cols, r)
	m := dequant.Matrix{Format: f, Rows: rows, Cols: cols, Data: make([]byte, rows*f.RowBytes(cols))}
	for at := 0; at < len(m.Data); at += len(small.Data) {
		copy(m.Data[at:], small.Data)
	}
	w := blocked(b, k, m)
	workers := runtime.GOMAXPROCS(0)
	back := &Backend{k: k, pool: newPool(workers)}
	defer back.pool.close()
	for range workers {
		back.workers = append(back.workers, &worker{})
	}
	x := floats(inputs * cols)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	in := back.inputs.of(back, w, x, cols, inputs)
	step := max(1, stretch/f.RowBytes(cols)/k.lanes) * k.lanes
	s := &streamTask{b: back, m: w, in: in}
	var product, read []float64
	for b.Loop() {
		for _, s.read = range []bool{false, true} {
			for s.row = 0; s.row+step <= rows; s.row += step {
				began := time.Now()
				back.pool.run(s, step/k.lanes, 4)
				speed := float64(step*f.RowBytes(cols)) / float64(time.Since(began).Nanoseconds())
				if s.read {
					read = append(read, speed)
				} else {
					product = append(product, speed)
				}
			}
		}
	}
	slices.Sort(product)
	slices.Sort(read)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(product[len(product)/2], "GB/s")
	b.ReportMetric(product[len(product)*9/10], "GB/s-best")
	b.ReportMetric(read[len(read)/2], "read-GB/s")
	b.ReportMetric(read[len(read)*9/10], "read-best")
}

// streamTask multiplies tiles, or reads them.
type streamTask struct {
	b    *Backend
	m    *matrix
	in   *input
	row  int
	read bool
}

func (s *streamTask) run(w, first, last int) {
	k, n := s.b.k, s.m.stored.Format.RowBytes(s.m.cols)
	row, rows := s.row+first*k.lanes, (last-first)*k.lanes
	if s.read {
		data := s.m.stored.Data[row*n : (row+rows)*n]
		k.most(unsafe.Slice((*float32)(unsafe.Pointer(&data[0])), len(data)/4&^15))
		return
	}
	worker := s.b.workers[w]
	for ; rows > 0; rows -= mostTiles * k.lanes {
		tiles := min(rows/k.lanes, mostTiles)
		s.b.tileProducts(worker, worker.accumulators(0, tiles*s.in.rows*k.lanes), s.m, s.in, row, tiles)
		row += mostTiles * k.lanes
	}
}

// tileCode is a code of a tile as it is meant.
func tileCode(k *kernels, t *tile, f *blockFormat, lane, col int) int32 {
	if k.level == Generic {
		return int32(int8(t.codes[lane*spanUnits*unit+col]))
	}
	b := t.codes[(col/4*k.lanes+lane)*4+col%4]
	if k.level == AVX2 || k.level == NEON {
		return int32(int8(b))
	}
	return int32(b) - f.bias
}

func tileScale(k *kernels, scales []float32, lane, group int) float32 {
	if k.level == Generic {
		return scales[lane*spanUnits*2+group]
	}
	return scales[group*k.lanes+lane]
}

// TestUnpack holds the tiles of every level and format to the rows' natural form, bit for bit: whole tiles and those of
// few rows, whole spans and what is left of a row.
func TestUnpack(t *testing.T) {
	eachKernels(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(13, 14))
		rows, cols := 2*k.lanes+3, 1280
		for _, stored := range blockMatrices(t, rows, cols, r) {
			if stored.Rows%max(1, len(stored.Global)) != 0 {
				stored.Global = stored.Global[:1]
			}
			m, w, n := blocked(t, k, stored), &worker{}, &natural{}
			for row := 0; row < rows; row += k.lanes {
				count := min(k.lanes, rows-row)
				for at := 0; at < cols/unit; at += spanUnits {
					units := min(spanUnits, cols/unit-at)
					k.unpack(w, m, row, count, at, units)
					for lane := range count {
						m.blocks.unpack(n, &m.stored, row+lane, at, units)
						for i := range units * unit {
							if got, want := tileCode(k, &w.tile, m.blocks, lane, i), int32(int8(n.codes[i])); got != want {
								t.Fatalf("%s row %d column %d: code %d, want %d", stored.Format, row+lane, at*unit+i, got, want)
							}
						}
						for g := range units * unit / m.blocks.group {
							if got, want := tileScale(k, w.tile.scales, lane, g), n.scales[g]; got != want {
								t.Fatalf("%s row %d group %d of unit %d: scale %v, want %v", stored.Format, row+lane, g, at, got, want)
							}
							if !m.blocks.minima {
								continue
							}
							if got, want := tileScale(k, w.tile.mins, lane, g), n.mins[g]; got != want {
								t.Fatalf("%s row %d group %d of unit %d: minimum %v, want %v", stored.Format, row+lane, g, at, got, want)
							}
						}
					}
				}
			}
		}
	})
}

// TestQuantize holds every level's rounding to the generic one's, bit for bit, and that to what it is for: a value and its
// code times the scale are no further apart than half the scale, and what the quotient's rounding adds.
func TestQuantize(t *testing.T) {
	eachKernels(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(15, 16))
		const cols = 96
		for _, rows := range k.panels {
			for _, group := range []int{16, 32} {
				x := normals(t, r, rows*cols)
				clear(x[:unit])
				x[unit+1] = 0x1p-140
				for i := range unit {
					x[(rows-1)*cols+2*unit+i] *= 1e20
				}
				p, want := newPanel(rows, cols, group, 5), newPanel(rows, cols, group, 5)
				k.quantize(p, x, cols)
				quantizeGeneric(want, x, cols)
				if !slices.Equal(p.codes, want.codes) || !slices.Equal(p.scales, want.scales) || !slices.Equal(p.sums, want.sums) {
					t.Errorf("%d rows in groups of %d are rounded otherwise", rows, group)
				}
				if k.level >= AVX512 && k.level <= AMX && !slices.Equal(p.biases, want.biases) {
					t.Errorf("%d rows in groups of %d have other biases", rows, group)
				}
				for i, v := range x {
					r, c := i/cols, i%cols
					scale := float64(p.scales[c/unit*rows+r])
					got := float64(p.codes[p.at(r, c)]) * scale
					if math.Abs(got-float64(v)) > halfStep*scale+0x1p-126*127 {
						t.Fatalf("value %v is rounded to %v, steps are %v", v, got, scale)
					}
				}
			}
		}
		p := newPanel(1, cols, 32, 0)
		x := make([]float32, cols)
		x[3], x[40] = float32(math.NaN()), infinity
		k.quantize(p, x, cols)
		if p.scales[0] == p.scales[0] || !math.IsInf(float64(p.scales[1]), 0) || p.scales[2] != 0 {
			t.Errorf("units of NaN, infinity and zeros have scales %v", p.scales)
		}
	})
}

// halfStep bounds what rounding to a code takes from a value, in steps: a half, and the roundings of a quotient of up to
// 127 and of its divisor.
const halfStep = 0.5 + 127*4*u

func newPanel(rows, cols, group int, bias int32) *panel {
	return &panel{
		rows: rows, group: group, bias: bias, codes: aligned[int8](rows * cols), scales: floats(rows * cols / unit),
		sums: floats(rows * cols / group), biases: aligned[int32](rows * cols / group),
	}
}

// TestProduct holds products in integers to float64 on the rounded values, and one row's bits to those it has beside
// others: every format, and panels of every size.
func TestProduct(t *testing.T) {
	eachKernels(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(17, 18))
		e, plain := &ratio{t: t, what: "product"}, &ratio{t: t, what: "exact"}
		const cols = 768
		for _, stored := range blockMatrices(t, k.lanes, cols, r) {
			m := blocked(t, k, stored)
			for _, rows := range []int{1, 2, 3, 4, 8, 13, 16, 37} {
				x := normals(t, r, rows*cols)
				back := &Backend{k: k, pool: newPool(1), workers: []*worker{{}}}
				w := back.workers[0]
				in := back.inputs.of(back, m, x, cols, rows)
				acc, g := guard(t, rows*k.lanes)
				back.tileProduct(w, acc, m, in, 0, k.lanes)
				g.check("product")
				checkProduct(e, k, m, in, acc, rows)
				for i := range rows {
					one := make([]float32, k.lanes)
					back.inputs.reset()
					back.tileProduct(w, one, m, back.inputs.of(back, m, x[i*cols:], cols, 1), 0, k.lanes)
					if !slices.Equal(one, acc[i*k.lanes:(i+1)*k.lanes]) {
						t.Fatalf("%s: row %d of %d differs beside others", stored.Format, i, rows)
					}
				}
				if k.exact == nil {
					continue
				}
				m.exact = true
				clear(acc)
				back.tileProduct(w, acc, m, &input{rows: rows, x: x, stride: cols}, 0, k.lanes)
				g.check("exact")
				checkExact(plain, k, m, x, acc, rows)
				m.exact = false
			}
		}
		e.report()
		plain.report()
	})
}

// TestTileProducts holds several tiles of rows at once, the last of them cut short, to the bits of one after another.
func TestTileProducts(t *testing.T) {
	eachKernels(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(19, 20))
		const cols = 768
		for _, stored := range blockMatrices(t, 4*k.lanes, cols, r) {
			for _, left := range []int{1, 5, k.lanes} { // rows of the last of four tiles
				m := blocked(t, k, stored)
				m.rows -= k.lanes - left
				for _, rows := range []int{1, 3, pipedRows, k.panels[0]} {
					back := &Backend{k: k, pool: newPool(1), workers: []*worker{{}}}
					w, size := back.workers[0], rows*k.lanes
					in := back.inputs.of(back, m, normals(t, r, rows*cols), cols, rows)
					acc, g := guard(t, 4*size)
					back.tileProducts(w, acc, m, in, 0, 4)
					g.check("products")
					one := make([]float32, size)
					for i := range 4 {
						back.tileProduct(w, one, m, in, i*k.lanes, min(k.lanes, m.rows-i*k.lanes))
						if !slices.Equal(one, acc[i*size:(i+1)*size]) {
							t.Fatalf("%s: tile %d of 4, %d rows: differs from itself alone", stored.Format, i, rows)
						}
					}
				}
			}
		}
	})
}

// checkProduct compares with float64 sums of the rounded activations. A unit's part is rounded four times, its minima
// twice, and added to what is there.
func checkProduct(e *ratio, k *kernels, m *matrix, in *input, acc []float32, rows int) {
	w := make([]float32, m.cols)
	for lane := range k.lanes {
		m.stored.DecodeRow(w, lane)
		sizes := sizesOf(m, lane)
		for _, p := range in.panels {
			for r := range p.rows {
				var sum, size float64
				for c := range w {
					x := float64(p.codes[p.at(r, c)]) * float64(p.scales[c/unit*p.rows+r])
					sum += float64(w[c]) * x
					size += sizes[c] * math.Abs(x)
				}
				bound := float64(3*m.cols/unit+8) * u * size
				e.see(float64(acc[(p.first+r)*k.lanes+lane]), sum, bound)
			}
		}
	}
}

func checkExact(e *ratio, k *kernels, m *matrix, x, acc []float32, rows int) {
	w := make([]float32, m.cols)
	for lane := range k.lanes {
		m.stored.DecodeRow(w, lane)
		sizes := sizesOf(m, lane)
		for r := range rows {
			var sum, size float64
			for c, v := range x[r*m.cols : (r+1)*m.cols] {
				sum += float64(w[c]) * float64(v)
				size += sizes[c] * math.Abs(float64(v))
			}
			e.see(float64(acc[r*k.lanes+lane]), sum, float64(spanUnits*unit/4+2*m.cols/(spanUnits*unit)+8)*u*size)
		}
	}
}

// sizesOf are the magnitudes that a row's weights are computed from: |code scale| + |minimum|.
func sizesOf(m *matrix, row int) []float64 {
	n, sizes := &natural{}, make([]float64, m.cols)
	for at := 0; at < m.cols/unit; at += spanUnits {
		units := min(spanUnits, m.cols/unit-at)
		m.blocks.unpack(n, &m.stored, row, at, units)
		for i := range units * unit {
			g := i / m.blocks.group
			sizes[at*unit+i] = math.Abs(float64(int8(n.codes[i])) * float64(n.scales[g]))
			if m.blocks.minima {
				sizes[at*unit+i] += math.Abs(float64(n.mins[g]))
			}
		}
	}
	return sizes
}

// bytesOfAll are the bytes of float32 values.
func bytesOfAll(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
