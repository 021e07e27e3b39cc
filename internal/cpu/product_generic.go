package cpu

import "math"

// quantizeGeneric rounds the rows of a panel, stride apart in x. A unit that holds a value that is not finite has the
// scale NaN, or infinity, which the product then is not finite by.
func quantizeGeneric(p *panel, x []float32, stride int) {
	cols := len(p.codes) / p.rows
	for r := range p.rows {
		for u := range cols / unit {
			quantizeUnit(p, r, u, (*[unit]float32)(x[r*stride+u*unit:]))
		}
	}
}

func quantizeUnit(p *panel, r, u int, x *[unit]float32) {
	var most uint32 // the bits of |x| rise with it, NaN above all
	for _, v := range x {
		most = max(most, math.Float32bits(v)&^(1<<31))
	}
	largest := math.Float32frombits(most)
	scale := largest * (1.0 / 127)
	var inverse float32
	if scale >= smallestScale {
		inverse = 127 / largest
	} else if scale == scale {
		scale = 0
	}
	p.scales[u*p.rows+r] = scale
	groups := unit / p.group
	for g := range groups {
		var sum int32
		for i := g * p.group; i < (g+1)*p.group; i++ {
			code := int8(math.RoundToEven(float64(x[i] * inverse)))
			p.codes[p.at(r, u*unit+i)] = code
			sum += int32(code)
		}
		at := (u*groups+g)*p.rows + r
		p.sums[at] = scale * float32(sum)
		p.biases[at] = -p.bias * sum
	}
}

// smallestScale is the smallest whose inverse is finite and whose codes are not lost to subnormal numbers.
const smallestScale = 0x1p-126

// productGeneric adds the products of a tile in natural order and a panel of one row.
func productGeneric(acc []float32, t *tile, p *panel, at int) {
	const span = spanUnits * unit
	groups := unit / t.group
	for lane := range acc {
		codes := t.codes[lane*span : lane*span+t.units*unit]
		scales, mins := t.scales[lane*spanUnits*2:], t.mins[lane*spanUnits*2:]
		x, sum := p.codes[at*unit:], acc[lane]
		for u := range t.units {
			var v float32
			for g := range groups {
				i := u*unit + g*t.group
				v += float32(dotCodes(codes[i:i+t.group], x[i:i+t.group])) * scales[u*groups+g]
			}
			sum += v * p.scales[at+u]
			if t.minima {
				for g := range groups {
					sum -= mins[u*groups+g] * p.sums[(at+u)*groups+g]
				}
			}
		}
		acc[lane] = sum
	}
}

func dotCodes(w []byte, x []int8) int32 {
	var s0, s1 int32
	for ; len(w) >= 16 && len(x) >= 16; w, x = w[16:], x[16:] {
		a, b := (*[16]byte)(w), (*[16]int8)(x)
		s0 += int32(int8(a[0]))*int32(b[0]) + int32(int8(a[1]))*int32(b[1]) +
			int32(int8(a[2]))*int32(b[2]) + int32(int8(a[3]))*int32(b[3])
		s1 += int32(int8(a[4]))*int32(b[4]) + int32(int8(a[5]))*int32(b[5]) +
			int32(int8(a[6]))*int32(b[6]) + int32(int8(a[7]))*int32(b[7])
		s0 += int32(int8(a[8]))*int32(b[8]) + int32(int8(a[9]))*int32(b[9]) +
			int32(int8(a[10]))*int32(b[10]) + int32(int8(a[11]))*int32(b[11])
		s1 += int32(int8(a[12]))*int32(b[12]) + int32(int8(a[13]))*int32(b[13]) +
			int32(int8(a[14]))*int32(b[14]) + int32(int8(a[15]))*int32(b[15])
	}
	return s0 + s1
}

// unpackGeneric fills a tile in natural order.
func unpackGeneric(w *worker, m *matrix, row, rows, at, units int) {
	t := &w.tile
	t.shape(m.blocks, genericLanes, units)
	n := &w.rows(1)[0]
	for r := range rows {
		m.blocks.unpack(n, &m.stored, row+r, at, units)
		copy(t.codes[r*spanUnits*unit:], n.codes[:units*unit])
		copy(t.scales[r*spanUnits*2:], n.scales[:units*unit/t.group])
		copy(t.mins[r*spanUnits*2:], n.mins[:units*unit/t.group])
	}
}

// genericLanes is the number of rows of a tile of the generic level.
const genericLanes = 8
