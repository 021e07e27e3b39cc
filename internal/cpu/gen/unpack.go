package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// unpackKernels fill tiles of 16 rows (unpack_generic.go): interleave from rows in natural order, the others from blocks.
// A tile has a vector of a dword of each row for every four columns, and one of the rows' scales for every group.
func unpackKernels() {
	interleave512()
	interleave256()
	unpackQ4K512()
	unpackQ5K512()
	unpackQ6K512()
	unpackQ8512()
	unpackIQ4XS512()
	for _, f := range nibbleFormats {
		unpackNibbles512(f)
	}
	unpackNVFP4512()
	unpackAffine4512()
}

// rows16 addresses 16 rows a stride apart.
type rows16 struct {
	base       [4]reg.GPVirtual
	one, three reg.GPVirtual // the stride, three of them
}

func newRows16(base, stride reg.GPVirtual) *rows16 {
	r := &rows16{one: stride, three: GP64()}
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, r.three)
	r.base[0] = base
	for i := 1; i < 4; i++ {
		r.base[i] = GP64()
		LEAQ(Mem{Base: r.base[i-1], Index: stride, Scale: 4}, r.base[i])
	}
	return r
}

// at is a place in row i.
func (r *rows16) at(i, disp int) Mem {
	m := Mem{Base: r.base[i/4], Disp: disp}
	switch i % 4 {
	case 1:
		m.Index, m.Scale = r.one, 1
	case 2:
		m.Index, m.Scale = r.one, 2
	case 3:
		m.Index, m.Scale = r.three, 1
	}
	return m
}

func (r *rows16) advance(n int) {
	for _, p := range r.base {
		add(n, p)
	}
}

// load64 loads 64 bytes of each row.
func (r *rows16) load64(disp int) []reg.VecVirtual {
	v := zmms(16)
	for i := range v {
		VMOVDQU32(r.at(i, disp), v[i])
	}
	return v
}

// dwords4 are four dwords of each row: vector j has dword j of row i in lane i.
func (r *rows16) dwords4(disp int) []reg.VecVirtual {
	v := zmms(4)
	for i := range v {
		VBROADCASTI32X4(r.at(i, disp), v[i])
		for q := 1; q < 4; q++ {
			VINSERTI32X4(Imm(uint64(q)), r.at(4*q+i, disp), v[i], v[i])
		}
	}
	a, b, c, d := ZMM(), ZMM(), ZMM(), ZMM()
	VPUNPCKLDQ(v[1], v[0], a)
	VPUNPCKHDQ(v[1], v[0], b)
	VPUNPCKLDQ(v[3], v[2], c)
	VPUNPCKHDQ(v[3], v[2], d)
	out := zmms(4)
	VPUNPCKLQDQ(c, a, out[0])
	VPUNPCKHQDQ(c, a, out[1])
	VPUNPCKLQDQ(d, b, out[2])
	VPUNPCKHQDQ(d, b, out[3])
	return out
}

// words are one 16-bit word of each row, in order, in the low half of the result.
func (r *rows16) words(disp int) reg.VecVirtual {
	low, high := ZMM(), ZMM()
	VPXORD(low, low, low)
	VPXORD(high, high, high)
	for i := range 8 {
		VPINSRW(Imm(uint64(i)), r.at(i, disp), low.AsX(), low.AsX())
		VPINSRW(Imm(uint64(i)), r.at(8+i, disp), high.AsX(), high.AsX())
	}
	VINSERTI32X4(Imm(1), high.AsX(), low.AsY(), low.AsY())
	return low
}

// halves are the float32 values of one F16 of each row.
func (r *rows16) halves(disp int) reg.VecVirtual {
	w, d := r.words(disp), ZMM()
	VCVTPH2PS(w.AsY(), d)
	return d
}

// transpose turns 16 rows of 16 dwords into 16 vectors of one dword of every row.
func transpose(v []reg.VecVirtual) []reg.VecVirtual {
	pairs := make([]reg.VecVirtual, 16)
	for i := 0; i < 16; i += 2 {
		pairs[i], pairs[i+1] = ZMM(), ZMM()
		VPUNPCKLDQ(v[i+1], v[i], pairs[i])
		VPUNPCKHDQ(v[i+1], v[i], pairs[i+1])
	}
	// fours[4g+j] has, in quarter q, dword 4q+j of rows 4g to 4g+3.
	fours := make([]reg.VecVirtual, 16)
	for g := 0; g < 16; g += 4 {
		for h := range 2 {
			fours[g+2*h], fours[g+2*h+1] = ZMM(), ZMM()
			VPUNPCKLQDQ(pairs[g+2+h], pairs[g+h], fours[g+2*h])
			VPUNPCKHQDQ(pairs[g+2+h], pairs[g+h], fours[g+2*h+1])
		}
	}
	out := make([]reg.VecVirtual, 16)
	for j := range 4 {
		var even, odd [2]reg.VecVirtual
		for h := range 2 {
			a, b := fours[8*h+j], fours[8*h+4+j]
			even[h], odd[h] = ZMM(), ZMM()
			VSHUFI32X4(Imm(0x88), b, a, even[h])
			VSHUFI32X4(Imm(0xdd), b, a, odd[h])
		}
		for q, from := range [][2]reg.VecVirtual{even, odd, even, odd} {
			out[4*q+j] = ZMM()
			VSHUFI32X4(Imm([]uint64{0x88, 0xdd}[q/2]), from[1], from[0], out[4*q+j])
		}
	}
	return out
}

// constant is a dword in every lane.
func constant(v uint32) reg.VecVirtual {
	r, z := GP32(), ZMM()
	MOVL(U32(v), r)
	VPBROADCASTD(r, z)
	return z
}

// every is a byte in every byte.
func every(b uint32) reg.VecVirtual { return constant(b * 0x01010101) }

// table16 is 16 bytes in every quarter.
func table16(name string, values [16]byte) reg.VecVirtual {
	m := GLOBL(name, RODATA|NOPTR)
	for i, v := range values {
		DATA(i, U8(v))
	}
	z := ZMM()
	VBROADCASTI32X4(m, z)
	return z
}

// interleave512 makes a tile of rows in natural order: columns of four bytes, to which bias is added byte by byte.
func interleave512() {
	TEXT("interleave512", NOSPLIT, "func(dst, src *byte, stride, columns int, bias uint32)")
	Doc("Writes 16 columns of dwords of 16 rows at a time, each column's rows side by side, bias added to every byte.")
	dst, r := pointer("dst"), newRows16(pointer("src"), pointer("stride"))
	columns := pointer("columns")
	bias := ZMM()
	b := Load(Param("bias"), GP32()).(reg.GPVirtual)
	VPBROADCASTD(b, bias)
	Label("columns")
	for i, v := range transpose(r.load64(0)) {
		VPADDB(bias, v, v)
		VMOVDQU32(v, at(dst, 64*i))
	}
	add(1024, dst)
	r.advance(64)
	SUBQ(U32(16), columns)
	JNZ(LabelRef("columns"))
	VZEROUPPER()
	RET()
}

// interleave256 is the same for 8 rows, as they are.
func interleave256() {
	TEXT("interleave256", NOSPLIT, "func(dst, src *byte, stride, columns int)")
	Doc("Writes 8 columns of dwords of 8 rows at a time, each column's rows side by side.")
	dst, r := pointer("dst"), newRows16(pointer("src"), pointer("stride"))
	columns := pointer("columns")
	Label("columns")
	v := avx2.vecs(8)
	for i := range v {
		VMOVUPS(r.at(i, 0), v[i])
	}
	for i, t := range transpose8(v) {
		VMOVUPS(t, at(dst, 32*i))
	}
	add(256, dst)
	r.advance(32)
	SUBQ(U32(8), columns)
	JNZ(LabelRef("columns"))
	VZEROUPPER()
	RET()
}

// transpose8 turns 8 rows of 8 dwords into 8 vectors of one dword of every row.
func transpose8(v []reg.VecVirtual) []reg.VecVirtual {
	fours := make([]reg.VecVirtual, 8) // of rows 0 to 3, then 4 to 7: dwords j and 4+j
	for g := 0; g < 8; g += 4 {
		p := avx2.vecs(4)
		VUNPCKLPS(v[g+1], v[g], p[0])
		VUNPCKHPS(v[g+1], v[g], p[1])
		VUNPCKLPS(v[g+3], v[g+2], p[2])
		VUNPCKHPS(v[g+3], v[g+2], p[3])
		for h := range 2 {
			fours[g+2*h], fours[g+2*h+1] = YMM(), YMM()
			VUNPCKLPD(p[2+h], p[h], fours[g+2*h])
			VUNPCKHPD(p[2+h], p[h], fours[g+2*h+1])
		}
	}
	out := make([]reg.VecVirtual, 8)
	for j := range 4 {
		out[j], out[4+j] = YMM(), YMM()
		VPERM2F128(Imm(0x20), fours[4+j], fours[j], out[j])
		VPERM2F128(Imm(0x31), fours[4+j], fours[j], out[4+j])
	}
	return out
}

// A blockKernel unpacks blocks of 16 rows one after another. Between its stores it fetches, line by line, as many bytes as
// it reads, from where ahead points: all at once they would wait for each other.
type blockKernel struct {
	codes, scales, mins reg.GPVirtual
	rows                *rows16
	blocks              reg.GPVirtual
	ahead               reg.GPVirtual

	bytes          int // of a block
	stores, stored int // of codes, in a block; so far
	fetched        int // lines
}

const unpackSignature = "func(codes *byte, scales, mins *float32, src *byte, stride, blocks int, ahead *byte)"

// beginBlocks begins a kernel of blocks of so many bytes and columns.
func beginBlocks(name, doc string, bytes, columns int, minima bool) *blockKernel {
	TEXT(name, 0, unpackSignature)
	Doc(doc + " of 16 rows, and fetches as many bytes from ahead on.")
	k := &blockKernel{codes: pointer("codes"), scales: pointer("scales"), bytes: bytes, stores: columns / 4}
	if minima {
		k.mins = pointer("mins")
	}
	k.rows = newRows16(pointer("src"), pointer("stride"))
	k.blocks, k.ahead = pointer("blocks"), pointer("ahead")
	return k
}

// next ends the loop.
func (k *blockKernel) next(bytes, columns, groups int) {
	k.rows.advance(bytes)
	add(16*bytes, k.ahead)
	add(16*columns, k.codes)
	add(64*groups, k.scales)
	if k.mins != nil {
		add(64*groups, k.mins)
	}
	DECQ(k.blocks)
	JNZ(LabelRef("block"))
	VZEROUPPER()
	RET()
}

// store writes the codes of columns 4 dword and on.
func (k *blockKernel) store(v reg.VecVirtual, dword int) {
	VMOVDQU32(v, at(k.codes, 64*dword))
	k.stored++
	for lines := (16*k.bytes + 63) / 64; k.fetched*k.stores < lines*k.stored; k.fetched++ {
		PREFETCHT1(at(k.ahead, 64*k.fetched))
	}
}

// nibbles splits v, whose low nibbles are the dword low, the high ones the dword high.
func (k *blockKernel) nibbles(v, mask reg.VecVirtual, low, high int) {
	lo, hi := ZMM(), ZMM()
	VPANDD(mask, v, lo)
	VPSRLD(Imm(4), v, hi)
	VPANDD(mask, hi, hi)
	k.store(lo, low)
	k.store(hi, high)
}

// scaleBytes writes the four bytes of v times d to places of p, as float32.
func scaleBytes(v, d, mask reg.VecVirtual, p reg.GPVirtual, place int) {
	for j := range 4 {
		s := ZMM()
		switch j {
		case 0:
			VPANDD(mask, v, s)
		case 3:
			VPSRLD(Imm(24), v, s)
		default:
			VPSRLD(Imm(uint64(8*j)), v, s)
			VPANDD(mask, s, s)
		}
		VCVTDQ2PS(s, s)
		VMULPS(d, s, s)
		VMOVUPS(s, at(p, 64*(place+j)))
	}
}

// sixBits writes the scales and minima of the eight groups of a Q4_K or Q5_K block.
func (k *blockKernel) sixBits() {
	h := k.rows.dwords4(0)
	w, d, dmin := ZMM(), ZMM(), ZMM()
	VPMOVDW(h[0], w.AsY())
	VCVTPH2PS(w.AsY(), d)
	VPSRLD(Imm(16), h[0], h[0])
	VPMOVDW(h[0], w.AsY())
	VCVTPH2PS(w.AsY(), dmin)
	low, six, four, two := constant(0xff), every(0x3f), every(0x0f), every(0x30)
	for i, side := range []struct {
		d reg.VecVirtual
		p reg.GPVirtual
	}{{d, k.scales}, {dmin, k.mins}} {
		first, second, top := ZMM(), ZMM(), ZMM()
		VPANDD(six, h[1+i], first)
		scaleBytes(first, side.d, low, side.p, 0)
		if i == 0 {
			VPANDD(four, h[3], second)
		} else {
			VPSRLD(Imm(4), h[3], second)
			VPANDD(four, second, second)
		}
		VPSRLD(Imm(2), h[1+i], top)
		VPANDD(two, top, top)
		VPORD(top, second, second)
		scaleBytes(second, side.d, low, side.p, 4)
	}
}

// Q4_K: d, dmin, 12 bytes of scales, 128 of nibbles, each 32 of which are a group's low and the next one's high.
func unpackQ4K512() {
	k := beginBlocks("unpackQ4K512", "Unpacks Q4_K blocks", 144, 256, true)
	Label("block")
	k.sixBits()
	mask := every(0x0f)
	for half := range 2 {
		for i, v := range transpose(k.rows.load64(16 + 64*half)) {
			low := 32*half + i/8*16 + i%8
			k.nibbles(v, mask, low, low+8)
		}
	}
	k.next(144, 256, 8)
}

// Q5_K: as Q4_K, with 32 bytes of fifth bits before the nibbles, bit j of a byte that of group j.
func unpackQ5K512() {
	k := beginBlocks("unpackQ5K512", "Unpacks Q5_K blocks", 176, 256, true)
	Label("block")
	k.sixBits()
	mask, five := every(0x0f), every(0x1f)
	first := transpose(k.rows.load64(16))
	fifth := first[:8]
	run := func(n int, v []reg.VecVirtual) {
		for i := range v {
			for side := range 2 {
				code, bit := ZMM(), ZMM()
				if side == 0 {
					VMOVDQA32(v[i], code)
				} else {
					VPSRLD(Imm(4), v[i], code)
				}
				switch shift := 4 - (2*n + side); {
				case shift > 0:
					VPSLLD(Imm(uint64(shift)), fifth[i], bit)
				case shift < 0:
					VPSRLD(Imm(uint64(-shift)), fifth[i], bit)
				default:
					VMOVDQA32(fifth[i], bit)
				}
				VPTERNLOGD(Imm(0xe4), mask, bit, code) // mask ? code : bit
				VPANDD(five, code, code)
				k.store(code, 16*n+8*side+i)
			}
		}
	}
	run(0, first[8:])
	middle := transpose(k.rows.load64(80))
	run(1, middle[:8])
	run(2, middle[8:])
	run(3, transpose(k.rows.load64(112))[8:])
	k.next(176, 256, 8)
}

// Q6_K: 128 bytes of low nibbles, 64 of high pairs of bits, 16 scales, d. Codes are 32 more than they mean.
func unpackQ6K512() {
	k := beginBlocks("unpackQ6K512", "Unpacks Q6_K blocks", 210, 256, false)
	spill := AllocLocal(8 * 64)
	Label("block")
	k.signedScales()
	mask, six := every(0x0f), every(0x3f)
	high := transpose(k.rows.load64(128))
	for i, v := range high[8:] {
		VMOVDQU32(v, spill.Offset(64*i))
	}
	for half := range 2 {
		if half == 1 {
			high = zmms(8)
			for i, v := range high {
				VMOVDQU32(spill.Offset(64*i), v)
			}
		}
		for i, v := range transpose(k.rows.load64(64 * half)) {
			for side := range 2 {
				code, bits := ZMM(), ZMM()
				if side == 0 {
					VMOVDQA32(v, code)
				} else {
					VPSRLD(Imm(4), v, code)
				}
				switch place := 2*side + i/8; place { // of the pair of bits in a byte
				case 0:
					VPSLLD(Imm(4), high[i%8], bits)
				case 1:
					VPSLLD(Imm(2), high[i%8], bits)
				case 2:
					VMOVDQA32(high[i%8], bits)
				case 3:
					VPSRLD(Imm(2), high[i%8], bits)
				}
				VPTERNLOGD(Imm(0xe4), mask, bits, code)
				VPANDD(six, code, code)
				k.store(code, 32*half+16*side+i)
			}
		}
	}
	k.next(210, 256, 16)
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
			VMOVUPS(s, at(k.scales, 64*(4*j+b)))
		}
	}
}

// Q8_0: d, 32 codes; two blocks at a time. Codes are 128 more than they mean.
func unpackQ8512() {
	k := beginBlocks("unpackQ8512", "Unpacks pairs of Q8_0 blocks", 68, 64, false)
	Label("block")
	for b := range 2 {
		VMOVUPS(k.rows.halves(34*b), at(k.scales, 64*b))
	}
	v := zmms(16)
	for i := range v {
		VBROADCASTI64X4(k.rows.at(i, 2), v[i])
		VINSERTI64X4(Imm(1), k.rows.at(i, 36), v[i], v[i])
	}
	flip := every(0x80)
	for i, c := range transpose(v) {
		VPXORD(flip, c, c)
		k.store(c, i)
	}
	k.next(68, 64, 2)
}

// codebookIQ4 is the values of IQ4's codes, 128 more.
var codebookIQ4 = [16]byte{1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241}

// codebookFP4 is twice the values of E2M1, 128 more.
var codebookFP4 = [16]byte{128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116}

// looked is nibbles, with codes looked up in a table.
func (k *blockKernel) looked(v, mask, table reg.VecVirtual, low, high int) {
	lo, hi := ZMM(), ZMM()
	VPANDD(mask, v, lo)
	VPSRLD(Imm(4), v, hi)
	VPANDD(mask, hi, hi)
	VPSHUFB(lo, table, lo)
	VPSHUFB(hi, table, hi)
	k.store(lo, low)
	k.store(hi, high)
}

// IQ4_XS: d, eight high pairs of bits of scales, their low nibbles, 16 bytes of nibbles for each group, the low ones first.
func unpackIQ4XS512() {
	k := beginBlocks("unpackIQ4XS512", "Unpacks IQ4_XS blocks", 136, 256, false)
	table := table16("codebookIQ4XS", codebookIQ4)
	Label("block")
	h := k.rows.dwords4(0)
	w, d := ZMM(), ZMM()
	VPMOVDW(h[0], w.AsY())
	VCVTPH2PS(w.AsY(), d)
	four, two, center := constant(15), constant(0x30), constant(32)
	for j := range 8 {
		s, top := ZMM(), ZMM()
		VPSRLD(Imm(uint64(4*j)), h[1], s)
		VPANDD(four, s, s)
		VPSRLD(Imm(uint64(12+2*j)), h[0], top)
		VPANDD(two, top, top)
		VPORD(top, s, s)
		VPSUBD(center, s, s)
		VCVTDQ2PS(s, s)
		VMULPS(d, s, s)
		VMOVUPS(s, at(k.scales, 64*j))
	}
	mask := every(0x0f)
	for half := range 2 {
		for i, v := range transpose(k.rows.load64(8 + 64*half)) {
			low := 32*half + i/4*8 + i%4
			k.looked(v, mask, table, low, low+4)
		}
	}
	k.next(136, 256, 8)
}

// A nibbleFormat is 32 codes of four bits after a scale, the low nibbles first.
type nibbleFormat struct {
	name  string
	scale int // bytes: an F16, or an E8M0
	table *[16]byte
}

var nibbleFormats = []nibbleFormat{{"Q40", 2, nil}, {"IQ4NL", 2, &codebookIQ4}, {"MXFP4", 1, &codebookFP4}}

func unpackNibbles512(f nibbleFormat) {
	k := beginBlocks("unpack"+f.name+"512", "Unpacks "+f.name+" blocks", f.scale+16, 32, false)
	var table reg.VecVirtual
	if f.table != nil {
		table = table16("codebook"+f.name, *f.table)
	}
	mask := every(0x0f)
	Label("block")
	if f.scale == 2 {
		VMOVUPS(k.rows.halves(0), at(k.scales, 0))
	} else {
		VMOVUPS(k.exponents(), at(k.scales, 0))
	}
	for i, v := range k.rows.dwords4(f.scale) {
		if f.table != nil {
			k.looked(v, mask, table, i, 4+i)
		} else {
			k.nibbles(v, mask, i, 4+i)
		}
	}
	k.next(f.scale+16, 32, 1)
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

// NVFP4: four scales, then eight bytes of nibbles for each 16 codes, the low ones first. The tensor scale is multiplied
// in afterwards; scales are halved, since codes are twice the values.
func unpackNVFP4512() {
	k := beginBlocks("unpackNVFP4512", "Unpacks NVFP4 blocks, with tensor scales in mins,", 36, 64, false)
	globals := pointer("mins")
	table, mask := table16("codebookNVFP4", codebookFP4), every(0x0f)
	global, seven, none, half := ZMM(), constant(0x7f), constant(0x7f), constant(0x3f000000)
	VMOVUPS(at(globals, 0), global)
	lift := constant(0x7b800000) // 2^120: an exponent of 4 bits to one of 8
	Label("block")
	h := k.rows.dwords4(0)
	for j := range 4 {
		s := ZMM()
		VPSRLD(Imm(uint64(8*j)), h[0], s)
		VPANDD(seven, s, s)
		zero := K()
		full := ZMM()
		VPSRLD(Imm(uint64(8*j)), h[0], full)
		VPANDD(constant(0xff), full, full)
		VPCMPUD(Imm(4), none, full, zero) // not 0x7f, which reads 0
		VPSLLD(Imm(20), s, s)
		VMULPS(lift, s, s)
		VMULPS(global, s, s)
		VMULPS_Z(half, s, zero, s)
		VMOVUPS(s, at(k.scales, 64*j))
	}
	for part := range 2 {
		for i, v := range k.rows.dwords4(4 + 16*part) {
			low := 8*part + i/2*4 + i%2
			k.looked(v, mask, table, low, low+2)
		}
	}
	k.next(36, 64, 4)
}

// af4g64: a scale and a bias in BF16, 64 codes of four bits in order.
func unpackAffine4512() {
	k := beginBlocks("unpackAffine4512", "Unpacks af4g64 blocks", 36, 64, true)
	mask := every(0x0f)
	even0, odd0 := spreadTable("spreadEven0", 0, 0), spreadTable("spreadOdd0", 0, 1)
	even1, odd1 := spreadTable("spreadEven1", 2, 0), spreadTable("spreadOdd1", 2, 1)
	Label("block")
	h := k.rows.dwords4(0)
	s, z, sign := ZMM(), ZMM(), constant(0x80000000)
	VPSLLD(Imm(16), h[0], s)
	VPANDD(constant(0xffff0000), h[0], z)
	VPXORD(sign, z, z)
	for g := range 2 {
		VMOVUPS(s, at(k.scales, 64*g))
		VMOVUPS(z, at(k.mins, 64*g))
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
				k.store(a, 8*part+2*i+half)
			}
		}
	}
	k.next(36, 64, 2)
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
