package dequant

import (
	"encoding/binary"
	"math/bits"
)

// The i-quants: 256 elements in eight groups of 32, whose elements are entries of a codebook. IQ4 looks up one value a
// code; the others whole grid entries of eight or four elements, IQ2 and IQ3 with a sign bit for each element.

// valuesIQ4NL is kvalues_iq4nl of GGML.
var valuesIQ4NL = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// The grids and the signs, unpacked to the factors that the decoders multiply.
var (
	gridIQ2XXS = unpack8[[256][8]float32](packedIQ2XXS[:], levelsIQ2[:])
	gridIQ2XS  = unpack8[[512][8]float32](packedIQ2XS[:], levelsIQ2[:])
	gridIQ2S   = unpack8[[1024][8]float32](packedIQ2S[:], levelsIQ2[:])
	gridIQ1S   = unpack8[[2048][8]float32](packedIQ1S[:], levelsIQ1[:])
	gridIQ3XXS = unpack4[[256][4]float32](packedIQ3XXS[:], levelsIQ3XXS[:])
	gridIQ3S   = unpack4[[512][4]float32](packedIQ3S[:], levelsIQ3S[:])

	// signs holds -1 for element k where bit k is set, else 1.
	signs = signFactors()
)

type grid8 interface {
	[256][8]float32 | [512][8]float32 | [1024][8]float32 | [2048][8]float32
}

type grid4 interface {
	[256][4]float32 | [512][4]float32
}

func unpack8[G grid8](entries []uint16, levels []int8) *G {
	var grid G
	for i, entry := range entries {
		for k := range 8 {
			grid[i][k] = float32(levels[entry>>(2*k)&3])
		}
	}
	return &grid
}

func unpack4[G grid4](entries []uint16, levels []int8) *G {
	var grid G
	for i, entry := range entries {
		for k := range 4 {
			grid[i][k] = float32(levels[entry>>(3*k)&7])
		}
	}
	return &grid
}

func signFactors() *[256][8]float32 {
	var factors [256][8]float32
	for b := range factors {
		for k := range 8 {
			factors[b][k] = float32(1 - b>>k&1*2)
		}
	}
	return &factors
}

// evenSigns is ksigns_iq2xs of GGML: the sign bits of a 7-bit index, whose eighth makes the number of negated elements
// even.
func evenSigns(i uint32) byte {
	i &= 127
	return byte(i | uint32(bits.OnesCount32(i)&1)<<7)
}

// IQ4_NL: d F16, 16 bytes of nibbles in the order of Q4_0. w = d V[q].
func decodeIQ4NL(dst []float32, src []byte) {
	for ; len(src) >= 18; dst, src = dst[32:], src[18:] {
		y, b := (*[32]float32)(dst), (*[18]byte)(src)
		codebook(y, (*[16]byte)(b[2:]), f16(b[:]))
	}
}

// IQ4_XS: d F16, the high two bits of eight scales, their low nibbles, 16 bytes of nibbles for each group.
// w = (d (s - 32)) V[q].
func decodeIQ4XS(dst []float32, src []byte) {
	for ; len(src) >= 136; dst, src = dst[256:], src[136:] {
		b := (*[136]byte)(src)
		d, high := f16(b[:]), binary.LittleEndian.Uint16(b[2:])
		for j := range 8 {
			low := b[4+j/2] >> (j % 2 * 4)
			scale := d * float32(int32(low&15)+int32(high>>(2*j)&3)<<4-32)
			codebook((*[32]float32)(dst[32*j:]), (*[16]byte)(b[8+16*j:]), scale)
		}
	}
}

func codebook(y *[32]float32, codes *[16]byte, scale float32) {
	for i, q := range codes {
		y[i] = valuesIQ4NL[q&15] * scale
		y[i+16] = valuesIQ4NL[q>>4] * scale
	}
}

// signed8 writes the eight elements of a grid entry with its signs.
func signed8(y *[8]float32, grid, sign *[8]float32, scale float32) {
	for k := range y {
		y[k] = scale * grid[k] * sign[k]
	}
}

// IQ2_XXS: d F16, then for each group four grid bytes and a word of four 7-bit sign indices under a 4-bit scale.
// w = (d (1/2 + s) / 4) grid.
func decodeIQ2XXS(dst []float32, src []byte) {
	for ; len(src) >= 66; dst, src = dst[256:], src[66:] {
		b := (*[66]byte)(src)
		d := f16(b[:])
		for j := range 8 {
			g := (*[8]byte)(b[2+8*j:])
			a := binary.LittleEndian.Uint32(g[4:])
			scale := d * (0.5 + float32(int32(a>>28))) * 0.25
			y := (*[32]float32)(dst[32*j:])
			for l := range 4 {
				sign := &signs[evenSigns(a>>(7*l))]
				signed8((*[8]float32)(y[8*l:]), &gridIQ2XXS[g[l]], sign, scale)
			}
		}
	}
}

// IQ2_XS: d F16, 32 words of a 9-bit grid index under a 7-bit sign index, eight bytes of two scales, each of 16 elements.
// w = (d (1/2 + s) / 4) grid.
func decodeIQ2XS(dst []float32, src []byte) {
	for ; len(src) >= 74; dst, src = dst[256:], src[74:] {
		b := (*[74]byte)(src)
		d := f16(b[:])
		for i := range 16 {
			scale := scaleIQ2(d, b[66+i/2], i)
			y := (*[16]float32)(dst[16*i:])
			for l := range 2 {
				q := binary.LittleEndian.Uint16(b[2+4*i+2*l:])
				sign := &signs[evenSigns(uint32(q>>9))]
				signed8((*[8]float32)(y[8*l:]), &gridIQ2XS[q&511], sign, scale)
			}
		}
	}
}

// scaleIQ2 is the scale of run i of 16 elements of an IQ2_XS or IQ2_S block: the low nibble for even runs.
func scaleIQ2(d float32, nibbles byte, i int) float32 {
	return d * (0.5 + float32(int32(nibbles>>(i%2*4)&15))) * 0.25
}

// IQ2_S: d F16, 32 low bytes of grid indices, 32 bytes of signs, eight bytes of four high pairs of bits, eight bytes of
// two scales. w = (d (1/2 + s) / 4) grid.
func decodeIQ2S(dst []float32, src []byte) {
	for ; len(src) >= 82; dst, src = dst[256:], src[82:] {
		b := (*[82]byte)(src)
		d := f16(b[:])
		for i := range 16 {
			scale := scaleIQ2(d, b[74+i/2], i)
			high := uint32(b[66+i/2]) >> (i % 2 * 4) << 8
			y := (*[16]float32)(dst[16*i:])
			for l := range 2 {
				index := uint32(b[2+2*i+l]) | high>>(2*l)&0x300
				signed8((*[8]float32)(y[8*l:]), &gridIQ2S[index&1023], &signs[b[34+2*i+l]], scale)
			}
		}
	}
}

// signed4x2 writes eight elements of two grid entries with their signs.
func signed4x2(y *[8]float32, grid0, grid1 *[4]float32, sign *[8]float32, scale float32) {
	for k := range 4 {
		y[k] = scale * grid0[k] * sign[k]
		y[k+4] = scale * grid1[k] * sign[k+4]
	}
}

// IQ3_XXS: d F16, 64 grid bytes of four elements each, then for each group a word as IQ2_XXS's.
// w = (d (1/2 + s) / 2) grid.
func decodeIQ3XXS(dst []float32, src []byte) {
	for ; len(src) >= 98; dst, src = dst[256:], src[98:] {
		b := (*[98]byte)(src)
		d := f16(b[:])
		for j := range 8 {
			a := binary.LittleEndian.Uint32(b[66+4*j:])
			scale := d * (0.5 + float32(int32(a>>28))) * 0.5
			g, y := (*[8]byte)(b[2+8*j:]), (*[32]float32)(dst[32*j:])
			for l := range 4 {
				sign := &signs[evenSigns(a>>(7*l))]
				signed4x2((*[8]float32)(y[8*l:]), &gridIQ3XXS[g[2*l]], &gridIQ3XXS[g[2*l+1]], sign, scale)
			}
		}
	}
}

// IQ3_S: d F16, 64 low bytes of grid indices, eight bytes of their ninth bits, 32 bytes of signs, four bytes of two
// scales. w = (d (1 + 2 s)) grid.
func decodeIQ3S(dst []float32, src []byte) {
	for ; len(src) >= 110; dst, src = dst[256:], src[110:] {
		b := (*[110]byte)(src)
		d := f16(b[:])
		for j := range 8 {
			scale := d * float32(1+2*int32(b[106+j/2]>>(j%2*4)&15))
			g, high, y := (*[8]byte)(b[2+8*j:]), uint32(b[66+j])<<8, (*[32]float32)(dst[32*j:])
			for l := range 4 {
				i0 := uint32(g[2*l]) | high>>(2*l)&0x100
				i1 := uint32(g[2*l+1]) | high>>(2*l+1)&0x100
				sign := &signs[b[74+4*j+l]]
				signed4x2((*[8]float32)(y[8*l:]), &gridIQ3S[i0&511], &gridIQ3S[i1&511], sign, scale)
			}
		}
	}
}

// The shift that all elements of eight share in IQ1, by its sign bit.
var deltaIQ1 = [2]float32{0.125, -0.125}

// shifted8 writes the eight elements of a signed grid entry.
func shifted8(y, grid *[8]float32, scale, delta float32) {
	for k := range y {
		y[k] = scale * (grid[k] + delta)
	}
}

// IQ1_S: d F16, 32 low bytes of grid indices, then for each group a word of four high triples of bits, a 3-bit scale and
// the sign of its shift. w = (d (2 s + 1)) (grid + delta).
func decodeIQ1S(dst []float32, src []byte) {
	for ; len(src) >= 50; dst, src = dst[256:], src[50:] {
		b := (*[50]byte)(src)
		d := f16(b[:])
		for j := range 8 {
			high := binary.LittleEndian.Uint16(b[34+2*j:])
			scale, delta := d*float32(2*int32(high>>12&7)+1), deltaIQ1[high>>15]
			y := (*[32]float32)(dst[32*j:])
			for l := range 4 {
				index := uint32(b[2+4*j+l]) | uint32(high)>>(3*l)&7<<8
				shifted8((*[8]float32)(y[8*l:]), &gridIQ1S[index&2047], scale, delta)
			}
		}
	}
}

// IQ1_M: 32 low bytes of grid indices, 16 bytes of two nibbles (three high bits of an index and the sign of its shift),
// four words of four 3-bit scales of 16 elements each, under a nibble of d. w = (d (2 s + 1)) (grid + delta).
func decodeIQ1M(dst []float32, src []byte) {
	for ; len(src) >= 56; dst, src = dst[256:], src[56:] {
		b := (*[56]byte)(src)
		words := binary.LittleEndian.Uint64(b[48:])
		d := FromF16(uint16(words>>12&0x000f | words>>24&0x00f0 | words>>36&0x0f00 | words>>48&0xf000))
		for i := range 16 {
			scale := d * float32(2*int32(words>>(i/4*16+i%4*3)&7)+1)
			high, y := b[32+i], (*[16]float32)(dst[16*i:])
			for l := range 2 {
				h := uint32(high >> (4 * l))
				index := uint32(b[2*i+l]) | h&7<<8
				shifted8((*[8]float32)(y[8*l:]), &gridIQ1S[index&2047], scale, deltaIQ1[h>>3&1])
			}
		}
	}
}

// Grid is the codebook of a type as GGML's table has it: element k of an entry is byte k from the least significant, of
// eight (IQ2, IQ1) or four (IQ3), signed for IQ1. It is nil for types without one; the slice is the caller's.
func Grid(t Type) []uint64 {
	switch t {
	case IQ2XXS:
		return gridBytes(packedIQ2XXS[:], levelsIQ2[:], 8, 2)
	case IQ2XS:
		return gridBytes(packedIQ2XS[:], levelsIQ2[:], 8, 2)
	case IQ2S:
		return gridBytes(packedIQ2S[:], levelsIQ2[:], 8, 2)
	case IQ3XXS:
		return gridBytes(packedIQ3XXS[:], levelsIQ3XXS[:], 4, 3)
	case IQ3S:
		return gridBytes(packedIQ3S[:], levelsIQ3S[:], 4, 3)
	case IQ1S, IQ1M:
		return gridBytes(packedIQ1S[:], levelsIQ1[:], 8, 2)
	}
	return nil
}

func gridBytes(entries []uint16, levels []int8, elements, bits int) []uint64 {
	grid := make([]uint64, len(entries))
	for i, entry := range entries {
		for k := range elements {
			level := levels[entry>>(bits*k)&(1<<bits-1)]
			grid[i] |= uint64(uint8(level)) << (8 * k)
		}
	}
	return grid
}

// Codebook is the sixteen values of a 4-bit code of IQ4_NL and IQ4_XS, and twice those of MXFP4 and NVFP4. It is nil for
// other types; the slice is the caller's.
func Codebook(t Type) []int8 {
	var values [16]float32
	switch t {
	case IQ4NL, IQ4XS:
		values = valuesIQ4NL
	case MXFP4, NVFP4, NVFP4Rows:
		values = doubledE2M1
	default:
		return nil
	}
	codebook := make([]int8, len(values))
	for q, v := range values {
		codebook[q] = int8(v)
	}
	return codebook
}
