package dequant

import (
	"encoding/binary"
	"math"
)

// doubledE2M1 is kvalues_mxfp4 of GGML: twice the E2M1 values, with a positive zero for code 8.
var doubledE2M1 = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// MXFP4: e, 16 bytes of nibbles in the order of Q4_0. w = 2 E2M1(q) 2^(e-128).
func decodeMXFP4(dst []float32, src []byte) {
	for ; len(src) >= 17; dst, src = dst[32:], src[17:] {
		y, b := (*[32]float32)(dst), (*[17]byte)(src)
		d := FromE8M0Half(b[0])
		for i, q := range b[1:] {
			y[i] = doubledE2M1[q&15] * d
			y[i+16] = doubledE2M1[q>>4] * d
		}
	}
}

// NVFP4: four UE4M3 scales of 16 elements each, then 8 bytes of nibbles for each of them, the low ones first.
// w = E2M1(q) UE4M3(d).
func decodeNVFP4(dst []float32, src []byte) { decodeScaledNVFP4(dst, src, 1) }

// decodeScaledNVFP4 is NVFP4 with a tensor scale g: w = rn32(rn32(g UE4M3(d)) E2M1(q)).
func decodeScaledNVFP4(dst []float32, src []byte, g float32) {
	for ; len(src) >= 36; dst, src = dst[64:], src[36:] {
		b := (*[36]byte)(src)
		for s, d := range b[:4] {
			scale := g * ue4m3[d]
			y := (*[16]float32)(dst[16*s:])
			for i, q := range (*[8]byte)(b[4+8*s:]) {
				y[i] = e2m1[q&15] * scale
				y[i+8] = e2m1[q>>4] * scale
			}
		}
	}
}

// NVFP4Rows: 16 E4M3 scales, g F32, 128 bytes of codes in plain order. w = rn32(rn32(g E4M3(s)) E2M1(q)).
func decodeNVFP4Rows(dst []float32, src []byte) {
	for ; len(src) >= 148; dst, src = dst[256:], src[148:] {
		g := math.Float32frombits(binary.LittleEndian.Uint32(src[16:]))
		apartNVFP4(dst[:256], src[20:148], src[:16], nil, g)
	}
}

// apartNVFP4 decodes NVFP4 codes in plain order with one E4M3 scale for 16 elements. The sign of a scale counts.
func apartNVFP4(dst []float32, codes, scales, _ []byte, g float32) {
	for _, s := range scales {
		fp4((*[16]float32)(dst)[:], codes[:8], g*e4m3[s])
		dst, codes = dst[16:], codes[8:]
	}
}

// apartMXFP4 decodes MLX's mxfp4: codes in plain order, one E8M0 scale for 32 elements. The values are those of MXFP4.
func apartMXFP4(dst []float32, codes, scales, _ []byte, _ float32) {
	for _, e := range scales {
		d := FromE8M0Half(e)
		y := (*[32]float32)(dst)
		for i, q := range (*[16]byte)(codes) {
			y[2*i] = doubledE2M1[q&15] * d
			y[2*i+1] = doubledE2M1[q>>4] * d
		}
		dst, codes = dst[32:], codes[16:]
	}
}

// fp4 writes scale E2M1(q) of codes in plain order.
func fp4(dst []float32, codes []byte, scale float32) {
	for _, q := range codes {
		y := (*[2]float32)(dst)
		y[0] = e2m1[q&15] * scale
		y[1] = e2m1[q>>4] * scale
		dst = dst[2:]
	}
}
