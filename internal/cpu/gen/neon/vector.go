package main

import "math"

// vectorKernels are the elementwise loops (vector_generic.go), over whole vectors of 16 values.
func vectorKernels(f *file) {
	pauseKernel(f)
	sumSquares(f)
	norm(f)
	swish(f)
	gate(f)
	scale(f)
	addScaled(f)
	conv(f)
}

// pauseKernel waits for what a barrier of instructions takes, some ten nanoseconds; YIELD takes none on most cores.
func pauseKernel(f *file) {
	k := f.kernel("pause", "()", "Waits a moment.")
	k.p("ISB $15")
	k.ret()
}

func sumSquares(f *file) {
	k := f.kernel("sumSquaresNEON", "(x *float32, n int) float32", "The sum of squares of n values, a whole number of 16.")
	k.arg("x", 0)
	k.arg("n", 1)
	for i := range vec(4) {
		k.zero(i)
	}
	loop := k.label()
	k.next(0, 4, 4)
	for i := range vec(4) {
		k.mulAdd(i, 4+i, 4+i)
	}
	k.again(1, 16, loop)
	k.foldAll()
	k.result(0)
	k.ret()
}

// foldAll adds the 16 lanes of V0 to V3 to the first in halves.
func (k *kernel) foldAll() {
	k.fadd(0, 0, 2)
	k.fadd(1, 1, 3)
	k.fadd(0, 0, 1)
	k.foldFour(0, 1)
}

func norm(f *file) {
	k := f.kernel("normNEON", "(dst, x, w *float32, scale float32, n int)", "Writes x scale w of n values, a whole number of 16.")
	for i, name := range []string{"dst", "x", "w", "n"} {
		k.arg(name, gp(i))
	}
	k.dwords("scale", 16)
	loop := k.label()
	k.next(1, 0, 4)
	k.next(2, 4, 4)
	for i := range vec(4) {
		k.fmul(i, i, 16)
		k.fmul(i, i, 4+i)
	}
	k.put(0, 4, 0)
	k.again(3, 16, loop)
	k.ret()
}

func scale(f *file) {
	k := f.kernel("scaleNEON", "(x *float32, scale float32, n int)", "Multiplies n values, a whole number of 16.")
	k.arg("x", 0)
	k.arg("n", 1)
	k.copy(0, 2)
	k.dwords("scale", 16)
	loop := k.label()
	k.next(0, 0, 4)
	for i := range vec(4) {
		k.fmul(i, i, 16)
	}
	k.put(0, 4, 2)
	k.again(1, 16, loop)
	k.ret()
}

func addScaled(f *file) {
	k := f.kernel("addScaledNEON", "(dst, x *float32, scale float32, n int)", "Adds scale x to n values, a whole number of 16.")
	for i, name := range []string{"dst", "x", "n"} {
		k.arg(name, gp(i))
	}
	k.copy(0, 3)
	k.dwords("scale", 16)
	loop := k.label()
	k.next(0, 0, 4)
	k.next(1, 4, 4)
	for i := range vec(4) {
		k.mulAdd(i, 4+i, 16)
	}
	k.put(0, 4, 3)
	k.again(2, 16, loop)
	k.ret()
}

func swish(f *file) {
	k := f.kernel("swishNEON", "(dst, gate, up *float32, n int)", "Writes silu(gate) up of n values, a whole number of 16.")
	for i, name := range []string{"dst", "gate", "up", "n"} {
		k.arg(name, gp(i))
	}
	k.exponential()
	loop := k.label()
	k.next(1, 0, 4)
	k.next(2, 4, 4)
	for i := range vec(4) {
		k.sigmoid(i, i)
		k.fmul(i, i, 4+i)
	}
	k.put(0, 4, 0)
	k.again(3, 16, loop)
	k.ret()
}

func gate(f *file) {
	k := f.kernel("gateNEON", "(x, gate *float32, n int)", "Multiplies n values, a whole number of 16, by sigmoid(gate).")
	for i, name := range []string{"x", "gate", "n"} {
		k.arg(name, gp(i))
	}
	k.copy(0, 3)
	k.exponential()
	loop := k.label()
	k.next(0, 0, 4)
	k.next(1, 4, 4)
	for i := range vec(4) {
		k.sigmoid(i, 4+i)
	}
	k.put(0, 4, 3)
	k.again(2, 16, loop)
	k.ret()
}

func conv(f *file) {
	k := f.kernel("convNEON", "(dst, w *float32, stride int, t0, t1, t2, t3 *float32, n int)",
		"Writes silu of the sum of four taps of n channels, a whole number of 16. The weights of a tap lie stride bytes on.")
	const dst, w, stride, tap, n = gp(0), gp(1), gp(2), gp(3), gp(7)
	for i, name := range []string{"dst", "w", "stride", "t0", "t1", "t2", "t3", "n"} {
		k.arg(name, gp(i))
	}
	weights := [4]gp{w, 8, 9, 10}
	for j := range 3 {
		k.sum(weights[j], stride, weights[j+1])
	}
	k.exponential()
	loop := k.label()
	for j := range gp(4) {
		k.next(tap+j, 4, 4)
		k.next(weights[j], 8, 4)
		for i := range vec(4) {
			if j == 0 {
				k.fmul(i, 4+i, 8+i)
			} else {
				k.mulAdd(i, 4+i, 8+i)
			}
		}
	}
	for i := range vec(4) {
		k.sigmoid(i, i)
	}
	k.put(0, 4, dst)
	k.again(n, 16, loop)
	k.ret()
}

// The registers of the exponential: its constants, and what it changes.
const (
	expLow, expHigh, expLog2, expLn2, expRest, expOne, expBias = vec(19), vec(20), vec(21), vec(22), vec(23), vec(24), vec(25)
	expPoly                                                    = vec(26) // to 31

	expX, expN, expP, expT = vec(12), vec(13), vec(14), vec(15)
)

// exponential loads the constants of exp.
func (k *kernel) exponential() {
	f := func(v float32, to vec) { k.constant(math.Float32bits(v), to) }
	f(-87.33654, expLow)
	f(88.37626, expHigh)
	f(1.44269504088896341, expLog2)
	f(0.693359375, expLn2)
	f(-2.12194440e-4, expRest)
	f(1, expOne)
	k.constant(127, expBias)
	for i, v := range []float32{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1} {
		f(v, expPoly+vec(i))
	}
}

// exp is e^x: x = n ln 2 + r, and a polynomial of r times 2^n. A NaN stays one.
//
// Source of the coefficients: expf of the Cephes library, Stephen Moshier, 1984. The error is within 2 units of the last
// place; results below the normal numbers are the smallest of them.
func (k *kernel) exp(to, x vec) {
	k.fmax(expX, x, expLow)
	k.fmin(expX, expX, expHigh)
	k.fmul(expN, expX, expLog2)
	k.nearest(expN, expN)
	k.mulSub(expX, expN, expLn2)
	k.mulSub(expX, expN, expRest)
	p, t := expP, expT
	k.move(p, expPoly)
	for i := range vec(5) {
		k.move(t, expPoly+1+i)
		k.mulAdd(t, p, expX)
		p, t = t, p
	}
	k.fmul(t, expX, expX)
	k.mulAdd(expX, p, t)
	k.fadd(expX, expX, expOne)
	k.toInts(expN, expN)
	k.addInts(expN, expN, expBias)
	k.dwordsLeft(expN, expN, 23)
	k.fmul(to, expX, expN)
}

// sigmoid multiplies v by 1 / (1 + e^-x).
func (k *kernel) sigmoid(v, x vec) {
	const d = vec(16)
	k.fneg(d, x)
	k.exp(d, d)
	k.fadd(d, d, expOne)
	k.fdiv(v, v, d)
}
