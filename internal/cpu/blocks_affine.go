package cpu

import (
	"encoding/binary"
	"math"

	"splash/dequant"
)

func fromBits(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

// affineBlocks is MLX's affine formats, w = s q + z: the minimum is -z. Codes of 8 bits lose 128, which z makes up for.
func affineBlocks(bits, group int, apart bool) *blockFormat {
	n := group * bits / 8
	codes := affineCodes[bits]
	one := func(to *natural, at int, data, scale, bias []byte) {
		s, z := bf16(scale), bf16(bias)
		if bits == 8 {
			z += 128 * s
		}
		for i := range group / unit {
			to.scales[at+i], to.mins[at+i] = s, -z
		}
		codes(to.codes[at*unit:][:group], data)
	}
	f := &blockFormat{group: 32, minima: true, signed: bits == 8}
	if apart {
		f.unpack = func(to *natural, m *dequant.Matrix, row, at, units int) {
			first := (row*m.Cols + at*unit) / group
			for i := range units * unit / group {
				g := first + i
				one(to, i*group/unit, m.Data[g*n:(g+1)*n], m.Scales[2*g:], m.Biases[2*g:])
			}
		}
		return f
	}
	f.unpack = func(to *natural, m *dequant.Matrix, row, at, units int) {
		b := m.Data[(row*m.Cols+at*unit)/group*(n+4):]
		for i := range units * unit / group {
			one(to, i*group/unit, b[4:4+n], b, b[2:])
			b = b[4+n:]
		}
	}
	return f
}

// affineCodes unpack bit strings of so many bits a code, in order.
var affineCodes = map[int]func(y, b []byte){
	2: func(y, b []byte) {
		for i, q := range b {
			binary.LittleEndian.PutUint32(y[4*i:], uint32(q&3)|uint32(q>>2&3)<<8|uint32(q>>4&3)<<16|uint32(q>>6)<<24)
		}
	},
	3: func(y, b []byte) {
		for ; len(b) >= 3; y, b = y[8:], b[3:] {
			c := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
			for i := range 8 {
				y[i] = byte(c >> (3 * i) & 7)
			}
		}
	},
	4: func(y, b []byte) {
		for i, q := range b {
			binary.LittleEndian.PutUint16(y[2*i:], uint16(q&15)|uint16(q>>4)<<8)
		}
	},
	5: func(y, b []byte) {
		for ; len(b) >= 5; y, b = y[8:], b[5:] {
			c := uint64(binary.LittleEndian.Uint32(b)) | uint64(b[4])<<32
			for i := range 8 {
				y[i] = byte(c >> (5 * i) & 31)
			}
		}
	},
	6: func(y, b []byte) {
		for ; len(b) >= 3; y, b = y[4:], b[3:] {
			c := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
			y[0], y[1], y[2], y[3] = byte(c&63), byte(c>>6&63), byte(c>>12&63), byte(c>>18)
		}
	},
	8: func(y, b []byte) {
		for i := 0; i+8 <= len(b); i += 8 {
			store8(y[i:], load8(b[i:])^tops)
		}
	},
}
