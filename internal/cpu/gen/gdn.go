package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gdnKernels are the gated delta rule for a strip of 16 values (gdn_generic.go).
func gdnKernels() {
	for _, s := range isas {
		gdnStep(s, false)
		gdnStep(s, true)
		gdnReplay(s)
	}
}

// gdnStep reads the strip with k, in two chains over the keys, makes the update, and writes the new strip as it is read
// with q.
//
// A strip that is written past the caches costs no read of what was there; nobody needs it before the next pass.
func gdnStep(s isa, past bool) {
	name, doc := "gdnStep"+s.name, "A row of the gated delta rule for a strip of 16 values and a whole number of 4 keys."
	if past {
		name, doc = "gdnLast"+s.name, "As gdnStep, writing past the caches to another strip, which begins on a cache line."
	}
	TEXT(name, NOSPLIT, "func(dst, src, k, q, v, o, delta *float32, beta, decay float32, keys int)")
	Doc(doc)
	dst, src, k, q := pointer("dst"), pointer("src"), pointer("k"), pointer("q")
	keys, parts := pointer("keys"), 16/s.lanes
	decay := s.param("decay")
	from, key, n := GP64(), GP64(), GP64()
	MOVQ(src, from)
	MOVQ(k, key)
	MOVQ(keys, n)
	size := GP64() // of a strip: the next one is fetched
	MOVQ(keys, size)
	SHLQ(Imm(6), size)
	even, odd := s.zeros(parts), s.zeros(parts)
	Label("read")
	for i := range 4 {
		to := even
		if i%2 == 1 {
			to = odd
		}
		f := s.broadcast(at(key, 4*i))
		PREFETCHT1(Mem{Base: from, Index: size, Scale: 1, Disp: 64 * i})
		for p := range parts {
			s.fma(at(from, 64*i+p*s.bytes()), f, to[p])
		}
	}
	add(256, from)
	add(16, key)
	SUBQ(Imm(4), n)
	JNZ(LabelRef("read"))

	delta, v := pointer("delta"), pointer("v")
	beta := s.param("beta")
	update := s.vecs(parts)
	for p := range parts {
		VADDPS(odd[p], even[p], even[p])
		VMOVUPS(at(v, p*s.bytes()), update[p])
		VFNMADD231PS(decay, even[p], update[p])
		VMULPS(beta, update[p], update[p])
		VMOVUPS(update[p], at(delta, p*s.bytes()))
	}
	outs := [][]reg.VecVirtual{s.zeros(parts), s.zeros(parts)}
	Label("write")
	for i := range 4 {
		f, g := s.broadcast(at(k, 4*i)), s.broadcast(at(q, 4*i))
		for p := range parts {
			t := s.vec()
			VMULPS(at(src, 64*i+p*s.bytes()), decay, t)
			s.fma(update[p], f, t)
			if past {
				VMOVNTPS(t, at(dst, 64*i+p*s.bytes()))
			} else {
				VMOVUPS(t, at(dst, 64*i+p*s.bytes()))
			}
			s.fma(t, g, outs[i%2][p])
		}
	}
	add(256, src)
	add(256, dst)
	add(16, k)
	add(16, q)
	SUBQ(Imm(4), keys)
	JNZ(LabelRef("write"))
	o := pointer("o")
	for p := range parts {
		VADDPS(outs[1][p], outs[0][p], outs[0][p])
		VMOVUPS(outs[0][p], at(o, p*s.bytes()))
	}
	if past {
		SFENCE()
	}
	VZEROUPPER()
	RET()
}

// gdnReplay is the writing half of gdnStep, operation for operation.
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
