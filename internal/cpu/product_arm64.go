package cpu

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
