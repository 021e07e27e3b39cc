package cpu

import (
	"encoding/binary"

	"splash/dequant"
)

// The i-quants: 256 elements of entries of a grid.

var (
	gridIQ2XXS = (*[256]uint64)(dequant.Grid(dequant.IQ2XXS))
	gridIQ2XS  = (*[512]uint64)(dequant.Grid(dequant.IQ2XS))
	gridIQ2S   = (*[1024]uint64)(dequant.Grid(dequant.IQ2S))
	gridIQ3XXS = (*[256]uint64)(dequant.Grid(dequant.IQ3XXS))
	gridIQ3S   = (*[512]uint64)(dequant.Grid(dequant.IQ3S))

	// gridIQ1 has eight times the entries of IQ1_S, plus 1, and in its second half minus 1: the shift of an eighth.
	gridIQ1 = shiftedGrid(dequant.Grid(dequant.IQ1S))
)

func shiftedGrid(grid []uint64) *[4096]uint64 {
	var g [4096]uint64
	for i, entry := range grid {
		for k := range 8 {
			v := 8 * int(int8(entry>>(8*k)))
			g[i] |= uint64(uint8(v+1)) << (8 * k)
			g[2048+i] |= uint64(uint8(v-1)) << (8 * k)
		}
	}
	return &g
}

func unpackIQ2XXS(n *natural, at int, b []byte, _ float32) {
	d, y := f16(b), n.codes[at*unit:]
	for j := range 8 {
		g := (*[8]byte)(b[2+8*j:])
		a := binary.LittleEndian.Uint32(g[4:])
		n.scales[at+j] = d * (0.5 + float32(a>>28)) * 0.25
		for l := range 4 {
			store8(y[32*j+8*l:], negate(gridIQ2XXS[g[l]], spread[evenSigns(a>>(7*l))]))
		}
	}
}

func unpackIQ2XS(n *natural, at int, b []byte, _ float32) {
	d, y := f16(b), n.codes[at*unit:]
	for i := range 16 {
		n.scales[2*at+i] = d * (0.5 + float32(b[66+i/2]>>(i%2*4)&15)) * 0.25
	}
	for i := range 32 {
		q := binary.LittleEndian.Uint16(b[2+2*i:])
		store8(y[8*i:], negate(gridIQ2XS[q&511], spread[evenSigns(uint32(q>>9))]))
	}
}

func unpackIQ2S(n *natural, at int, b []byte, _ float32) {
	d, y := f16(b), n.codes[at*unit:]
	for i := range 16 {
		n.scales[2*at+i] = d * (0.5 + float32(b[74+i/2]>>(i%2*4)&15)) * 0.25
	}
	for i := range 32 {
		index := uint32(b[2+i]) | uint32(b[66+i/4])>>(i%4*2)&3<<8
		store8(y[8*i:], negate(gridIQ2S[index], spread[b[34+i]]))
	}
}

func unpackIQ3XXS(n *natural, at int, b []byte, _ float32) {
	d, y := f16(b), n.codes[at*unit:]
	for j := range 8 {
		a := binary.LittleEndian.Uint32(b[66+4*j:])
		n.scales[at+j] = d * (0.5 + float32(a>>28)) * 0.5
		g := (*[8]byte)(b[2+8*j:])
		for l := range 4 {
			entry := gridIQ3XXS[g[2*l]] | gridIQ3XXS[g[2*l+1]]<<32
			store8(y[32*j+8*l:], negate(entry, spread[evenSigns(a>>(7*l))]))
		}
	}
}

func unpackIQ3S(n *natural, at int, b []byte, _ float32) {
	d, y := f16(b), n.codes[at*unit:]
	for j := range 8 {
		n.scales[at+j] = d * float32(1+2*int32(b[106+j/2]>>(j%2*4)&15))
		g, high := (*[8]byte)(b[2+8*j:]), uint32(b[66+j])<<8
		for l := range 4 {
			i0, i1 := uint32(g[2*l])|high>>(2*l)&0x100, uint32(g[2*l+1])|high>>(2*l+1)&0x100
			store8(y[32*j+8*l:], negate(gridIQ3S[i0]|gridIQ3S[i1]<<32, spread[b[74+4*j+l]]))
		}
	}
}

func unpackIQ1S(n *natural, at int, b []byte, _ float32) {
	d, y := f16(b), n.codes[at*unit:]
	for j := range 8 {
		high := binary.LittleEndian.Uint16(b[34+2*j:])
		n.scales[at+j] = d * float32(2*int32(high>>12&7)+1) / 8
		shift := uint32(high>>15) << 11
		for l := range 4 {
			index := uint32(b[2+4*j+l]) | uint32(high)>>(3*l)&7<<8
			store8(y[32*j+8*l:], gridIQ1[index|shift])
		}
	}
}

func unpackIQ1M(n *natural, at int, b []byte, _ float32) {
	words, y := load8(b[48:]), n.codes[at*unit:]
	d := dequant.FromF16(uint16(words>>12&0x000f | words>>24&0x00f0 | words>>36&0x0f00 | words>>48&0xf000))
	for i := range 16 {
		n.scales[2*at+i] = d * float32(2*int32(words>>(i/4*16+i%4*3)&7)+1) / 8
		for l := range 2 {
			h := uint32(b[32+i] >> (4 * l))
			store8(y[16*i+8*l:], gridIQ1[uint32(b[2*i+l])|h&7<<8|h>>3&1<<11])
		}
	}
}

func unpackIQ4XS(n *natural, at int, b []byte, _ float32) {
	d, high := f16(b), binary.LittleEndian.Uint16(b[2:])
	for j := range 8 {
		low := b[4+j/2] >> (j % 2 * 4)
		n.scales[at+j] = d * float32(int32(low&15)+int32(high>>(2*j)&3)<<4-32)
		codebookIQ4.halves(n.codes[(at+j)*unit:], b[8+16*j:][:16])
	}
}
