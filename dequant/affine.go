package dequant

import "encoding/binary"

// MLX's affine formats: w = rn32(s q + z) with s and z BF16, one each a group. A row's codes are one little-endian bit
// string, code i in bits [ib, (i+1)b); a group of 32 or more is a whole number of bytes of it.

// decodeAffine decodes native blocks of bits and group: s, z, codes.
func decodeAffine(bits, group int) func(dst []float32, src []byte) {
	unpack, n := affineGroup(bits), 4+group*bits/8
	return func(dst []float32, src []byte) {
		for ; len(src) >= n; dst, src = dst[group:], src[n:] {
			unpack(dst[:group], src[4:n], bf16(src), bf16(src[2:]))
		}
	}
}

// apartAffine decodes a row of codes with its scales and biases apart.
func apartAffine(bits, group int) func(dst []float32, codes, scales, biases []byte, g float32) {
	unpack, n := affineGroup(bits), group*bits/8
	return func(dst []float32, codes, scales, biases []byte, _ float32) {
		for ; len(scales) >= 2; scales, biases = scales[2:], biases[2:] {
			unpack(dst[:group], codes[:n], bf16(scales), bf16(biases))
			dst, codes = dst[group:], codes[n:]
		}
	}
}

// bf16 reads the BF16 field at the start of b.
func bf16(b []byte) float32 { return FromBF16(binary.LittleEndian.Uint16(b)) }

// affineGroup returns the decoder of one group of codes of so many bits.
func affineGroup(bits int) func(dst []float32, codes []byte, s, z float32) {
	return map[int]func(dst []float32, codes []byte, s, z float32){
		2: affine2, 3: affine3, 4: affine4, 5: affine5, 6: affine6, 8: affine8,
	}[bits]
}

// affineValue is rn32(s q + z). The product is exact: 8 bits by 8 bits.
func affineValue(q uint32, s, z float32) float32 { return float32(s*float32(int32(q))) + z }

func affine2(dst []float32, codes []byte, s, z float32) {
	var values [4]float32
	for q := range values {
		values[q] = affineValue(uint32(q), s, z)
	}
	for _, c := range codes {
		y := (*[4]float32)(dst)
		y[0] = values[c&3]
		y[1] = values[c>>2&3]
		y[2] = values[c>>4&3]
		y[3] = values[c>>6]
		dst = dst[4:]
	}
}

func affine3(dst []float32, codes []byte, s, z float32) {
	var values [8]float32
	for q := range values {
		values[q] = affineValue(uint32(q), s, z)
	}
	for ; len(codes) >= 3; dst, codes = dst[8:], codes[3:] {
		y := (*[8]float32)(dst)
		c := uint32(codes[0]) | uint32(codes[1])<<8 | uint32(codes[2])<<16
		for i := range y {
			y[i] = values[c&7]
			c >>= 3
		}
	}
}

func affine4(dst []float32, codes []byte, s, z float32) {
	for _, c := range codes {
		y := (*[2]float32)(dst)
		y[0] = affineValue(uint32(c&15), s, z)
		y[1] = affineValue(uint32(c>>4), s, z)
		dst = dst[2:]
	}
}

func affine5(dst []float32, codes []byte, s, z float32) {
	for ; len(codes) >= 5; dst, codes = dst[8:], codes[5:] {
		y := (*[8]float32)(dst)
		c := uint64(binary.LittleEndian.Uint32(codes)) | uint64(codes[4])<<32
		for i := range y {
			y[i] = affineValue(uint32(c&31), s, z)
			c >>= 5
		}
	}
}

func affine6(dst []float32, codes []byte, s, z float32) {
	for ; len(codes) >= 3; dst, codes = dst[4:], codes[3:] {
		y := (*[4]float32)(dst)
		c := uint32(codes[0]) | uint32(codes[1])<<8 | uint32(codes[2])<<16
		y[0] = affineValue(c&63, s, z)
		y[1] = affineValue(c>>6&63, s, z)
		y[2] = affineValue(c>>12&63, s, z)
		y[3] = affineValue(c>>18, s, z)
	}
}

func affine8(dst []float32, codes []byte, s, z float32) {
	dst = dst[:len(codes)]
	for i, c := range codes {
		dst[i] = affineValue(uint32(c), s, z)
	}
}
