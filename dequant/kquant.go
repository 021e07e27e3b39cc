package dequant

// The k-quants: 256 elements in sub-blocks of 16 or 32, whose scales are themselves small integers.

// Q2_K: 16 bytes of scale (low nibble) and minimum (high nibble), 64 bytes of 2-bit codes, d and dmin F16. Byte p of 32
// holds elements p, 32+p, 64+p and 96+p of a half block. w = (d s) q - dmin m.
func decodeQ2_K(dst []float32, src []byte) {
	for ; len(src) >= 84; dst, src = dst[256:], src[84:] {
		b := (*[84]byte)(src)
		d, dmin := f16(b[80:]), f16(b[82:])
		for i, s := range b[:16] {
			scale, minimum := d*float32(int32(s&15)), dmin*float32(int32(s>>4))
			codes, shift := b[16+i/8*32+i%2*16:], i%8/2*2
			lookup := [4]float32{
				float32(scale*0) - minimum, scale - minimum, float32(scale*2) - minimum, float32(scale*3) - minimum,
			}
			y := (*[16]float32)(dst[16*i:])
			for p, q := range (*[16]byte)(codes) {
				y[p] = lookup[q>>(shift&7)&3]
			}
		}
	}
}

// Q3_K: 32 bytes of third bits, 64 bytes of 2-bit codes in the order of Q2_K, 12 bytes of 6-bit scales, d F16. The value
// is 4 less where the third bit is clear. w = (d (s - 32)) q.
func decodeQ3_K(dst []float32, src []byte) {
	for ; len(src) >= 110; dst, src = dst[256:], src[110:] {
		b := (*[110]byte)(src)
		d := f16(b[108:])
		for i := range 16 {
			scale := d * float32(scaleQ3_K((*[12]byte)(b[96:]), i)-32)
			high, codes := b[i%2*16:], b[32+i/8*32+i%2*16:]
			lookup := [8]float32{-4 * scale, -3 * scale, -2 * scale, -scale, 0 * scale, scale, 2 * scale, 3 * scale}
			shift, bit := i%8/2*2&7, i/2&7
			y, high16 := (*[16]float32)(dst[16*i:]), (*[16]byte)(high)
			for p, q := range (*[16]byte)(codes) {
				y[p] = lookup[q>>shift&3|high16[p]>>bit&1<<2]
			}
		}
	}
}

// scaleQ3_K is the six-bit scale of sub-block i: four low bits in the first eight bytes, two high bits in the last four.
func scaleQ3_K(s *[12]byte, i int) int32 {
	low := s[i%8] >> (i / 8 * 4)
	high := s[8+i%4] >> (i / 4 * 2)
	return int32(low&15 | high&3<<4)
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
			s0, m0, s1, m1 = d*s0, dmin*m0, d*s1, dmin*m1
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
			s0, m0, s1, m1 = d*s0, dmin*m0, d*s1, dmin*m1
			y := (*[64]float32)(dst[32*j:])
			for p, q := range (*[32]byte)(b[48+16*j:]) {
				h := high[p] >> (j & 7)
				y[p] = float32(s0*float32(int32(q&15|h<<4&16))) - m0
				y[p+32] = float32(s1*float32(int32(q>>4|h<<3&16))) - m1
			}
		}
	}
}

// Q6_K: 128 bytes of low nibbles, 64 bytes of high pairs of bits, 16 int8 scales of sub-blocks of 16, d F16.
// w = (d s) (q - 32).
func decodeQ6_K(dst []float32, src []byte) {
	for ; len(src) >= 210; dst, src = dst[256:], src[210:] {
		b := (*[210]byte)(src)
		d := f16(b[208:])
		for i := range 16 {
			// Sub-block i is half i%2 of run r of the 128 elements n.
			n, r, half := i/8, i%8/2, i%2*16
			scale := d * float32(int8(b[192+i]))
			low, high := (*[16]byte)(b[64*n+32*(r%2)+half:]), (*[16]byte)(b[128+32*n+half:])
			lowShift, highShift := r/2*4&7, 2*r&7
			y := (*[16]float32)(dst[16*i:])
			for p, q := range low {
				y[p] = scale * float32(int32(q>>lowShift&15|high[p]>>highShift&3<<4)-32)
			}
		}
	}
}
