package cpu

import (
	"fmt"
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

// BenchmarkUnpack unpacks tiles that stay in the second cache, at the best level.
func BenchmarkUnpack(b *testing.B) {
	k, err := kernelsOf("")
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, kind := range []dequant.Type{
		dequant.Q4_K, dequant.Q5_K, dequant.Q6_K, dequant.Q8_0, dequant.Q4_0, dequant.IQ4XS, dequant.IQ4NL, dequant.MXFP4,
		dequant.NVFP4, dequant.Affine(4, 64), dequant.IQ3XXS, dequant.IQ2XXS, dequant.Q3_K, dequant.Q2_K, dequant.Q5_0,
	} {
		f := dequant.Lookup(kind)
		b.Run(f.Name, func(b *testing.B) {
			const rows, cols = 64, 1024
			m, w := blocked(b, k, randomMatrix(b, f, rows, cols, r)), &worker{}
			took := least(b, func() {
				for row := 0; row < rows; row += k.lanes {
					for at := 0; at < cols/unit; at += spanUnits {
						k.unpack(w, m, row, k.lanes, at, spanUnits)
					}
				}
			})
			b.ReportMetric(float64(took.Nanoseconds())*256/(rows*cols), "ns/256")
			b.ReportMetric(float64(len(m.stored.Data))/float64(took.Nanoseconds()), "GB/s")
		})
	}
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
						k.product(acc, &w.tile, &in.panels[0], 0)
					}
				})
				b.ReportMetric(float64(took.Nanoseconds())*256/float64(16*k.lanes*cols), "ns/256")
				b.ReportMetric(float64(16*k.lanes*cols*rows)/float64(took.Nanoseconds()), "GMAC/s")
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

// BenchmarkStream multiplies one row of activations by a matrix that no cache holds, and reads as many
// bytes without computing beside it: the median of stretches of a few megabytes.
func BenchmarkStream(b *testing.B) {
	k, err := kernelsOf("")
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, kind := range []dequant.Type{dequant.Q4_K, dequant.Q6_K, dequant.Q8_0, dequant.IQ4XS, dequant.BF16} {
		for _, cols := range []int{1024, 3584} {
			f := dequant.Lookup(kind)
			b.Run(fmt.Sprintf("%s/%d", f, cols), func(b *testing.B) { benchmarkStream(b, k, f, cols, r) })
		}
	}
}

func benchmarkStream(b *testing.B, k *kernels, f *dequant.Format, cols int, r *rand.Rand) {
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
	x := floats(cols)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	in := back.inputs.of(back, w, x, cols, 1)
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
	for i := first; i < last; i++ {
		row := s.row + i*k.lanes
		if s.read {
			data := s.m.stored.Data[row*n : (row+k.lanes)*n]
			k.most(unsafe.Slice((*float32)(unsafe.Pointer(&data[0])), len(data)/4&^15))
			continue
		}
		worker := s.b.workers[w]
		s.b.tileProduct(worker, worker.accumulators(0, k.lanes), s.m, s.in, row, k.lanes)
	}
}
