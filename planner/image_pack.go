package planner

import (
	"encoding/binary"
	"math/bits"
)

// Inside a group of 32 the planes hold elements in chunk order: chunk c of four holds elements 4c to 4c+3 and 16+4c to
// 16+4c+3 (formats.md 5.4). The packers below take a chunk's two runs of four codes as words, a code a byte, and move the
// codes of a word together by shifts and masks.

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

// chunk is the two runs of four codes of chunk c.
func chunk(codes *[groupSize]uint8, c int) (a, b uint32) {
	return binary.LittleEndian.Uint32(codes[4*c:]), binary.LittleEndian.Uint32(codes[16+4*c:])
}

// packPairs writes the low nibbles as four words, one a chunk: the first element of pair p at bit 4p, the second at bit
// 16 + 4p.
func packPairs(dst []byte, codes *[groupSize]uint8) {
	// The nibbles of bytes 0 and 2, side by side.
	even := func(x uint32) uint32 { x &= 0x000f000f; return (x | x>>12) & 0xff }
	for c := range 4 {
		a, b := chunk(codes, c)
		binary.LittleEndian.PutUint32(dst[4*c:], even(a)|even(b)<<8|even(a>>8)<<16|even(b>>8)<<24)
	}
}

// packBits1 writes bit shift of each code, eight slots a byte.
func packBits1(dst []byte, codes *[groupSize]uint8, shift int) {
	four := func(x uint32) uint32 {
		x = x >> shift & 0x01010101
		x = (x | x>>7) & 0x00030003
		return (x | x>>14) & 15
	}
	for c := range 4 {
		a, b := chunk(codes, c)
		dst[c] = byte(four(a) | four(b)<<4)
	}
}

// packBits2 writes the two bits of each code from shift on, four slots a byte.
func packBits2(dst []byte, codes *[groupSize]uint8, shift int) {
	four := func(x uint32) uint32 {
		x = x >> shift & 0x03030303
		x = (x | x>>6) & 0x000f000f
		return (x | x>>12) & 0xff
	}
	for c := range 4 {
		a, b := chunk(codes, c)
		binary.LittleEndian.PutUint16(dst[2*c:], uint16(four(a)|four(b)<<8))
	}
}

// packBits4 writes the low nibbles, two slots a byte.
func packBits4(dst []byte, codes *[groupSize]uint8) {
	for c := range 4 {
		a, b := chunk(codes, c)
		x := uint64(a) | uint64(b)<<32
		binary.LittleEndian.PutUint32(dst[4*c:], nibbles(x&lowNibbles))
	}
}

// packBits8 writes the codes, one slot a byte.
func packBits8(dst []byte, codes *[groupSize]uint8) {
	for c := range 4 {
		a, b := chunk(codes, c)
		binary.LittleEndian.PutUint64(dst[8*c:], uint64(a)|uint64(b)<<32)
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

// Masks of the low bits of eight bytes.
const (
	lowBits    = 0x0101010101010101
	lowPairs   = 3 * lowBits
	lowNibbles = 15 * lowBits
)

// nibbles moves eight codes of four bits, a code a byte, together.
func nibbles(x uint64) uint32 {
	x = (x | x>>4) & 0x00ff00ff00ff00ff
	x = (x | x>>8) & 0x0000ffff0000ffff
	return uint32(x | x>>16)
}

// spreadNibbles is the inverse of nibbles.
func spreadNibbles(v uint32) uint64 {
	x := uint64(v)
	x = (x | x<<16) & 0x0000ffff0000ffff
	x = (x | x<<8) & 0x00ff00ff00ff00ff
	return (x | x<<4) & lowNibbles
}

// spreadPairs gives eight codes of two bits a byte each.
func spreadPairs(v uint16) uint64 {
	x := uint64(v)
	x = (x | x<<24) & 0x000000ff000000ff
	x = (x | x<<12) & 0x000f000f000f000f
	return (x | x<<6) & lowPairs
}

// eight reads and put8 writes eight codes.
func eight(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }

func put8(dst *[groupSize]uint8, i int, x uint64) { binary.LittleEndian.PutUint64(dst[8*i:], x) }

// halves reads the nibbles of 16 bytes a group, low nibbles first, the groups back to back from offset on.
func halves(offset int) func(*[groupSize]uint8, []byte, int) {
	return func(dst *[groupSize]uint8, block []byte, j int) {
		src := block[offset+16*j:][:16]
		for i := range 2 {
			v := eight(src, i)
			put8(dst, i, v&lowNibbles)
			put8(dst, 2+i, v>>4&lowNibbles)
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
	switch width {
	case 2:
		return func(dst *[groupSize]uint8, block []byte, j int) {
			src := block[offset+8*j:][:8]
			for i := range 4 {
				put8(dst, i, spreadPairs(binary.LittleEndian.Uint16(src[2*i:])))
			}
		}
	case 4:
		return func(dst *[groupSize]uint8, block []byte, j int) {
			src := block[offset+16*j:][:16]
			for i := range 4 {
				put8(dst, i, spreadNibbles(binary.LittleEndian.Uint32(src[4*i:])))
			}
		}
	case 8:
		return func(dst *[groupSize]uint8, block []byte, j int) { copy(dst[:], block[offset+32*j:]) }
	}
	mask := uint64(1)<<width - 1
	return func(dst *[groupSize]uint8, block []byte, j int) {
		src := block[offset+4*width*j:][:4*width]
		for i := range 4 { // eight codes are width bytes
			var v uint64
			for k := range width {
				v |= uint64(src[i*width+k]) << (8 * k)
			}
			for k := range 8 {
				dst[8*i+k] = uint8(v >> (k * width) & mask)
			}
		}
	}
}

// codesQ4K reads group j of a Q4_K block: the low or the high nibbles of 32 bytes.
func codesQ4K(dst *[groupSize]uint8, block []byte, j int) {
	qs := block[16+32*(j/2):][:32]
	for i := range 4 {
		put8(dst, i, eight(qs, i)>>(4*(j%2))&lowNibbles)
	}
}

// codesQ5K reads group j of a Q5_K block, whose fifth bits are bit j of the bytes of qh.
func codesQ5K(dst *[groupSize]uint8, block []byte, j int) {
	qh, qs := block[16:48], block[48+32*(j/2):][:32]
	for i := range 4 {
		put8(dst, i, eight(qs, i)>>(4*(j%2))&lowNibbles|eight(qh, i)>>j&lowBits<<4)
	}
}

// codesQ6K reads group j of a Q6_K block, before 32 is taken off.
func codesQ6K(dst *[groupSize]uint8, block []byte, j int) {
	n, r := j/4, j%4
	ql, qh := block[64*n+32*(r%2):][:32], block[128+32*n:][:32]
	for i := range 4 {
		put8(dst, i, eight(ql, i)>>(4*(r/2))&lowNibbles|eight(qh, i)>>(2*r)&lowPairs<<4)
	}
}

// codesQ3K reads group j of a Q3_K block: the low two bits, and the mask's bit above them.
func codesQ3K(dst *[groupSize]uint8, block []byte, j int) {
	qs := block[32+32*(j/4):][:32]
	for i := range 4 {
		put8(dst, i, eight(qs, i)>>(2*(j%4))&lowPairs|eight(block, i)>>j&lowBits<<2)
	}
}

// codesQ2K reads group j of a Q2_K block.
func codesQ2K(dst *[groupSize]uint8, block []byte, j int) {
	qs := block[16+32*(j/4):][:32]
	for i := range 4 {
		put8(dst, i, eight(qs, i)>>(2*(j%4))&lowPairs)
	}
}

// slotOf is the place of element e of a group in chunk order.
func slotOf(e int) int { return 8*(e>>2&3) + 4*(e>>4) + e&3 }

// signBits is the eight signs of a seven-bit sign index of the i-quants: the index, and its parity above it.
func signBits(index uint32) uint8 {
	index &= 127
	return uint8(index) | uint8(bits.OnesCount32(index)&1)<<7
}
