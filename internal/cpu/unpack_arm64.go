package cpu

import (
	"unsafe"

	"splash/dequant"
)

// A tileUnpacker unpacks blocks of 8 rows straight into a tile.
type tileUnpacker struct {
	f      func(codes *byte, scales, mins *float32, src *byte, stride, blocks int, ahead uintptr)
	units  int  // of a block
	bytes  int  // of it
	scaled bool // f takes the rows' tensor scales where minima go

	// apart unpacks the scales and minima that do not lie in the blocks; nil: there are none.
	apart func(t *tile, m *dequant.Matrix, row, at, units int)

	// fused multiplies by one row of activations what f would unpack, with the bits of the product of a tile; or nil.
	fused func(acc, scales, mins *float32, src *byte, stride, blocks int, ahead uintptr, x *int8, dx, sums *float32)
}

// unpackersNEON are those of formats whose blocks hold everything. Affine codes of 2, 3, 5 and 6 bits, and those of 4 and 8 in
// blocks of other sizes, are unpacked row by row and interleaved.
var unpackersNEON = map[dequant.Type]*tileUnpacker{
	dequant.Q4_K:          {f: unpackQ4KNEON, units: 8, bytes: 144, fused: fusedQ4KNEON},
	dequant.Q5_K:          {f: unpackQ5KNEON, units: 8, bytes: 176, fused: fusedQ5KNEON},
	dequant.Q6_K:          {f: unpackQ6KNEON, units: 8, bytes: 210, fused: fusedQ6KNEON},
	dequant.Q8_0:          {f: unpackQ8NEON, units: 1, bytes: 34, fused: fusedQ8NEON},
	dequant.Q4_0:          {f: unpackQ40NEON, units: 1, bytes: 18, fused: fusedQ40NEON},
	dequant.IQ4NL:         {f: unpackIQ4NLNEON, units: 1, bytes: 18, fused: fusedIQ4NLNEON},
	dequant.IQ4XS:         {f: unpackIQ4XSNEON, units: 8, bytes: 136, fused: fusedIQ4XSNEON},
	dequant.MXFP4:         {f: unpackMXFP4NEON, units: 1, bytes: 17, fused: fusedMXFP4NEON},
	dequant.Affine(4, 64): {f: unpackAffine4NEON, units: 2, bytes: 36, fused: fusedAffine4NEON},
	dequant.Q4_1:          {f: unpackQ41NEON, units: 1, bytes: 20, fused: fusedQ41NEON},
	dequant.Q5_0:          {f: unpackQ50NEON, units: 1, bytes: 22, fused: fusedQ50NEON},
	dequant.Q5_1:          {f: unpackQ51NEON, units: 1, bytes: 24, fused: fusedQ51NEON},
	dequant.Q2_K:          {f: unpackQ2KNEON, units: 8, bytes: 84, fused: fusedQ2KNEON},
	dequant.Q3_K:          {f: unpackQ3KNEON, units: 8, bytes: 110, fused: fusedQ3KNEON},
	dequant.NVFP4:         {f: unpackNVFP4NEON, units: 2, bytes: 36, scaled: true, fused: fusedNVFP4NEON},
	dequant.IQ2XXS:        {f: unpackIQ2XXSNEON, units: 8, bytes: 66, fused: fusedIQ2XXSNEON},
	dequant.IQ3XXS:        {f: unpackIQ3XXSNEON, units: 8, bytes: 98, fused: fusedIQ3XXSNEON},
	dequant.IQ2XS:         {f: unpackIQ2XSNEON, units: 8, bytes: 74, fused: fusedIQ2XSNEON},
	dequant.IQ2S:          {f: unpackIQ2SNEON, units: 8, bytes: 82, fused: fusedIQ2SNEON},
	dequant.IQ3S:          {f: unpackIQ3SNEON, units: 8, bytes: 110, fused: fusedIQ3SNEON},
	dequant.IQ1S:          {f: unpackIQ1SNEON, units: 8, bytes: 50, fused: fusedIQ1SNEON},
	dequant.Q2_0:          {f: unpackQ20NEON, units: 2, bytes: 18, fused: fusedQ20NEON},
	dequant.PQ2_0:         {f: unpackPQ20NEON, units: 4, bytes: 34, fused: fusedPQ20NEON},
	dequant.TQ2_0:         {f: unpackTQ20NEON, units: 8, bytes: 66, fused: fusedTQ20NEON},
	dequant.Q1_0:          {f: unpackQ10NEON, units: 4, bytes: 18, fused: fusedQ10NEON},
	dequant.NVFP4Rows:     {f: unpackNVFP4RowsNEON, units: 8, bytes: 148, fused: fusedNVFP4RowsNEON},
	dequant.TQ1_0:         {f: unpackTQ10NEON, units: 8, bytes: 54, fused: fusedTQ10NEON},
	dequant.IQ1M:          {f: unpackIQ1MNEON, units: 8, bytes: 56, fused: fusedIQ1MNEON},
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
	switch t := m.Format.Type; {
	case m.Scales == nil:
		f.tile = unpackersNEON[t]
	case t == dequant.NVFP4Rows:
		f.tile = &tileUnpacker{f: unpackCodesFP4NEON, units: 1, bytes: 16, apart: scalesNVFP4}
	case t == dequant.MXFP4:
		f.tile = &tileUnpacker{f: unpackCodesFP4NEON, units: 1, bytes: 16, apart: scalesMXFP4}
	default:
		switch bits, group, _ := t.Affine(); bits {
		case 4:
			f.tile = &tileUnpacker{f: unpackCodes4NEON, units: 1, bytes: 16, apart: scalesAffine(bits, group)}
		case 8:
			f.tile = &tileUnpacker{f: unpackCodes8NEON, units: 1, bytes: 32, apart: scalesAffine(bits, group)}
		}
	}
}

// scalesAffine writes those of a tile of MLX's affine formats (affineBlocks).
func scalesAffine(bits, group int) func(t *tile, m *dequant.Matrix, row, at, units int) {
	return func(t *tile, m *dequant.Matrix, row, at, units int) {
		for lane := range lanesNEON {
			g := ((row+lane)*m.Cols + at*unit) / group
			for u := 0; u < units; g++ {
				s, z := bf16(m.Scales[2*g:]), bf16(m.Biases[2*g:])
				if bits == 8 {
					z += 128 * s
				}
				for range group / unit {
					t.scales[u*lanesNEON+lane], t.mins[u*lanesNEON+lane] = s, -z
					u++
				}
			}
		}
	}
}

func scalesMXFP4(t *tile, m *dequant.Matrix, row, at, units int) {
	for lane := range lanesNEON {
		for u, e := range m.Scales[(row+lane)*m.Cols/32+at:][:units] {
			t.scales[u*lanesNEON+lane] = dequant.FromE8M0Half(e)
		}
	}
}

func scalesNVFP4(t *tile, m *dequant.Matrix, row, at, units int) {
	for lane := range lanesNEON {
		g := globalOf(m, row+lane)
		for s, e := range m.Scales[(row+lane)*m.Cols/16+2*at:][:2*units] {
			t.scales[s*lanesNEON+lane] = g * dequant.FromE4M3(e) / 2
		}
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
	if u.scaled {
		t.globals(m, row, lanesNEON)
	}
	src, ahead, stride := u.place(m, row, at, lanesNEON, w.next)
	u.f(first(t.codes), first(t.scales), first(t.mins), src, stride, units/u.units, ahead)
	if u.apart != nil {
		u.apart(t, &m.stored, row, at, units)
	}
}

// fusedNEON multiplies 8 rows by one row of activations without a tile between, where the format has a kernel for it.
func fusedNEON(w *worker, acc []float32, m *matrix, in *input, row int) bool {
	u := m.blocks.tile
	if u == nil || u.fused == nil || m.cols/unit%u.units != 0 {
		return false
	}
	t, p := &w.tile, &in.panels[0]
	t.shape(m.blocks, lanesNEON, 0)
	if u.scaled {
		t.globals(m, row, lanesNEON)
	}
	src, ahead, stride := u.place(m, row, 0, lanesNEON, w.next)
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
