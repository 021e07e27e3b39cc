package cpu

import (
	"math/rand/v2"
	"testing"
)

func BenchmarkDotCodes(b *testing.B) {
	w, x := make([]byte, 4096), make([]int8, 4096)
	for i := range w {
		w[i], x[i] = byte(rand.Uint32()), int8(rand.Uint32())
	}
	var s int32
	for b.Loop() {
		for i := 0; i < 4096; i += 32 {
			s += dotCodes(w[i:i+32], x[i:i+32])
		}
	}
	_ = s
	b.SetBytes(4096)
}
