package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// peakChains are the sums that grow beside each other, so that none waits for itself.
const peakChains = 12

// peakKernels multiply what is in registers, which is the most that any kernel can come to.
func peakKernels() {
	for _, s := range isas {
		peak(s, "peakFloats", func(w, x, sum reg.VecVirtual) { s.fma(w, x, sum) })
	}
	peak(avx512, "peakInts", func(w, x, sum reg.VecVirtual) {
		instruction("VPDPBUSD", "", "AVX512VNNI", x, w, sum)
	})
	peak(avx2, "peakInts", func(w, x, sum reg.VecVirtual) {
		t := YMM()
		VPMADDUBSW(x, w, t)
		VPMADDWD(w, t, t)
		VPADDD(t, sum, sum)
	})
}

func peak(s isa, name string, multiply func(w, x, sum reg.VecVirtual)) {
	TEXT(name+s.name, NOSPLIT, "func(rounds int)")
	Doc(label("Multiplies %d vectors a round, and adds up the products.", peakChains))
	rounds, w, x, sums := pointer("rounds"), s.zero(), s.zero(), s.zeros(peakChains)
	Label("round")
	for _, sum := range sums {
		multiply(w, x, sum)
	}
	DECQ(rounds)
	JNZ(LabelRef("round"))
	VZEROUPPER()
	RET()
}
