package cpu

import (
	"unsafe"

	"splash/dequant"
)

// lanesNEON is the number of rows of a tile: codes are signed, those of four columns of all rows side by side.
const lanesNEON = 8

type productNEONAssembly func(acc *float32, codes *byte, scales, mins *float32, x *int8, dx, sums *float32, units int)

// productsNEON are the kernels by the binary logarithm of a panel's rows, the groups of a unit less one, and minima.
var productsNEON = [3][2][2]productNEONAssembly{
	{{productNEONr1g32, productNEONr1g32m}, {productNEONr1g16, productNEONr1g16m}},
	{{productNEONr2g32, productNEONr2g32m}, {productNEONr2g16, productNEONr2g16m}},
	{{productNEONr4g32, productNEONr4g32m}, {productNEONr4g16, productNEONr4g16m}},
}

var exactsNEON = exacts{
	{{exactNEONr1g32, exactNEONr4g32}, {exactNEONr1g32m, exactNEONr4g32m}},
	{{exactNEONr1g16, exactNEONr4g16}, {exactNEONr1g16m, exactNEONr4g16m}},
}

func productNEON(acc []float32, t *tile, p *panel, at int) {
	rows, groups, minima := p.kernel()
	productsNEON[rows][groups][minima](first(acc), first(t.codes), first(t.scales), first(t.mins),
		first(p.codes[at*unit*p.rows:]), first(p.scales[at*p.rows:]), first(p.sums[at*(groups+1)*p.rows:]), t.units)
}

// quantizeFloatsNEON rounds a panel. Its codes need no bias.
func quantizeFloatsNEON(p *panel, x []float32, stride int) {
	f := quantizeNEONg32
	if p.group == 16 {
		f = quantizeNEONg16
	}
	for r := range p.rows {
		f(first(p.codes[4*r:]), first(p.scales[r:]), first(p.sums[r:]), first(x[r*stride:]), len(p.scales)/p.rows, p.rows)
	}
}

// A tileUnpacker unpacks blocks of 8 rows straight into a tile.
type tileUnpacker struct {
	f     func(codes *byte, scales, mins *float32, src *byte, stride, blocks int, ahead *byte)
	units int // of a block
	bytes int // of it

	// fused multiplies by one row of activations what f would unpack, with the bits of the product of a tile.
	fused func(acc, scales, mins *float32, src *byte, stride, blocks int, ahead *byte, x *int8, dx, sums *float32)
}

// unpackersNEON are those of the formats that most files are in. Others are unpacked row by row and interleaved.
var unpackersNEON = map[dequant.Type]*tileUnpacker{
	dequant.Q4_K:          {unpackQ4KNEON, 8, 144, fusedQ4KNEON},
	dequant.Q5_K:          {unpackQ5KNEON, 8, 176, fusedQ5KNEON},
	dequant.Q6_K:          {unpackQ6KNEON, 8, 210, fusedQ6KNEON},
	dequant.Q8_0:          {unpackQ8NEON, 1, 34, fusedQ8NEON},
	dequant.Q4_0:          {unpackQ40NEON, 1, 18, fusedQ40NEON},
	dequant.IQ4NL:         {unpackIQ4NLNEON, 1, 18, fusedIQ4NLNEON},
	dequant.IQ4XS:         {unpackIQ4XSNEON, 8, 136, fusedIQ4XSNEON},
	dequant.MXFP4:         {unpackMXFP4NEON, 1, 17, fusedMXFP4NEON},
	dequant.Affine(4, 64): {unpackAffine4NEON, 2, 36, fusedAffine4NEON},
	dequant.Q4_1:          {unpackQ41NEON, 1, 20, fusedQ41NEON},
	dequant.Q5_0:          {unpackQ50NEON, 1, 22, fusedQ50NEON},
	dequant.Q5_1:          {unpackQ51NEON, 1, 24, fusedQ51NEON},
	dequant.Q2_K:          {unpackQ2KNEON, 8, 84, fusedQ2KNEON},
	dequant.Q3_K:          {unpackQ3KNEON, 8, 110, fusedQ3KNEON},
	dequant.NVFP4:         {unpackNVFP4NEON, 2, 36, fusedNVFP4NEON},
	dequant.IQ2XXS:        {unpackIQ2XXSNEON, 8, 66, fusedIQ2XXSNEON},
	dequant.IQ3XXS:        {unpackIQ3XXSNEON, 8, 98, fusedIQ3XXSNEON},
	dequant.IQ2XS:         {unpackIQ2XSNEON, 8, 74, fusedIQ2XSNEON},
	dequant.IQ2S:          {unpackIQ2SNEON, 8, 82, fusedIQ2SNEON},
	dequant.IQ3S:          {unpackIQ3SNEON, 8, 110, fusedIQ3SNEON},
	dequant.IQ1S:          {unpackIQ1SNEON, 8, 50, fusedIQ1SNEON},
	dequant.Q2_0:          {unpackQ20NEON, 2, 18, fusedQ20NEON},
	dequant.PQ2_0:         {unpackPQ20NEON, 4, 34, fusedPQ20NEON},
	dequant.TQ2_0:         {unpackTQ20NEON, 8, 66, fusedTQ20NEON},
	dequant.Q1_0:          {unpackQ10NEON, 4, 18, fusedQ10NEON},
}

// signMasks are the masks of eight bytes of 7-bit indices of signs, for the kernels of the i-quants.
var signMasks = func() *[128]uint64 {
	var m [128]uint64
	for i := range m {
		m[i] = spread[evenSigns(uint32(i))]
	}
	return &m
}()

func formNEON(f *blockFormat, m *dequant.Matrix) {
	if m.Scales == nil {
		f.tile = unpackersNEON[m.Format.Type]
	}
}

// unpackTileNEON fills a tile. One that is not whole, or whose units are not whole blocks, is unpacked row by row.
func unpackTileNEON(w *worker, m *matrix, row, rows, at, units int) {
	t, f := &w.tile, m.blocks
	t.shape(f, lanesNEON, units)
	u := f.tile
	if u == nil || rows < lanesNEON || units%u.units != 0 {
		unpackRowsNEON(w, m, row, rows, at, units)
		return
	}
	t.globals(m, row)
	src, ahead, stride := u.place(m, row, at)
	u.f(first(t.codes), first(t.scales), first(t.mins), src, stride, units/u.units, ahead)
}

// globals puts the scales of rows where the kernel of a format that has such finds them.
func (t *tile) globals(m *matrix, row int) {
	if m.stored.Format.Type == dequant.NVFP4 {
		for i := range lanesNEON {
			t.mins[i] = globalOf(&m.stored, row+i)
		}
	}
}

// place is where unit at of 8 rows lies, and where the part of the next 8 rows does that is fetched beside it: those are
// one after another in the file, and as many bytes are fetched ahead as are read.
func (u *tileUnpacker) place(m *matrix, row, at int) (src, ahead *byte, stride int) {
	stride = m.cols / (u.units * unit) * u.bytes
	data, from := m.stored.Data, row*stride+at/u.units*u.bytes
	src = &data[from]
	ahead = src
	if row+2*lanesNEON <= m.rows {
		ahead = &data[(row+lanesNEON)*stride+at/u.units*u.bytes*lanesNEON]
	}
	return src, ahead, stride
}

// fusedNEON multiplies 8 rows by one row of activations without a tile between, where the format has a kernel for it.
func fusedNEON(w *worker, acc []float32, m *matrix, in *input, row int) bool {
	u := m.blocks.tile
	if u == nil || m.cols/unit%u.units != 0 {
		return false
	}
	t, p := &w.tile, &in.panels[0]
	t.shape(m.blocks, lanesNEON, 0)
	t.globals(m, row)
	src, ahead, stride := u.place(m, row, 0)
	u.fused(first(acc), first(t.scales), first(t.mins), src, stride, m.cols/unit/u.units, ahead,
		first(p.codes), first(p.scales), first(p.sums))
	return true
}

// unpackRowsNEON interleaves rows in natural order. Rows that are missing are zeros.
func unpackRowsNEON(w *worker, m *matrix, row, rows, at, units int) {
	t, f, n := &w.tile, m.blocks, w.rows(lanesNEON)
	for i := range rows {
		f.unpack(&n[i], &m.stored, row+i, at, units)
	}
	for i := rows; i < lanesNEON; i++ {
		n[i] = natural{}
	}
	const stride = int(unsafe.Sizeof(natural{}))
	groups := roundUp(units*unit/f.group, 4)
	interleaveNEON(first(t.codes), &n[0].codes[0], stride, units*unit/4)
	interleaveNEON(bytesOf(t.scales), bytesOf(n[0].scales[:]), stride, groups)
	if f.minima {
		interleaveNEON(bytesOf(t.mins), bytesOf(n[0].mins[:]), stride, groups)
	}
}
