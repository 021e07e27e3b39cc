package cpu

type (
	product256Assembly func(acc *float32, codes *byte, scales, mins *float32, x *int8, dx, sums *float32, biases *int32, units int)
	product512Assembly func(acc *float32, codes *byte, scales, mins *float32, x *int8, dx, sums *float32, biases *int32, units int,
		ahead uintptr, step int)
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

type productTilesAssembly func(acc *float32, codes *byte, scales, mins *float32, x *int8, dx, sums *float32, biases *int32,
	units, panels, cols int)

// productsTiles are the kernels by the groups of a unit less one, and minima.
var productsTiles = [2][2]productTilesAssembly{
	{productTilesg32, productTilesg32m}, {productTilesg16, productTilesg16m},
}

// productTiles multiplies panels of tileRows rows, which lie one after another.
func productTiles(acc []float32, t *tile, panels []panel, at int) {
	p := &panels[0]
	_, groups, minima := p.kernel()
	productsTiles[groups][minima](first(acc), first(t.codes), first(t.scales), first(t.mins),
		first(p.codes[at*unit*p.rows:]), first(p.scales[at*p.rows:]), first(p.sums[at*(groups+1)*p.rows:]),
		first(p.biases[at*(groups+1)*p.rows:]), t.units, len(panels), len(p.codes)/p.rows)
}

var exacts512 = exacts{
	{{exact512r1g32, exact512r4g32}, {exact512r1g32m, exact512r4g32m}},
	{{exact512r1g16, exact512r4g16}, {exact512r1g16m, exact512r4g16m}},
}

var exacts256 = exacts{
	{{exact256r1g32, nil}, {exact256r1g32m, nil}},
	{{exact256r1g16, nil}, {exact256r1g16m, nil}},
}

// putTiles512 puts tiles.
func putTiles512(dst []float32, width int, acc []float32, rows, tiles int, add bool) {
	f := put512
	if add {
		f = putAdded512
	}
	f(first(dst), first(acc[:rows*tiles*lanes512]), width, rows, tiles)
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

// quantizeTiles is quantizeFloats512, for panels of tiles too.
func quantizeTiles(p *panel, x []float32, stride int) {
	if p.rows != tileRows {
		quantizeFloats512(p, x, stride)
		return
	}
	f := quantizeTilesg32
	if p.group == 16 {
		f = quantizeTilesg16
	}
	for r := range p.rows {
		f(first(p.codes[unit*r:]), first(p.scales[r:]), first(p.sums[r:]), first(p.biases[r:]), first(x[r*stride:]),
			len(p.scales)/p.rows, p.rows, p.bias)
	}
}

func quantizeFloats256(p *panel, x []float32, stride int) {
	for r := range p.rows {
		quantize256(first(p.codes[4*r:]), first(p.scales[r:]), first(p.sums[r:]), first(x[r*stride:]), len(p.scales)/p.rows,
			p.rows, p.group)
	}
}

func kernels512() *kernels {
	k := &kernels{
		level: AVX512, lanes: lanes512, panels: []int{8, 4, 2, 1}, form: form512,
		quantize: quantizeFloats512, unpack: unpackTile512, product: product512, fused: fused512, piped: piped512, put: putTiles512,
		decode:      decodeE4M3(decodeE4M3_512),
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
	k.fetch = fetchLines
	k.peak = peak(peakFloats512, peakInts512, 64)
	a.scores[0], a.scores[1] = scores512q4, scores512q1
	a.values[0], a.values[1] = values512q4, values512q1
	a.floats(k)
	return k
}

// kernels512BF16 are those of AVX-512, and products of bfloat16 numbers.
func kernels512BF16() *kernels {
	k := kernels512()
	k.level, k.bf16 = AVX512BF16, &bf16Rounded
	return k
}

// kernelsAMX are those of AVX-512, and tiles where there are rows enough to fill them.
func kernelsAMX() *kernels {
	k := kernels512()
	k.level, k.panels = AMX, []int{tileRows, 8, 4, 2, 1}
	k.quantize, k.together, k.bf16 = quantizeTiles, productTiles, &bf16Split
	return k
}

func kernels256() *kernels {
	k := &kernels{
		level: AVX2, lanes: lanes256, panels: []int{4, 2, 1}, form: form256,
		quantize: quantizeFloats256, unpack: unpackTile256, product: product256, readsFloats: true,
		decode: decodeE4M3(decodeE4M3_256),
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
	k.fetch = fetchLines
	k.peak = peak(peakFloats256, peakInts256, 32)
	a.scores[0], a.scores[1] = scores256q4, scores256q1
	a.values[0], a.values[1] = values256q4, values256q1
	a.floats(k)
	return k
}

// fetchLines fetches a whole number of 64 values.
func fetchLines(x []float32) { fetch(first(x), len(x)/16) }
