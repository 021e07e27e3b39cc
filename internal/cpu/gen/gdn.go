package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gdnKernels are the gated delta rule for a strip of 16 values (gdn_generic.go).
func gdnKernels() {
	for _, s := range isas {
		gdnStep(s)
		gdnReplay(s)
	}
}

// gdnStep makes the update of the row before, key after key, and reads the keys as they are made with k and with q, each in
// two chains.
func gdnStep(s isa) {
	TEXT("gdnStep"+s.name, NOSPLIT, "func(dst, src, beforeK, beforeDelta, k, q, v, delta, o *float32, "+
		"beforeDecay, beta, decay, kq float32, keys int, ahead *float32)")
	Doc("A row of the gated delta rule for a strip of 16 values and a whole number of 4 keys, as long a strip fetched ahead.")
	dst, src, before := pointer("dst"), pointer("src"), pointer("beforeK")
	k, q, keys, ahead := pointer("k"), pointer("q"), pointer("keys"), pointer("ahead")
	parts, fade := 16/s.lanes, s.param("beforeDecay")
	var update []reg.VecVirtual
	from := pointer("beforeDelta")
	for p := range parts {
		update = append(update, s.load(at(from, p*s.bytes())))
	}
	var byKey, byQuery [2][]reg.VecVirtual
	for i := range 2 {
		byKey[i], byQuery[i] = s.zeros(parts), s.zeros(parts)
	}
	Label("keys")
	for i := range 4 {
		PREFETCHT0(at(ahead, 64*i))
		for p := range parts {
			t := s.vec()
			VMULPS(at(src, 64*i+p*s.bytes()), fade, t)
			s.fmaMem(at(before, 4*i), update[p], t)
			VMOVUPS(t, at(dst, 64*i+p*s.bytes()))
			s.fmaMem(at(k, 4*i), t, byKey[i%2][p])
			s.fmaMem(at(q, 4*i), t, byQuery[i%2][p])
		}
	}
	for _, p := range []reg.Register{dst, src, ahead} {
		add(256, p)
	}
	for _, p := range []reg.Register{before, k, q} {
		add(16, p)
	}
	SUBQ(Imm(4), keys)
	JNZ(LabelRef("keys"))

	v, delta, o := pointer("v"), pointer("delta"), pointer("o")
	beta, decay, kq := s.param("beta"), s.param("decay"), s.param("kq")
	for p := range parts {
		VADDPS(byKey[1][p], byKey[0][p], byKey[0][p])
		VADDPS(byQuery[1][p], byQuery[0][p], byQuery[0][p])
		d := s.load(at(v, p*s.bytes()))
		VFNMADD231PS(decay, byKey[0][p], d)
		VMULPS(beta, d, d)
		VMOVUPS(d, at(delta, p*s.bytes()))
		VMULPS(decay, byQuery[0][p], byQuery[0][p])
		s.fma(d, kq, byQuery[0][p])
		VMOVUPS(byQuery[0][p], at(o, p*s.bytes()))
	}
	VZEROUPPER()
	RET()
}

// gdnReplay makes an update as gdnStep does, operation for operation.
func gdnReplay(s isa) {
	TEXT("gdnReplay"+s.name, NOSPLIT, "func(dst, src, k, delta *float32, decay float32, keys int)")
	Doc("The update of a row of the gated delta rule, with the same bits.")
	dst, src, k, delta := pointer("dst"), pointer("src"), pointer("k"), pointer("delta")
	keys, parts := pointer("keys"), 16/s.lanes
	decay := s.param("decay")
	size := GP64()
	MOVQ(keys, size)
	SHLQ(Imm(6), size)
	var update []reg.VecVirtual
	for p := range parts {
		update = append(update, s.load(at(delta, p*s.bytes())))
	}
	Label("write")
	for i := range 4 {
		f := s.broadcast(at(k, 4*i))
		PREFETCHT1(Mem{Base: src, Index: size, Scale: 1, Disp: 64 * i})
		for p := range parts {
			t := s.vec()
			VMULPS(at(src, 64*i+p*s.bytes()), decay, t)
			s.fma(update[p], f, t)
			VMOVUPS(t, at(dst, 64*i+p*s.bytes()))
		}
	}
	add(256, src)
	add(256, dst)
	add(16, k)
	SUBQ(Imm(4), keys)
	JNZ(LabelRef("write"))
	VZEROUPPER()
	RET()
}
