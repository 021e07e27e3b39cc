package dequant

import (
	"encoding/binary"
	"fmt"
	"math"
)

// NativeFormat is the format of the rows that NativeRow writes: NVFP4Rows for GGUF's NVFP4, else m's own.
func (m *Matrix) NativeFormat() *Format {
	if m.Format.Type == NVFP4 {
		return Lookup(NVFP4Rows)
	}
	return m.Format
}

// NativeRow writes a row as the native blocks that the weight image is made from, whatever the container's order of
// codes and scales, to dst, which must hold NativeFormat().RowBytes(Cols) bytes. The blocks decode to the values of
// DecodeRow. Columns must be whole blocks of that format.
func (m *Matrix) NativeRow(dst []byte, row int) {
	f := m.NativeFormat()
	if row < 0 || row >= m.Rows || m.Cols%f.Block != 0 || len(dst) != f.RowBytes(m.Cols) {
		panic(fmt.Sprintf("dequant: row %d in %d bytes of a %d x %d matrix of %s", row, len(dst), m.Rows, m.Cols, f))
	}
	data := rowOf(m.Data, row, m.rowBytes())
	switch {
	case m.isApart():
		scales, biases := m.scaleRow(row)
		m.Format.apart.native(dst, data, scales, biases, m.global(row))
	case m.Format.Type == NVFP4:
		nativeNVFP4(dst, data, m.global(row))
	default:
		copy(dst, data)
	}
}

// nativeAffine interleaves scales, biases and codes.
func nativeAffine(bits, group int) func(dst, codes, scales, biases []byte, g float32) {
	n := group * bits / 8
	return func(dst, codes, scales, biases []byte, _ float32) {
		for ; len(scales) >= 2; scales, biases = scales[2:], biases[2:] {
			copy(dst[:2], scales)
			copy(dst[2:4], biases)
			copy(dst[4:4+n], codes)
			dst, codes = dst[4+n:], codes[n:]
		}
	}
}

// nativeMXFP4 re-pairs codes: byte i of a block holds elements i and 16+i.
func nativeMXFP4(dst, codes, scales, _ []byte, _ float32) {
	for _, e := range scales {
		b, c := (*[17]byte)(dst), (*[16]byte)(codes)
		b[0] = e
		for i := range 8 {
			b[1+2*i] = c[i]&15 | c[8+i]<<4
			b[2+2*i] = c[i]>>4 | c[8+i]&0xf0
		}
		dst, codes = dst[17:], codes[16:]
	}
}

func nativeNVFP4Rows(dst, codes, scales, _ []byte, g float32) {
	for ; len(scales) >= 16; dst, codes, scales = dst[148:], codes[128:], scales[16:] {
		copy(dst[:16], scales)
		binary.LittleEndian.PutUint32(dst[16:], math.Float32bits(g))
		copy(dst[20:148], codes)
	}
}

func nativeFP8Rows(dst, codes, _, _ []byte, g float32) {
	for ; len(codes) >= 256; dst, codes = dst[260:], codes[256:] {
		binary.LittleEndian.PutUint32(dst, math.Float32bits(g))
		copy(dst[4:260], codes)
	}
}

// nativeNVFP4 makes a native block of four of GGUF's, which hold unsigned scales and other pairs of codes.
func nativeNVFP4(dst, src []byte, g float32) {
	for ; len(src) >= 144; dst, src = dst[148:], src[144:] {
		b := (*[148]byte)(dst)
		binary.LittleEndian.PutUint32(b[16:], math.Float32bits(g))
		for s := range 16 {
			from := (*[36]byte)(src[36*(s/4):])
			if d := from[s%4]; d == 0x7f {
				b[s] = 0
			} else {
				b[s] = d & 0x7f
			}
			pair8((*[8]byte)(b[20+8*s:]), (*[8]byte)(from[4+8*(s%4):]))
		}
	}
}

// pair8 turns eight bytes of elements i and 8+i into eight of elements 2i and 2i+1.
func pair8(dst, src *[8]byte) {
	for i := range 4 {
		a, b := src[2*i], src[2*i+1]
		dst[i] = a&15 | b<<4
		dst[4+i] = a>>4 | b&0xf0
	}
}
