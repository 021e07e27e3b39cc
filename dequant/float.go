package dequant

import (
	"encoding/binary"
	"math"
)

func decodeF32(dst []float32, src []byte) {
	for ; len(dst) >= 4 && len(src) >= 16; dst, src = dst[4:], src[16:] {
		dst[0] = math.Float32frombits(binary.LittleEndian.Uint32(src))
		dst[1] = math.Float32frombits(binary.LittleEndian.Uint32(src[4:]))
		dst[2] = math.Float32frombits(binary.LittleEndian.Uint32(src[8:]))
		dst[3] = math.Float32frombits(binary.LittleEndian.Uint32(src[12:]))
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func decodeF16(dst []float32, src []byte) {
	for ; len(dst) >= 4 && len(src) >= 8; dst, src = dst[4:], src[8:] {
		four := binary.LittleEndian.Uint64(src)
		for i := range 4 {
			h := uint32(four) & 0xffff
			if m := h & 0x7fff; m-0x400 < 0x7800 { // normal
				dst[i] = math.Float32frombits(h&0x8000<<16 | (m<<13 + 112<<23))
			} else {
				dst[i] = FromF16(uint16(h))
			}
			four >>= 16
		}
	}
	for i := range dst {
		dst[i] = FromF16(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func decodeBF16(dst []float32, src []byte) {
	for ; len(dst) >= 4 && len(src) >= 8; dst, src = dst[4:], src[8:] {
		four := binary.LittleEndian.Uint64(src)
		dst[0] = math.Float32frombits(uint32(four) << 16)
		dst[1] = math.Float32frombits(uint32(four) & 0xffff0000)
		dst[2] = math.Float32frombits(uint32(four>>32) << 16)
		dst[3] = math.Float32frombits(uint32(four>>32) & 0xffff0000)
	}
	for i := range dst {
		dst[i] = FromBF16(binary.LittleEndian.Uint16(src[2*i:]))
	}
}
