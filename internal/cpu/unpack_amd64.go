package cpu

import (
	"unsafe"

	"splash/dequant"
)

type unpackAssembly func(codes *byte, scales, mins *float32, src *byte, stride, blocks int, ahead uintptr)

// A tileUnpacker unpacks blocks of a tile's rows straight into it: f those that hold everything, apart others.
type tileUnpacker struct {
	f      unpackAssembly
	units  int   // of a step of f
	bytes  int   // of it
	bias   int32 // of the codes, where tiles have one
	scaled bool  // f takes the rows' tensor scales where minima go

	// apart unpacks units of the rows from row on, the rows of a whole tile.
	apart func(t *tile, m *matrix, row, at, units int)

	// fused multiplies by one row of activations what f would unpack, with the bits of the product of a tile; or nil.
	fused func(acc, scales, mins *float32, src *byte, stride, blocks int, near, ahead uintptr, x *int8, dx, sums *float32,
		biases *int32)
	// piped multiplies tiles by a panel of 8 rows, again with those bits, unpacking a block while it multiplies another; or
	// nil. The rows' tensor scales come as sums. It fetches from near and ahead on, and after so many blocks from then on.
	piped func(acc *float32, buffers, src *byte, stride, tiles, blocks int, x *int8, dx, sums *float32, biases *int32,
		near, ahead uintptr, nearLeft, left int, then uintptr)
}

// pipedBuffers is room for two blocks that the largest of piped unpacks.
const pipedBuffers = 2 * (16*256 + 2*16*64)

// unpackers512 are those of formats whose blocks hold everything.
var unpackers512 = map[dequant.Type]*tileUnpacker{
	dequant.Q4_K:  {f: unpackQ4K512, units: 8, bytes: 144, fused: fusedQ4K512, piped: pipedQ4K512r8},
	dequant.Q5_K:  {f: unpackQ5K512, units: 8, bytes: 176, fused: fusedQ5K512, piped: pipedQ5K512r8},
	dequant.Q6_K:  {f: unpackQ6K512, units: 8, bytes: 210, bias: 32, fused: fusedQ6K512, piped: pipedQ6K512r8},
	dequant.Q8_0:  {f: unpackQ8512, units: 2, bytes: 68, bias: 128, fused: fusedQ8512, piped: pipedQ8512r8},
	dequant.Q4_0:  {f: unpackQ40512, units: 1, bytes: 18, bias: 8, fused: fusedQ40512, piped: pipedQ40512r8},
	dequant.IQ4NL: {f: unpackIQ4NL512, units: 1, bytes: 18, bias: 128, fused: fusedIQ4NL512, piped: pipedIQ4NL512r8},
	dequant.IQ4XS: {f: unpackIQ4XS512, units: 8, bytes: 136, bias: 128, fused: fusedIQ4XS512, piped: pipedIQ4XS512r8},
	dequant.MXFP4: {f: unpackMXFP4512, units: 1, bytes: 17, bias: 128, fused: fusedMXFP4512, piped: pipedMXFP4512r8},
	dequant.NVFP4: {f: unpackNVFP4512, units: 2, bytes: 36, bias: 128, scaled: true,
		fused: fusedNVFP4512, piped: pipedNVFP4512r8},
	dequant.IQ2XXS:        {f: unpackIQ2XXS512, units: 8, bytes: 66, bias: 128, fused: fusedIQ2XXS512, piped: pipedIQ2XXS512r8},
	dequant.IQ3XXS:        {f: unpackIQ3XXS512, units: 8, bytes: 98, bias: 128, fused: fusedIQ3XXS512, piped: pipedIQ3XXS512r8},
	dequant.Affine(4, 64): {f: unpackAffine4512, units: 2, bytes: 36, fused: fusedAffine4512, piped: pipedAffine4512r8},

	dequant.Q2_K:      {f: unpackQ2K512, units: 8, bytes: 84},
	dequant.Q3_K:      {f: unpackQ3K512, units: 8, bytes: 110, bias: 4},
	dequant.Q4_1:      {f: unpackQ41512, units: 1, bytes: 20},
	dequant.Q5_0:      {f: unpackQ50512, units: 1, bytes: 22, bias: 16},
	dequant.Q5_1:      {f: unpackQ51512, units: 1, bytes: 24},
	dequant.Q1_0:      {f: unpackQ10512, units: 4, bytes: 18, bias: 1},
	dequant.Q2_0:      {f: unpackQ20512, units: 2, bytes: 18, bias: 1},
	dequant.PQ2_0:     {f: unpackPQ20512, units: 4, bytes: 34, bias: 1},
	dequant.TQ1_0:     {f: unpackTQ10512, units: 8, bytes: 54, bias: 1},
	dequant.TQ2_0:     {f: unpackTQ20512, units: 8, bytes: 66, bias: 1},
	dequant.IQ2XS:     {f: unpackIQ2XS512, units: 8, bytes: 74, bias: 128},
	dequant.IQ2S:      {f: unpackIQ2S512, units: 8, bytes: 82, bias: 128},
	dequant.IQ3S:      {f: unpackIQ3S512, units: 8, bytes: 110, bias: 128},
	dequant.IQ1S:      {f: unpackIQ1S512, units: 8, bytes: 50, bias: 128},
	dequant.IQ1M:      {f: unpackIQ1M512, units: 8, bytes: 56, bias: 128},
	dequant.NVFP4Rows: {f: unpackNVFP4Rows512, units: 8, bytes: 148, bias: 128},
}

// unpackers256 are the same of the narrow level, whose codes are signed.
var unpackers256 = func() map[dequant.Type]*tileUnpacker {
	all := map[dequant.Type]*tileUnpacker{}
	for t, f := range map[dequant.Type]unpackAssembly{
		dequant.Q4_K: unpackQ4K256, dequant.Q5_K: unpackQ5K256, dequant.Q6_K: unpackQ6K256, dequant.Q8_0: unpackQ8256,
		dequant.Q4_0: unpackQ40256, dequant.IQ4NL: unpackIQ4NL256, dequant.IQ4XS: unpackIQ4XS256, dequant.MXFP4: unpackMXFP4256,
		dequant.NVFP4: unpackNVFP4256, dequant.IQ2XXS: unpackIQ2XXS256, dequant.IQ3XXS: unpackIQ3XXS256,
		dequant.Affine(4, 64): unpackAffine4256, dequant.Q2_K: unpackQ2K256, dequant.Q3_K: unpackQ3K256, dequant.Q4_1: unpackQ41256,
		dequant.Q5_0: unpackQ50256, dequant.Q5_1: unpackQ51256, dequant.Q1_0: unpackQ10256, dequant.Q2_0: unpackQ20256,
		dequant.PQ2_0: unpackPQ20256, dequant.TQ1_0: unpackTQ10256, dequant.TQ2_0: unpackTQ20256, dequant.IQ2XS: unpackIQ2XS256,
		dequant.IQ2S: unpackIQ2S256, dequant.IQ3S: unpackIQ3S256, dequant.IQ1S: unpackIQ1S256, dequant.IQ1M: unpackIQ1M256,
		dequant.NVFP4Rows: unpackNVFP4Rows256,
	} {
		wide := unpackers512[t]
		all[t] = &tileUnpacker{f: f, units: wide.units, bytes: wide.bytes, scaled: wide.scaled}
	}
	return all
}()

type (
	codesAssembly  func(codes, src *byte, stride, units int)
	affineAssembly func(scales, mins *float32, src, biases *byte, stride, step, groups, times int)
)

// apartAssembly are the kernels of a level for formats whose codes and scales it unpacks one after the other.
type apartAssembly struct {
	lanes          int
	bits           [9]codesAssembly // by the bits of a code
	pairs          codesAssembly    // of E2M1
	affine, lifted affineAssembly   // lifted: of codes of 8 bits
	e4m3           func(scales, global *float32, src *byte, stride, groups int)
	e8m0           func(scales *float32, src *byte, stride, groups int)
}

var apart512 = &apartAssembly{
	lanes: lanes512,
	bits: [9]codesAssembly{
		2: unpackBits2_512, 3: unpackBits3_512, 4: unpackBits4_512, 5: unpackBits5_512, 6: unpackBits6_512, 8: unpackBits8_512,
	},
	pairs: unpackPairs512, affine: affineScales512, lifted: affineScalesLifted512, e4m3: scalesE4M3_512, e8m0: scalesE8M0_512,
}

var apart256 = &apartAssembly{
	lanes: lanes256,
	bits: [9]codesAssembly{
		2: unpackBits2_256, 3: unpackBits3_256, 4: unpackBits4_256, 5: unpackBits5_256, 6: unpackBits6_256, 8: unpackBits8_256,
	},
	pairs: unpackPairs256, affine: affineScales256, lifted: affineScalesLifted256, e4m3: scalesE4M3_256, e8m0: scalesE8M0_256,
}

// unpacker is that of a matrix's format.
func (a *apartAssembly) unpacker(native map[dequant.Type]*tileUnpacker, m *dequant.Matrix) *tileUnpacker {
	t, apart := m.Format.Type, m.Scales != nil
	if u, ok := native[t]; ok && !apart {
		return u
	}
	if bits, group, ok := t.Affine(); ok {
		u := &tileUnpacker{}
		if bits == 8 {
			u.bias = 128
		}
		if u.apart = a.affineBlocks(bits, group); apart {
			u.apart = a.affineApart(bits, group)
		}
		return u
	}
	switch t {
	case dequant.MXFP4:
		return &tileUnpacker{bias: 128, apart: a.apartMXFP4}
	case dequant.NVFP4Rows:
		return &tileUnpacker{bias: 128, apart: a.apartNVFP4}
	}
	return nil
}

func (a *apartAssembly) affineScales(bits int) affineAssembly {
	if bits == 8 {
		return a.lifted
	}
	return a.affine
}

// affineApart unpacks codes that lie in order, and scales and biases that do so elsewhere.
func (a *apartAssembly) affineApart(bits, group int) func(t *tile, m *matrix, row, at, units int) {
	scales := a.affineScales(bits)
	return func(t *tile, m *matrix, row, at, units int) {
		d, groups := &m.stored, m.cols/group
		a.bits[bits](first(t.codes), &d.Data[(row*m.cols+at*unit)*bits/8], m.cols*bits/8, units)
		from := 2 * (row*groups + at*unit/group)
		scales(first(t.scales), first(t.mins), &d.Scales[from], &d.Biases[from], 2*groups, 2, units*unit/group, group/unit)
	}
}

// affineBlocks unpacks blocks of a scale, a bias and the codes of a group.
func (a *apartAssembly) affineBlocks(bits, group int) func(t *tile, m *matrix, row, at, units int) {
	scales, size := a.affineScales(bits), 4+group*bits/8
	return func(t *tile, m *matrix, row, at, units int) {
		stride := m.cols / group * size
		data := m.stored.Data[row*stride+at*unit/group*size:]
		groups := units * unit / group
		for g := range groups {
			a.bits[bits](first(t.codes[g*group*a.lanes:]), &data[g*size+4], stride, group/unit)
		}
		scales(first(t.scales), first(t.mins), &data[0], &data[2], stride, size, groups, group/unit)
	}
}

func (a *apartAssembly) apartMXFP4(t *tile, m *matrix, row, at, units int) {
	a.pairs(first(t.codes), &m.stored.Data[(row*m.cols+at*unit)/2], m.cols/2, units)
	a.e8m0(first(t.scales), &m.stored.Scales[row*m.cols/unit+at], m.cols/unit, units)
}

func (a *apartAssembly) apartNVFP4(t *tile, m *matrix, row, at, units int) {
	a.pairs(first(t.codes), &m.stored.Data[(row*m.cols+at*unit)/2], m.cols/2, units)
	t.globals(m, row, a.lanes)
	a.e4m3(first(t.scales), first(t.mins), &m.stored.Scales[row*m.cols/16+2*at], m.cols/16, 2*units)
}

// form512 is a format's form in tiles of unsigned codes.
func form512(f *blockFormat, m *dequant.Matrix) {
	switch f.tile = apart512.unpacker(unpackers512, m); {
	case f.tile != nil:
		f.bias = f.tile.bias
	case !f.minima || f.signed:
		f.bias = 128
	}
}

// form256 is one in tiles of signed codes.
func form256(f *blockFormat, m *dequant.Matrix) { f.tile = apart256.unpacker(unpackers256, m) }

const (
	lanes512 = 16
	lanes256 = 8
)

// unpack fills a tile of whole rows, with what it fetches from next on, and reports whether the rows and units are whole steps.
func (u *tileUnpacker) unpack(t *tile, m *matrix, row, rows, at, units, lanes int, next uintptr) bool {
	switch {
	case u == nil || rows < lanes:
		return false
	case u.apart != nil:
		u.apart(t, m, row, at, units)
		return true
	case units%u.units != 0:
		return false
	}
	if u.scaled {
		t.globals(m, row, lanes)
	}
	src, ahead, stride := u.place(m, row, at, lanes, next)
	u.f(first(t.codes), first(t.scales), first(t.mins), src, stride, units/u.units, ahead)
	return true
}

// fused512 multiplies 16 rows by one row of activations without a tile between, where the format has a kernel for it.
func fused512(w *worker, acc []float32, m *matrix, in *input, row int) bool {
	u := m.blocks.tile
	if u == nil || u.fused == nil || m.cols/unit%u.units != 0 {
		return false
	}
	t, p := &w.tile, &in.panels[0]
	t.shape(m.blocks, lanes512, 0)
	if u.scaled {
		t.globals(m, row, lanes512)
	}
	src, near, stride := u.place(m, row, 0, lanes512, w.next)
	u.fused(first(acc), first(t.scales), first(t.mins), src, stride, m.cols/unit/u.units, near, near+farBytes,
		first(p.codes), first(p.scales), first(p.sums), first(p.biases))
	return true
}

// piped512 multiplies whole tiles of 16 rows by a panel of 8 rows of activations without a tile between, where the format
// has a kernel for it.
func piped512(w *worker, acc []float32, m *matrix, in *input, row, tiles int) bool {
	u := m.blocks.tile
	if u == nil || u.piped == nil || m.cols/unit%u.units != 0 {
		return false
	}
	if w.buffers == nil {
		w.buffers = aligned[byte](pipedBuffers)
	}
	p := &in.panels[0]
	sums, step := first(p.sums), tiles
	if u.scaled {
		t := &w.tile
		t.shape(m.blocks, lanes512, 0)
		if sums = first(t.mins); len(m.stored.Global) > 1 {
			step = 1 // each tile's rows have scales of their own
		}
	}
	blocks, size := m.cols/unit/u.units, lanes512*u.bytes // of a tile, and of a block of one
	lead := (farBytes + size - 1) / size
	for n := 0; n < tiles; n += step {
		if u.scaled {
			w.tile.globals(m, row+n*lanes512, lanes512)
		}
		src, near, stride := u.place(m, row+n*lanes512, 0, lanes512, m.address(row+(n+1)*lanes512))
		left := (tiles - n - 1) * blocks // from near on
		if left == 0 {
			near = w.next
		}
		ahead := near + uintptr(lead*size)
		if left <= lead {
			ahead = w.next + uintptr((lead-left)*size)
		}
		u.piped(first(acc[n*lanes512*p.rows:]), first(w.buffers), src, stride, step, blocks,
			first(p.codes), first(p.scales), sums, first(p.biases), near, ahead, left, left-lead, w.next)
	}
	return true
}

// unpackTile512 fills a tile of 16 rows, whose product fetches what is ahead. A tile that is not whole, or whose units are
// not whole steps, is unpacked row by row and interleaved, rows that are missing as zeros.
func unpackTile512(w *worker, m *matrix, row, rows, at, units int) {
	t, f := &w.tile, m.blocks
	t.shape(f, lanes512, units)
	t.step = lanes512 * len(m.stored.Data) / m.rows * unit / m.cols
	t.ahead = w.next + uintptr(at*t.step) + farBytes
	if f.tile.unpack(t, m, row, rows, at, units, lanes512, w.next) {
		return
	}
	n := w.unpackRows(m, row, rows, at, units, lanes512)
	const stride = int(unsafe.Sizeof(natural{}))
	groups := units * unit / f.group
	interleave512(first(t.codes), &n[0].codes[0], stride, roundUp(units*unit/4, 16), uint32(f.bias)*0x01010101)
	interleave512(bytesOf(t.scales), bytesOf(n[0].scales[:]), stride, roundUp(groups, 16), 0)
	if f.minima {
		interleave512(bytesOf(t.mins), bytesOf(n[0].mins[:]), stride, roundUp(groups, 16), 0)
	}
}

// unpackTile256 fills one of 8 rows, and fetches the next one.
func unpackTile256(w *worker, m *matrix, row, rows, at, units int) {
	t, f := &w.tile, m.blocks
	t.shape(f, lanes256, units)
	if f.tile.unpack(t, m, row, rows, at, units, lanes256, w.next) {
		return
	}
	n := w.unpackRows(m, row, rows, at, units, lanes256)
	const stride = int(unsafe.Sizeof(natural{}))
	groups := units * unit / f.group
	interleave256(first(t.codes), &n[0].codes[0], stride, roundUp(units*unit/4, 8))
	interleave256(bytesOf(t.scales), bytesOf(n[0].scales[:]), stride, roundUp(groups, 8))
	if f.minima {
		interleave256(bytesOf(t.mins), bytesOf(n[0].mins[:]), stride, roundUp(groups, 8))
	}
}

// unpackRows unpacks rows in natural order; those up to lanes are zeros.
func (w *worker) unpackRows(m *matrix, row, rows, at, units, lanes int) []natural {
	n := w.rows(lanes)
	for i := range rows {
		m.blocks.unpack(&n[i], &m.stored, row+i, at, units)
	}
	clear(n[rows:lanes])
	return n
}

// decodeE4M3 decodes rows with a level's kernel of E4M3, those of other formats plainly.
func decodeE4M3(run func(dst *float32, src *byte, scale float32, n int)) func(dst []float32, m *dequant.Matrix, row int) {
	return func(dst []float32, m *dequant.Matrix, row int) {
		switch {
		case m.Format.Type != dequant.FP8Rows || m.Cols%16 != 0:
			m.DecodeRow(dst, row)
		case m.Global != nil: // codes alone
			run(first(dst), &m.Data[row*m.Cols], globalOf(m, row), m.Cols)
		default:
			n := m.Format.RowBytes(m.Cols)
			data := m.Data[row*n : (row+1)*n]
			for ; len(data) > 0; dst, data = dst[m.Format.Block:], data[m.Format.Bytes:] {
				run(first(dst), &data[4], fromBits(data), m.Format.Block)
			}
		}
	}
}
