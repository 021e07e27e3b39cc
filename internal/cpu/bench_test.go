package cpu

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

// BenchmarkMachine is what the kernels' figures are held against: how fast all workers read memory that no cache holds, how
// fast they copy it, and how fast one multiplies what it has in registers.
func BenchmarkMachine(b *testing.B) {
	k, err := kernelsOf("")
	if err != nil {
		b.Fatal(err)
	}
	back := &Backend{k: k, pool: newPool(runtime.GOMAXPROCS(0))}
	defer back.pool.close()
	x, y := floats(32<<20), floats(32<<20)
	for i := range x {
		x[i], y[i] = 1, 1
	}
	b.Run("read", func(b *testing.B) {
		took := least(b, func() { back.ReadMemory(x) })
		b.ReportMetric(float64(4*len(x))/float64(took.Nanoseconds()), "GB/s")
	})
	b.Run("memcpy", func(b *testing.B) {
		took := least(b, func() { back.pool.run(&copyTask{y, x}, len(x)/readPart, 1) })
		b.ReportMetric(float64(4*len(x))/float64(took.Nanoseconds()), "GB/s")
	})
	for _, c := range []struct {
		name     string
		integers bool
		each     float64 // operations of a number
		unit     string
	}{{"float32", false, 2, "GFLOP/s"}, {"int8", true, 1, "GMAC/s"}} {
		b.Run(c.name, func(b *testing.B) {
			if k.peak == nil {
				return // plain Go has no vectors
			}
			n := 0
			took := least(b, func() { n = k.peak(10000, c.integers) })
			b.ReportMetric(c.each*float64(n)/float64(took.Nanoseconds()), c.unit)
		})
	}
}

type copyTask struct{ to, from []float32 }

func (t *copyTask) run(_, first, last int) {
	copy(t.to[first*readPart:last*readPart], t.from[first*readPart:last*readPart])
}

// BenchmarkKernels runs the float32 kernels on what the nearest caches hold: the bytes they read and write a second.
func BenchmarkKernels(b *testing.B) {
	k, err := kernelsOf("")
	if err != nil {
		b.Fatal(err)
	}
	const n, keys, dim = 1024, 128, 256
	r := rand.New(rand.NewPCG(1, 2))
	values := func(n int) []float32 {
		x := floats(n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	x, y, z, taps := values(n), values(n), values(n), values(4*n)
	state := values(keys * stripWidth)
	row := gdnRow{k: values(keys), q: values(keys), v: values(stripWidth), delta: values(stripWidth), o: values(stripWidth), decay: 0.9}
	before := gdnUpdate{k: values(keys), delta: values(stripWidth), decay: 0.9}
	page := aligned[uint16](pageTokens * dim)
	queries, scores, folds := values(4*dim), values(4*pageTokens), values(4*foldWidth(dim))
	for _, c := range []struct {
		name  string
		bytes int
		run   func()
	}{
		{"sumSquares", 4 * n, func() { k.sumSquares(x) }},
		{"norm", 12 * n, func() { k.norm(z, x, y, 0.5) }},
		{"swish", 12 * n, func() { k.swish(z, x, y) }},
		{"gate", 12 * n, func() { k.gate(z, x); copy(z, y) }},
		{"scale", 8 * n, func() { k.scale(z, 1) }},
		{"addScaled", 12 * n, func() { k.addScaled(z, x, 0) }},
		{"conv", 36 * n, func() { k.conv(z, taps, n, [][]float32{x, y, x, y}) }},
		{"gdnStep", 8 * len(state), func() { k.gdnStep(state, state, &before, &row, state) }},
		{"gdnReplay", 8 * len(state), func() { k.gdnReplay(state, state, &before) }},
		{"scores", 2 * len(page), func() { k.scores(scores, queries, 4, page, dim, pageTokens) }},
		{"values", 2 * len(page), func() { k.values(folds, scores, 4, page, dim, pageTokens) }},
		{"most", 4 * n, func() { k.most(x) }},
		{"soften", 8 * n, func() { copy(z, x); k.soften(z, 4) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			const times = 16
			took := least(b, func() {
				for range times {
					c.run()
				}
			})
			each := float64(took) / float64(times*time.Nanosecond)
			b.ReportMetric(each, "ns-best")
			b.ReportMetric(float64(c.bytes)/each, "GB/s")
		})
	}
}
