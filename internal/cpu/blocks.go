package cpu

import (
	"encoding/binary"
	"math/bits"

	"splash/dequant"
)

// A blockFormat is how weights of a format in blocks become codes of 8 bits (natural).
type blockFormat struct {
	group  int // columns that share a scale, as far as units go: 16 or 32
	minima bool
	signed bool // with minima: codes may be negative. Without, they always may

	bias int32         // that the level's tiles add to the codes
	tile *tileUnpacker // of the level; nil: rows are unpacked one by one

	// unpack writes units of a row, from unit at on, which begins a block.
	unpack func(n *natural, m *dequant.Matrix, row, at, units int)
}

// blocksOf is the form in which a matrix is multiplied in integers, or nil for one that is not in blocks of small
// integers.
func blocksOf(m *dequant.Matrix) *blockFormat {
	if m.Cols%unit != 0 {
		return nil
	}
	t := m.Format.Type
	if bits, group, ok := t.Affine(); ok {
		return affineBlocks(bits, group, m.Scales != nil)
	}
	switch {
	case t == dequant.NVFP4Rows && m.Scales != nil:
		return &blockFormat{group: 16, unpack: unpackApartNVFP4}
	case t == dequant.MXFP4 && m.Scales != nil:
		return &blockFormat{group: 32, unpack: unpackApartMXFP4}
	}
	f, ok := nativeBlocks[t]
	if !ok {
		return nil
	}
	return &blockFormat{group: f.group, minima: f.minima, unpack: f.row(m.Format)}
}

// nativeBlocks are the formats whose blocks hold everything: unpack writes one block to the natural form from unit at on.
var nativeBlocks = map[dequant.Type]blockUnpacker{
	dequant.Q4_0:   {32, false, unpackQ4_0},
	dequant.Q4_1:   {32, true, unpackQ4_1},
	dequant.Q5_0:   {32, false, unpackQ5_0},
	dequant.Q5_1:   {32, true, unpackQ5_1},
	dequant.Q8_0:   {32, false, unpackQ8_0},
	dequant.Q2_K:   {16, true, unpackQ2_K},
	dequant.Q3_K:   {16, false, unpackQ3_K},
	dequant.Q4_K:   {32, true, unpackQ4_K},
	dequant.Q5_K:   {32, true, unpackQ5_K},
	dequant.Q6_K:   {16, false, unpackQ6_K},
	dequant.IQ2XXS: {32, false, unpackIQ2XXS},
	dequant.IQ2XS:  {16, false, unpackIQ2XS},
	dequant.IQ2S:   {16, false, unpackIQ2S},
	dequant.IQ3XXS: {32, false, unpackIQ3XXS},
	dequant.IQ3S:   {32, false, unpackIQ3S},
	dequant.IQ1S:   {32, false, unpackIQ1S},
	dequant.IQ1M:   {16, false, unpackIQ1M},
	dequant.IQ4NL:  {32, false, unpackIQ4NL},
	dequant.IQ4XS:  {32, false, unpackIQ4XS},
	dequant.MXFP4:  {32, false, unpackMXFP4},
	dequant.NVFP4:  {16, false, unpackNVFP4},
	dequant.Q1_0:   {32, false, unpackQ1_0},
	dequant.Q2_0:   {32, false, unpackQ2_0},
	dequant.PQ2_0:  {32, false, unpackPQ2_0},
	dequant.TQ1_0:  {32, false, unpackTQ1_0},
	dequant.TQ2_0:  {32, false, unpackTQ2_0},

	dequant.NVFP4Rows: {16, false, unpackNVFP4Rows},
}

type blockUnpacker struct {
	group  int
	minima bool
	block  func(n *natural, at int, b []byte, g float32)
}

// row is the unpacker of a row of such blocks.
func (u blockUnpacker) row(f *dequant.Format) func(n *natural, m *dequant.Matrix, row, at, units int) {
	return func(n *natural, m *dequant.Matrix, row, at, units int) {
		g, size := globalOf(m, row), f.Bytes
		data := m.Data[row*f.RowBytes(m.Cols)+at*unit/f.Block*size:]
		for i := 0; i < units; i += f.Block / unit {
			u.block(n, i, data[:size:size], g)
			data = data[size:]
		}
	}
}

// globalOf is the tensor scale of a row.
func globalOf(m *dequant.Matrix, row int) float32 {
	switch n := len(m.Global); n {
	case 0:
		return 1
	case 1:
		return m.Global[0]
	default:
		return m.Global[row/(m.Rows/n)]
	}
}

func f16(b []byte) float32  { return dequant.FromF16(binary.LittleEndian.Uint16(b)) }
func bf16(b []byte) float32 { return dequant.FromBF16(binary.LittleEndian.Uint16(b)) }

// Eight codes at a time: each byte of a uint64 is an element, the first the least significant.

const (
	ones  = 0x0101010101010101
	tops  = 0x80 * ones
	lows  = 0x0f * ones
	pairs = 0x03 * ones
)

func load8(b []byte) uint64     { return binary.LittleEndian.Uint64(b) }
func store8(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }

// less is v - k of bytes below 128.
func less(v, k uint64) uint64 { return (v | tops) - k*ones ^ tops }

// negate changes the sign of the bytes of v, none of which is 0, where the byte of mask is 0xff.
func negate(v, mask uint64) uint64 { return (v ^ mask) + mask&ones }

// spread has byte k 0xff where bit k is set.
var spread = func() (s [256]uint64) {
	for b := range s {
		for k := range 8 {
			if b>>k&1 != 0 {
				s[b] |= 0xff << (8 * k)
			}
		}
	}
	return s
}()

// evenSigns are the sign bits of a 7-bit index, whose eighth makes the number of negated elements even.
func evenSigns(i uint32) byte {
	i &= 127
	return byte(i | uint32(bits.OnesCount32(i)&1)<<7)
}
