package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// quantizeKernels round activations to 8 bits (product_generic.go).
func quantizeKernels() {
	quantize512(32)
	quantize512(16)
	quantize256()
}

// quantize512 rounds a row of a panel of so many rows: a unit's scale is its largest magnitude by 127, found among the
// bits, which rise with it.
func quantize512(group int) {
	TEXT(fmt.Sprintf("quantize512g%d", group), NOSPLIT,
		"func(codes *int8, scales, sums *float32, biases *int32, x *float32, units, rows int, bias int32)")
	Doc(fmt.Sprintf("Rounds units of a row of a panel for weights in groups of %d.", group))
	codes, scales, sums, biases := pointer("codes"), pointer("scales"), pointer("sums"), pointer("biases")
	x, units, step := pointer("x"), pointer("units"), pointer("rows")
	bias := Load(Param("bias"), GP32()).(reg.GPVirtual)
	NEGL(bias)
	SHLQ(Imm(2), step) // from one row's dword to its next
	three := GP64()
	LEAQ(Mem{Base: step, Index: step, Scale: 2}, three)
	magnitude := constant(0x7fffffff)
	most, one, least := scalar(127), scalar(1), scalar(0x1p-126)
	Label("unit")
	a, b := zmms(2), ZMM()
	VMOVUPS(at(x, 0), a[0])
	VMOVUPS(at(x, 64), a[1])
	m := ZMM()
	VPANDD(magnitude, a[0], m)
	VPANDD(magnitude, a[1], b)
	VPMAXUD(b, m, m)
	scale := reduce(m, func(p, q, d reg.VecVirtual) { VPMAXUD(p, q, d) })
	VDIVSS(most, scale, scale)
	inverse := XMM()
	big, kept := K(), K()
	VCMPSS(Imm(13), least, scale, big) // at least that
	VCMPSS(Imm(5), least, scale, kept) // or not a number
	VDIVSS_Z(scale, one, big, inverse)
	VMOVAPS_Z(scale, kept, scale)
	VMOVSS(scale, at(scales, 0))
	factor := ZMM()
	VBROADCASTSS(inverse, factor)
	for i := range a {
		VMULPS(factor, a[i], a[i])
		VCVTPS2DQ(a[i], a[i])
		bytes := XMM()
		VPMOVDB(a[i], bytes)
		VMOVD(bytes, at(codes, 0))
		VPEXTRD(Imm(1), bytes, Mem{Base: codes, Index: step, Scale: 1})
		VPEXTRD(Imm(2), bytes, Mem{Base: codes, Index: step, Scale: 2})
		VPEXTRD(Imm(3), bytes, Mem{Base: codes, Index: three, Scale: 1})
		LEAQ(Mem{Base: codes, Index: step, Scale: 4}, codes)
	}
	if group == 32 {
		VPADDD(a[1], a[0], a[0])
		a = a[:1]
	}
	for i := range a {
		total := reduce(a[i], func(p, q, d reg.VecVirtual) { VPADDD(p, q, d) })
		n, f := GP32(), XMM()
		VMOVD(total, n)
		VCVTDQ2PS(total, f)
		VMULSS(scale, f, f)
		VMOVSS(f, at(sums, 0))
		IMULL(bias, n)
		MOVL(n, at(biases, 0))
		ADDQ(step, sums)
		ADDQ(step, biases)
	}
	ADDQ(step, scales)
	add(128, x)
	DECQ(units)
	JNZ(LabelRef("unit"))
	VZEROUPPER()
	RET()
}

// scalar is a float32 in the first lane.
func scalar(v float32) reg.VecVirtual {
	r, x := GP32(), XMM()
	MOVL(U32(float32bits(v)), r)
	VMOVD(r, x)
	return x
}

// reduce brings all dwords of v together in the first lane.
func reduce(v reg.VecVirtual, op func(a, b, dst reg.VecVirtual)) reg.VecVirtual {
	y, x, t := YMM(), XMM(), XMM()
	VEXTRACTI64X4(Imm(1), v, y)
	op(v.AsY().(reg.VecVirtual), y, y)
	VEXTRACTI32X4(Imm(1), y, x)
	op(y.AsX().(reg.VecVirtual), x, x)
	VPSHUFD(Imm(0x4e), x, t)
	op(t, x, x)
	VPSHUFD(Imm(0xb1), x, t)
	op(t, x, x)
	return x
}

// quantize256 is the same with vectors of eight.
func quantize256() {
	TEXT("quantize256", NOSPLIT, "func(codes *int8, scales, sums *float32, x *float32, units, rows, group int)")
	Doc("Rounds units of a row of a panel. Sums are of groups of 16 or 32.")
	codes, scales, sums := pointer("codes"), pointer("scales"), pointer("sums")
	x, units, step, group := pointer("x"), pointer("units"), pointer("rows"), pointer("group")
	SHLQ(Imm(2), step)
	magnitude := avx2.constant(0x7fffffff)
	most, one, least := scalar(127), scalar(1), scalar(0x1p-126)
	Label("unit")
	v, m := make([]reg.VecVirtual, 4), avx2.zero()
	for i := range v {
		v[i] = avx2.load(at(x, 32*i))
		t := YMM()
		VPAND(magnitude, v[i], t)
		VPMAXUD(t, m, m)
	}
	scale := reduce256(m, func(p, q, d reg.VecVirtual) { VPMAXUD(p, q, d) })
	VDIVSS(most, scale, scale)
	big, inverse := XMM(), XMM()
	VCMPSS(Imm(13), least, scale, big)
	VDIVSS(scale, one, inverse)
	VANDPS(big, inverse, inverse)
	VCMPSS(Imm(5), least, scale, big)
	VANDPS(big, scale, scale)
	VMOVSS(scale, at(scales, 0))
	factor := YMM()
	VBROADCASTSS(inverse, factor)
	for i := range v {
		VMULPS(factor, v[i], v[i])
		VCVTPS2DQ(v[i], v[i])
		high, bytes := XMM(), XMM()
		VEXTRACTI128(Imm(1), v[i], high)
		VPACKSSDW(high, v[i].AsX(), bytes)
		VPACKSSWB(bytes, bytes, bytes)
		VMOVD(bytes, at(codes, 0))
		VPEXTRD(Imm(1), bytes, Mem{Base: codes, Index: step, Scale: 1})
		LEAQ(Mem{Base: codes, Index: step, Scale: 2}, codes)
	}
	VPADDD(v[1], v[0], v[0])
	VPADDD(v[3], v[2], v[2])
	CMPQ(group, Imm(16))
	JEQ(LabelRef("sixteen"))
	VPADDD(v[2], v[0], v[0])
	sum := func(v reg.VecVirtual) {
		total := reduce256(v, func(p, q, d reg.VecVirtual) { VPADDD(p, q, d) })
		VCVTDQ2PS(total, total)
		VMULSS(scale, total, total)
		VMOVSS(total, at(sums, 0))
		ADDQ(step, sums)
	}
	sum(v[0])
	JMP(LabelRef("next"))
	Label("sixteen")
	sum(v[0])
	sum(v[2])
	Label("next")
	ADDQ(step, scales)
	add(128, x)
	DECQ(units)
	JNZ(LabelRef("unit"))
	VZEROUPPER()
	RET()
}

func reduce256(v reg.VecVirtual, op func(a, b, dst reg.VecVirtual)) reg.VecVirtual {
	x, t := XMM(), XMM()
	VEXTRACTI128(Imm(1), v, x)
	op(v.AsX().(reg.VecVirtual), x, x)
	VPSHUFD(Imm(0x4e), x, t)
	op(t, x, x)
	VPSHUFD(Imm(0xb1), x, t)
	op(t, x, x)
	return x
}

func float32bits(v float32) uint32 { return math.Float32bits(v) }
