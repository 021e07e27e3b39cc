package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// bf16Kernels are products of BF16 weights as they are stored (bf16.go).
func bf16Kernels() {
	roundBF16()
	dotBF16(1, 1)
	dotBF16(4, 1)
	dotBF16(4, 4)
	splitBF16()
	tilesBF16()
}

// roundBF16 rounds to nearest even, and makes NaN of NaN.
func roundBF16() {
	TEXT("roundRowBF16", NOSPLIT, "func(dst *uint16, x *float32, units int)")
	Doc("Rounds units of 32 values to bfloat16.")
	dst, x, units := pointer("dst"), pointer("x"), pointer("units")
	one, half, quiet := constant(1), constant(0x7fff), constant(0x00400000)
	Label("unit")
	for i := range 2 {
		v, odd, nan := ZMM(), ZMM(), K()
		VMOVUPS(at(x, 64*i), v)
		VPSRLD(Imm(16), v, odd)
		VPANDD(one, odd, odd)
		VPADDD(half, odd, odd)
		VCMPPS(Imm(3), v, v, nan) // unordered
		VPADDD(v, odd, odd)
		VPORD(quiet, v, nan, odd)
		VPSRLD(Imm(16), odd, odd)
		VPMOVDW(odd, at(dst, 32*i))
	}
	add(64, dst)
	add(128, x)
	DECQ(units)
	JNZ(LabelRef("unit"))
	VZEROUPPER()
	RET()
}

// dotBF16 is the product of so many rows of weights and of rounded activations: columns 2i and 2i+1 are added, the second
// first, to sum i mod 16 of a pair.
func dotBF16(weights, rows int) {
	TEXT(label("dotBF16w%dr%d", weights, rows), NOSPLIT,
		"func(acc *float32, lanes int, w *byte, stride int, x *uint16, xStride, units int)")
	Doc(label("The products of %d rows of BF16 weights and %d of activations, in units of 32 columns. Four fetch the next four.", weights, rows))
	acc, lanes := pointer("acc"), pointer("lanes")
	wp, x := rowPointers("w", "stride", weights), rowPointers("x", "xStride", rows)
	units := pointer("units")
	ahead := GP64() // the rows that come next
	if weights == 4 {
		LEAQ(Mem{Base: wp.base, Index: wp.one, Scale: 4}, ahead)
	}
	registers := []reg.VecPhysical{
		reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7, reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13,
		reg.Z14, reg.Z15, reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23,
	}
	sums, in, w := registers[:16], registers[16:20], registers[20:24]
	for i := range weights * rows {
		VPXORD(sums[i], sums[i], sums[i])
	}
	Label("unit")
	for r := range rows {
		VMOVDQU32(x.at(r, 0), in[r])
	}
	for j := range weights {
		VMOVDQU32(wp.at(j, 0), w[j])
		for r := range rows {
			vectorBFloat16(w[j], in[r], sums[j*rows+r])
		}
	}
	if weights == 4 {
		for line := range 4 {
			PREFETCHT1(at(ahead, 64*line))
		}
		add(256, ahead)
	}
	wp.advance(64)
	x.advance(64)
	DECQ(units)
	JNZ(LabelRef("unit"))
	SHLQ(Imm(2), lanes)
	for r := range rows {
		for j := range weights {
			sum := ZMM()
			VMOVAPS(sums[j*rows+r], sum)
			VMOVSS(avx512.fold(sum), at(acc, 4*j))
		}
		if r < rows-1 {
			ADDQ(lanes, acc)
		}
	}
	VZEROUPPER()
	RET()
}

// splitBF16 writes a row's values as three bfloat16 numbers each, whose sum they are: the first eight bits, the next
// eight, and the rest. Two columns are a dword; those of one row lie step bytes apart.
func splitBF16() {
	TEXT("splitRowBF16", NOSPLIT, "func(dst *uint16, x *float32, units, step, term int)")
	Doc("Splits units of 32 values into three bfloat16 numbers each, which lie term bytes apart.")
	dst, x, units, step := pointer("dst"), pointer("x"), pointer("units"), pointer("step")
	places, top := ZMM(), constant(0xffff0000)
	VPBROADCASTD(step.As32(), places)
	VPMULLD(dwordTable("splitPlaces", []uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}), places, places)
	SHLQ(Imm(4), step) // 16 dwords are a unit
	Label("unit")
	var v [2]reg.VecVirtual
	for i := range v {
		v[i] = ZMM()
		VMOVUPS(at(x, 64*i), v[i])
	}
	to := GP64()
	MOVQ(dst, to)
	for t := range 3 {
		var words [2]reg.VecVirtual
		for i := range v {
			part, more := ZMM(), K()
			VPANDD(top, v[i], part)
			words[i] = YMM()
			shifted := ZMM()
			VPSRLD(Imm(16), part, shifted)
			VPMOVDW(shifted, words[i])
			if t < 2 { // what is left of infinity is nothing
				VCMPPS(Imm(4), part, v[i], more)
				VSUBPS_Z(part, v[i], more, v[i])
			}
		}
		all, every := ZMM(), K()
		VINSERTI64X4(Imm(1), words[1], words[0].AsZ(), all)
		KXNORW(every, every, every)
		VPSCATTERDD(all, every, Mem{Base: to, Index: places, Scale: 1})
		if t < 2 {
			ADDQ(parameter("term"), to)
		}
	}
	ADDQ(step, dst)
	add(128, x)
	DECQ(units)
	JNZ(LabelRef("unit"))
	VZEROUPPER()
	RET()
}

// tilesBF16 is the product of up to 16 rows of BF16 weights, as they lie in the file, and up to 16 rows of split
// activations, in steps of 32 columns. Each of the three parts has its sums, which are added at the end, the smallest first.
// What is written to sums, [16][16], is rows of weights; beyond those that there are it is anything.
func tilesBF16() {
	TEXT("tilesBF16", 0, "func(sums *float32, config, w *byte, stride int, x *uint16, xStride, term, steps, ahead int)")
	Doc("The products of rows of BF16 weights and of activations that are split in three. It fetches what lies ahead bytes further.")
	scratch := AllocLocal(3*1024 + 64)
	w, stride, xStride := reg.R8, reg.R9, reg.R13
	x := []reg.GPPhysical{reg.R10, reg.R11, reg.R12}
	at0, line := reg.RAX, reg.RCX
	load := func(name string, r reg.Register) { MOVQ(parameter(name), r) }
	load("config", at0)
	tileConfigure(place{base: at0})
	load("w", w)
	load("stride", stride)
	load("x", x[0])
	load("term", x[2])
	LEAQ(Mem{Base: x[0], Index: x[2], Scale: 1}, x[1])
	LEAQ(Mem{Base: x[0], Index: x[2], Scale: 2}, x[2])
	load("xStride", xStride)
	advance, steps, ahead := GP64(), pointer("steps"), pointer("ahead")
	ADDQ(w, ahead)
	MOVQ(xStride, advance)
	SHLQ(Imm(4), advance)
	for t := range x {
		tileZero(t)
	}
	Label("step")
	tileLoad(place{w, stride, 0}, 6)
	for t := range x {
		tileLoad(place{x[t], xStride, 0}, 3+t)
		tileBFloat16(3+t, 6, t)
	}
	for i := range 16 {
		PREFETCHT1(at(ahead, 64*i))
	}
	add(1024, ahead)
	add(64, w)
	for t := range x {
		ADDQ(advance, x[t])
	}
	DECQ(steps)
	JNZ(LabelRef("step"))
	LEAQ(scratch.Offset(63), at0)
	ANDQ(I8(-64), at0)
	MOVQ(U32(64), line)
	for t := range x {
		tileStore(t, place{at0, line, 1024 * t})
	}
	tileRelease()
	sums := pointer("sums")
	for i := range 16 {
		v := ZMM()
		VMOVUPS(at(at0, 2048+64*i), v)
		VADDPS(at(at0, 1024+64*i), v, v)
		VADDPS(at(at0, 64*i), v, v)
		VMOVUPS(v, at(sums, 64*i))
	}
	VZEROUPPER()
	RET()
}
