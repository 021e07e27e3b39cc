package main

import "fmt"

// fusedKernels multiply 8 rows of blocks by a row of activations without a tile between (product_generic.go).
func fusedKernels(f *file) {
	for _, b := range formats() {
		b.fused(f)
	}
}

// fused multiplies a row's codes by the activations of their columns, adds across the four lanes, and has the sums of four
// rows side by side, where it goes on as the product of a tile does, operation for operation.
func (b *format) fused(f *file) {
	k := f.kernel("fused"+b.name+"NEON",
		"(acc, scales, mins *float32, src *byte, stride, blocks int, ahead uintptr, x *int8, dx, sums *float32)",
		fmt.Sprintf("The product of 8 rows of blocks of %d bytes and a row of activations. Scales and minima are room for a block's.",
			b.bytes))
	const acc, blocks, x, dx, sums = gp(0), gp(5), gp(6), gp(7), gp(17)
	k.arg("acc", acc)
	k.arg("scales", scalesTo)
	k.arg("mins", minsTo)
	k.arg("blocks", blocks)
	k.arg("x", x)
	k.arg("dx", dx)
	k.arg("sums", sums)
	k.eightRows("src", "stride")
	k.arg("ahead", ahead)
	b.constants(k)
	const total = vec(22) // of the lower and the upper rows
	k.load(acc, 0, total)
	k.load(acc, 16, total+1)
	loop := k.label()
	b.fetch(k)
	const in, c, code, v, factor = vec(0), vec(2), vec(12), vec(16), vec(18)
	for half := range 2 {
		u := k.fourRows(half)
		b.scales(u)
		to := total + vec(half)
		for unit := range b.units {
			k.load(x, unitColumns*unit, in)
			k.load(x, unitColumns*unit+16, in+1)
			k.loadS(dx, 4*unit, factor)
			groups := b.groups / b.units
			for r := range vec(4) {
				for part := range 2 {
					sum := c + r + 4*vec(part%groups)
					if part < groups {
						k.zero(sum)
					}
					b.codes(k, code+vec(part), u.rows[r], unit, part)
					k.dot(sum, code+vec(part), in+vec(part))
				}
			}
			for g := range groups {
				sum := c + 4*vec(g)
				k.addPairs(sum, sum, sum+1)
				k.addPairs(sum+2, sum+2, sum+3)
				k.addPairs(sum, sum, sum+2)
				k.toFloats(sum, sum)
				k.load(scalesTo, 32*(unit*groups+g)+16*half, v+1)
				if g == 0 {
					k.fmul(v, sum, v+1)
				} else {
					k.mulAdd(v, sum, v+1)
				}
			}
			k.mulAddLane(to, v, factor, 0)
			for g := range groups {
				if at := unit*groups + g; b.minima {
					k.load(minsTo, 32*at+16*half, v)
					k.loadS(sums, 4*at, factor)
					k.mulSubLane(to, v, factor, 0)
				}
			}
		}
	}
	b.nextBlock(k)
	k.add(unitColumns*b.units, x)
	k.add(4*b.units, dx)
	if b.minima {
		k.add(4*b.groups, sums)
	}
	k.again(blocks, 1, loop)
	k.store(total, acc, 0)
	k.store(total+1, acc, 16)
	k.ret()
}

// addPairs adds neighbours: those of n, then those of m.
func (k *kernel) addPairs(d, n, m vec) { k.p("VADDP V%d.S4, V%d.S4, V%d.S4", m, n, d) }
