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
	quantizeEight()
	for _, group := range []int{32, 16} {
		quantize512(group, false)
		quantize512(group, true)
	}
	quantize256()
}

// quantize512 rounds a row of a panel of so many rows: a unit's scale is its largest magnitude by 127, found among the
// bits, which rise with it. In a panel of tiles a row's codes of a unit lie together.
func quantize512(group int, tiles bool) {
	name := fmt.Sprintf("quantize512g%d", group)
	if tiles {
		name = fmt.Sprintf("quantizeTilesg%d", group)
	}
	TEXT(name, NOSPLIT,
		"func(codes *int8, scales, sums *float32, biases *int32, x *float32, units, rows int, bias int32)")
	Doc(fmt.Sprintf("Rounds units of a row of a panel for weights in groups of %d.", group))
	codes, scales, sums, biases := pointer("codes"), pointer("scales"), pointer("sums"), pointer("biases")
	x, units, step := pointer("x"), pointer("units"), pointer("rows")
	bias := Load(Param("bias"), GP32()).(reg.GPVirtual)
	NEGL(bias)
	SHLQ(Imm(2), step) // from one row's dword to its next
	three := GP64()
	if !tiles {
		LEAQ(Mem{Base: step, Index: step, Scale: 2}, three)
	}
	magnitude := constant(0x7fffffff)
	codes127, part127, least := scalar(127), scalar(1.0/127), scalar(0x1p-126)
	Label("unit")
	a, b := zmms(2), ZMM()
	VMOVUPS(at(x, 0), a[0])
	VMOVUPS(at(x, 64), a[1])
	m := ZMM()
	VPANDD(magnitude, a[0], m)
	VPANDD(magnitude, a[1], b)
	VPMAXUD(b, m, m)
	most := reduce(m, func(p, q, d reg.VecVirtual) { VPMAXUD(p, q, d) })
	scale, inverse := XMM(), XMM()
	VMULSS(part127, most, scale)
	big, kept := K(), K()
	VCMPSS(Imm(13), least, scale, big) // at least that
	VCMPSS(Imm(5), least, scale, kept) // or not a number
	VDIVSS_Z(most, codes127, big, inverse)
	VMOVAPS_Z(scale, kept, scale)
	VMOVSS(scale, at(scales, 0))
	factor := ZMM()
	VBROADCASTSS(inverse, factor)
	for i := range a {
		VMULPS(factor, a[i], a[i])
		VCVTPS2DQ(a[i], a[i])
		if tiles {
			VPMOVDB(a[i], at(codes, 16*i))
			continue
		}
		bytes := XMM()
		VPMOVDB(a[i], bytes)
		VMOVD(bytes, at(codes, 0))
		VPEXTRD(Imm(1), bytes, Mem{Base: codes, Index: step, Scale: 1})
		VPEXTRD(Imm(2), bytes, Mem{Base: codes, Index: step, Scale: 2})
		VPEXTRD(Imm(3), bytes, Mem{Base: codes, Index: three, Scale: 1})
		LEAQ(Mem{Base: codes, Index: step, Scale: 4}, codes)
	}
	if tiles {
		add(16*32, codes)
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
	codes127, part127, least := scalar(127), scalar(1.0/127), scalar(0x1p-126)
	Label("unit")
	v, m := make([]reg.VecVirtual, 4), avx2.zero()
	for i := range v {
		v[i] = avx2.load(at(x, 32*i))
		t := YMM()
		VPAND(magnitude, v[i], t)
		VPMAXUD(t, m, m)
	}
	most := reduce256(m, func(p, q, d reg.VecVirtual) { VPMAXUD(p, q, d) })
	scale, big, inverse := XMM(), XMM(), XMM()
	VMULSS(part127, most, scale)
	VCMPSS(Imm(13), least, scale, big)
	VDIVSS(most, codes127, inverse)
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

// quantizeEight rounds eight rows at once: the largest magnitudes of all are found together, and packing codes to bytes
// lays the dwords of four rows side by side, which is how a panel has them.
func quantizeEight() {
	TEXT("quantize512r8", NOSPLIT,
		"func(codes *int8, scales, sums *float32, biases *int32, x *float32, stride, units int, bias int32, group int)")
	Doc("Rounds units of the eight rows of a panel.")
	codes, scales, sums, biases := pointer("codes"), pointer("scales"), pointer("sums"), pointer("biases")
	rows := avx512.rowsAt(pointer("x"), pointer("stride"))
	units, group := pointer("units"), pointer("group")
	b := Load(Param("bias"), GP32()).(reg.GPVirtual)
	NEGL(b)
	bias := YMM()
	VPBROADCASTD(b, bias)
	inverses := AllocLocal(32)
	order := YMM()
	VMOVDQU32(dwordTable("quantizeOrder", []uint32{0, 4, 8, 12, 1, 5, 9, 13}), order)
	Label("unit")
	x := make([]reg.VecVirtual, 16) // the halves of each row
	m := make([]reg.VecVirtual, 8)
	for r := range 8 {
		x[2*r], x[2*r+1] = avx512.load(rows.at(r, 0)), avx512.load(rows.at(r, 64))
		t := ZMM()
		m[r] = ZMM()
		VPANDD_BCST(dword(0x7fffffff), x[2*r], m[r])
		VPANDD_BCST(dword(0x7fffffff), x[2*r+1], t)
		VPMAXUD(t, m[r], m[r])
	}
	fold := func(a, b reg.VecVirtual, first, second uint64) reg.VecVirtual {
		p, q := ZMM(), ZMM()
		VSHUFI64X2(Imm(first), b, a, p)
		VSHUFI64X2(Imm(second), b, a, q)
		VPMAXUD(q, p, p)
		return p
	}
	var twos, fours []reg.VecVirtual
	for r := 0; r < 8; r += 2 {
		twos = append(twos, fold(m[r], m[r+1], 0x44, 0xee)) // halves of two rows
	}
	for i := 0; i < 4; i += 2 {
		fours = append(fours, fold(twos[i], twos[i+1], 0x88, 0xdd)) // quarters of four
	}
	p, q := ZMM(), ZMM()
	VPUNPCKLDQ(fours[1], fours[0], p)
	VPUNPCKHDQ(fours[1], fours[0], q)
	VPMAXUD(q, p, p)
	VPSHUFD(Imm(0x4e), p, q)
	VPMAXUD(q, p, p) // quarter r: rows r and r+4
	most, scale, inverse := ZMM(), YMM(), YMM()
	VPERMD(p, order.AsZ(), most)
	VMULPS_BCST(dword(float32bits(1.0/127)), most.AsY(), scale)
	big, kept := K(), K()
	VCMPPS_BCST(Imm(13), dword(float32bits(0x1p-126)), scale, big)
	VCMPPS_BCST(Imm(5), dword(float32bits(0x1p-126)), scale, kept)
	VBROADCASTSS(dword(float32bits(127)), inverse)
	VDIVPS_Z(most.AsY(), inverse, big, inverse)
	VMOVAPS_Z(scale, kept, scale)
	VMOVUPS(scale, at(scales, 0))
	VMOVUPS(inverse, inverses)
	interleave := [2]reg.VecVirtual{ZMM(), ZMM()}
	VMOVDQU64(qwordTable("quantizeLow", []uint64{0, 1, 8, 9, 2, 3, 10, 11}), interleave[0])
	VMOVDQU64(qwordTable("quantizeHigh", []uint64{4, 5, 12, 13, 6, 7, 14, 15}), interleave[1])
	ones := ZMM()
	VPBROADCASTD(bytes4(1), ones)
	var totals [2][2]reg.VecVirtual // by half and four rows
	for half := range 2 {
		var packed [2]reg.VecVirtual
		for four := range 2 {
			var words [2]reg.VecVirtual
			for i := range 2 {
				r := 4*four + 2*i
				a, b := x[2*r+half], x[2*(r+1)+half]
				VMULPS_BCST(inverses.Offset(4*r), a, a)
				VMULPS_BCST(inverses.Offset(4*(r+1)), b, b)
				VCVTPS2DQ(a, a)
				VCVTPS2DQ(b, b)
				words[i] = ZMM()
				VPACKSSDW(b, a, words[i])
			}
			packed[four] = ZMM()
			VPACKSSWB(words[1], words[0], packed[four])
			totals[half][four] = ZMM()
			VPXORD(totals[half][four], totals[half][four], totals[half][four])
			instruction("VPDPBUSD", "", "AVX512VNNI", packed[four], ones, totals[half][four])
		}
		for i := range 2 {
			out := ZMM()
			VMOVDQA64(interleave[i], out)
			VPERMI2Q(packed[1], packed[0], out)
			VMOVDQU64(out, at(codes, 128*half+64*i))
		}
	}
	store := func(a, b reg.VecVirtual, disp int) {
		p, q := ZMM(), ZMM()
		VSHUFI64X2(Imm(0x88), b, a, p)
		VSHUFI64X2(Imm(0xdd), b, a, q)
		VPADDD(q, p, p)
		VSHUFI64X2(Imm(0xb1), p, p, q)
		VPADDD(q, p, p)
		VSHUFI64X2(Imm(0x08), p, p, p)
		n, f := YMM(), YMM()
		VPMULLD(bias, p.AsY(), n)
		VMOVDQU32(n, at(biases, disp))
		VCVTDQ2PS(p.AsY(), f)
		VMULPS(scale, f, f)
		VMOVUPS(f, at(sums, disp))
	}
	CMPQ(group, Imm(16))
	JEQ(LabelRef("sixteen"))
	for four := range 2 {
		VPADDD(totals[1][four], totals[0][four], totals[0][four])
	}
	store(totals[0][0], totals[0][1], 0)
	add(32, sums)
	add(32, biases)
	JMP(LabelRef("next"))
	Label("sixteen")
	store(totals[0][0], totals[0][1], 0)
	store(totals[1][0], totals[1][1], 32)
	add(64, sums)
	add(64, biases)
	Label("next")
	rows.advance(128)
	add(256, codes)
	add(32, scales)
	DECQ(units)
	JNZ(LabelRef("unit"))
	VZEROUPPER()
	RET()
}

func dwordTable(name string, values []uint32) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i, v := range values {
		DATA(4*i, U32(v))
	}
	return m
}

func qwordTable(name string, values []uint64) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i, v := range values {
		DATA(8*i, U64(v))
	}
	return m
}
