//go:build amd64 || arm64

package cpu

import "unsafe"

// floatAssembly are the float32 kernels of an instruction set. They take whole vectors of 16 values, or of 4 queries.
type floatAssembly struct {
	sumSquares func(x *float32, n int) float32
	norm       func(dst, x, w *float32, scale float32, n int)
	swish      func(dst, gate, up *float32, n int)
	gate       func(x, gate *float32, n int)
	scale      func(x *float32, scale float32, n int)
	addScaled  func(dst, x *float32, scale float32, n int)
	conv       func(dst, w *float32, stride int, t0, t1, t2, t3 *float32, n int)
	gdnStep    func(dst, src, beforeK, beforeDelta, k, q, v, delta, o *float32, beforeDecay, beta, decay, kq float32, keys int, ahead *float32)
	gdnReplay  func(dst, src, k, delta *float32, decay float32, keys int)
	scores     [2]func(scores, q *float32, keys *uint16, dim, blocks int) // of four queries, of one
	values     [2]func(folds, weights *float32, values *uint16, dim, tokens int)
	most       func(x *float32, n int) float32
	soften     func(x *float32, most float32, n int) float32
}

// floats sets the float32 kernels of k: the assembly, and plain Go for what is left of a vector.
func (a *floatAssembly) floats(k *kernels) {
	k.sumSquares, k.norm, k.scale, k.addScaled = a.runSumSquares, a.runNorm, a.runScale, a.runAddScaled
	k.swish, k.gate, k.conv = a.runSwish, a.runGate, a.runConv
	k.gdnStep, k.gdnReplay = a.runGDNStep, a.runGDNReplay
	k.scores, k.values, k.most, k.soften = a.runScores, a.runValues, a.runMost, a.runSoften
}

// first is the address of a slice's first element.
func first[T any](x []T) *T { return unsafe.SliceData(x) }

// whole is n down to a whole vector.
func whole(n int) int { return n &^ 15 }

func (a *floatAssembly) runSumSquares(x []float32) (sum float32) {
	n := whole(len(x))
	if n > 0 {
		sum = a.sumSquares(first(x), n)
	}
	return sum + sumSquaresGeneric(x[n:])
}

func (a *floatAssembly) runNorm(dst, x, w []float32, scale float32) {
	n := whole(len(x))
	if n > 0 {
		a.norm(first(dst), first(x), first(w), scale, n)
	}
	normGeneric(dst[n:], x[n:], w[n:], scale)
}

func (a *floatAssembly) runScale(x []float32, scale float32) {
	n := whole(len(x))
	if n > 0 {
		a.scale(first(x), scale, n)
	}
	scaleGeneric(x[n:], scale)
}

func (a *floatAssembly) runAddScaled(dst, x []float32, scale float32) {
	n := whole(len(x))
	if n > 0 {
		a.addScaled(first(dst), first(x), scale, n)
	}
	addScaledGeneric(dst[n:], x[n:], scale)
}

func (a *floatAssembly) runSwish(dst, gate, up []float32) {
	n := whole(len(gate))
	if n > 0 {
		a.swish(first(dst), first(gate), first(up), n)
	}
	swishGeneric(dst[n:], gate[n:], up[n:])
}

func (a *floatAssembly) runGate(x, gate []float32) {
	n := whole(len(gate))
	if n > 0 {
		a.gate(first(x), first(gate), n)
	}
	gateGeneric(x[n:], gate[n:])
}

func (a *floatAssembly) runConv(dst, w []float32, stride int, taps [][]float32) {
	n := whole(len(dst))
	if len(taps) != 4 || n != len(dst) {
		convGeneric(dst, w, stride, taps)
		return
	}
	a.conv(first(dst), first(w), 4*stride, first(taps[0]), first(taps[1]), first(taps[2]), first(taps[3]), n)
}

func (a *floatAssembly) runGDNStep(dst, src []float32, before *gdnUpdate, r *gdnRow, ahead []float32) {
	if len(r.k)%4 != 0 {
		gdnStepGeneric(dst, src, before, r)
		return
	}
	a.gdnStep(first(dst), first(src), first(before.k), first(before.delta), first(r.k), first(r.q), first(r.v), first(r.delta),
		first(r.o), before.decay, r.beta, r.decay, r.kq, len(r.k), first(ahead))
}

func (a *floatAssembly) runGDNReplay(dst, src []float32, u *gdnUpdate) {
	if len(u.k)%4 != 0 {
		gdnReplayGeneric(dst, src, u)
		return
	}
	a.gdnReplay(first(dst), first(src), first(u.k), first(u.delta), u.decay, len(u.k))
}

func (a *floatAssembly) runScores(scores, q []float32, queries int, keys []uint16, dim, tokens int) {
	blocks := (tokens + blockTokens - 1) / blockTokens
	for i := 0; i < queries; {
		n, f := 4, a.scores[0]
		if queries-i < 4 {
			n, f = 1, a.scores[1]
		}
		f(first(scores[i*pageTokens:]), first(q[i*dim:]), first(keys), dim, blocks)
		i += n
	}
}

func (a *floatAssembly) runValues(folds, weights []float32, queries int, values []uint16, dim, tokens int) {
	if dim%32 != 0 {
		valuesGeneric(folds, weights, queries, values, dim, tokens)
		return
	}
	for i := 0; i < queries; {
		n, f := 4, a.values[0]
		if queries-i < 4 {
			n, f = 1, a.values[1]
		}
		f(first(folds[i*foldWidth(dim):]), first(weights[i*pageTokens:]), first(values), dim, tokens)
		i += n
	}
}

func (a *floatAssembly) runMost(x []float32) float32 {
	n := whole(len(x))
	most := mostGeneric(x[n:])
	if n > 0 {
		most = max(most, a.most(first(x), n))
	}
	return most
}

func (a *floatAssembly) runSoften(x []float32, most float32) (sum float32) {
	n := whole(len(x))
	if n > 0 {
		sum = a.soften(first(x), most, n)
	}
	return sum + softenGeneric(x[n:], most)
}

// peak runs rounds of multiplications of vectors in registers and returns how many numbers it multiplied.
func peak(floats, ints func(rounds int), bytes int) func(rounds int, integers bool) int {
	const chains = 12 // of a round (gen/peak.go)
	return func(rounds int, integers bool) int {
		if integers {
			ints(rounds)
			return rounds * chains * bytes
		}
		floats(rounds)
		return rounds * chains * bytes / 4
	}
}

// logarithms are those of a panel's rows.
var logarithms = [...]int{1: 0, 2: 1, 4: 2, 8: 3, tileRows: 4}

// kernel is the place of a panel's kernel.
func (p *panel) kernel() (rows, groups, minima int) {
	if p.minima {
		minima = 1
	}
	return logarithms[p.rows], unit/p.group - 1, minima
}

func bytesOf(x []float32) *byte { return (*byte)(unsafe.Pointer(unsafe.SliceData(x))) }

type exactAssembly func(acc *float32, codes *byte, scales, mins, x *float32, stride, units int, bias float32)

// exacts are the kernels by the groups of a unit less one and minima, of one row of activations and of four, or nil.
type exacts [2][2]struct{ one, four exactAssembly }

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

// globals writes the tensor scales of rows where minima go, which formats that have them have none of.
func (t *tile) globals(m *matrix, row, rows int) {
	for i := range rows {
		t.mins[i] = globalOf(&m.stored, row+i)
	}
}

// place is where unit at of a tile's rows lies, and what is fetched from next on beside it: a tile's units are one after
// another in the file when they are as many as a row has.
func (u *tileUnpacker) place(m *matrix, row, at, lanes int, next uintptr) (src *byte, ahead uintptr, stride int) {
	steps := at / u.units * u.bytes
	stride = m.cols / (u.units * unit) * u.bytes
	return &m.stored.Data[row*stride+steps], next + uintptr(steps*lanes), stride
}
