package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A blockKernel takes blocks of 16 rows one after another: it unpacks them to a tile, or multiplies them by one row of
// activations as they are unpacked, with the very operations of the product of a tile (product.go). On its way it fetches,
// line by line, as many bytes as it reads, from where ahead points: all at once they would wait for each other.
type blockKernel struct {
	codes, scales, mins reg.GPVirtual
	rows                *rows16
	blocks              reg.GPVirtual
	ahead               reg.GPVirtual

	bytes, columns, group int // of a block
	minima                bool
	stored                int // dwords of codes of a block, so far
	fetched               int // lines

	fused        bool
	x, dx        reg.GPVirtual
	sums, biases reg.GPVirtual
	acc          reg.VecVirtual
	ints         map[int]reg.VecVirtual // of groups that are under way
	unsigned     bool                   // codes have no bias

	scalesFrom, minsFrom int // of the pointers, of a piped kernel
	fetch                func(Op)
	between              func() // emits part of the product of the block before; nil: none
}

const (
	unpackSignature = "func(codes *byte, scales, mins *float32, src *byte, stride, blocks int, ahead *byte)"
	fusedSignature  = "func(acc, scales, mins *float32, src *byte, stride, blocks int, ahead *byte, x *int8, dx, sums *float32, biases *int32)"
)

// A blockFormat is a format that both kinds of kernels are made for.
type blockFormat struct {
	name                  string // of kernels
	title                 string
	bytes, columns, group int
	minima                bool
	unsigned              bool // codes have no bias
	scaled                bool // mins is a parameter: the rows' tensor scales
	fuse                  bool
	// body loads what blocks share and returns what unpacks one.
	body func(k *blockKernel) func()
}

// kernels makes them: unpack and, for what matters most, fused.
func (f *blockFormat) kernels(fused bool) {
	k := &blockKernel{
		bytes: f.bytes, columns: f.columns, group: f.group, minima: f.minima, unsigned: f.unsigned, fused: fused,
		fetch: func(m Op) { PREFETCHT1(m) }, ints: map[int]reg.VecVirtual{},
	}
	if fused {
		TEXT("fused"+f.name+"512", 0, fusedSignature)
		Doc("The product of 16 rows of " + f.title + " blocks and one of activations. Scales and minima are room for a block's.")
	} else {
		TEXT("unpack"+f.name+"512", 0, unpackSignature)
		Doc("Unpacks " + f.title + " blocks of 16 rows, and fetches as many bytes from ahead on.")
		k.codes = pointer("codes")
	}
	k.scales = pointer("scales")
	if f.minima || f.scaled {
		k.mins = pointer("mins")
	}
	k.rows = newRows16(pointer("src"), pointer("stride"))
	k.blocks, k.ahead = pointer("blocks"), pointer("ahead")
	if fused {
		k.x, k.dx = pointer("x"), pointer("dx")
		if f.minima {
			k.sums = pointer("sums")
		}
		if !f.unsigned {
			k.biases = pointer("biases")
		}
		k.acc = ZMM()
		VMOVUPS(at(pointer("acc"), 0), k.acc)
	}
	block := f.body(k)
	Label("block")
	block()
	k.next()
}

// scaleAt and minAt are the places of a group's scales and minima.
func (k *blockKernel) scaleAt(group int) Mem { return at(k.scales, k.scalesFrom+64*group) }
func (k *blockKernel) minAt(group int) Mem   { return at(k.mins, k.minsFrom+64*group) }

// transpose is that of 16 rows, with what is emitted between.
func (k *blockKernel) transpose(v []reg.VecVirtual, take func(dword int, v reg.VecVirtual)) {
	transpose(v, take, k.between)
}

// next ends the loop.
func (k *blockKernel) next() {
	groups := k.columns / k.group
	k.rows.advance(k.bytes)
	add(16*k.bytes, k.ahead)
	if !k.fused {
		add(16*k.columns, k.codes)
		add(64*groups, k.scales)
		if k.minima {
			add(64*groups, k.mins)
		}
	} else {
		add(k.columns, k.x)
		add(k.columns/8, k.dx)
		if k.minima {
			add(4*groups, k.sums)
		}
		if !k.unsigned {
			add(4*groups, k.biases)
		}
	}
	DECQ(k.blocks)
	JNZ(LabelRef("block"))
	if k.fused {
		VMOVUPS(k.acc, at(pointer("acc"), 0))
	}
	VZEROUPPER()
	RET()
}

// put takes the codes of columns 4 dword and on, and fetches what is due.
func (k *blockKernel) put(v reg.VecVirtual, dword int) {
	if k.fused {
		k.multiply(v, dword)
	} else {
		VMOVDQU32(v, at(k.codes, 64*dword))
	}
	k.stored++
	for lines := (16*k.bytes + 63) / 64; k.fetched*k.columns < 4*lines*k.stored; k.fetched++ {
		k.fetch(at(k.ahead, 64*k.fetched))
	}
	if k.between != nil {
		k.between()
	}
}

func (k *blockKernel) multiply(v reg.VecVirtual, dword int) {
	g := 4 * dword / k.group
	sum, ok := k.ints[g]
	if !ok {
		sum = ZMM()
		if k.unsigned {
			VPXORD(sum, sum, sum)
		} else {
			VPBROADCASTD(at(k.biases, 4*g), sum)
		}
		k.ints[g] = sum
	}
	dot(at(k.x, 4*dword), v, sum)
}

// units finishes units from first to last-1, all of whose codes have been put.
func (k *blockKernel) units(first, last int) {
	if !k.fused {
		return
	}
	groups := 32 / k.group
	for u := first; u < last; u++ {
		var v reg.VecVirtual
		for i := range groups {
			g := u*groups + i
			sum := k.ints[g]
			delete(k.ints, g)
			VCVTDQ2PS(sum, sum)
			if i == 0 {
				v = ZMM()
				VMULPS(k.scaleAt(g), sum, v)
			} else {
				VFMADD231PS(k.scaleAt(g), sum, v)
			}
		}
		VFMADD231PS_BCST(at(k.dx, 4*u), v, k.acc)
		if k.minima {
			for i := range groups {
				s := ZMM()
				VBROADCASTSS(at(k.sums, 4*(u*groups+i)), s)
				VFNMADD231PS(k.minAt(u*groups+i), s, k.acc)
			}
		}
	}
}

// nibbles splits v, whose low nibbles are the dword low, the high ones the dword high.
func (k *blockKernel) nibbles(v, mask reg.VecVirtual, low, high int) {
	lo, hi := ZMM(), ZMM()
	VPANDD(mask, v, lo)
	k.put(lo, low)
	VPSRLD(Imm(4), v, hi)
	VPANDD(mask, hi, hi)
	k.put(hi, high)
}

// dword is one in memory, for instructions that broadcast it.
func dword(v uint32) Mem {
	m, ok := dwords[v]
	if !ok {
		m = GLOBL(label("dword%08x", v), RODATA|NOPTR)
		DATA(0, U32(v))
		dwords[v] = m
	}
	return m
}

var dwords = map[uint32]Mem{}

// bytes4 is a byte four times.
func bytes4(v uint32) Mem { return dword(v * 0x01010101) }

// blockFormats are those of most files (formats.md 2): Q4_K, Q5_K, Q6_K, IQ4_XS, IQ2_XXS and IQ3_XXS of 256 columns, Q8_0 by two blocks, Q4_0,
// IQ4_NL and MXFP4 of 32, NVFP4 and MLX's af4g64 of 64.
var blockFormats = []blockFormat{
	{name: "Q4K", title: "Q4_K", bytes: 144, columns: 256, group: 32, minima: true, unsigned: true, fuse: true, body: bodyQ4K},
	{name: "Q5K", title: "Q5_K", bytes: 176, columns: 256, group: 32, minima: true, unsigned: true, fuse: true, body: bodyQ5K},
	{name: "Q6K", title: "Q6_K", bytes: 210, columns: 256, group: 16, fuse: true, body: bodyQ6K},
	{name: "Q8", title: "pairs of Q8_0", bytes: 68, columns: 64, group: 32, fuse: true, body: bodyQ8},
	{name: "IQ4XS", title: "IQ4_XS", bytes: 136, columns: 256, group: 32, fuse: true, body: bodyIQ4XS},
	{name: "Q40", title: "Q4_0", bytes: 18, columns: 32, group: 32, fuse: true, body: func(k *blockKernel) func() { return k.bodyNibbles(2, nil) }},
	{name: "IQ4NL", title: "IQ4_NL", bytes: 18, columns: 32, group: 32, fuse: true, body: func(k *blockKernel) func() { return k.bodyNibbles(2, &codebookIQ4) }},
	{name: "MXFP4", title: "MXFP4", bytes: 17, columns: 32, group: 32, fuse: true, body: func(k *blockKernel) func() { return k.bodyNibbles(1, &codebookFP4) }},
	{name: "NVFP4", title: "NVFP4", bytes: 36, columns: 64, group: 16, scaled: true, body: bodyNVFP4},
	{name: "Affine4", title: "af4g64", bytes: 36, columns: 64, group: 32, minima: true, unsigned: true, fuse: true, body: bodyAffine4},
	{name: "IQ2XXS", title: "IQ2_XXS", bytes: 66, columns: 256, group: 32, fuse: true, body: bodyIQ2XXS},
	{name: "IQ3XXS", title: "IQ3_XXS", bytes: 98, columns: 256, group: 32, fuse: true, body: bodyIQ3XXS},
}

// scaleBytes writes the four bytes of v times d to the places of groups from first on, as float32.
func scaleBytes(v, d reg.VecVirtual, place func(group int) Mem, first int) {
	for j := range 4 {
		s := ZMM()
		switch j {
		case 0:
			VPANDD_BCST(dword(0xff), v, s)
		case 3:
			VPSRLD(Imm(24), v, s)
		default:
			VPSRLD(Imm(uint64(8*j)), v, s)
			VPANDD_BCST(dword(0xff), s, s)
		}
		VCVTDQ2PS(s, s)
		VMULPS(d, s, s)
		VMOVUPS(s, place(first+j))
	}
}

// half is the F16 in the low words of v.
func half(v reg.VecVirtual) reg.VecVirtual {
	w, d := YMM(), ZMM()
	VPMOVDW(v, w)
	VCVTPH2PS(w, d)
	return d
}

// sixBits writes the scales and minima of the eight groups of a Q4_K or Q5_K block.
func (k *blockKernel) sixBits() {
	h := k.rows.dwords4(0)
	d, top := half(h[0]), ZMM()
	VPSRLD(Imm(16), h[0], top)
	for i, side := range []struct {
		d     reg.VecVirtual
		place func(int) Mem
	}{{d, k.scaleAt}, {half(top), k.minAt}} {
		first, second, high := ZMM(), ZMM(), ZMM()
		VPANDD_BCST(bytes4(0x3f), h[1+i], first)
		scaleBytes(first, side.d, side.place, 0)
		VPSRLD(Imm(uint64(4*i)), h[3], second)
		VPANDD_BCST(bytes4(0x0f), second, second)
		VPSRLD(Imm(2), h[1+i], high)
		VPANDD_BCST(bytes4(0x30), high, high)
		VPORD(high, second, second)
		scaleBytes(second, side.d, side.place, 4)
	}
}

// bodyQ4K: d, dmin, 12 bytes of scales, 128 of nibbles, each 32 of which are a group's low and the next one's high.
func bodyQ4K(k *blockKernel) func() {
	mask := every(0x0f)
	return func() {
		k.sixBits()
		for half := range 2 {
			k.transpose(k.rows.load64(16+64*half), func(i int, v reg.VecVirtual) {
				low := 32*half + i/8*16 + i%8
				k.nibbles(v, mask, low, low+8)
			})
			k.units(4*half, 4*half+4)
		}
	}
}

// bodyQ5K: as Q4_K, with 32 bytes of fifth bits before the nibbles, bit j of a byte that of group j.
func bodyQ5K(k *blockKernel) func() {
	mask := every(0x0f)
	spill := AllocLocal(8 * 64)
	return func() {
		k.sixBits()
		run := func(n, i int, v reg.VecVirtual) {
			for side := range 2 {
				code, bit := ZMM(), ZMM()
				if side == 0 {
					VMOVDQA32(v, code)
				} else {
					VPSRLD(Imm(4), v, code)
				}
				switch shift := 4 - (2*n + side); {
				case shift > 0:
					VPSLLD(Imm(uint64(shift)), spill.Offset(64*i), bit)
				case shift < 0:
					VPSRLD(Imm(uint64(-shift)), spill.Offset(64*i), bit)
				default:
					VMOVDQU32(spill.Offset(64*i), bit)
				}
				VPTERNLOGD(Imm(0xe4), mask, bit, code) // mask ? code : bit
				VPANDD_BCST(bytes4(0x1f), code, code)
				k.put(code, 16*n+8*side+i)
			}
		}
		// The bits come first of each four, the nibbles of their columns after them.
		k.transpose(k.rows.load64(16), func(i int, v reg.VecVirtual) {
			if i < 8 {
				VMOVDQU32(v, spill.Offset(64*i))
			} else {
				run(0, i-8, v)
			}
		})
		k.units(0, 2)
		k.transpose(k.rows.load64(80), func(i int, v reg.VecVirtual) { run(1+i/8, i%8, v) })
		k.units(2, 6)
		k.transpose(k.rows.load64(112), func(i int, v reg.VecVirtual) {
			if i >= 8 {
				run(3, i-8, v)
			}
		})
		k.units(6, 8)
	}
}

// bodyQ6K: 128 bytes of low nibbles, 64 of high pairs of bits, 16 scales, d. Codes are 32 more than they mean.
func bodyQ6K(k *blockKernel) func() {
	mask := every(0x0f)
	spill := AllocLocal(16 * 64)
	return func() {
		k.signedScales()
		k.transpose(k.rows.load64(128), func(i int, v reg.VecVirtual) { VMOVDQU32(v, spill.Offset(64*i)) })
		for half := range 2 {
			k.transpose(k.rows.load64(64*half), func(i int, v reg.VecVirtual) {
				high := spill.Offset(64 * (8*half + i%8))
				for side := range 2 {
					code, bits := ZMM(), ZMM()
					if side == 0 {
						VMOVDQA32(v, code)
					} else {
						VPSRLD(Imm(4), v, code)
					}
					switch place := 2*side + i/8; place { // of the pair of bits in a byte
					case 0:
						VPSLLD(Imm(4), high, bits)
					case 1:
						VPSLLD(Imm(2), high, bits)
					case 2:
						VMOVDQU32(high, bits)
					case 3:
						VPSRLD(Imm(2), high, bits)
					}
					VPTERNLOGD(Imm(0xe4), mask, bits, code)
					VPANDD_BCST(bytes4(0x3f), code, code)
					k.put(code, 32*half+16*side+i)
				}
			})
			k.units(4*half, 4*half+4)
		}
	}
}

// signedScales writes the 16 scales of a Q6_K block: signed bytes times d.
func (k *blockKernel) signedScales() {
	d := k.rows.halves(208)
	for j, v := range k.rows.dwords4(192) {
		for b := range 4 {
			s := ZMM()
			if b < 3 {
				VPSLLD(Imm(uint64(24-8*b)), v, s)
				VPSRAD(Imm(24), s, s)
			} else {
				VPSRAD(Imm(24), v, s)
			}
			VCVTDQ2PS(s, s)
			VMULPS(d, s, s)
			VMOVUPS(s, k.scaleAt(4*j+b))
		}
	}
}

// bodyQ8: d and 32 codes, twice. Codes are 128 more than they mean.
func bodyQ8(k *blockKernel) func() {
	flip := every(0x80)
	return func() {
		for b := range 2 {
			VMOVUPS(k.rows.halves(34*b), k.scaleAt(b))
		}
		v := zmms(16)
		for i := range v {
			VBROADCASTI64X4(k.rows.at(i, 2), v[i])
			VINSERTI64X4(Imm(1), k.rows.at(i, 36), v[i], v[i])
		}
		k.transpose(v, func(i int, c reg.VecVirtual) {
			VPXORD(flip, c, c)
			k.put(c, i)
		})
		k.units(0, 2)
	}
}

// codebookIQ4 is the values of IQ4's codes, 128 more.
var codebookIQ4 = [16]byte{1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241}

// codebookFP4 is twice the values of E2M1, 128 more.
var codebookFP4 = [16]byte{128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116}

// looked is nibbles, with codes looked up in a table.
func (k *blockKernel) looked(v, mask, table reg.VecVirtual, low, high int) {
	lo, hi := ZMM(), ZMM()
	VPANDD(mask, v, lo)
	VPSHUFB(lo, table, lo)
	k.put(lo, low)
	VPSRLD(Imm(4), v, hi)
	VPANDD(mask, hi, hi)
	VPSHUFB(hi, table, hi)
	k.put(hi, high)
}

// bodyIQ4XS: d, eight high pairs of bits of scales, their low nibbles, 16 bytes of nibbles for each group, the low ones
// first.
func bodyIQ4XS(k *blockKernel) func() {
	table, mask := table16("codebookIQ4XS", codebookIQ4), every(0x0f)
	return func() {
		h := k.rows.dwords4(0)
		d := half(h[0])
		for j := range 8 {
			s, top := ZMM(), ZMM()
			VPSRLD(Imm(uint64(4*j)), h[1], s)
			VPANDD_BCST(dword(15), s, s)
			VPSRLD(Imm(uint64(12+2*j)), h[0], top)
			VPANDD_BCST(dword(0x30), top, top)
			VPORD(top, s, s)
			VPSUBD_BCST(dword(32), s, s)
			VCVTDQ2PS(s, s)
			VMULPS(d, s, s)
			VMOVUPS(s, k.scaleAt(j))
		}
		for half := range 2 {
			k.transpose(k.rows.load64(8+64*half), func(i int, v reg.VecVirtual) {
				low := 32*half + i/4*8 + i%4
				k.looked(v, mask, table, low, low+4)
			})
			k.units(4*half, 4*half+4)
		}
	}
}

// bodyNibbles: a scale, an F16 or an E8M0, and 32 codes of four bits, the low nibbles first.
func (k *blockKernel) bodyNibbles(scale int, codebook *[16]byte) func() {
	var table reg.VecVirtual
	if codebook != nil {
		table = table16(label("codebook%d", scale), *codebook)
	}
	mask := every(0x0f)
	return func() {
		if scale == 2 {
			VMOVUPS(k.rows.halves(0), k.scaleAt(0))
		} else {
			VMOVUPS(k.exponents(), k.scaleAt(0))
		}
		for i, v := range k.rows.dwords4(scale) {
			if codebook != nil {
				k.looked(v, mask, table, i, 4+i)
			} else {
				k.nibbles(v, mask, i, 4+i)
			}
		}
		k.units(0, 1)
	}
}

// exponents are 2^(e-128) of the E8M0 byte each block begins with; the two smallest are subnormal.
func (k *blockKernel) exponents() reg.VecVirtual {
	x := XMM()
	VPXORD(x, x, x)
	for i := range 16 {
		VPINSRB(Imm(uint64(i)), k.rows.at(i, 0), x, x)
	}
	e, small := ZMM(), ZMM()
	VPMOVZXBD(x, e)
	one, two, tiny := constant(1), constant(2), constant(0x00200000)
	VPSLLVD(e, tiny, small)
	below := K()
	VPCMPUD(Imm(1), two, e, below) // e < 2
	VPSUBD(one, e, e)
	VPSLLD(Imm(23), e, e)
	VMOVDQA32(small, below, e)
	return e
}

// bodyNVFP4: four scales, then eight bytes of nibbles for each 16 codes, the low ones first. Scales are halved, since codes
// are twice the values; mins has the rows' tensor scales.
func bodyNVFP4(k *blockKernel) func() {
	table, mask := table16("codebookNVFP4", codebookFP4), every(0x0f)
	global, half, lift := ZMM(), constant(0x3f000000), constant(0x7b800000) // 2^120: an exponent of 4 bits to one of 8
	VMOVUPS(at(k.mins, 0), global)
	return func() {
		h := k.rows.dwords4(0)
		for j := range 4 {
			s, all, some := ZMM(), ZMM(), K()
			VPSRLD(Imm(uint64(8*j)), h[0], all)
			VPANDD_BCST(dword(0xff), all, all)
			VPCMPUD_BCST(Imm(4), dword(0x7f), all, some) // 0x7f reads 0
			VPANDD_BCST(dword(0x7f), all, s)
			VPSLLD(Imm(20), s, s)
			VMULPS(lift, s, s)
			VMULPS(global, s, s)
			VMULPS_Z(half, s, some, s)
			VMOVUPS(s, k.scaleAt(j))
		}
		for part := range 2 {
			for i, v := range k.rows.dwords4(4 + 16*part) {
				low := 8*part + i/2*4 + i%2
				k.looked(v, mask, table, low, low+2)
			}
		}
	}
}

// bodyAffine4: a scale and a bias in BF16, 64 codes of four bits in order.
func bodyAffine4(k *blockKernel) func() {
	mask := every(0x0f)
	even0, odd0 := spreadTable("spreadEven0", 0, 0), spreadTable("spreadOdd0", 0, 1)
	even1, odd1 := spreadTable("spreadEven1", 2, 0), spreadTable("spreadOdd1", 2, 1)
	return func() {
		h := k.rows.dwords4(0)
		s, z := ZMM(), ZMM()
		VPSLLD(Imm(16), h[0], s)
		VPANDD_BCST(dword(0xffff0000), h[0], z)
		VPXORD_BCST(dword(0x80000000), z, z)
		for g := range 2 {
			VMOVUPS(s, k.scaleAt(g))
			VMOVUPS(z, k.minAt(g))
		}
		for part := range 2 {
			for i, v := range k.rows.dwords4(4 + 16*part) {
				lo, hi := ZMM(), ZMM()
				VPANDD(mask, v, lo)
				VPSRLD(Imm(4), v, hi)
				VPANDD(mask, hi, hi)
				for half, tables := range [][2]reg.VecVirtual{{even0, odd0}, {even1, odd1}} {
					a, b := ZMM(), ZMM()
					VPSHUFB(tables[0], lo, a)
					VPSHUFB(tables[1], hi, b)
					VPORD(b, a, a)
					k.put(a, 8*part+2*i+half)
				}
			}
		}
		k.units(0, 2)
	}
}

// spreadTable puts bytes from and from+1 of a dword at its places odd and odd+2.
func spreadTable(name string, from, odd int) reg.VecVirtual {
	var t [16]byte
	for i := range t {
		t[i] = 0x80 // zero
		if i%4%2 == odd {
			t[i] = byte(i/4*4 + from + i%4/2)
		}
	}
	return table16(name, t)
}
