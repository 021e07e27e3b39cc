package cpu

import (
	"unsafe"

	"splash/dequant"
)

type (
	product256Assembly func(acc *float32, codes *byte, scales, mins *float32, x *int8, dx, sums *float32, biases *int32, units int)
	product512Assembly func(acc *float32, codes *byte, scales, mins *float32, x *int8, dx, sums *float32, biases *int32, units int,
		ahead *byte, step int)
)

// products512 are the kernels by the binary logarithm of a panel's rows, the groups of a unit less one, and minima.
var products512 = [4][2][2]product512Assembly{
	{{product512r1g32, product512r1g32m}, {product512r1g16, product512r1g16m}},
	{{product512r2g32, product512r2g32m}, {product512r2g16, product512r2g16m}},
	{{product512r4g32, product512r4g32m}, {product512r4g16, product512r4g16m}},
	{{product512r8g32, product512r8g32m}, {product512r8g16, product512r8g16m}},
}

var products256 = [3][2][2]product256Assembly{
	{{product256r1g32, product256r1g32m}, {product256r1g16, product256r1g16m}},
	{{product256r2g32, product256r2g32m}, {product256r2g16, product256r2g16m}},
	{{product256r4g32, product256r4g32m}, {product256r4g16, product256r4g16m}},
}

// product512 multiplies, and fetches the next tile of the file on its way.
func product512(acc []float32, t *tile, p *panel, at int) {
	rows, groups, minima := p.kernel()
	products512[rows][groups][minima](first(acc), first(t.codes), first(t.scales), first(t.mins),
		first(p.codes[at*unit*p.rows:]), first(p.scales[at*p.rows:]), first(p.sums[at*(groups+1)*p.rows:]),
		first(p.biases[at*(groups+1)*p.rows:]), t.units, t.ahead, t.step)
}

func product256(acc []float32, t *tile, p *panel, at int) {
	rows, groups, minima := p.kernel()
	products256[rows][groups][minima](first(acc), first(t.codes), first(t.scales), first(t.mins),
		first(p.codes[at*unit*p.rows:]), first(p.scales[at*p.rows:]), first(p.sums[at*(groups+1)*p.rows:]),
		first(p.biases[at*(groups+1)*p.rows:]), t.units)
}

type exactAssembly func(acc *float32, codes *byte, scales, mins, x *float32, stride, units int, bias float32)

// exacts are the kernels by the groups of a unit less one and minima, of one row of activations and of four, or nil.
type exacts [2][2]struct{ one, four exactAssembly }

var exacts512 = exacts{
	{{exact512r1g32, exact512r4g32}, {exact512r1g32m, exact512r4g32m}},
	{{exact512r1g16, exact512r4g16}, {exact512r1g16m, exact512r4g16m}},
}

var exacts256 = exacts{
	{{exact256r1g32, nil}, {exact256r1g32m, nil}},
	{{exact256r1g16, nil}, {exact256r1g16m, nil}},
}

func (k *exacts) run(acc []float32, lanes int, t *tile, f *blockFormat, in *input, at int) {
	minima := 0
	if f.minima {
		minima = 1
	}
	e := &k[unit/f.group-1][minima]
	for r := 0; r < in.rows; {
		n, run := 1, e.one
		if e.four != nil && in.rows-r >= 4 {
			n, run = 4, e.four
		}
		run(first(acc[r*lanes:]), first(t.codes), first(t.scales), first(t.mins), first(in.x[r*in.stride+at*unit:]), 4*in.stride,
			t.units, float32(f.bias))
		r += n
	}
}

// quantizeFloats512 rounds a panel.
func quantizeFloats512(p *panel, x []float32, stride int) {
	f := quantize512g32
	if p.group == 16 {
		f = quantize512g16
	}
	units := len(p.scales) / p.rows
	if p.rows == 8 {
		quantize512r8(first(p.codes), first(p.scales), first(p.sums), first(p.biases), first(x), 4*stride, units, p.bias, p.group)
		return
	}
	for r := range p.rows {
		f(first(p.codes[4*r:]), first(p.scales[r:]), first(p.sums[r:]), first(p.biases[r:]), first(x[r*stride:]), units, p.rows,
			p.bias)
	}
}

func quantizeFloats256(p *panel, x []float32, stride int) {
	for r := range p.rows {
		quantize256(first(p.codes[4*r:]), first(p.scales[r:]), first(p.sums[r:]), first(x[r*stride:]), len(p.scales)/p.rows,
			p.rows, p.group)
	}
}

// A tileUnpacker unpacks blocks of 16 rows straight into a tile.
type tileUnpacker struct {
	f     func(codes *byte, scales, mins *float32, src *byte, stride, blocks int, ahead *byte)
	units int   // of a step of f
	bytes int   // of it
	bias  int32 // of the codes

	// fused multiplies by one row of activations what f would unpack, with the bits of the product of a tile; or nil.
	fused func(acc, scales, mins *float32, src *byte, stride, blocks int, ahead *byte, x *int8, dx, sums *float32, biases *int32)
	// piped multiplies tiles by a panel of 8 rows, again with those bits, unpacking a block while it multiplies another; or nil.
	piped func(acc *float32, buffers, src *byte, stride, tiles, blocks int, x *int8, dx, sums *float32, biases *int32)
}

// pipedBuffers is room for two blocks that the largest of piped unpacks.
const pipedBuffers = 2 * (16*256 + 2*16*64)

// unpackers512 are those of the formats that most files are in. Others are unpacked row by row and interleaved.
var unpackers512 = map[dequant.Type]*tileUnpacker{
	dequant.Q4_K:          {unpackQ4K512, 8, 144, 0, fusedQ4K512, pipedQ4K512r8},
	dequant.Q5_K:          {unpackQ5K512, 8, 176, 0, fusedQ5K512, pipedQ5K512r8},
	dequant.Q6_K:          {unpackQ6K512, 8, 210, 32, fusedQ6K512, pipedQ6K512r8},
	dequant.Q8_0:          {unpackQ8512, 2, 68, 128, fusedQ8512, pipedQ8512r8},
	dequant.Q4_0:          {unpackQ40512, 1, 18, 8, fusedQ40512, pipedQ40512r8},
	dequant.IQ4NL:         {unpackIQ4NL512, 1, 18, 128, fusedIQ4NL512, pipedIQ4NL512r8},
	dequant.IQ4XS:         {unpackIQ4XS512, 8, 136, 128, fusedIQ4XS512, pipedIQ4XS512r8},
	dequant.MXFP4:         {unpackMXFP4512, 1, 17, 128, fusedMXFP4512, pipedMXFP4512r8},
	dequant.NVFP4:         {unpackNVFP4512, 2, 36, 128, nil, nil},
	dequant.IQ2XXS:        {unpackIQ2XXS512, 8, 66, 128, fusedIQ2XXS512, pipedIQ2XXS512r8},
	dequant.IQ3XXS:        {unpackIQ3XXS512, 8, 98, 128, fusedIQ3XXS512, pipedIQ3XXS512r8},
	dequant.Affine(4, 64): {unpackAffine4512, 2, 36, 0, fusedAffine4512, pipedAffine4512r8},
}

// form512 is a format's form in tiles of unsigned codes.
func form512(f *blockFormat, m *dequant.Matrix) {
	if m.Scales == nil {
		f.tile = unpackers512[m.Format.Type]
	}
	switch {
	case f.tile != nil:
		f.bias = f.tile.bias
	case !f.minima || f.signed:
		f.bias = 128
	}
}

const lanes512 = 16

// unpackTile512 fills a tile of 16 rows. A tile that is not whole, or whose units are not whole steps, is unpacked row by
// row.
func unpackTile512(w *worker, m *matrix, row, rows, at, units int) {
	t, f := &w.tile, m.blocks
	t.shape(f, lanes512, units)
	t.ahead, t.step = m.ahead(row, at)
	u := f.tile
	if u == nil || rows < lanes512 || units%u.units != 0 {
		unpackRows512(w, m, row, rows, at, units)
		return
	}
	mins := first(t.mins)
	if m.stored.Format.Type == dequant.NVFP4 {
		for i := range lanes512 {
			t.mins[i] = globalOf(&m.stored, row+i)
		}
	}
	src, _, stride := u.place(m, row, at)
	u.f(first(t.codes), first(t.scales), mins, src, stride, units/u.units, src)
}

// place is where unit at of 16 rows lies, and where the next rows' does: a tile's units are one after another in the file
// when they are as many as a row has, and as many bytes are fetched ahead as are read.
func (u *tileUnpacker) place(m *matrix, row, at int) (src, ahead *byte, stride int) {
	stride = m.cols / (u.units * unit) * u.bytes
	data, from := m.stored.Data, row*stride+at/u.units*u.bytes
	src = &data[from]
	ahead = src
	if row+2*lanes512 <= m.rows {
		ahead = &data[(row+lanes512)*stride+at/u.units*u.bytes*lanes512]
	}
	return src, ahead, stride
}

// fused512 multiplies 16 rows by one row of activations without a tile between, where the format has a kernel for it.
func fused512(w *worker, acc []float32, m *matrix, in *input, row int) bool {
	u := m.blocks.tile
	if u == nil || u.fused == nil || m.cols/unit%u.units != 0 {
		return false
	}
	t, p := &w.tile, &in.panels[0]
	t.shape(m.blocks, lanes512, 0)
	src, ahead, stride := u.place(m, row, 0)
	u.fused(first(acc), first(t.scales), first(t.mins), src, stride, m.cols/unit/u.units, ahead,
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
	src, _, stride := u.place(m, row, 0)
	u.piped(first(acc), first(w.buffers), src, stride, tiles, m.cols/unit/u.units,
		first(p.codes), first(p.scales), first(p.sums), first(p.biases))
	return true
}

// ahead is where the part of the next tile lies that as much is multiplied of as of this tile's unit at, and how much a
// unit has of it: a tile is all in one piece. At the end it is this tile's own.
func (m *matrix) ahead(row, at int) (*byte, int) {
	stride := len(m.stored.Data) / m.rows
	step := lanes512 * stride * unit / m.cols
	if row+2*lanes512 > m.rows {
		return &m.stored.Data[row*stride], 0
	}
	return &m.stored.Data[(row+lanes512)*stride+at*step], step
}

// unpackRows512 interleaves rows in natural order. Rows that are missing are zeros.
func unpackRows512(w *worker, m *matrix, row, rows, at, units int) {
	t, f, n := &w.tile, m.blocks, w.rows(lanes512)
	for i := range rows {
		f.unpack(&n[i], &m.stored, row+i, at, units)
	}
	for i := rows; i < lanes512; i++ {
		n[i] = natural{}
	}
	const stride = int(unsafe.Sizeof(natural{}))
	groups := units * unit / f.group
	interleave512(first(t.codes), &n[0].codes[0], stride, roundUp(units*unit/4, 16), uint32(f.bias)*0x01010101)
	interleave512(bytesOf(t.scales), bytesOf(n[0].scales[:]), stride, roundUp(groups, 16), 0)
	if f.minima {
		interleave512(bytesOf(t.mins), bytesOf(n[0].mins[:]), stride, roundUp(groups, 16), 0)
	}
}

const lanes256 = 8

func unpackTile256(w *worker, m *matrix, row, rows, at, units int) {
	t, f, n := &w.tile, m.blocks, w.rows(lanes256)
	t.shape(f, lanes256, units)
	for i := range rows {
		f.unpack(&n[i], &m.stored, row+i, at, units)
	}
	for i := rows; i < lanes256; i++ {
		n[i] = natural{}
	}
	const stride = int(unsafe.Sizeof(natural{}))
	groups := units * unit / f.group
	interleave256(first(t.codes), &n[0].codes[0], stride, roundUp(units*unit/4, 8))
	interleave256(bytesOf(t.scales), bytesOf(n[0].scales[:]), stride, roundUp(groups, 8))
	if f.minima {
		interleave256(bytesOf(t.mins), bytesOf(n[0].mins[:]), stride, roundUp(groups, 8))
	}
}

func kernels512() *kernels {
	k := &kernels{
		level: AVX512, lanes: lanes512, panels: []int{8, 4, 2, 1}, form: form512,
		quantize: quantizeFloats512, unpack: unpackTile512, product: product512, fused: fused512, piped: piped512,
		readsFloats: true,
		exact: func(acc []float32, t *tile, f *blockFormat, in *input, at int) {
			exacts512.run(acc, lanes512, t, f, in, at)
		},
		dot: func(acc []float32, w *floatRows, x []float32, stride, rows int) {
			dotFloats(&dots512, acc, w, x, stride, rows)
		},
	}
	a := &floatAssembly{
		sumSquares: sumSquares512, norm: norm512, swish: swish512, gate: gate512, scale: scale512, addScaled: addScaled512,
		conv: conv512, gdnStep: gdnStep512, gdnReplay: gdnReplay512, most: most512, soften: soften512,
	}
	k.peak = peak(peakFloats512, peakInts512, 64)
	a.scores[0], a.scores[1] = scores512q4, scores512q1
	a.values[0], a.values[1] = values512q4, values512q1
	a.floats(k)
	return k
}

func kernels256() *kernels {
	k := &kernels{
		level: AVX2, lanes: lanes256, panels: []int{4, 2, 1}, form: func(*blockFormat, *dequant.Matrix) {},
		quantize: quantizeFloats256, unpack: unpackTile256, product: product256, readsFloats: true,
		exact: func(acc []float32, t *tile, f *blockFormat, in *input, at int) {
			exacts256.run(acc, lanes256, t, f, in, at)
		},
		dot: func(acc []float32, w *floatRows, x []float32, stride, rows int) {
			dotFloats(&dots256, acc, w, x, stride, rows)
		},
	}
	a := &floatAssembly{
		sumSquares: sumSquares256, norm: norm256, swish: swish256, gate: gate256, scale: scale256, addScaled: addScaled256,
		conv: conv256, gdnStep: gdnStep256, gdnReplay: gdnReplay256, most: most256, soften: soften256,
	}
	k.peak = peak(peakFloats256, peakInts256, 32)
	a.scores[0], a.scores[1] = scores256q4, scores256q1
	a.values[0], a.values[1] = values256q4, values256q1
	a.floats(k)
	return k
}
