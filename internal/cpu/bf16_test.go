package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"splash/dequant"
)

// bf16Of are the parts of value (row, col) of a group of rows in the form of a level's products.
func bf16Of(k *kernels, in *input, row, col, cols int) []float32 {
	at := row / tileRows * tileRows
	n, r, all := min(tileRows, in.rows-at), row-at, in.halves[k.bf16.terms*cols*at:]
	if k.bf16.terms == 1 {
		return []float32{dequant.FromBF16(all[r*cols+col])}
	}
	parts := make([]float32, k.bf16.terms)
	for i := range parts {
		parts[i] = dequant.FromBF16(all[i*n*cols+(col/2*n+r)*2+col%2])
	}
	return parts
}

// TestBF16 holds products of BF16 weights with activations in bfloat16 numbers to float64, and one row's bits to those it
// has beside others. A level either rounds activations once or splits them in numbers whose sum they are.
func TestBF16(t *testing.T) {
	eachKernels(t, func(t *testing.T, k *kernels) {
		if k.bf16 == nil {
			return
		}
		r, e := rand.New(rand.NewPCG(23, 24)), &ratio{t: t, what: "BF16"}
		const rowsOfWeights = 37
		for _, cols := range []int{32, 96, 1024} {
			stored := randomMatrix(t, dequant.Lookup(dequant.BF16), rowsOfWeights, cols, r)
			m := blocked(t, k, stored)
			if !m.bf16 {
				t.Fatal("the level multiplies BF16 weights otherwise")
			}
			for _, rows := range []int{1, 2, 3, 4, 8, 13, 16, 37} {
				x := normals(t, r, rows*cols)
				back := &Backend{k: k, pool: newPool(1), workers: []*worker{{}}}
				w, size := back.workers[0], rows*k.lanes
				in := back.inputs.of(back, m, x, cols, rows)
				checkSplit(t, k, in, x, cols)
				acc, g := guard(t, 3*size)
				back.tileProducts(w, acc, m, in, 0, 3)
				g.check("BF16")
				weights := make([]float32, cols)
				for j := range rowsOfWeights {
					stored.DecodeRow(weights, j)
					for i := range rows {
						var sum, size float64
						for c, v := range weights {
							p := float64(v) * float64(x[i*cols+c])
							sum, size = sum+p, size+math.Abs(p)
						}
						bound := float64(cols/16+24) * u * size
						if !k.bf16.exact {
							bound += 0x1p-8 * size
						}
						e.see(float64(acc[j/k.lanes*rows*k.lanes+i*k.lanes+j%k.lanes]), sum, bound)
					}
				}
				one, alone := make([]float32, k.lanes), &Backend{k: k, pool: newPool(1), workers: []*worker{{}}}
				for i := range rows {
					alone.inputs.reset()
					alone.tileProduct(w, one, m, alone.inputs.of(alone, m, x[i*cols:], cols, 1), 16, 16)
					if !slices.Equal(one[:16], acc[size+i*k.lanes:][:16]) {
						t.Fatalf("%d columns: row %d of %d differs beside others", cols, i, rows)
					}
				}
			}
		}
		e.report()
	})
}

// checkSplit holds the numbers of activations to what they are to be.
func checkSplit(t *testing.T, k *kernels, in *input, x []float32, cols int) {
	t.Helper()
	for i, v := range x {
		parts := bf16Of(k, in, i/cols, i%cols, cols)
		if !k.bf16.exact {
			if want := dequant.FromBF16(dequant.ToBF16(v)); parts[0] != want {
				t.Fatalf("value %v is rounded to %v, want %v", v, parts[0], want)
			}
			continue
		}
		if sum := float64(parts[0]) + float64(parts[1]) + float64(parts[2]); sum != float64(v) {
			t.Fatalf("value %v is split in %v", v, parts)
		}
	}
}

// TestBF16Special multiplies numbers that are none, infinite, and at the ends of what float32 holds.
func TestBF16Special(t *testing.T) {
	eachKernels(t, func(t *testing.T, k *kernels) {
		if k.bf16 == nil {
			return
		}
		const cols = 32
		stored := dequant.Matrix{Format: dequant.Lookup(dequant.BF16), Rows: 16, Cols: cols, Data: make([]byte, 2*16*cols)}
		for i := 0; i < len(stored.Data); i += 2 {
			stored.Data[i], stored.Data[i+1] = 0x80, 0x3f // 1
		}
		m := blocked(t, k, stored)
		nan := float32(math.NaN())
		for _, c := range []struct{ x, want float32 }{
			{nan, nan}, {math.Float32frombits(0x7f800001), nan}, {infinity, infinity}, {-infinity, -infinity},
			{0x1p127, 0x1p127}, {-0x1p-120, -0x1p-120}, {0, 0}, {float32(math.Copysign(0, -1)), 0},
		} {
			for _, rows := range []int{1, 5, 16} {
				x := make([]float32, rows*cols)
				x[(rows-1)*cols+17] = c.x
				back := &Backend{k: k, pool: newPool(1), workers: []*worker{{}}}
				acc := floats(rows * k.lanes)
				back.tileProduct(back.workers[0], acc, m, back.inputs.of(back, m, x, cols, rows), 0, 16)
				for i, got := range acc {
					want := c.want
					if i/k.lanes != rows-1 {
						want = 0
					}
					if got != want && (got == got || want == want) {
						t.Fatalf("%v among %d rows makes %v at %d, want %v", c.x, rows, got, i, want)
					}
				}
			}
		}
	})
}

// BenchmarkBF16 multiplies tiles of BF16 weights that stay in the second cache.
func BenchmarkBF16(b *testing.B) {
	k, err := kernelsOf("")
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, rows := range []int{1, 8, 128} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			const tiles, cols = 8, 1024
			m, w := blocked(b, k, randomMatrix(b, dequant.Lookup(dequant.BF16), tiles*k.lanes, cols, r)), &worker{}
			back := &Backend{k: k, pool: newPool(1), workers: []*worker{w}}
			x := floats(rows * cols)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			in := back.inputs.of(back, m, x, cols, rows)
			acc := floats(tiles * rows * k.lanes)
			took := least(b, func() { back.tileProducts(w, acc, m, in, 0, tiles) })
			b.ReportMetric(float64(2*m.rows*cols)/float64(took.Nanoseconds()), "GB/s")
			b.ReportMetric(float64(m.rows*cols*rows)/float64(took.Nanoseconds()), "GMAC/s")
		})
	}
}
