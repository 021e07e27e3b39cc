package dequant

// The k-quants: 256 elements in sub-blocks of 16 or 32, whose scales are themselves small integers.

// Q2_K: 16 bytes of scale (low nibble) and minimum (high nibble), 64 bytes of 2-bit codes, d and dmin F16. Byte p of 32
// holds elements p, 32+p, 64+p and 96+p of a half block. w = (d s) q - dmin m.
func decodeQ2_K(dst []float32, src []byte) {
	for ; len(src) >= 84; dst, src = dst[256:], src[84:] {
		b := (*[84]byte)(src)
		d, dmin := f16(b[80:]), f16(b[82:])
		for i := range 4 {
			n, half := i/2, i%2
			var v [4][4]float32 // by run of 32 and code
			for r := range v {
				s := b[8*n+half+2*r]
				scale, minimum := d*float32(int32(s&15)), float32(dmin*float32(int32(s>>4)))
				for q := range v[r] {
					v[r][q] = float32(scale*float32(int32(q))) - minimum
				}
			}
			y := (*[112]float32)(dst[128*n+16*half:])
			for p, q := range (*[16]byte)(b[16+32*n+16*half:]) {
				y[p] = v[0][q&3]
				y[p+32] = v[1][q>>2&3]
				y[p+64] = v[2][q>>4&3]
				y[p+96] = v[3][q>>6]
			}
		}
	}
}

// Q3_K: 32 bytes of third bits, 64 bytes of 2-bit codes in the order of Q2_K, 12 bytes of 6-bit scales, d F16. Bit 4n+j
// of byte p of the third bits is that of element 128n+32j+p; the value is 4 less where it is clear. w = (d (s - 32)) q.
func decodeQ3_K(dst []float32, src []byte) {
	for ; len(src) >= 110; dst, src = dst[256:], src[110:] {
		b := (*[110]byte)(src)
		d, six := f16(b[108:]), (*[12]byte)(b[96:])
		for i := range 4 {
			n, half := i/2, i%2
			s0, s1 := d*scaleQ3_K(six, 8*n+half), d*scaleQ3_K(six, 8*n+half+2)
			s2, s3 := d*scaleQ3_K(six, 8*n+half+4), d*scaleQ3_K(six, 8*n+half+6)
			low, high := (*[16]byte)(b[32+32*n+16*half:]), (*[16]byte)(b[16*half:])
			y := (*[112]float32)(dst[128*n+16*half:])
			for p, q := range low {
				h := high[p] >> (4 * n & 7)
				y[p] = s0 * float32(int32(q&3|h<<2&4)-4)
				y[p+32] = s1 * float32(int32(q>>2&3|h<<1&4)-4)
				y[p+64] = s2 * float32(int32(q>>4&3|h&4)-4)
				y[p+96] = s3 * float32(int32(q>>6|h>>1&4)-4)
			}
		}
	}
}

// scaleQ3_K is the six-bit scale of sub-block i less 32: four low bits in the first eight bytes, two high bits in the
// last four.
func scaleQ3_K(s *[12]byte, i int) float32 {
	low := s[i%8] >> (i / 8 * 4)
	high := s[8+i%4] >> (i / 4 * 2)
	return float32(int32(low&15|high&3<<4) - 32)
}

// scaleQ4_K is the six-bit scale and minimum of group j of a Q4_K or Q5_K block.
func scaleQ4_K(s *[12]byte, j int) (scale, minimum float32) {
	if j < 4 {
		return float32(int32(s[j] & 63)), float32(int32(s[j+4] & 63))
	}
	return float32(int32(s[j+4]&15 | s[j-4]>>6<<4)), float32(int32(s[j+4]>>4 | s[j]>>6<<4))
}

// Q4_K: d and dmin F16, 12 bytes of scales and minima of the eight groups of 32, 128 bytes of nibbles, each 32 bytes the
// low nibbles of one group and the high ones of the next. w = (d s) q - dmin m.
func decodeQ4_K(dst []float32, src []byte) {
	for ; len(src) >= 144; dst, src = dst[256:], src[144:] {
		b := (*[144]byte)(src)
		d, dmin := f16(b[:]), f16(b[2:])
		for j := 0; j < 8; j += 2 {
			s0, m0 := scaleQ4_K((*[12]byte)(b[4:]), j)
			s1, m1 := scaleQ4_K((*[12]byte)(b[4:]), j+1)
			s0, m0, s1, m1 = d*s0, float32(dmin*m0), d*s1, float32(dmin*m1)
			y := (*[64]float32)(dst[32*j:])
			for p, q := range (*[32]byte)(b[16+16*j:]) {
				y[p] = float32(s0*float32(int32(q&15))) - m0
				y[p+32] = float32(s1*float32(int32(q>>4))) - m1
			}
		}
	}
}

// Q5_K: as Q4_K, with 32 bytes of fifth bits before the nibbles: bit j of byte p is that of element p of group j.
func decodeQ5_K(dst []float32, src []byte) {
	for ; len(src) >= 176; dst, src = dst[256:], src[176:] {
		b := (*[176]byte)(src)
		d, dmin := f16(b[:]), f16(b[2:])
		high := (*[32]byte)(b[16:])
		for j := 0; j < 8; j += 2 {
			s0, m0 := scaleQ4_K((*[12]byte)(b[4:]), j)
			s1, m1 := scaleQ4_K((*[12]byte)(b[4:]), j+1)
			s0, m0, s1, m1 = d*s0, float32(dmin*m0), d*s1, float32(dmin*m1)
			y := (*[64]float32)(dst[32*j:])
			for p, q := range (*[32]byte)(b[48+16*j:]) {
				h := high[p] >> (j & 7)
				y[p] = float32(s0*float32(int32(q&15|h<<4&16))) - m0
				y[p+32] = float32(s1*float32(int32(q>>4|h<<3&16))) - m1
			}
		}
	}
}

// Q6_K: 128 bytes of low nibbles, 64 bytes of high pairs of bits, 16 int8 scales of sub-blocks of 16, d F16. A byte of
// high bits serves elements p, 32+p, 64+p and 96+p of a half block. w = (d s) (q - 32).
func decodeQ6_K(dst []float32, src []byte) {
	for ; len(src) >= 210; dst, src = dst[256:], src[210:] {
		b := (*[210]byte)(src)
		d := f16(b[208:])
		for i := range 4 {
			n, half := i/2, i%2
			scales := (*[7]byte)(b[192+8*n+half:])
			s0, s1 := d*float32(int8(scales[0])), d*float32(int8(scales[2]))
			s2, s3 := d*float32(int8(scales[4])), d*float32(int8(scales[6]))
			low, high := (*[48]byte)(b[64*n+16*half:]), (*[16]byte)(b[128+32*n+16*half:])
			y := (*[112]float32)(dst[128*n+16*half:])
			for p, h := range high {
				q0, q1 := low[p], low[p+32]
				y[p] = s0 * float32(int32(q0&15|h<<4&0x30)-32)
				y[p+32] = s1 * float32(int32(q1&15|h<<2&0x30)-32)
				y[p+64] = s2 * float32(int32(q0>>4|h&0x30)-32)
				y[p+96] = s3 * float32(int32(q1>>4|h>>2&0x30)-32)
			}
		}
	}
}
