package planner

import (
	"encoding/binary"
	"math/bits"
)

// Inside a group of 32 the planes hold elements in chunk order: chunk c of four holds elements 4c to 4c+3 and 16+4c to
// 16+4c+3 (formats.md 5.4). The packers below walk chunks, so that no table of slots is needed.

// linear packs codes of 4 to 6 bits whose low four are a linear code: pairs, and the bits above in plane 1.
func linear(codes func(*[groupSize]uint8, []byte, int), width int) packing {
	p := packing{codes: codes, plane0: packPairs}
	switch width {
	case 5:
		p.plane1 = func(dst []byte, c *[groupSize]uint8) { packBits1(dst, c, 4) }
	case 6:
		p.plane1 = func(dst []byte, c *[groupSize]uint8) { packBits2(dst, c, 4) }
	}
	return p
}

// strung packs the low bits of the codes as a bit string over the slots, and high (0 or 1) bits above them in plane 1.
func strung(codes func(*[groupSize]uint8, []byte, int), low, high int) packing {
	p := packing{codes: codes}
	switch low {
	case 2:
		p.plane0 = func(dst []byte, c *[groupSize]uint8) { packBits2(dst, c, 0) }
	case 4:
		p.plane0 = packBits4
	case 8:
		p.plane0 = packBits8
	}
	if high == 1 {
		p.plane1 = func(dst []byte, c *[groupSize]uint8) { packBits1(dst, c, low) }
	}
	return p
}

// packPairs writes the low nibbles as four words, one a chunk: the first element of pair p at bit 4p, the second at bit
// 16 + 4p.
func packPairs(dst []byte, codes *[groupSize]uint8) {
	for c := range 4 {
		a, b := codes[4*c:4*c+4], codes[16+4*c:16+4*c+4]
		low := uint32(a[0]&15) | uint32(a[2]&15)<<4 | uint32(b[0]&15)<<8 | uint32(b[2]&15)<<12
		high := uint32(a[1]&15) | uint32(a[3]&15)<<4 | uint32(b[1]&15)<<8 | uint32(b[3]&15)<<12
		binary.LittleEndian.PutUint32(dst[4*c:], low|high<<16)
	}
}

// packBits1 writes bit shift of each code, eight slots a byte.
func packBits1(dst []byte, codes *[groupSize]uint8, shift int) {
	for c := range 4 {
		var v uint8
		for i := range 4 {
			v |= codes[4*c+i] >> shift & 1 << i
			v |= codes[16+4*c+i] >> shift & 1 << (4 + i)
		}
		dst[c] = v
	}
}

// packBits2 writes the two bits of each code from shift on, four slots a byte.
func packBits2(dst []byte, codes *[groupSize]uint8, shift int) {
	for c := range 4 {
		var a, b uint8
		for i := range 4 {
			a |= codes[4*c+i] >> shift & 3 << (2 * i)
			b |= codes[16+4*c+i] >> shift & 3 << (2 * i)
		}
		dst[2*c], dst[2*c+1] = a, b
	}
}

// packBits4 writes the low nibbles, two slots a byte.
func packBits4(dst []byte, codes *[groupSize]uint8) {
	for c := range 4 {
		a, b := codes[4*c:4*c+4], codes[16+4*c:16+4*c+4]
		dst[4*c], dst[4*c+1] = a[0]&15|a[1]<<4, a[2]&15|a[3]<<4
		dst[4*c+2], dst[4*c+3] = b[0]&15|b[1]<<4, b[2]&15|b[3]<<4
	}
}

// packBits8 writes the codes, one slot a byte.
func packBits8(dst []byte, codes *[groupSize]uint8) {
	for c := range 4 {
		copy(dst[8*c:8*c+4], codes[4*c:4*c+4])
		copy(dst[8*c+4:8*c+8], codes[16+4*c:16+4*c+4])
	}
}

// packHalves writes the 16-bit values of a BF16 or F16 block, which stand after its scale, in slot order.
func packHalves(plane0, block []byte, j int) {
	values := block[4+2*groupSize*j:][:2*groupSize]
	for c := range 4 {
		copy(plane0[16*c:16*c+8], values[8*c:8*c+8])
		copy(plane0[16*c+8:16*c+16], values[32+8*c:32+8*c+8])
	}
}

// packIQ3S gathers what a chunk needs of an IQ3_S group into one word: the low bytes of its two grid indices, the signs
// of its slots, the two ninth bits of the indices, and the group's scale.
func packIQ3S(plane0, block []byte, j int) {
	qs, qh, signs := block[2+8*j:], block[66+j], block[74+4*j:]
	scale := uint32(block[106+j/2] >> (4 * (j % 2)) & 15)
	for c := range 4 {
		// Elements 4c.. are half c%2 of sign byte c/2, elements 16+4c.. that half of byte 2+c/2.
		shift := 4 * (c % 2)
		s := uint32(signs[c/2]>>shift&15) | uint32(signs[2+c/2]>>shift&15)<<4
		word := uint32(qs[c]) | uint32(qs[4+c])<<8 | s<<16
		word |= uint32(qh>>c&1)<<24 | uint32(qh>>(4+c)&1)<<25 | scale<<26
		binary.LittleEndian.PutUint32(plane0[4*c:], word)
	}
}

// halves reads the nibbles of 16 bytes a group, low nibbles first, the groups back to back from offset on.
func halves(offset int) func(*[groupSize]uint8, []byte, int) {
	return func(dst *[groupSize]uint8, block []byte, j int) {
		for i, v := range block[offset+16*j:][:16] {
			dst[i], dst[16+i] = v&15, v>>4
		}
	}
}

// fifths adds the bits of a word at offset to the codes of a block of one group, as their bit 4.
func fifths(offset int, low func(*[groupSize]uint8, []byte, int)) func(*[groupSize]uint8, []byte, int) {
	return func(dst *[groupSize]uint8, block []byte, j int) {
		low(dst, block, j)
		high := binary.LittleEndian.Uint32(block[offset:])
		for e := range dst {
			dst[e] |= uint8(high>>e&1) << 4
		}
	}
}

// stream reads codes of width bits from one little-endian bit string that starts at offset.
func stream(offset, width int) func(*[groupSize]uint8, []byte, int) {
	mask := uint16(1)<<width - 1
	return func(dst *[groupSize]uint8, block []byte, j int) {
		src := block[offset+4*width*j:][:4*width]
		for e := range dst {
			at := e * width
			v := uint16(src[at/8])
			if at%8+width > 8 {
				v |= uint16(src[at/8+1]) << 8
			}
			dst[e] = uint8(v >> (at % 8) & mask)
		}
	}
}

// codesQ4K reads group j of a Q4_K block: the low or the high nibbles of 32 bytes.
func codesQ4K(dst *[groupSize]uint8, block []byte, j int) {
	for p, v := range block[16+32*(j/2):][:32] {
		dst[p] = v >> (4 * (j % 2)) & 15
	}
}

// codesQ5K reads group j of a Q5_K block, whose fifth bits are bit j of the bytes of qh.
func codesQ5K(dst *[groupSize]uint8, block []byte, j int) {
	qh := block[16:48]
	for p, v := range block[48+32*(j/2):][:32] {
		dst[p] = v>>(4*(j%2))&15 | qh[p]>>j&1<<4
	}
}

// codesQ6K reads group j of a Q6_K block, before 32 is taken off.
func codesQ6K(dst *[groupSize]uint8, block []byte, j int) {
	n, r := j/4, j%4
	ql, qh := block[64*n+32*(r%2):][:32], block[128+32*n:][:32]
	for p := range dst {
		dst[p] = ql[p]>>(4*(r/2))&15 | qh[p]>>(2*r)&3<<4
	}
}

// codesQ3K reads group j of a Q3_K block: the low two bits, and the mask's bit above them.
func codesQ3K(dst *[groupSize]uint8, block []byte, j int) {
	qs := block[32+32*(j/4):][:32]
	for p := range dst {
		dst[p] = qs[p]>>(2*(j%4))&3 | block[p]>>j&1<<2
	}
}

// codesQ2K reads group j of a Q2_K block.
func codesQ2K(dst *[groupSize]uint8, block []byte, j int) {
	for p, v := range block[16+32*(j/4):][:32] {
		dst[p] = v >> (2 * (j % 4)) & 3
	}
}

// slotOf is the place of element e of a group in chunk order.
func slotOf(e int) int { return 8*(e>>2&3) + 4*(e>>4) + e&3 }

// signBits is the eight signs of a seven-bit sign index of the i-quants: the index, and its parity above it.
func signBits(index uint32) uint8 {
	index &= 127
	return uint8(index) | uint8(bits.OnesCount32(index)&1)<<7
}
