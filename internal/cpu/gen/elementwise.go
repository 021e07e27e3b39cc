package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vectorKernels are the elementwise loops (vector_generic.go), over whole vectors of 16 values.
func vectorKernels() {
	pauseKernel()
	fetchKernel()
	for _, s := range isas {
		sumSquares(s)
		norm(s)
		swish(s)
		gate(s)
		scale(s)
		addScaled(s)
		conv(s)
	}
	put(avx512, "put", false)
	put(avx512, "putAdded", true)
}

// put makes the kernel that puts the results of tiles where they go.
func put(s isa, name string, added bool) {
	TEXT(name+s.name, NOSPLIT, "func(dst, acc *float32, width, rows, tiles int)")
	Doc(label("Puts tiles of %d results of each row, [tiles][rows][%d], side by side to rows of the width.", s.lanes, s.lanes))
	dst, acc, width, rows := pointer("dst"), pointer("acc"), pointer("width"), pointer("rows")
	SHLQ(Imm(2), width)
	stride, to, from, tiles := GP64(), GP64(), GP64(), GP64()
	MOVQ(rows, stride)
	IMUL3Q(Imm(uint64(s.bytes())), stride, stride)
	Label("row")
	MOVQ(dst, to)
	MOVQ(acc, from)
	Load(Param("tiles"), tiles)
	Label("tile")
	v := s.load(at(from, 0))
	if added {
		VADDPS(at(to, 0), v, v)
	}
	VMOVUPS(v, at(to, 0))
	add(s.bytes(), to)
	ADDQ(stride, from)
	DECQ(tiles)
	JNZ(LabelRef("tile"))
	add(s.bytes(), acc)
	ADDQ(width, dst)
	DECQ(rows)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// fetchKernel fetches lines that are read soon.
func fetchKernel() {
	TEXT("fetch", NOSPLIT, "func(x *float32, lines int)")
	Doc("Fetches lines of 16 values, a whole number of 4, into the nearest cache.")
	x, lines := pointer("x"), pointer("lines")
	Label("lines")
	for i := range 4 {
		PREFETCHT0(at(x, 64*i))
	}
	add(256, x)
	SUBQ(Imm(4), lines)
	JNZ(LabelRef("lines"))
	RET()
}

func pauseKernel() {
	TEXT("pause", NOSPLIT, "func()")
	Doc("Tells the core that its thread waits for another.")
	PAUSE()
	RET()
}

// loop runs body for n values, lanes at a time, and advances the pointers. n is a whole number of 16.
func (s isa) loop(n reg.GPVirtual, pointers []reg.GPVirtual, body func(disp int)) {
	Label("loop")
	for disp := 0; disp < 64; disp += s.bytes() {
		body(disp)
	}
	for _, p := range pointers {
		add(64, p)
	}
	SUBQ(Imm(16), n)
	JNZ(LabelRef("loop"))
}

func sumSquares(s isa) {
	TEXT("sumSquares"+s.name, NOSPLIT, "func(x *float32, n int) float32")
	Doc("The sum of squares of n values, a whole number of 16.")
	x, n := pointer("x"), pointer("n")
	sums := s.zeros(16 / s.lanes)
	s.loop(n, []reg.GPVirtual{x}, func(disp int) {
		v := s.load(at(x, disp))
		s.fma(v, v, sums[disp/s.bytes()])
	})
	if len(sums) == 2 {
		VADDPS(sums[1], sums[0], sums[0])
	}
	Store(s.fold(sums[0]), ReturnIndex(0))
	VZEROUPPER()
	RET()
}

func norm(s isa) {
	TEXT("norm"+s.name, NOSPLIT, "func(dst, x, w *float32, scale float32, n int)")
	Doc("Writes x scale w of n values, a whole number of 16.")
	dst, x, w, n := pointer("dst"), pointer("x"), pointer("w"), pointer("n")
	f := s.param("scale")
	s.loop(n, []reg.GPVirtual{dst, x, w}, func(disp int) {
		v := s.vec()
		VMULPS(at(x, disp), f, v)
		VMULPS(at(w, disp), v, v)
		VMOVUPS(v, at(dst, disp))
	})
	VZEROUPPER()
	RET()
}

func scale(s isa) {
	TEXT("scale"+s.name, NOSPLIT, "func(x *float32, scale float32, n int)")
	Doc("Multiplies n values, a whole number of 16.")
	x, n := pointer("x"), pointer("n")
	f := s.param("scale")
	s.loop(n, []reg.GPVirtual{x}, func(disp int) {
		v := s.vec()
		VMULPS(at(x, disp), f, v)
		VMOVUPS(v, at(x, disp))
	})
	VZEROUPPER()
	RET()
}

func addScaled(s isa) {
	TEXT("addScaled"+s.name, NOSPLIT, "func(dst, x *float32, scale float32, n int)")
	Doc("Adds scale x to n values, a whole number of 16.")
	dst, x, n := pointer("dst"), pointer("x"), pointer("n")
	f := s.param("scale")
	s.loop(n, []reg.GPVirtual{dst, x}, func(disp int) {
		v := s.load(at(dst, disp))
		s.fma(at(x, disp), f, v)
		VMOVUPS(v, at(dst, disp))
	})
	VZEROUPPER()
	RET()
}

func swish(s isa) {
	TEXT("swish"+s.name, NOSPLIT, "func(dst, gate, up *float32, n int)")
	Doc("Writes silu(gate) up of n values, a whole number of 16.")
	dst, g, up, n := pointer("dst"), pointer("gate"), pointer("up"), pointer("n")
	e := s.exponential()
	s.loop(n, []reg.GPVirtual{dst, g, up}, func(disp int) {
		v := s.load(at(g, disp))
		d := e.onePlus(v)
		VDIVPS(d, v, v)
		VMULPS(at(up, disp), v, v)
		VMOVUPS(v, at(dst, disp))
	})
	VZEROUPPER()
	RET()
}

func gate(s isa) {
	TEXT("gate"+s.name, NOSPLIT, "func(x, gate *float32, n int)")
	Doc("Multiplies n values, a whole number of 16, by sigmoid(gate).")
	x, g, n := pointer("x"), pointer("gate"), pointer("n")
	e := s.exponential()
	s.loop(n, []reg.GPVirtual{x, g}, func(disp int) {
		d, v := e.onePlus(s.load(at(g, disp))), s.load(at(x, disp))
		VDIVPS(d, v, v)
		VMOVUPS(v, at(x, disp))
	})
	VZEROUPPER()
	RET()
}

func conv(s isa) {
	TEXT("conv"+s.name, NOSPLIT, "func(dst, w *float32, stride int, t0, t1, t2, t3 *float32, n int)")
	Doc("Writes silu of the sum of four taps of n channels, a whole number of 16. The weights of a tap lie stride bytes on.")
	dst, w, stride := pointer("dst"), pointer("w"), pointer("stride")
	var taps []reg.GPVirtual
	for _, name := range []string{"t0", "t1", "t2", "t3"} {
		taps = append(taps, pointer(name))
	}
	n, three := pointer("n"), GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, three)
	e := s.exponential()
	s.loop(n, append([]reg.GPVirtual{dst, w}, taps...), func(disp int) {
		sum := s.vec()
		for j, t := range taps {
			v, m := s.load(at(t, disp)), Mem{Base: w, Disp: disp}
			switch j {
			case 1:
				m.Index, m.Scale = stride, 1
			case 2:
				m.Index, m.Scale = stride, 2
			case 3:
				m.Index, m.Scale = three, 1
			}
			if j == 0 {
				VMULPS(m, v, sum)
			} else {
				s.fma(m, v, sum)
			}
		}
		d := e.onePlus(sum)
		VDIVPS(d, sum, sum)
		VMOVUPS(sum, at(dst, disp))
	})
	VZEROUPPER()
	RET()
}

// An exponential computes e^x: x = n ln 2 + r, and a polynomial of r times 2^n.
//
// Source of the coefficients: expf of the Cephes library, Stephen Moshier, 1984. The error is within 2 units of the last
// place; results below the normal numbers are the smallest of them.
type exponential struct {
	s                              isa
	low, high, log2e, ln2, ln2Rest Op
	poly                           []Op
	one, bias                      Op
}

func (s isa) exponential() *exponential {
	c := func(v float32) Op { return s.pooled(float32bits(v)) }
	e := &exponential{
		s: s, low: c(-87.33654), high: c(88.37626), log2e: c(1.44269504088896341), ln2: c(0.693359375), ln2Rest: c(-2.12194440e-4),
		one: c(1),
	}
	for _, v := range []float32{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1} {
		e.poly = append(e.poly, c(v))
	}
	if !s.wide() {
		e.bias = s.pooled(127)
	}
	return e
}

// pooled is a dword in every lane: in a register where there are many, else in memory.
func (s isa) pooled(bits uint32) Op {
	if s.wide() {
		return s.constant(bits)
	}
	m, ok := pool[bits]
	if !ok {
		m = GLOBL(label("dwords%08x", bits), RODATA|NOPTR)
		for i := range s.lanes {
			DATA(4*i, U32(bits))
		}
		pool[bits] = m
	}
	return m
}

var pool = map[uint32]Mem{}

// of is e^x. A NaN stays one.
func (e *exponential) of(x reg.VecVirtual) reg.VecVirtual {
	s := e.s
	v, t, n, p, r2 := s.vec(), s.vec(), s.vec(), s.vec(), s.vec()
	VMOVUPS(e.low, v)
	VMAXPS(x, v, v)
	VMOVUPS(e.high, t)
	VMINPS(v, t, v)
	VMULPS(e.log2e, v, n)
	if s.wide() {
		VRNDSCALEPS(Imm(0), n, n)
	} else {
		VROUNDPS(Imm(0), n, n)
	}
	VFNMADD231PS(e.ln2, n, v)
	VFNMADD231PS(e.ln2Rest, n, v)
	VMULPS(v, v, r2)
	VMOVUPS(e.poly[0], p)
	for _, c := range e.poly[1:] {
		VFMADD213PS(c, v, p)
	}
	VFMADD213PS(v, r2, p)
	VADDPS(e.one, p, p)
	if s.wide() {
		VSCALEFPS(n, p, p)
		return p
	}
	VCVTPS2DQ(n, n)
	VPADDD(e.bias, n, n)
	VPSLLD(Imm(23), n, n)
	VMULPS(n, p, p)
	return p
}

// onePlus is 1 + e^-x.
func (e *exponential) onePlus(x reg.VecVirtual) reg.VecVirtual {
	m := e.s.zero()
	VSUBPS(x, m, m)
	d := e.of(m)
	VADDPS(e.one, d, d)
	return d
}
