package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// attentionKernels are the products of attention over a page (attention_generic.go).
func attentionKernels() {
	for _, s := range isas {
		for _, queries := range []int{4, 1} {
			scores(s, queries)
			values(s, queries)
		}
		most(s)
		soften(s)
	}
}

// pair loads a vector of pairs of BF16 and parts them into float32.
func (s isa) pair(m Mem, mask reg.VecVirtual) (even, odd reg.VecVirtual) {
	even, odd = s.vec(), s.vec()
	VMOVUPS(m, odd)
	VPSLLD(Imm(16), odd, even)
	s.and(mask, odd, odd)
	return even, odd
}

// scores are those of so many queries for blocks of 16 tokens, two dimensions at a time.
func scores(s isa, queries int) {
	TEXT(fmt.Sprintf("scores%sq%d", s.name, queries), NOSPLIT, "func(scores, q *float32, keys *uint16, dim, blocks int)")
	Doc(fmt.Sprintf("The scores of %d queries for blocks of 16 tokens of a page of 64.", queries))
	out, keys := pointer("scores"), pointer("keys")
	base, dim, blocks := pointer("q"), pointer("dim"), pointer("blocks")
	parts := 16 / s.lanes
	bytes := GP64()
	MOVQ(dim, bytes)
	SHLQ(Imm(2), bytes)
	q := &strided{base: GP64(), one: bytes}
	if queries == 4 {
		q.three = GP64()
		LEAQ(Mem{Base: bytes, Index: bytes, Scale: 2}, q.three)
	}
	mask := s.constant(0xffff0000)
	n := GP64()
	Label("block")
	MOVQ(base, q.base)
	MOVQ(dim, n)
	sums := make([][]reg.VecVirtual, queries)
	for i := range sums {
		sums[i] = s.zeros(parts)
	}
	Label("dims")
	for p := range parts {
		even, odd := s.pair(at(keys, p*s.bytes()), mask)
		for i := range queries {
			s.fmaMem(q.at(i, 0), even, sums[i][p])
			s.fmaMem(q.at(i, 4), odd, sums[i][p])
		}
	}
	add(64, keys)
	q.advance(8)
	SUBQ(Imm(2), n)
	JNZ(LabelRef("dims"))
	for i := range queries {
		for p := range parts {
			VMOVUPS(sums[i][p], at(out, 256*i+p*s.bytes()))
		}
	}
	add(64, out)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	VZEROUPPER()
	RET()
}

// values add the weighted values of tokens to 32 dimensions of so many folds at a time.
func values(s isa, queries int) {
	TEXT(fmt.Sprintf("values%sq%d", s.name, queries), NOSPLIT, "func(folds, weights *float32, values *uint16, dim, tokens int)")
	Doc(fmt.Sprintf("Adds the weighted values of tokens of a page of 64 to %d folds.", queries))
	folds, weights, from := pointer("folds"), pointer("weights"), pointer("values")
	dim, tokens := pointer("dim"), pointer("tokens")
	row, stride := GP64(), GP64() // bytes of a pair of tokens, and from one fold to the next
	MOVQ(dim, row)
	SHLQ(Imm(2), row)
	LEAQ(Mem{Base: row, Disp: 64}, stride)
	out := &strided{base: folds, one: stride}
	if queries == 4 {
		out.three = GP64()
		LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, out.three)
	}
	mask := s.constant(0xffff0000)
	chunk := 16 // dimensions at a time
	if s.wide() {
		chunk = 32
	}
	vectors := chunk / s.lanes
	v, w, n := GP64(), GP64(), GP64()
	Label("chunk")
	MOVQ(from, v)
	MOVQ(weights, w)
	MOVQ(tokens, n)
	sums := make([][]reg.VecVirtual, queries)
	for i := range sums {
		for c := range vectors {
			sums[i] = append(sums[i], s.load(out.at(i, c*s.bytes())))
		}
	}
	token := func(second bool) {
		for c := range vectors {
			even, later := s.pair(at(v, c*s.bytes()), mask)
			for i := range queries {
				s.fmaMem(at(w, 256*i), even, sums[i][c])
				if second {
					s.fmaMem(at(w, 256*i+4), later, sums[i][c])
				}
			}
		}
	}
	SUBQ(Imm(2), n)
	JLT(LabelRef("single"))
	Label("tokens")
	token(true)
	ADDQ(row, v)
	add(8, w)
	SUBQ(Imm(2), n)
	JGE(LabelRef("tokens"))
	Label("single")
	CMPQ(n, I8(-1))
	JNE(LabelRef("done"))
	token(false)
	Label("done")
	for i := range queries {
		for c := range vectors {
			VMOVUPS(sums[i][c], out.at(i, c*s.bytes()))
		}
	}
	add(4*chunk, folds)
	add(4*chunk, from)
	SUBQ(Imm(uint64(chunk)), dim)
	JNZ(LabelRef("chunk"))
	VZEROUPPER()
	RET()
}

func most(s isa) {
	TEXT("most"+s.name, NOSPLIT, "func(x *float32, n int) float32")
	Doc("The largest of n values, a whole number of 16.")
	x, n := pointer("x"), pointer("n")
	v := s.constant(0xff800000) // -infinity
	s.loop(n, []reg.GPVirtual{x}, func(disp int) { VMAXPS(at(x, disp), v, v) })
	t := XMM()
	if s.wide() {
		y := YMM()
		VEXTRACTF64X4(Imm(1), v, y)
		VMAXPS(v.AsY(), y, y)
		v = y
	}
	h := s.upper(v)
	VMAXPS(v.AsX(), h, h)
	VPERMILPD(Imm(1), h, t)
	VMAXPS(t, h, h)
	VMOVSHDUP(h, t)
	VMAXSS(t, h, h)
	Store(h, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

func soften(s isa) {
	TEXT("soften"+s.name, NOSPLIT, "func(x *float32, most float32, n int) float32")
	Doc("Writes e^(x - most) of n values, a whole number of 16, and returns its sum.")
	x, n := pointer("x"), pointer("n")
	top := s.param("most")
	e := s.exponential()
	sums := s.zeros(16 / s.lanes)
	s.loop(n, []reg.GPVirtual{x}, func(disp int) {
		v := s.load(at(x, disp))
		VSUBPS(top, v, v)
		p := e.of(v)
		VMOVUPS(p, at(x, disp))
		i := disp / s.bytes()
		VADDPS(p, sums[i], sums[i])
	})
	if len(sums) == 2 {
		VADDPS(sums[1], sums[0], sums[0])
	}
	Store(s.fold(sums[0]), ReturnIndex(0))
	VZEROUPPER()
	RET()
}
