package main

import (
	"math"
	"testing"
)

func TestMean(t *testing.T) {
	got := mean(turn{100, 10, 1}, turn{300, 10, 1})
	if math.Abs(got.prefill-150) > 1e-9 || math.Abs(got.decode-10) > 1e-9 || math.Abs(got.typical-1) > 1e-9 {
		t.Errorf("100 and 300 tokens a second come to %v", got)
	}
}

func TestMedian(t *testing.T) {
	for want, x := range map[float64][]float64{2: {3, 1, 2}, 2.5: {4, 1, 2, 3}} {
		if got := median(x); got != want {
			t.Errorf("the median of %v is %v", x, got)
		}
	}
}
