package dequant

// Formats of one or two bits with codes in plain order: of these PQ2_0 is Prism ML's, the others GGML's.

// Q2_0: d F16, 16 bytes of four codes each. w = (q - 1) d.
func decodeQ2_0(dst []float32, src []byte) {
	for ; len(src) >= 18; dst, src = dst[64:], src[18:] {
		b := (*[18]byte)(src)
		twoBits(dst[:64], b[2:], f16(b[:]))
	}
}

// PQ2_0: d F16, 32 bytes of codes as Q2_0's.
func decodePQ2_0(dst []float32, src []byte) {
	for ; len(src) >= 34; dst, src = dst[128:], src[34:] {
		b := (*[34]byte)(src)
		twoBits(dst[:128], b[2:], f16(b[:]))
	}
}

// twoBits writes (q - 1) d of four codes a byte, from the low bits up.
func twoBits(dst []float32, codes []byte, d float32) {
	lookup := [4]float32{-d, 0 * d, d, 2 * d} // 0 d: NaN where d is infinite
	for _, q := range codes {
		y := (*[4]float32)(dst)
		y[0] = lookup[q&3]
		y[1] = lookup[q>>2&3]
		y[2] = lookup[q>>4&3]
		y[3] = lookup[q>>6]
		dst = dst[4:]
	}
}

// Q1_0: d F16, 16 bytes of eight bits each. w = d or -d.
func decodeQ1_0(dst []float32, src []byte) {
	for ; len(src) >= 18; dst, src = dst[128:], src[18:] {
		b := (*[18]byte)(src)
		d := f16(b[:])
		lookup := [2]float32{-d, d}
		y := dst[:128]
		for _, bits := range b[2:] {
			for k := range (*[8]float32)(y) {
				y[k] = lookup[bits>>k&1]
			}
			y = y[8:]
		}
	}
}

// TQ2_0: 64 bytes of codes in runs of 32 bytes, byte p of a run elements p, 32+p, 64+p and 96+p, d F16. w = (q - 1) d.
func decodeTQ2_0(dst []float32, src []byte) {
	for ; len(src) >= 66; dst, src = dst[256:], src[66:] {
		b := (*[66]byte)(src)
		d := f16(b[64:])
		lookup := [4]float32{-d, 0 * d, d, 2 * d}
		for n := range 2 {
			y := (*[128]float32)(dst[128*n:])
			for p, q := range (*[32]byte)(b[32*n:]) {
				y[p] = lookup[q&3]
				y[p+32] = lookup[q>>2&3]
				y[p+64] = lookup[q>>4&3]
				y[p+96] = lookup[q>>6]
			}
		}
	}
}

// TQ1_0: 48 bytes of five ternary digits, 4 bytes of four, d F16. A byte is a fixed-point fraction of its digits, the
// first the most significant: multiplying modulo 256 by a power of three brings a digit to the front, and the integer
// part of three times the fraction reads it. Bytes of a run hold their digits a run's length apart. w = (q - 1) d.
func decodeTQ1_0(dst []float32, src []byte) {
	for ; len(src) >= 54; dst, src = dst[256:], src[54:] {
		b := (*[54]byte)(src)
		d := f16(b[52:])
		digits(dst[:160], b[:32], d)
		digits(dst[160:240], b[32:48], d)
		digits(dst[240:256], b[48:52], d)
	}
}

// digits writes (q - 1) d of the ternary digits of run, as many of each byte as dst has room for.
func digits(dst []float32, run []byte, d float32) {
	lookup := [4]float32{-d, 0 * d, d}
	power := byte(1)
	for ; len(dst) >= len(run); dst = dst[len(run):] {
		y := dst[:len(run)]
		for m, q := range run {
			y[m] = lookup[uint16(q*power)*3>>8&3]
		}
		power *= 3
	}
}
