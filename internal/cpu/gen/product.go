package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// productKernels are the products of a tile and a panel (product_generic.go): for every number of rows of a panel, size of
// a group, and formats with and without minima.
func productKernels() {
	for _, s := range isas {
		for _, group := range []int{32, 16} {
			for _, minima := range []bool{false, true} {
				exact(s, 1, group, minima)
				if s.wide() {
					exact(s, 4, group, minima)
				}
			}
		}
	}
	for _, rows := range []int{8, 4, 2, 1} {
		for _, group := range []int{32, 16} {
			for _, minima := range []bool{false, true} {
				product512(rows, group, minima)
				if rows <= 4 {
					product256(rows, group, minima)
				}
			}
		}
	}
}

const (
	productSignature = "func(acc *float32, codes *byte, scales, mins *float32, x *int8, dx, sums *float32, biases *int32, units int)"
	fetchSignature   = "func(acc *float32, codes *byte, scales, mins *float32, x *int8, dx, sums *float32, biases *int32, units int, ahead uintptr, step int)"
)

func productName(level string, rows, group int, minima bool) string {
	name := fmt.Sprintf("product%sr%dg%d", level, rows, group)
	if minima {
		name += "m"
	}
	return name
}

// product512 is the product of 16 rows of weights. For each unit, with i the exact sums of a group:
//
//	v = i ws, or for two groups a unit i0 ws0 + i1 ws1;  acc += dx v;  acc -= m s for each group
//
// Beside every four columns it fetches a line, eight a unit; the next unit's begin step bytes on.
func product512(rows, group int, minima bool) {
	TEXT(productName("512", rows, group, minima), NOSPLIT, fetchSignature)
	Doc(fmt.Sprintf("The product of 16 rows of weights in groups of %d by %d of activations. Units fetch what is ahead.", group, rows))
	acc, codes, scales, mins := pointer("acc"), pointer("codes"), pointer("scales"), pointer("mins")
	x, dx, sums, biases, units := pointer("x"), pointer("dx"), pointer("sums"), pointer("biases"), pointer("units")
	groups, chains := 32/group, max(1, 4/rows)

	f := zmms(rows)
	for r := range f {
		VMOVUPS(at(acc, 64*r), f[r])
	}
	ahead, step := pointer("ahead"), pointer("step")
	Label("unit")
	v := zmms(rows)
	for g := range groups {
		sum := productInts(rows, group/4, g, chains, codes, x, biases, ahead)
		scale := ZMM()
		VMOVUPS(at(scales, 64*g), scale)
		for r := range rows {
			VCVTDQ2PS(sum[r], sum[r])
			if g == 0 {
				VMULPS(sum[r], scale, v[r])
			} else {
				VFMADD231PS(sum[r], scale, v[r])
			}
		}
	}
	for r := range rows {
		VFMADD231PS_BCST(at(dx, 4*r), v[r], f[r])
	}
	if minima {
		for g := range groups {
			m := ZMM()
			VMOVUPS(at(mins, 64*g), m)
			for r := range rows {
				VFNMADD231PS_BCST(at(sums, 4*(g*rows+r)), m, f[r])
			}
		}
		add(64*groups, mins)
		add(4*groups*rows, sums)
	}
	ADDQ(step, ahead)
	add(8*64, codes)
	add(64*groups, scales)
	add(32*rows, x)
	add(4*rows, dx)
	add(4*groups*rows, biases)
	DECQ(units)
	JNZ(LabelRef("unit"))
	for r := range f {
		VMOVUPS(f[r], at(acc, 64*r))
	}
	VZEROUPPER()
	RET()
}

// productInts sums the products of one group: n dwords of codes. Few rows are summed in several chains, so that one need
// not wait for another.
func productInts(rows, n, g, chains int, codes, x, biases, ahead reg.Register) []reg.VecVirtual {
	sums := make([][]reg.VecVirtual, rows)
	for r := range sums {
		sums[r] = zmms(chains)
		VPBROADCASTD(at(biases, 4*(g*rows+r)), sums[r][0])
		for _, c := range sums[r][1:] {
			VPXORD(c, c, c)
		}
	}
	for d := range n {
		w := ZMM()
		at0 := g*n + d
		VMOVDQU32(at(codes, 64*at0), w)
		PREFETCHT1(at(ahead, 64*at0))
		for r := range rows {
			dot(at(x, 4*(at0*rows+r)), w, sums[r][d%chains])
		}
	}
	out := make([]reg.VecVirtual, rows)
	for r, s := range sums {
		for step := len(s) / 2; step > 0; step /= 2 {
			for i := range step {
				VPADDD(s[i+step], s[i], s[i])
			}
		}
		out[r] = s[0]
	}
	return out
}

// product256 is the product of 8 rows of weights. Bytes are multiplied in pairs, an unsigned one by a signed one: the
// magnitude of the weight's code by the activation's with the sign of the weight's. No sum of two exceeds 16 bits.
func product256(rows, group int, minima bool) {
	TEXT(productName("256", rows, group, minima), NOSPLIT, productSignature)
	Doc(fmt.Sprintf("The product of 8 rows of weights in groups of %d by %d of activations.", group, rows))
	acc, codes, scales, mins := pointer("acc"), pointer("codes"), pointer("scales"), pointer("mins")
	x, dx, sums, units := pointer("x"), pointer("dx"), pointer("sums"), pointer("units")
	groups := 32 / group
	words := avx2.constant(0x00010001)
	f := make([]reg.VecVirtual, rows)
	for r := range f {
		f[r] = avx2.load(at(acc, 32*r))
	}
	Label("unit")
	v := avx2.vecs(rows)
	for g := range groups {
		sum := v
		if g > 0 {
			sum = avx2.vecs(rows)
		}
		for d := range group / 4 {
			w, magnitude := YMM(), YMM()
			VMOVDQU(at(codes, 32*(g*group/4+d)), w)
			VPABSB(w, magnitude)
			for r := range rows {
				t := YMM()
				VPBROADCASTD(at(x, 4*((g*group/4+d)*rows+r)), t)
				VPSIGNB(w, t, t)
				VPMADDUBSW(t, magnitude, t)
				VPMADDWD(words, t, t)
				if d == 0 {
					VMOVDQA(t, sum[r])
				} else {
					VPADDD(t, sum[r], sum[r])
				}
			}
		}
		for r := range rows {
			VCVTDQ2PS(sum[r], sum[r])
			if g == 0 {
				VMULPS(at(scales, 0), sum[r], v[r])
			} else {
				VFMADD231PS(at(scales, 32*g), sum[r], v[r])
			}
		}
	}
	for r := range rows {
		avx2.fmaMem(at(dx, 4*r), v[r], f[r])
	}
	if minima {
		for g := range groups {
			for r := range rows {
				VFNMADD231PS(at(mins, 32*g), avx2.broadcast(at(sums, 4*(g*rows+r))), f[r])
			}
		}
		add(32*groups, mins)
		add(4*groups*rows, sums)
	}
	add(8*32, codes)
	add(32*groups, scales)
	add(32*rows, x)
	add(4*rows, dx)
	DECQ(units)
	JNZ(LabelRef("unit"))
	for r := range f {
		VMOVUPS(f[r], at(acc, 32*r))
	}
	VZEROUPPER()
	RET()
}

// exact is the product of a tile and rows of activations in float32, none of them rounded: a weight is code scale - c, c
// the group's minimum and what the bias of its codes comes to. The columns of a span are summed in four chains, one for
// each of a dword's codes, which are then added to acc.
func exact(s isa, rows, group int, minima bool) {
	name := fmt.Sprintf("exact%sr%dg%d", s.name, rows, group)
	if minima {
		name += "m"
	}
	TEXT(name, NOSPLIT, "func(acc *float32, codes *byte, scales, mins, x *float32, stride, units int, bias float32)")
	Doc(fmt.Sprintf("The product of a tile in groups of %d and %d rows of float32 activations.", group, rows))
	codes, scales := pointer("codes"), pointer("scales")
	var mins reg.GPVirtual
	if minima {
		mins = pointer("mins")
	}
	x, units := rowPointers("x", "stride", rows), pointer("units")
	bias := s.param("bias")
	low := s.constant(0xff)
	sums := make([][]reg.VecVirtual, rows)
	for r := range sums {
		sums[r] = s.zeros(4)
	}
	Label("unit")
	for g := range 32 / group {
		scale, c := s.load(at(scales, s.bytes()*g)), s.vec()
		VMULPS(bias, scale, c)
		if minima {
			VADDPS(at(mins, s.bytes()*g), c, c)
		}
		for d := range group / 4 {
			dword := g*group/4 + d
			w := s.load(at(codes, s.bytes()*dword))
			for b := range 4 {
				v := s.code(w, b, low)
				VCVTDQ2PS(v, v)
				VFMSUB213PS(c, scale, v)
				for r := range rows {
					s.fmaMem(x.at(r, 16*dword+4*b), v, sums[r][b])
				}
			}
		}
	}
	add(8*s.bytes(), codes)
	add(32/group*s.bytes(), scales)
	if minima {
		add(32/group*s.bytes(), mins)
	}
	x.advance(128)
	DECQ(units)
	JNZ(LabelRef("unit"))
	acc := pointer("acc")
	for r, sum := range sums {
		VADDPS(sum[1], sum[0], sum[0])
		VADDPS(sum[3], sum[2], sum[2])
		VADDPS(sum[2], sum[0], sum[0])
		VADDPS(at(acc, r*s.bytes()), sum[0], sum[0])
		VMOVUPS(sum[0], at(acc, r*s.bytes()))
	}
	VZEROUPPER()
	RET()
}

// code is code b of every dword: unsigned in tiles of the wide isa, signed in the other's.
func (s isa) code(w reg.VecVirtual, b int, low reg.VecVirtual) reg.VecVirtual {
	v := s.vec()
	switch {
	case !s.wide() && b < 3:
		VPSLLD(Imm(uint64(24-8*b)), w, v)
		VPSRAD(Imm(24), v, v)
	case !s.wide():
		VPSRAD(Imm(24), w, v)
	case b == 0:
		s.and(low, w, v)
	case b < 3:
		VPSRLD(Imm(uint64(8*b)), w, v)
		s.and(low, v, v)
	default:
		VPSRLD(Imm(24), w, v)
	}
	return v
}
