package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A floatWeight is how weights of one value an element are stored.
type floatWeight struct {
	name  string
	bytes int
}

var floatWeights = []floatWeight{{"F32", 4}, {"F16", 2}, {"BF16", 2}}

// dotKernels are products of rows of weights and rows of activations in float32 (dot_generic.go).
func dotKernels() {
	for _, s := range isas {
		for _, w := range floatWeights {
			dotFloat(s, w, 1, 1)
			dotFloat(s, w, 4, 1)
			if s.wide() {
				dotFloat(s, w, 4, 4)
			}
		}
	}
}

// dotFloat is the product of so many rows of weights and of activations: column i is added to sum i mod 16 of a pair.
func dotFloat(s isa, w floatWeight, weights, rows int) {
	TEXT(fmt.Sprintf("dot%s%sw%dr%d", s.name, w.name, weights, rows), NOSPLIT,
		"func(acc *float32, lanes int, w *byte, stride int, x *float32, xStride, blocks int)")
	Doc(fmt.Sprintf("The products of %d rows of %s weights and %d of activations, in blocks of 16 columns. Four fetch the next four.", weights, w.name, rows))
	acc, lanes := pointer("acc"), pointer("lanes")
	wp, x := rowPointers("w", "stride", weights), rowPointers("x", "xStride", rows)
	blocks := pointer("blocks")
	ahead := GP64() // the rows that come next
	if weights == 4 {
		LEAQ(Mem{Base: wp.base, Index: wp.one, Scale: 4}, ahead)
	}
	parts := 16 / s.lanes
	sums := make([][]reg.VecVirtual, weights*rows)
	for i := range sums {
		sums[i] = s.zeros(parts)
	}
	Label("block")
	for part := range parts {
		var in []reg.VecVirtual
		for r := range rows {
			in = append(in, s.load(x.at(r, part*s.bytes())))
		}
		for j := range weights {
			v := s.widen(w, wp.at(j, part*s.lanes*w.bytes))
			for r := range rows {
				s.fma(v, in[r], sums[j*rows+r][part])
			}
		}
	}
	if weights == 4 {
		for line := range w.bytes {
			PREFETCHT1(at(ahead, 64*line))
		}
		add(64*w.bytes, ahead)
	}
	wp.advance(16 * w.bytes)
	x.advance(64)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	SHLQ(Imm(2), lanes)
	for r := range rows {
		for j := range weights {
			sum := sums[j*rows+r]
			if parts == 2 {
				VADDPS(sum[1], sum[0], sum[0])
			}
			VMOVSS(s.fold(sum[0]), at(acc, 4*j))
		}
		if r < rows-1 {
			ADDQ(lanes, acc)
		}
	}
	VZEROUPPER()
	RET()
}

// widen loads weights as float32.
func (s isa) widen(w floatWeight, m Mem) reg.VecVirtual {
	v := s.vec()
	switch w.name {
	case "F32":
		VMOVUPS(m, v)
	case "F16":
		VCVTPH2PS(m, v)
	case "BF16":
		VPMOVZXWD(m, v)
		VPSLLD(Imm(16), v, v)
	}
	return v
}

// strided addresses up to four rows a stride apart.
type strided struct{ base, one, three reg.GPVirtual }

func rowPointers(base, stride string, n int) *strided {
	r := &strided{base: pointer(base)}
	if n > 1 {
		r.one = pointer(stride)
	}
	if n > 3 {
		r.three = GP64()
		LEAQ(Mem{Base: r.one, Index: r.one, Scale: 2}, r.three)
	}
	return r
}

func (r *strided) at(i, disp int) Mem {
	m := Mem{Base: r.base, Disp: disp}
	switch i {
	case 1:
		m.Index, m.Scale = r.one, 1
	case 2:
		m.Index, m.Scale = r.one, 2
	case 3:
		m.Index, m.Scale = r.three, 1
	}
	return m
}

func (r *strided) advance(n int) { add(n, r.base) }
