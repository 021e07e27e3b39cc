package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// An isa is a set of vector instructions that float32 kernels are written in once for both.
type isa struct {
	name  string // of kernels
	lanes int    // float32 values of a vector
}

var (
	avx2   = isa{"256", 8}
	avx512 = isa{"512", 16}
	isas   = []isa{avx2, avx512}
)

func (s isa) wide() bool { return s.lanes == 16 }

func (s isa) bytes() int { return 4 * s.lanes }

func (s isa) vec() reg.VecVirtual {
	if s.wide() {
		return ZMM()
	}
	return YMM()
}

func (s isa) vecs(n int) []reg.VecVirtual {
	v := make([]reg.VecVirtual, n)
	for i := range v {
		v[i] = s.vec()
	}
	return v
}

func (s isa) zero() reg.VecVirtual {
	v := s.vec()
	if s.wide() {
		VPXORD(v, v, v)
	} else {
		VXORPS(v, v, v)
	}
	return v
}

func (s isa) zeros(n int) []reg.VecVirtual {
	v := make([]reg.VecVirtual, n)
	for i := range v {
		v[i] = s.zero()
	}
	return v
}

func (s isa) load(m Mem) reg.VecVirtual {
	v := s.vec()
	VMOVUPS(m, v)
	return v
}

// broadcast is a float32 in every lane.
func (s isa) broadcast(m Mem) reg.VecVirtual {
	v := s.vec()
	VBROADCASTSS(m, v)
	return v
}

// param is a float32 parameter in every lane.
func (s isa) param(name string) reg.VecVirtual {
	x := Load(Param(name), XMM()).(reg.VecVirtual)
	v := s.vec()
	VBROADCASTSS(x, v)
	return v
}

// constant is a float32, given by its bits, in every lane.
func (s isa) constant(bits uint32) reg.VecVirtual {
	r, v := GP32(), s.vec()
	MOVL(U32(bits), r)
	if s.wide() {
		VPBROADCASTD(r, v)
		return v
	}
	x := XMM()
	VMOVD(r, x)
	VPBROADCASTD(x, v)
	return v
}

// fma adds a b to acc, fmaMem that of a float32 in memory.
func (s isa) fma(a, b Op, acc reg.VecVirtual) { VFMADD231PS(a, b, acc) }

func (s isa) fmaMem(m Mem, b, acc reg.VecVirtual) {
	if s.wide() {
		VFMADD231PS_BCST(m, b, acc)
		return
	}
	VFMADD231PS(s.broadcast(m), b, acc)
}

func (s isa) and(a Op, b, dst reg.VecVirtual) {
	if s.wide() {
		VPANDD(a, b, dst)
	} else {
		VPAND(a, b, dst)
	}
}

// fold adds the lanes of v in halves, as the generic kernels do, into its first lane. Sixteen lanes of the narrow isa are
// two vectors, the first of which has had the second added.
func (s isa) fold(v reg.VecVirtual) reg.VecVirtual {
	x := v
	if s.wide() {
		y := YMM()
		VEXTRACTF64X4(Imm(1), v, y)
		VADDPS(y, v.AsY(), y)
		x = y
	}
	h, t := s.upper(x), XMM()
	VADDPS(h, x.AsX(), h)
	VPERMILPD(Imm(1), h, t)
	VADDPS(t, h, h)
	VMOVSHDUP(h, t)
	VADDSS(t, h, h)
	return h
}

// upper is the second quarter of v.
func (s isa) upper(v reg.VecVirtual) reg.VecVirtual {
	x := XMM()
	if s.wide() {
		VEXTRACTF32X4(Imm(1), v.AsY(), x)
	} else {
		VEXTRACTF128(Imm(1), v.AsY(), x)
	}
	return x
}
