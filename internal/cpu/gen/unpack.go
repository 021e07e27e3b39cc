package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// unpackKernels fill tiles of rows (unpack_generic.go): interleave from rows in natural order, the others from blocks. A
// tile has a vector of a dword of each row for every four columns, and one of the rows' scales for every group.
func unpackKernels() {
	interleave512()
	interleave256()
	for _, f := range blockFormats {
		f.kernels(false)
		if f.fuse {
			f.kernels(true)
			f.piped(8)
		}
	}
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

// transpose turns 16 rows of 16 dwords into vectors of one dword of every row, and gives each to take. Between its steps
// it calls between, unless that is nil.
func transpose(v []reg.VecVirtual, take func(dword int, v reg.VecVirtual), between func()) {
	if between == nil {
		between = func() {}
	}
	pairs := make([]reg.VecVirtual, 16)
	for i := 0; i < 16; i += 2 {
		pairs[i], pairs[i+1] = ZMM(), ZMM()
		VPUNPCKLDQ(v[i+1], v[i], pairs[i])
		VPUNPCKHDQ(v[i+1], v[i], pairs[i+1])
		between()
	}
	// fours[4g+j] has, in quarter q, dword 4q+j of rows 4g to 4g+3.
	fours := make([]reg.VecVirtual, 16)
	for g := 0; g < 16; g += 4 {
		for h := range 2 {
			fours[g+2*h], fours[g+2*h+1] = ZMM(), ZMM()
			VPUNPCKLQDQ(pairs[g+2+h], pairs[g+h], fours[g+2*h])
			VPUNPCKHQDQ(pairs[g+2+h], pairs[g+h], fours[g+2*h+1])
			between()
		}
	}
	for j := range 4 {
		var even, odd [2]reg.VecVirtual
		for h := range 2 {
			a, b := fours[8*h+j], fours[8*h+4+j]
			even[h], odd[h] = ZMM(), ZMM()
			VSHUFI32X4(Imm(0x88), b, a, even[h])
			VSHUFI32X4(Imm(0xdd), b, a, odd[h])
			between()
		}
		for q, from := range [][2]reg.VecVirtual{even, odd, even, odd} {
			out := ZMM()
			VSHUFI32X4(Imm([]uint64{0x88, 0xdd}[q/2]), from[1], from[0], out)
			take(4*q+j, out)
		}
	}
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
	transpose(r.load64(0), func(i int, v reg.VecVirtual) {
		VPADDB(bias, v, v)
		VMOVDQU32(v, at(dst, 64*i))
	}, nil)
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

// table16 is 16 bytes in every quarter.
func table16(name string, values [16]byte) reg.VecVirtual {
	m, ok := tables[name]
	if !ok {
		m = GLOBL(name, RODATA|NOPTR)
		for i, v := range values {
			DATA(i, U8(v))
		}
		tables[name] = m
	}
	z := ZMM()
	VBROADCASTI32X4(m, z)
	return z
}

var tables = map[string]Mem{}
