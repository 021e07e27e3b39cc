package main

import "fmt"

// exact is the product of a tile and rows of activations in float32, none of them rounded: a weight is code scale less the
// group's minimum. The columns of a span are summed in four chains, one for each of a dword's codes, which are then added
// to acc. Four rows of weights are multiplied first, then the other four.
func exact(f *file, rows, group int, minima bool) {
	name := fmt.Sprintf("exactNEONr%dg%d", rows, group)
	if minima {
		name += "m"
	}
	k := f.kernel(name, "(acc *float32, codes *byte, scales, mins, x *float32, stride, units int, bias float32)",
		fmt.Sprintf("The product of a tile in groups of %d and %d rows of float32 activations. Its codes have no bias.", group, rows))
	const acc, codes, scales, mins, stride, units, x = gp(0), gp(1), gp(2), gp(3), gp(4), gp(5), gp(8)
	const scale, least, packed, in, code, weight = vec(16), vec(17), vec(18), vec(20), vec(24), vec(28)
	for half := range 2 {
		for i, name := range []string{"acc", "codes", "scales", "mins", "stride", "units"} {
			k.arg(name, gp(i))
		}
		k.arg("x", x)
		for r := range gp(rows) - 1 {
			k.sum(x+r, stride, x+r+1)
		}
		for i := range vec(4 * rows) {
			k.zero(i)
		}
		loop := k.label()
		for g := range unitColumns / group {
			k.load(scales, 32*g+16*half, scale)
			if minima {
				k.load(mins, 32*g+16*half, least)
				k.fneg(least, least)
			}
			for d := range group / 4 {
				k.load(codes, 32*(g*group/4+d)+16*half, packed)
				for r := range rows {
					k.few(x+gp(r), in+vec(r), 4)
				}
				for i := range vec(4) {
					v := packed
					if i < 3 {
						k.dwordsLeft(code+i, packed, 24-8*int(i))
						v = code + i
					}
					k.signedRight(code+i, v, 24)
					k.toFloats(code+i, code+i)
					if minima {
						k.move(weight+i, least)
						k.mulAdd(weight+i, code+i, scale)
					} else {
						k.fmul(weight+i, code+i, scale)
					}
					for r := range vec(rows) {
						k.mulAddLane(4*r+i, weight+i, in+r, int(i))
					}
				}
			}
		}
		k.add(8*unitColumns, codes)
		k.add(unitColumns/group*32, scales)
		k.add(unitColumns/group*32, mins)
		k.again(units, 1, loop)
		for r := range vec(rows) {
			k.fadd(4*r, 4*r, 4*r+1)
			k.fadd(4*r+2, 4*r+2, 4*r+3)
			k.fadd(4*r, 4*r, 4*r+2)
			k.load(acc, 32*int(r)+16*half, scale)
			k.fadd(scale, scale, 4*r)
			k.store(scale, acc, 32*int(r)+16*half)
		}
	}
	k.ret()
}
