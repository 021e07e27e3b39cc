package scan

import (
	"math"
	"math/rand/v2"
	"testing"

	"splash/oracle"
)

var nan, infinity = float32(math.NaN()), float32(math.Inf(1))

// rows are logits of every kind, of n values each.
func rows(r *rand.Rand, n int) [][]float32 {
	negativeZero := float32(math.Copysign(0, -1))
	kinds := []func(i int) float32{
		func(int) float32 { return float32(r.NormFloat64()) },
		func(int) float32 { return float32(r.IntN(3)) }, // ties
		func(i int) float32 { return float32(i) },
		func(i int) float32 { return -float32(i) },
		func(int) float32 { return nan },
		func(int) float32 { return -infinity },
		func(int) float32 { return []float32{nan, infinity, -infinity, 0, negativeZero, 1}[r.IntN(6)] },
		func(int) float32 { return []float32{0, negativeZero, nan}[r.IntN(3)] },
		func(i int) float32 {
			if i < n-1 {
				return nan
			}
			return 1
		},
	}
	var all [][]float32
	for _, kind := range kinds {
		x := make([]float32, n)
		for i := range x {
			x[i] = kind(i)
		}
		all = append(all, x)
	}
	return all
}

// TestArgmax holds every level to package oracle, at every length up to several blocks and every place of the largest.
func TestArgmax(t *testing.T) {
	for name, s := range kernels() {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			for n := 1; n < 4*block+3; n++ {
				for kind, x := range rows(r, n) {
					if got, want := argmax(s, x), oracle.Argmax(x); got != want {
						t.Fatalf("kind %d of %d: %d, want %d", kind, n, got, want)
					}
				}
			}
			x := make([]float32, 3*block+7)
			for i := range x {
				x[i] = 1
				if got := argmax(s, x); got != i && !(i == 0 && got == 0) {
					t.Fatalf("largest at %d found at %d", i, got)
				}
				x[i] = 0
			}
		})
	}
}

// TestNext holds every level to a plain loop, from every start, and says that nothing beyond a row counts.
func TestNext(t *testing.T) {
	for name, s := range kernels() {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 4))
			for kind, whole := range rows(r, 3*block+5) {
				for _, n := range []int{0, 1, block - 1, block, block + 1, 2*block + 9, 3 * block} {
					x := whole[:n]
					for start := 0; start <= n; start++ {
						for _, least := range []float32{0, 1, float32(math.Copysign(0, -1)), -infinity, infinity, nan} {
							want := n
							for i := start; i < n; i++ {
								if x[i] > least {
									want = i
									break
								}
							}
							if got := next(s, x, start, least); got != want {
								t.Fatalf("kind %d of %d from %d above %v: %d, want %d", kind, n, start, least, got, want)
							}
						}
					}
				}
			}
		})
	}
}

func BenchmarkArgmax(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	x := make([]float32, 248320)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	b.Run("oracle", func(b *testing.B) {
		for b.Loop() {
			oracle.Argmax(x)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(x)), "ns/logit")
	})
	for name, s := range kernels() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				argmax(s, x)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(x)), "ns/logit")
		})
	}
}
