package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"splash/dequant"
)

// blockFormats are those whose blocks hold everything (formats.md 2). Most files are in the first ones, which are
// multiplied as they are unpacked.
var blockFormats = []blockFormat{
	{name: "Q4K", title: "Q4_K", bytes: 144, columns: 256, group: 32, minima: true, fuse: true, abreast: 2, body: bodyQ4K},
	{name: "Q5K", title: "Q5_K", bytes: 176, columns: 256, group: 32, minima: true, fuse: true, body: bodyQ5K},
	{name: "Q6K", title: "Q6_K", bytes: 210, columns: 256, group: 16, bias: 32, fuse: true, body: bodyQ6K},
	{name: "Q8", title: "pairs of Q8_0", bytes: 68, columns: 64, group: 32, bias: 128, fuse: true, twice: true, body: bodyQ8},
	{name: "IQ4XS", title: "IQ4_XS", bytes: 136, columns: 256, group: 32, bias: 128, fuse: true, body: bodyIQ4XS},
	{name: "Q40", title: "Q4_0", bytes: 18, columns: 32, group: 32, bias: 8, fuse: true, body: bodyQ40},
	{name: "IQ4NL", title: "IQ4_NL", bytes: 18, columns: 32, group: 32, bias: 128, fuse: true, body: bodyIQ4NL},
	{name: "MXFP4", title: "MXFP4", bytes: 17, columns: 32, group: 32, bias: 128, fuse: true, body: bodyMXFP4},
	{name: "NVFP4", title: "NVFP4", bytes: 36, columns: 64, group: 16, bias: 128, fuse: true, scaled: true, body: bodyNVFP4},
	{name: "Affine4", title: "af4g64", bytes: 36, columns: 64, group: 32, minima: true, fuse: true, body: bodyAffine4},
	{name: "IQ2XXS", title: "IQ2_XXS", bytes: 66, columns: 256, group: 32, bias: 128, fuse: true, looksUp: true, body: bodyIQ2XXS},
	{name: "IQ3XXS", title: "IQ3_XXS", bytes: 98, columns: 256, group: 32, bias: 128, fuse: true, looksUp: true, body: bodyIQ3XXS},

	{name: "Q2K", title: "Q2_K", bytes: 84, columns: 256, group: 16, minima: true, body: bodyQ2K},
	{name: "Q3K", title: "Q3_K", bytes: 110, columns: 256, group: 16, bias: 4, body: bodyQ3K},
	{name: "Q41", title: "Q4_1", bytes: 20, columns: 32, group: 32, minima: true, body: bodyQ41},
	{name: "Q50", title: "Q5_0", bytes: 22, columns: 32, group: 32, bias: 16, body: bodyQ50},
	{name: "Q51", title: "Q5_1", bytes: 24, columns: 32, group: 32, minima: true, body: bodyQ51},
	{name: "Q10", title: "Q1_0", bytes: 18, columns: 128, group: 32, bias: 1, body: bodyInOrder(1)},
	{name: "Q20", title: "Q2_0", bytes: 18, columns: 64, group: 32, bias: 1, body: bodyInOrder(2)},
	{name: "PQ20", title: "PQ2_0", bytes: 34, columns: 128, group: 32, bias: 1, body: bodyInOrder(2)},
	{name: "TQ10", title: "TQ1_0", bytes: 54, columns: 256, group: 32, bias: 1, body: bodyTQ10},
	{name: "TQ20", title: "TQ2_0", bytes: 66, columns: 256, group: 32, bias: 1, body: bodyTQ20},
	{name: "IQ2XS", title: "IQ2_XS", bytes: 74, columns: 256, group: 16, bias: 128, body: bodyIQ2XS},
	{name: "IQ2S", title: "IQ2_S", bytes: 82, columns: 256, group: 16, bias: 128, body: bodyIQ2S},
	{name: "IQ3S", title: "IQ3_S", bytes: 110, columns: 256, group: 32, bias: 128, body: bodyIQ3S},
	{name: "IQ1S", title: "IQ1_S", bytes: 50, columns: 256, group: 32, bias: 128, body: bodyIQ1S},
	{name: "IQ1M", title: "IQ1_M", bytes: 56, columns: 256, group: 16, bias: 128, body: bodyIQ1M},
	{name: "NVFP4Rows", title: "nvfp4", bytes: 148, columns: 256, group: 16, bias: 128, body: bodyNVFP4Rows},
}

// scaleByte makes byte b of every dword of v a float32.
func (s isa) scaleByte(v reg.VecVirtual, b int) reg.VecVirtual {
	t := s.vec()
	switch b {
	case 0:
		s.andDword(0xff, v, t)
	case 3:
		VPSRLD(Imm(24), v, t)
	default:
		s.shift(-8*b, v, t)
		s.andDword(0xff, t, t)
	}
	VCVTDQ2PS(t, t)
	return t
}

// scaleBytes writes the four bytes of v times d to the places of groups from first on, as float32.
func (k *blockKernel) scaleBytes(v, d reg.VecVirtual, place func(group int) Mem, first int) {
	for b := range 4 {
		t := k.s.scaleByte(v, b)
		VMULPS(d, t, t)
		VMOVUPS(t, place(first+b))
		k.mix()
	}
}

// sixBits writes the scales and minima of the eight groups of a Q4_K or Q5_K block.
func (k *blockKernel) sixBits() {
	s := k.s
	h := k.rows.dwords4(0)
	for i, side := range []struct {
		d     reg.VecVirtual
		place func(int) Mem
	}{{s.half(h[0]), k.scaleAt}, {s.topHalf(h[0]), k.minAt}} {
		first, second, high := s.vec(), s.vec(), s.vec()
		s.andDword(0x3f3f3f3f, h[1+i], first)
		k.scaleBytes(first, side.d, side.place, 0)
		s.shift(-4*i, h[3], second)
		s.andDword(0x0f0f0f0f, second, second)
		VPSRLD(Imm(2), h[1+i], high)
		s.andDword(0x30303030, high, high)
		s.or(high, second, second)
		k.scaleBytes(second, side.d, side.place, 4)
	}
}

// bodyQ4K: d, dmin, 12 bytes of scales, 128 of nibbles, each 32 of which are a group's low and the next one's high.
func bodyQ4K(k *blockKernel) func() {
	mask := k.s.every(0x0f)
	return func() {
		k.sixBits()
		for half := range 2 {
			k.columns16(16+64*half, func(i int, v reg.VecVirtual) {
				low := 32*half + i/8*16 + i%8
				k.nibbles(v, mask, low, low+8)
			})
			k.units(4*half, 4*half+4)
		}
	}
}

// bodyQ5K: as Q4_K, with 32 bytes of fifth bits before the nibbles, bit j of a byte that of group j.
func bodyQ5K(k *blockKernel) func() {
	s := k.s
	mask := s.every(0x0f)
	place := k.spill(8)
	if k.tight { // where the last codes will be
		place = func(i int) Mem { return at(k.codes, s.bytes()*(56+i)) }
	}
	return func() {
		k.sixBits()
		run := func(n, i int, v reg.VecVirtual) {
			for side := range 2 {
				code, bit := s.vec(), s.vec()
				s.shift(-4*side, v, code)
				s.shift(4-(2*n+side), place(i), bit)
				s.merge(mask, 0x0f, 0x1f, bit, code)
				k.put(code, 16*n+8*side+i)
			}
		}
		// The bits come first of each four, the nibbles of their columns after them.
		k.columns16(16, func(i int, v reg.VecVirtual) {
			if i < 8 {
				s.move(v, place(i))
			} else {
				run(0, i-8, v)
			}
		})
		k.units(0, 2)
		k.columns16(80, func(i int, v reg.VecVirtual) { run(1+i/8, i%8, v) })
		k.units(2, 6)
		k.columns16(112, func(i int, v reg.VecVirtual) {
			if i >= 8 {
				run(3, i-8, v)
			}
		})
		k.units(6, 8)
	}
}

// bodyQ6K: 128 bytes of low nibbles, 64 of high pairs of bits, 16 scales, d. Codes are 32 more than they mean.
func bodyQ6K(k *blockKernel) func() {
	s := k.s
	if k.tight {
		return k.tightQ6K()
	}
	mask := s.every(0x0f)
	place := k.spill(16)
	return func() {
		k.signedScales()
		k.columns16(128, func(i int, v reg.VecVirtual) { s.move(v, place(i)) })
		for half := range 2 {
			k.columns16(64*half, func(i int, v reg.VecVirtual) {
				for side := range 2 {
					code, bits := s.vec(), s.vec()
					s.shift(-4*side, v, code)
					s.shift(4-2*(2*side+i/8), place(8*half+i%8), bits)
					s.merge(mask, 0x0f, 0x3f, bits, code)
					k.put(code, 32*half+16*side+i)
				}
			})
			k.units(4*half, 4*half+4)
		}
	}
}

// tightQ6K is the body beside a product, which leaves few registers and few loads: the pairs of bits lie in two vectors of
// a spill, the first of each pair of pairs and the second, of which a byte's upper one is where it belongs and the lower one is
// once it is shifted. The spill is where the second half's codes will be, of which each comes after what it would overwrite.
func (k *blockKernel) tightQ6K() func() {
	s := k.s
	place := func(second, i int) Mem { return at(k.codes, s.bytes()*(48-i/8*16+8*second+i%8)) }
	put := func(nibbles, pairs reg.VecVirtual, dword int) {
		VPTERNLOGD_BCST(Imm(0xd8), bytes4(0x0f), nibbles, pairs) // 0x0f ? nibbles : pairs
		k.put(pairs, dword)
	}
	return func() {
		k.signedScales()
		k.columns16(128, func(i int, v reg.VecVirtual) {
			first := s.vec()
			s.andDword(0x33333333, v, first)
			s.move(first, place(0, i))
			VPSRLD(Imm(2), v, v)
			s.andDword(0x33333333, v, v)
			s.move(v, place(1, i))
		})
		for half := range 2 {
			k.columns16(64*half, func(i int, v reg.VecVirtual) {
				upper, lower := s.vec(), s.vec()
				s.move(place(i/8, 8*half+i%8), upper)
				VPSLLD(Imm(4), upper, lower)
				put(v, lower, 32*half+i)
				VPSRLD(Imm(4), v, v)
				put(v, upper, 32*half+16+i)
			})
		}
	}
}

// signedScales writes the 16 scales of a Q6_K block: signed bytes times d.
func (k *blockKernel) signedScales() {
	d := k.rows.halves(208)
	for j, v := range k.rows.dwords4(192) {
		for b := range 4 {
			t := k.s.vec()
			if b < 3 {
				VPSLLD(Imm(uint64(24-8*b)), v, t)
				VPSRAD(Imm(24), t, t)
			} else {
				VPSRAD(Imm(24), v, t)
			}
			VCVTDQ2PS(t, t)
			VMULPS(d, t, t)
			VMOVUPS(t, k.scaleAt(4*j+b))
			k.mix()
		}
	}
}

// bodyQ8: d and 32 codes, twice.
func bodyQ8(k *blockKernel) func() {
	flip := k.s.every(0x80)
	return func() {
		for b := range 2 {
			VMOVUPS(k.rows.halves(34*b), k.scaleAt(b))
		}
		k.rows.columns16(2, 36, func(i int, c reg.VecVirtual) {
			if k.s.wide() {
				VPXORD(flip, c, c)
			}
			k.put(c, i)
		}, k.between)
		k.units(0, 2)
	}
}

// codebook is a table of the values of codes of four bits, 128 more where tiles have biases.
func (k *blockKernel) codebook(name string, t dequant.Type) reg.VecVirtual {
	return k.s.codebook(name, t)
}

func (s isa) codebook(name string, t dequant.Type) reg.VecVirtual {
	var values [16]byte
	for i, v := range dequant.Codebook(t) {
		values[i] = byte(v)
		if s.wide() {
			values[i] ^= 0x80
		}
	}
	return s.table("codebook"+name+s.name, values)
}

// looked is nibbles, with codes looked up in a table.
func (k *blockKernel) looked(v reg.VecVirtual, mask Op, table reg.VecVirtual, low, high int) {
	lo, hi := k.s.vec(), k.s.vec()
	k.s.and(mask, v, lo)
	VPSHUFB(lo, table, lo)
	k.put(lo, low)
	VPSRLD(Imm(4), v, hi)
	k.s.and(mask, hi, hi)
	VPSHUFB(hi, table, hi)
	k.put(hi, high)
}

// bodyIQ4XS: d, eight high pairs of bits of scales, their low nibbles, 16 bytes of nibbles for each group, the low ones
// first.
func bodyIQ4XS(k *blockKernel) func() {
	s := k.s
	table, mask := k.codebook("IQ4", dequant.IQ4NL), s.every(0x0f)
	return func() {
		h := k.rows.dwords4(0)
		d := s.half(h[0])
		for j := range 8 {
			v, top := s.vec(), s.vec()
			s.shift(-4*j, h[1], v)
			s.andDword(15, v, v)
			VPSRLD(Imm(uint64(12+2*j)), h[0], top)
			s.andDword(0x30, top, top)
			s.or(top, v, v)
			s.subDword(32, v, v)
			VCVTDQ2PS(v, v)
			VMULPS(d, v, v)
			VMOVUPS(v, k.scaleAt(j))
		}
		for half := range 2 {
			k.columns16(8+64*half, func(i int, v reg.VecVirtual) {
				low := 32*half + i/4*8 + i%4
				k.looked(v, mask, table, low, low+4)
			})
			k.units(4*half, 4*half+4)
		}
	}
}

// bodyQ40: d and 32 codes of four bits, the low nibbles first.
func bodyQ40(k *blockKernel) func() {
	mask := k.s.every(0x0f)
	return func() {
		VMOVUPS(k.rows.halves(0), k.scaleAt(0))
		for i, v := range k.rows.dwords4(2) {
			k.nibbles(v, mask, i, 4+i)
		}
		k.units(0, 1)
	}
}

// bodyIQ4NL: the same, with codes of a codebook.
func bodyIQ4NL(k *blockKernel) func() {
	table, mask := k.codebook("IQ4", dequant.IQ4NL), k.s.every(0x0f)
	return func() {
		VMOVUPS(k.rows.halves(0), k.scaleAt(0))
		for i, v := range k.rows.dwords4(2) {
			k.looked(v, mask, table, i, 4+i)
		}
		k.units(0, 1)
	}
}

// bodyMXFP4: the same, with an exponent for d.
func bodyMXFP4(k *blockKernel) func() {
	table, mask := k.codebook("FP4", dequant.MXFP4), k.s.every(0x0f)
	return func() {
		VMOVUPS(k.rows.exponents(0), k.scaleAt(0))
		for i, v := range k.rows.dwords4(1) {
			k.looked(v, mask, table, i, 4+i)
		}
		k.units(0, 1)
	}
}

// exponents are 2^(e-128) of an E8M0 byte of each row; the two smallest are subnormal.
func (r *rows) exponents(disp int) reg.VecVirtual {
	s := r.s
	e, small, power := r.byteDwords(disp), s.vec(), s.vec()
	s.subDword(1, e, power)
	VPSLLD(Imm(23), power, power)
	if s.wide() {
		two, tiny, below := constant(2), constant(0x00200000), K()
		VPSLLVD(e, tiny, small)
		VPCMPUD(Imm(1), two, e, below) // e < 2
		VMOVDQA32(small, below, power)
		return power
	}
	two := s.constant(2)
	VMOVDQU(s.memory(0x00200000), small)
	VPSLLVD(e, small, small)
	VPCMPGTD(e, two, e)
	VPBLENDVB(e, small, power, power)
	return power
}

// bodyNVFP4: four scales, then eight bytes of nibbles for each 16 codes, the low ones first. Scales are halved, since codes
// are twice the values.
func bodyNVFP4(k *blockKernel) func() {
	s := k.s
	table, mask := k.codebook("FP4", dequant.MXFP4), s.every(0x0f)
	return func() {
		h := k.rows.dwords4(0)
		for j := range 4 {
			all, v := s.vec(), s.vec()
			s.shift(-8*j, h[0], all)
			s.andDword(0xff, all, all)
			s.andDword(0x7f, all, v)
			VPSLLD(Imm(20), v, v)
			s.mulFloat(0x1p120, v, v) // from an exponent of 4 bits to one of 8
			VMULPS(k.global, v, v)
			if s.wide() {
				some := K()
				VPCMPUD_BCST(Imm(4), dword(0x7f), all, some) // 0x7f reads 0
				VMULPS_BCST_Z(dword(float32bits(0.5)), v, some, v)
			} else {
				s.mulFloat(0.5, v, v)
				VPCMPEQD(s.memory(0x7f), all, all)
				VPANDN(v, all, v)
			}
			VMOVUPS(v, k.scaleAt(j))
		}
		for part := range 2 {
			for i, v := range k.rows.dwords4(4 + 16*part) {
				low := 8*part + i/2*4 + i%2
				k.looked(v, mask, table, low, low+2)
			}
		}
		k.units(0, 2)
	}
}

// A spreading puts nibbles that are in order into bytes: those of a dword's first two bytes, and those of its last two.
type spreading struct {
	s         isa
	mask      Op
	even, odd [2]reg.VecVirtual
}

func (s isa) spreading() *spreading {
	p := &spreading{s: s, mask: s.every(0x0f)}
	for i := range 2 {
		p.even[i] = s.spreadTable(label("spreadEven%d", i), 2*i, 0)
		p.odd[i] = s.spreadTable(label("spreadOdd%d", i), 2*i, 1)
	}
	return p
}

// spreadTable puts bytes from and from+1 of a dword at its places odd and odd+2.
func (s isa) spreadTable(name string, from, odd int) reg.VecVirtual {
	var t [16]byte
	for i := range t {
		t[i] = 0x80 // zero
		if i%4%2 == odd {
			t[i] = byte(i/4*4 + from + i%4/2)
		}
	}
	return s.table(name, t)
}

// take gives the two vectors of four codes that a dword of eight makes.
func (p *spreading) take(v reg.VecVirtual, take func(half int, v reg.VecVirtual)) {
	lo, hi := p.s.vec(), p.s.vec()
	p.s.and(p.mask, v, lo)
	VPSRLD(Imm(4), v, hi)
	p.s.and(p.mask, hi, hi)
	for half := range 2 {
		a, b := p.s.vec(), p.s.vec()
		VPSHUFB(p.even[half], lo, a)
		VPSHUFB(p.odd[half], hi, b)
		p.s.or(b, a, a)
		take(half, a)
	}
}

// bodyAffine4: a scale and a bias in BF16, 64 codes of four bits in order.
func bodyAffine4(k *blockKernel) func() {
	s := k.s
	p := s.spreading()
	return func() {
		h := k.rows.dwords4(0)
		d, z := s.vec(), s.vec()
		VPSLLD(Imm(16), h[0], d)
		s.andDword(0xffff0000, h[0], z)
		s.xorDword(0x80000000, z, z)
		for g := range 2 {
			VMOVUPS(d, k.scaleAt(g))
			VMOVUPS(z, k.minAt(g))
		}
		for part := range 2 {
			for i, v := range k.rows.dwords4(4 + 16*part) {
				p.take(v, func(half int, c reg.VecVirtual) { k.put(c, 8*part+2*i+half) })
			}
		}
		k.units(0, 2)
	}
}

// bodyQ2K: 16 bytes of a scale and a minimum, 64 of codes of two bits, a quarter of each 128 columns in each pair of bits,
// d, dmin.
func bodyQ2K(k *blockKernel) func() {
	s := k.s
	return func() {
		d, least := k.rows.halves(80), k.rows.halves(82)
		for i, v := range k.rows.dwords4(0) {
			low, high := s.vec(), s.vec()
			s.andDword(0x0f0f0f0f, v, low)
			k.scaleBytes(low, d, k.scaleAt, 4*i)
			VPSRLD(Imm(4), v, high)
			s.andDword(0x0f0f0f0f, high, high)
			k.scaleBytes(high, least, k.minAt, 4*i)
		}
		k.columns16(16, k.quarters)
	}
}

// quarters puts the codes of two bits of dword i of 16: pair j of a byte is column 32 j on of its half.
func (k *blockKernel) quarters(i int, v reg.VecVirtual) {
	for j := range 4 {
		c := k.s.vec()
		k.s.shift(-2*j, v, c)
		k.s.andDword(0x03030303, c, c)
		k.put(c, i/8*32+8*j+i%8)
	}
}

// bodyQ3K: 32 bytes of third bits, bit j of a byte that of the half's columns 32 j on, and the other half's four on; 64 of
// codes of two bits, 12 of scales, d.
func bodyQ3K(k *blockKernel) func() {
	s := k.s
	mask := s.every(3)
	place := k.spill(8)
	return func() {
		d, h := k.rows.halves(108), k.rows.dwords4(92)
		for j := range 4 {
			low, high := s.vec(), s.vec()
			s.shift(-j/2*4, h[1+j%2], low)
			s.andDword(0x0f0f0f0f, low, low)
			s.shift(4-2*j, h[3], high)
			s.andDword(0x30303030, high, high)
			s.or(high, low, low)
			for b := range 4 {
				t := s.vec()
				s.shift(-8*b, low, t)
				s.andDword(0xff, t, t)
				s.subDword(32, t, t)
				VCVTDQ2PS(t, t)
				VMULPS(d, t, t)
				VMOVUPS(t, k.scaleAt(4*j+b))
			}
		}
		run := func(half, i int, v reg.VecVirtual) {
			for j := range 4 {
				c, third := s.vec(), s.vec()
				s.shift(-2*j, v, c)
				s.shift(2-4*half-j, place(i), third)
				s.merge(mask, 3, 7, third, c)
				k.put(c, 32*half+8*j+i)
			}
		}
		k.columns16(0, func(i int, v reg.VecVirtual) {
			if i < 8 {
				s.move(v, place(i))
			} else {
				run(0, i-8, v)
			}
		})
		k.columns16(32, func(i int, v reg.VecVirtual) {
			if i >= 8 {
				run(1, i-8, v)
			}
		})
	}
}

// leastAt writes minus a minimum.
func (k *blockKernel) leastAt(v reg.VecVirtual, group int) {
	k.s.xorDword(0x80000000, v, v)
	VMOVUPS(v, k.minAt(group))
}

// bodyQ41: d, minus the minimum, and 32 codes of four bits, the low nibbles first.
func bodyQ41(k *blockKernel) func() {
	mask := k.s.every(0x0f)
	return func() {
		h := k.rows.dword(0)
		VMOVUPS(k.s.half(h), k.scaleAt(0))
		k.leastAt(k.s.topHalf(h), 0)
		for i, v := range k.rows.dwords4(4) {
			k.nibbles(v, mask, i, 4+i)
		}
	}
}

// fifths adds the fifth bits of a dword of 32 to nibbles, the low ones of which are its first 16.
type fifths struct {
	k        *blockKernel
	mask     Op
	replicas [4]reg.VecVirtual // of byte b of a dword in all its bytes
	ones     Op
}

func newFifths(k *blockKernel) *fifths {
	f := &fifths{k: k, mask: k.s.every(0x0f), ones: k.s.every(1)}
	for b := range f.replicas {
		f.replicas[b] = k.s.replicas(b)
	}
	return f
}

// replicas is the table that puts byte b of every dword into its four bytes.
func (s isa) replicas(b int) reg.VecVirtual {
	var t [16]byte
	for i := range t {
		t[i] = byte(i/4*4 + b)
	}
	return s.table(label("replicas%d", b), t)
}

func (f *fifths) put(v, bits reg.VecVirtual, i int) {
	s := f.k.s
	for side := range 2 {
		code, fifth := s.vec(), s.vec()
		s.shift(-4*side, v, code)
		s.and(f.mask, code, code)
		VPSHUFB(f.replicas[2*side+i/2], bits, fifth)
		s.andDword(0x08040201<<(i%2*4), fifth, fifth)
		VPMINUB(f.ones, fifth, fifth)
		VPSLLD(Imm(4), fifth, fifth)
		s.or(fifth, code, code)
		f.k.put(code, 4*side+i)
	}
}

// bodyQ50: d, 32 fifth bits, 16 bytes of nibbles.
func bodyQ50(k *blockKernel) func() {
	f := newFifths(k)
	return func() {
		VMOVUPS(k.rows.halves(0), k.scaleAt(0))
		bits := k.rows.dword(2)
		for i, v := range k.rows.dwords4(6) {
			f.put(v, bits, i)
		}
	}
}

// bodyQ51: d, minus the minimum, 32 fifth bits, 16 bytes of nibbles.
func bodyQ51(k *blockKernel) func() {
	f := newFifths(k)
	return func() {
		h := k.rows.dwords2(0)
		VMOVUPS(k.s.half(h[0]), k.scaleAt(0))
		k.leastAt(k.s.topHalf(h[0]), 0)
		for i, v := range k.rows.dwords4(8) {
			f.put(v, h[1], i)
		}
	}
}

// bodyInOrder: d, and codes of one or two bits in order; one bit means 1 or -1, two 1 less than they say.
func bodyInOrder(bits int) func(k *blockKernel) func() {
	return func(k *blockKernel) func() {
		return func() {
			d := k.rows.halves(0)
			for g := range k.columns / k.group {
				VMOVUPS(d, k.scaleAt(g))
			}
			v := k.rows.dwords(2, k.columns*bits/32)
			for i := range k.columns / 4 {
				c := k.s.fourCodes(v, bits, i)
				if bits == 1 {
					VPSLLD(Imm(1), c, c)
				}
				k.put(c, i)
			}
		}
	}
}

// fourCodes puts codes 4 i to 4 i + 3 of so many bits, which dwords hold one after another, into the bytes of a dword.
func (s isa) fourCodes(v []reg.VecVirtual, bits, i int) reg.VecVirtual {
	at, w := 4*bits*i%32, s.vec()
	from := v[4*bits*i/32]
	s.shift(-at, from, w)
	if at+4*bits > 32 {
		more := s.vec()
		s.shift(32-at, v[4*bits*i/32+1], more)
		s.or(more, w, w)
	}
	out, mask := s.vec(), uint32(1)<<bits-1
	s.andDword(mask, w, out)
	for j := 1; j < 4; j++ {
		t := s.vec()
		s.shift(j*(8-bits), w, t)
		s.accumulate(t, mask<<(8*j), out)
	}
	return out
}

// bodyTQ20: 64 bytes of codes of two bits, as in Q2_K, d.
func bodyTQ20(k *blockKernel) func() {
	return func() {
		k.oneScale(64)
		k.columns16(0, k.quarters)
	}
}

// oneScale writes an F16 to the places of all groups.
func (k *blockKernel) oneScale(disp int) {
	d := k.rows.halves(disp)
	for g := range k.columns / k.group {
		VMOVUPS(d, k.scaleAt(g))
	}
}

// bodyTQ10: 32 bytes of five ternary digits, a digit of all bytes after another's, 16 bytes of five, four of four, d.
func bodyTQ10(k *blockKernel) func() {
	return func() {
		k.oneScale(52)
		for i, v := range k.rows.dwords(0, 8) {
			k.digits(v, 5, i, 8)
		}
		for i, v := range k.rows.dwords(32, 4) {
			k.digits(v, 5, 40+i, 4)
		}
		k.digits(k.rows.dword(48), 4, 60, 1)
	}
}

// digits puts the digits of the bytes of v: a byte is a fraction of 256, its digit what three times it exceeds 256 by.
func (k *blockKernel) digits(v reg.VecVirtual, n, dword, step int) {
	s := k.s
	var parts [2]reg.VecVirtual // the even bytes and the odd ones, as words
	for i := range parts {
		parts[i] = s.vec()
		s.shift(-8*i, v, parts[i])
		s.andDword(0x00ff00ff, parts[i], parts[i])
	}
	for d := range n {
		digits := s.vec()
		for i, p := range parts {
			twice := s.vec()
			VPADDW(p, p, twice)
			VPADDW(twice, p, p)
			if t := s.vec(); i == 0 {
				VPSRLW(Imm(8), p, digits)
			} else {
				s.andDword(0xff00ff00, p, t)
				s.or(t, digits, digits)
			}
			s.andDword(0x00ff00ff, p, p)
		}
		k.put(digits, dword+d*step)
	}
}

// bodyNVFP4Rows: 16 scales in E4M3, the tensor's in F32, 256 codes of four bits in order.
func bodyNVFP4Rows(k *blockKernel) func() {
	s := k.s
	p, table := s.spreading(), k.codebook("FP4", dequant.MXFP4)
	return func() {
		global := k.rows.dword(16)
		for i, v := range k.rows.dwords4(0) {
			for b := range 4 {
				t := s.vec()
				s.shift(-8*b, v, t)
				s.e4m3(t, global)
				VMOVUPS(t, k.scaleAt(4*i+b))
			}
		}
		for part := range 8 {
			for i, v := range k.rows.dwords4(20 + 16*part) {
				p.take(v, func(half int, c reg.VecVirtual) {
					VPSHUFB(c, table, c)
					k.put(c, 8*part+2*i+half)
				})
			}
		}
	}
}

// e4m3 makes the low bytes of v, which are E4M3, half their values times global.
func (s isa) e4m3(v, global reg.VecVirtual) {
	s.e4m3Value(v)
	VMULPS(v, global, v)
	s.mulFloat(0.5, v, v)
}

// e4m3Value makes them their values: an exponent of 4 bits becomes one of 8.
func (s isa) e4m3Value(v reg.VecVirtual) {
	sign := s.vec()
	VPSLLD(Imm(24), v, sign)
	s.andDword(0x80000000, sign, sign)
	s.andDword(0x7f, v, v)
	VPSLLD(Imm(20), v, v)
	s.mulFloat(0x1p120, v, v)
	s.or(sign, v, v)
}
