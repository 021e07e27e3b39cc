package dequant

import (
	"encoding/binary"
	"math"
)

// FP8Rows: g F32, 256 E4M3 values. w = g E4M3(v).
func decodeFP8Rows(dst []float32, src []byte) {
	for ; len(src) >= 260; dst, src = dst[256:], src[260:] {
		g := math.Float32frombits(binary.LittleEndian.Uint32(src))
		apartFP8(dst[:256], src[4:260], nil, nil, g)
	}
}

// apartFP8 decodes E4M3 values with the scale of their row.
func apartFP8(dst []float32, codes, _, _ []byte, g float32) {
	dst = dst[:len(codes)]
	for i, v := range codes {
		dst[i] = g * e4m3[v]
	}
}
