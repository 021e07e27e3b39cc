package dequant

import "encoding/binary"

// The decoders of this package follow the block structures of ggml/src/ggml-common.h and the values of
// dequantize_row_* of ggml/src/ggml-quants.c in llama.cpp. Products that are followed by an addition are converted to
// float32, which forbids the compiler to fuse the two and so keeps GGML's two roundings.

// f16 reads the F16 field at the start of b.
func f16(b []byte) float32 { return FromF16(binary.LittleEndian.Uint16(b)) }

// Q4_0: d F16, 16 bytes of nibbles, the low ones first. w = (q - 8) d.
func decodeQ4_0(dst []float32, src []byte) {
	for ; len(src) >= 18; dst, src = dst[32:], src[18:] {
		y, b := (*[32]float32)(dst), (*[18]byte)(src)
		d := f16(b[:])
		for i, q := range b[2:] {
			y[i] = float32(int32(q&15)-8) * d
			y[i+16] = float32(int32(q>>4)-8) * d
		}
	}
}

// Q4_1: d and m F16, nibbles as Q4_0. w = q d + m.
func decodeQ4_1(dst []float32, src []byte) {
	for ; len(src) >= 20; dst, src = dst[32:], src[20:] {
		y, b := (*[32]float32)(dst), (*[20]byte)(src)
		d, m := f16(b[:]), f16(b[2:])
		for i, q := range b[4:] {
			y[i] = float32(float32(int32(q&15))*d) + m
			y[i+16] = float32(float32(int32(q>>4))*d) + m
		}
	}
}

// Q5_0: d F16, the 32 fifth bits, nibbles as Q4_0. w = (q - 16) d.
func decodeQ5_0(dst []float32, src []byte) {
	for ; len(src) >= 22; dst, src = dst[32:], src[22:] {
		y, b := (*[32]float32)(dst), (*[22]byte)(src)
		d, fifth := f16(b[:]), binary.LittleEndian.Uint32(b[2:])
		for i, q := range b[6:] {
			y[i] = float32(int32(uint32(q&15)|fifth<<4&16)-16) * d
			y[i+16] = float32(int32(uint32(q>>4)|fifth>>12&16)-16) * d
			fifth >>= 1
		}
	}
}

// Q5_1: d and m F16, the 32 fifth bits, nibbles as Q4_0. w = q d + m.
func decodeQ5_1(dst []float32, src []byte) {
	for ; len(src) >= 24; dst, src = dst[32:], src[24:] {
		y, b := (*[32]float32)(dst), (*[24]byte)(src)
		d, m, fifth := f16(b[:]), f16(b[2:]), binary.LittleEndian.Uint32(b[4:])
		for i, q := range b[8:] {
			y[i] = float32(float32(int32(uint32(q&15)|fifth<<4&16))*d) + m
			y[i+16] = float32(float32(int32(uint32(q>>4)|fifth>>12&16))*d) + m
			fifth >>= 1
		}
	}
}

// Q8_0: d F16, 32 int8. w = q d.
func decodeQ8_0(dst []float32, src []byte) {
	for ; len(src) >= 34; dst, src = dst[32:], src[34:] {
		y, b := (*[32]float32)(dst), (*[34]byte)(src)
		d := f16(b[:])
		for i, q := range b[2:] {
			y[i] = float32(int8(q)) * d
		}
	}
}
