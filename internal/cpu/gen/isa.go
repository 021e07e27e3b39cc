package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
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

// memory is a dword in every lane, as an operand in memory.
func (s isa) memory(v uint32) Mem {
	if s.wide() {
		return dword(v)
	}
	m, ok := dwords8[v]
	if !ok {
		m = GLOBL(label("dwords%08x", v), RODATA|NOPTR)
		for i := range 8 {
			DATA(4*i, U32(v))
		}
		dwords8[v] = m
	}
	return m
}

var dwords8 = map[uint32]Mem{}

// every is a byte in every byte: a register of the wide isa, which has them to spare, an operand in memory of the other.
func (s isa) every(b uint32) Op {
	if s.wide() {
		return every(b)
	}
	return s.memory(b * 0x01010101)
}

// either emits the instruction of the isa.
func (s isa) either(wide, narrow func(a, b, c Op), a Op, b, dst reg.VecVirtual) {
	if s.wide() {
		wide(a, b, dst)
	} else {
		narrow(a, b, dst)
	}
}

func vpord(a, b, c Op)  { VPORD(a, b, c) }
func vpor(a, b, c Op)   { VPOR(a, b, c) }
func vpxord(a, b, c Op) { VPXORD(a, b, c) }
func vpxor(a, b, c Op)  { VPXOR(a, b, c) }

func (s isa) or(a Op, b, dst reg.VecVirtual)  { s.either(vpord, vpor, a, b, dst) }
func (s isa) xor(a Op, b, dst reg.VecVirtual) { s.either(vpxord, vpxor, a, b, dst) }

// The following have a dword, or a float32 by its bits, in every lane as their first operand.

func (s isa) andDword(v uint32, b, dst reg.VecVirtual) {
	s.either(func(x, y, z Op) { VPANDD_BCST(x, y, z) }, func(x, y, z Op) { VPAND(x, y, z) }, s.memory(v), b, dst)
}

func (s isa) xorDword(v uint32, b, dst reg.VecVirtual) {
	s.either(func(x, y, z Op) { VPXORD_BCST(x, y, z) }, vpxor, s.memory(v), b, dst)
}

func (s isa) subDword(v uint32, b, dst reg.VecVirtual) {
	s.either(func(x, y, z Op) { VPSUBD_BCST(x, y, z) }, func(x, y, z Op) { VPSUBD(x, y, z) }, s.memory(v), b, dst)
}

func (s isa) addDword(v uint32, b, dst reg.VecVirtual) {
	s.either(func(x, y, z Op) { VPADDD_BCST(x, y, z) }, func(x, y, z Op) { VPADDD(x, y, z) }, s.memory(v), b, dst)
}

func (s isa) mulFloat(v float32, b, dst reg.VecVirtual) {
	s.either(func(x, y, z Op) { VMULPS_BCST(x, y, z) }, func(x, y, z Op) { VMULPS(x, y, z) }, s.memory(float32bits(v)), b, dst)
}

func (s isa) addFloat(v float32, b, dst reg.VecVirtual) {
	s.either(func(x, y, z Op) { VADDPS_BCST(x, y, z) }, func(x, y, z Op) { VADDPS(x, y, z) }, s.memory(float32bits(v)), b, dst)
}

// move copies a vector.
func (s isa) move(src, dst Op) {
	if s.wide() {
		VMOVDQU32(src, dst)
	} else {
		VMOVDQU(src, dst)
	}
}

// shift moves the bits of every dword to the left, or, below 0, to the right.
func (s isa) shift(left int, src Op, dst reg.VecVirtual) {
	if _, memory := src.(Mem); left == 0 || memory && !s.wide() {
		s.move(src, dst)
		src = dst
	}
	switch {
	case left > 0:
		VPSLLD(Imm(uint64(left)), src, dst)
	case left < 0:
		VPSRLD(Imm(uint64(-left)), src, dst)
	}
}

// merge has the low bits of every byte of code from there, and those up to all from bits.
func (s isa) merge(low Op, lowBits, all uint32, bits, code reg.VecVirtual) {
	if s.wide() {
		if m, ok := low.(Mem); ok {
			VPTERNLOGD_BCST(Imm(0xe4), m, bits, code)
		} else {
			VPTERNLOGD(Imm(0xe4), low, bits, code) // low ? code : bits
		}
		s.andDword(all*0x01010101, code, code)
		return
	}
	VPAND(low, code, code)
	s.andDword((all&^lowBits)*0x01010101, bits, bits)
	VPOR(bits, code, code)
}

// accumulate adds the bits of v under the mask to dst, which has none of them.
func (s isa) accumulate(v reg.VecVirtual, mask uint32, dst reg.VecVirtual) {
	if s.wide() {
		VPTERNLOGD_BCST(Imm(0xf8), s.memory(mask), v, dst) // dst | v & mask
		return
	}
	s.andDword(mask, v, v)
	VPOR(v, dst, dst)
}

// zeroed is a vector of zeros, and no other value before them.
func (s isa) zeroed() reg.VecVirtual {
	v := s.vec()
	if s.wide() {
		clear(v)
	} else {
		clearNarrow(v)
	}
	return v
}

// firstQuarter copies x to the first quarter of v, whose others are zeros.
func (s isa) firstQuarter(x, v reg.VecVirtual) {
	i := &ir.Instruction{Opcode: "VMOVDQA", Operands: []Op{x, v.AsX()}, Inputs: []Op{x}, Outputs: []Op{v}, ISA: []string{"AVX"}}
	if s.wide() {
		i.Opcode, i.ISA = "VMOVDQU32", []string{"AVX512F", "AVX512VL"}
	}
	Instruction(i)
}
