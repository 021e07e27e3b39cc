package main

import (
	"math"
	"testing"
)

func TestMean(t *testing.T) {
	got := mean([]turn{{prefill: 100, decode: 10}, {prefill: 300, decode: 10}})
	if math.Abs(got.prefill-150) > 1e-9 || math.Abs(got.decode-10) > 1e-9 {
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
