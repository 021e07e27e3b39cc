package main

import "fmt"

// A weightKind is how weights of products of floats are stored.
type weightKind struct {
	name  string
	bytes int
}

var weightKinds = []weightKind{{"F32", 4}, {"F16", 2}, {"BF16", 2}}

// dotKernels multiply rows of floats in 16 partial sums (dot_generic.go).
func dotKernels(f *file) {
	for _, w := range weightKinds {
		dot(f, w, 1, 1)
		dot(f, w, 4, 1)
		dot(f, w, 2, 2)
	}
}

// columns loads 16 weights, of a file or decoded, as float32 and advances base.
func (k *kernel) columns(w weightKind, base gp, to vec) {
	if w.bytes == 4 {
		k.next(base, to, 4)
		return
	}
	k.next(base, to+2, 2)
	for i := range vec(2) {
		if w.name == "F16" {
			k.fromHalves(to+2*i, to+2+i)
			k.fromUpperHalves(to+2*i+1, to+2+i)
		} else {
			k.widen(to+2*i, to+2+i)
			k.widenUpper(to+2*i+1, to+2+i)
		}
	}
}

// dot multiplies rows of weights by rows of activations: all of their pairs' partial sums are in registers.
func dot(f *file, w weightKind, rows, inputs int) {
	const acc, lanes, weight, stride, x, xStride, blocks = gp(0), gp(1), gp(2), gp(3), gp(6), gp(7), gp(8)
	name := fmt.Sprintf("dotNEON%sw%dr%d", w.name, rows, inputs)
	k := f.kernel(name, "(acc *float32, lanes int, w *byte, stride int, x *float32, xStride, blocks int)",
		fmt.Sprintf("The products of %d rows of %s weights and %d of activations, in blocks of 16 columns.", rows, w.name, inputs))
	k.arg("acc", acc)
	k.arg("lanes", lanes)
	k.arg("w", weight)
	k.arg("stride", stride)
	k.arg("x", x)
	k.arg("xStride", xStride)
	k.arg("blocks", blocks)
	from, in := []gp{weight, 3, 4, 5}, []gp{x, 7}
	if inputs == 2 {
		k.sum(x, xStride, in[1])
	}
	// The register of the stride is that of the second row.
	if rows == 4 {
		k.copy(stride, 9)
		k.sum(weight, 9, 3)
		k.sum(3, 9, 4)
		k.sum(4, 9, 5)
	} else if rows == 2 {
		k.sum(weight, stride, 3)
	}
	sums := func(j, i int) vec { return vec(4 * (j*inputs + i)) }
	for v := range vec(4 * rows * inputs) {
		k.zero(v)
	}
	const values, columns = vec(16), vec(24) // of activations, of weights
	loop := k.label()
	for i := range inputs {
		k.next(in[i], values+4*vec(i), 4)
	}
	for j := range rows {
		k.columns(w, from[j], columns+4*vec(j%2))
		for i := range inputs {
			for p := range vec(4) {
				k.mulAdd(sums(j, i)+p, columns+4*vec(j%2)+p, values+4*vec(i)+p)
			}
		}
	}
	k.again(blocks, 1, loop)
	for i := range rows * inputs {
		s := vec(4 * i)
		k.fadd(s, s, s+2)
		k.fadd(s+1, s+1, s+3)
		k.fadd(s, s, s+1)
		k.foldFour(s, s+1)
	}
	k.shift(lanes, 2, lanes)
	for i := range inputs {
		for j := range rows {
			k.storeS(sums(j, i), acc, 4*j)
		}
		if i+1 < inputs {
			k.sum(acc, lanes, acc)
		}
	}
	k.ret()
}

// foldFour adds the lanes of v to the first: l and l+2, then l and l+1. It changes t.
func (k *kernel) foldFour(v, t vec) {
	k.turn(t, v, 8)
	k.fadd(v, v, t)
	k.turn(t, v, 4)
	k.fadd(v, v, t)
}
