package oracle_test

import (
	"math"
	"testing"

	"splash/oracle"
)

// TestHyper is models.md 17.5: two streams of two values, rank 1.
func TestHyper(t *testing.T) {
	streams := []float64{1, 2, -1, 0.5}
	m := oracle.HyperMix{
		Norm:   []float64{1, 0.5, 2, 1},
		Down:   dense(1, 4, 0.1, -0.2, 0.3, 0.4),
		Up:     dense(4, 1, 1, -1, 0.5, 2),
		Inject: dense(2, 4, 0.2, 0.1, 0, -0.1, 0, 0.3, -0.2, 0.1),
	}
	normed := make([]float64, 4)
	oracle.GroupedRMSNorm(normed, streams, m.Norm, 2, 1e-6)
	wantNear(t, "normed", normed, []float64{0.632455405543, 0.632455405543, -2.529820104279, 0.632455026070}, 1e-12)

	h, inject := make([]float64, 2), make([]float64, 2)
	m.Read(h, inject, streams, 1e-6)
	wantNear(t, "h", h, []float64{-0.464675384430, 0.306651386642}, 1e-12)
	wantNear(t, "inject", inject, []float64{1.031612243050, 1.187492016319}, 1e-12)

	oracle.HyperWrite(streams, inject, []float64{0.5, -1})
	wantNear(t, "streams", streams, []float64{1.515806121525, 0.968387756950, -0.406253991840, -0.687492016319}, 1e-12)
	mean := make([]float64, 2)
	oracle.HyperMean(mean, streams)
	wantNear(t, "mean", mean, []float64{0.554776064843, 0.140447870315}, 1e-12)

	// The mix before the head has no injection.
	m.Inject = nil
	again := make([]float64, 2)
	m.Read(again, nil, []float64{1, 2, -1, 0.5}, 1e-6)
	wantNear(t, "h of the last mix", again, h, 0)
}

// TestHyperRead writes the formula of models.md 7.2 out by indices: four streams of six values, rank 3.
func TestHyperRead(t *testing.T) {
	const n, hidden, rank, eps = 4, 6, 3, 1e-6
	const wide = n * hidden
	x, norm := normals(1, wide), normals(2, wide)
	down, up, in := normals(3, rank*wide), normals(4, wide*rank), normals(5, n*wide)
	clear(in[wide : 2*wide]) // a zero row injects 1

	sigmoid := func(v float64) float64 { return (1 + math.Tanh(v/2)) / 2 }
	var normed [wide]float64
	for i := range wide {
		var sum float64
		for j := range hidden {
			sum += math.Pow(x[i/hidden*hidden+j], 2)
		}
		normed[i] = norm[i] * x[i] * math.Pow(sum/hidden+eps, -0.5)
	}
	product := func(w []float64, row int) (sum float64) {
		for i, v := range normed {
			sum += w[row*wide+i] * v
		}
		return sum
	}
	var wantH [hidden]float64
	for s := range n {
		for i := range hidden {
			var gate float64
			for r := range rank {
				low := product(down, r) / n
				gate += up[(s*hidden+i)*rank+r] * low * sigmoid(low)
			}
			wantH[i] += sigmoid(gate) * normed[s*hidden+i] / n
		}
	}
	var wantInject [n]float64
	for s := range n {
		wantInject[s] = 2 * sigmoid(product(in, s)/n)
	}

	m := oracle.HyperMix{
		Norm: norm, Down: dense(rank, wide, down...), Up: dense(wide, rank, up...), Inject: dense(n, wide, in...),
	}
	h, inject := make([]float64, hidden), make([]float64, n)
	m.Read(h, inject, x, eps)
	wantNear(t, "h", h, wantH[:], 1e-12)
	wantNear(t, "inject", inject, wantInject[:], 1e-12)
	if inject[1] != 1 {
		t.Errorf("a zero row injects %v, want 1", inject[1])
	}
}

// TestHyperTap is draft.md 13.13: the mean that a draft reads rounds once, ties to even.
func TestHyperTap(t *testing.T) {
	streams := []float64{
		1.00390625, 1,
		-0.5, 1,
		0.25, 1,
		2, 1.015625,
	}
	dst := make([]float64, 2)
	oracle.HyperTap(dst, streams)
	wantNear(t, "tap", dst, []float64{0.6875, 1}, 0)

	// Sums are F32 in stream order: 1 is lost in 2^24 before that is taken back, 2 is not.
	oracle.HyperTap(dst, []float64{1, 2, 1 << 24, 1 << 24, -1 << 24, -1 << 24, 0, 0})
	wantNear(t, "tap", dst, []float64{0, 0.5}, 0)
}
