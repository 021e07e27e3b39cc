package main

import "fmt"

// productKernels multiply tiles of 8 rows of weights by panels of activations (product_generic.go).
func productKernels(f *file) {
	for _, group := range []int{32, 16} {
		for _, minima := range []bool{false, true} {
			exact(f, 1, group, minima)
			exact(f, 4, group, minima)
		}
	}
	for _, rows := range []int{4, 2, 1} {
		for _, group := range []int{32, 16} {
			for _, minima := range []bool{false, true} {
				product(f, rows, group, minima)
			}
		}
	}
}

// product multiplies unit after unit: the sums of the codes' products are whole, so that they may be added in any order,
// and few rows have two of each, one for every other four columns.
func product(f *file, rows, group int, minima bool) {
	const acc, codes, scales, mins, x, dx, sums, units = gp(0), gp(1), gp(2), gp(3), gp(4), gp(5), gp(6), gp(7)
	name := fmt.Sprintf("productNEONr%dg%d", rows, group)
	if minima {
		name += "m"
	}
	k := f.kernel(name, "(acc *float32, codes *byte, scales, mins *float32, x *int8, dx, sums *float32, units int)",
		fmt.Sprintf("The product of 8 rows of weights in groups of %d by %d of activations.", group, rows))
	for i, name := range []string{"acc", "codes", "scales", "mins", "x", "dx", "sums", "units"} {
		k.arg(name, gp(i))
	}
	chains := 1
	if rows <= 2 {
		chains = 2
	}
	pairs := vec(2 * rows)    // of vectors of 4 weights and rows of activations
	total, c := vec(0), pairs // accumulators of float32, those of int32 in chains
	value := vec(24)          // of two groups
	const weights, inputs, scale, minimum = vec(16), vec(20), vec(20), vec(22)
	for i := range pairs {
		k.load(acc, 16*int(i), total+i)
	}
	loop := k.label()
	for g := range unitColumns / group {
		for i := range pairs * vec(chains) {
			k.zero(c + i)
		}
		for step := range group / 4 {
			if step%2 == 0 {
				k.next(codes, weights, 4)
			}
			if at := step * rows % 16; at == 0 {
				k.next(x, inputs, min(4, group/16*rows))
			}
			at := step * rows % 16
			for i := range pairs {
				r, half := int(i)/2, i%2
				k.dotLane(c+i+pairs*vec(step%chains), weights+2*vec(step%2)+half, inputs+vec((at+r)/4), (at+r)%4)
			}
		}
		k.next(scales, scale, 2)
		for i := range pairs {
			if chains == 2 {
				k.addInts(c+i, c+i, c+i+pairs)
			}
			k.toFloats(c+i, c+i)
			if g == 0 {
				k.fmul(value+i, c+i, scale+i%2)
			} else {
				k.mulAdd(value+i, c+i, scale+i%2)
			}
		}
	}
	factor := vec(22)
	k.few(dx, factor, rows)
	for i := range pairs {
		k.mulAddLane(total+i, value+i, factor, int(i)/2)
	}
	for range unitColumns / group {
		if !minima {
			break
		}
		k.next(mins, scale, 2)
		k.few(sums, minimum, rows)
		for i := range pairs {
			k.mulSubLane(total+i, scale+i%2, minimum, int(i)/2)
		}
	}
	k.again(units, 1, loop)
	for i := range pairs {
		k.store(total+i, acc, 16*int(i))
	}
	k.ret()
}

// unitColumns are the columns of a unit.
const unitColumns = 32

// few loads one, two or four float32 and advances base.
func (k *kernel) few(base gp, to vec, n int) {
	k.p("FMOV%s.P %d(R%d), F%d", map[int]string{1: "S", 2: "D", 4: "Q"}[n], 4*n, base, to)
}
