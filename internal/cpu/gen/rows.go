package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rows addresses as many rows a stride apart as the isa has lanes, and makes vectors of a dword of each.
type rows struct {
	s          isa
	base       []reg.GPVirtual // of every four rows
	one, three reg.GPVirtual   // the stride, three of them
}

func (s isa) rowsAt(base, stride reg.GPVirtual) *rows {
	r := &rows{s: s, one: stride, three: GP64(), base: make([]reg.GPVirtual, s.lanes/4)}
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, r.three)
	r.base[0] = base
	for i := 1; i < len(r.base); i++ {
		r.base[i] = GP64()
		LEAQ(Mem{Base: r.base[i-1], Index: stride, Scale: 4}, r.base[i])
	}
	return r
}

// at is a place in row i.
func (r *rows) at(i, disp int) Mem {
	four := strided{base: r.base[i/4], one: r.one, three: r.three}
	return four.at(i%4, disp)
}

func (r *rows) advance(n int) {
	for _, p := range r.base {
		add(n, p)
	}
}

// quarters makes a vector of 16 bytes of every fourth row, which load puts into an XMM.
func (r *rows) quarters(load func(quarter int, x reg.VecVirtual)) reg.VecVirtual {
	first, v := XMM(), r.s.vec()
	load(0, first)
	r.s.firstQuarter(first, v)
	for q := 1; q < r.s.lanes/4; q++ {
		x := XMM()
		load(q, x)
		r.insert(q, x, v)
	}
	return v
}

func (r *rows) insert(quarter int, x Op, v reg.VecVirtual) {
	if r.s.wide() {
		VINSERTI32X4(Imm(uint64(quarter)), x, v, v)
	} else {
		VINSERTI128(Imm(uint64(quarter)), x, v, v)
	}
}

// dwords4 are four dwords of each row: vector j has dword j of row i in lane i.
func (r *rows) dwords4(disp int) []reg.VecVirtual {
	s := r.s
	v := s.vecs(4)
	for i := range v {
		if s.wide() {
			VBROADCASTI32X4(r.at(i, disp), v[i])
		} else {
			VBROADCASTI128(r.at(i, disp), v[i])
		}
		for q := 1; q < s.lanes/4; q++ {
			r.insert(q, r.at(4*q+i, disp), v[i])
		}
	}
	a, b, c, d := s.vec(), s.vec(), s.vec(), s.vec()
	VPUNPCKLDQ(v[1], v[0], a)
	VPUNPCKHDQ(v[1], v[0], b)
	VPUNPCKLDQ(v[3], v[2], c)
	VPUNPCKHDQ(v[3], v[2], d)
	out := s.vecs(4)
	VPUNPCKLQDQ(c, a, out[0])
	VPUNPCKHQDQ(c, a, out[1])
	VPUNPCKLQDQ(d, b, out[2])
	VPUNPCKHQDQ(d, b, out[3])
	return out
}

// dwords2 are two.
func (r *rows) dwords2(disp int) []reg.VecVirtual {
	var v [2]reg.VecVirtual // of rows 0 and 1, and 2 and 3, of every four
	for i := range v {
		v[i] = r.quarters(func(q int, x reg.VecVirtual) {
			VMOVQ(r.at(4*q+2*i, disp), x)
			VPINSRQ(Imm(1), r.at(4*q+2*i+1, disp), x, x)
		})
	}
	out := r.s.vecs(2)
	VSHUFPS(Imm(0x88), v[1], v[0], out[0])
	VSHUFPS(Imm(0xdd), v[1], v[0], out[1])
	return out
}

// dword is one.
func (r *rows) dword(disp int) reg.VecVirtual {
	return r.quarters(func(q int, x reg.VecVirtual) {
		VMOVD(r.at(4*q, disp), x)
		for i := 1; i < 4; i++ {
			VPINSRD(Imm(uint64(i)), r.at(4*q+i, disp), x, x)
		}
	})
}

// dwords are n of them, no byte beyond which is read.
func (r *rows) dwords(disp, n int) (out []reg.VecVirtual) {
	for ; n >= 4; n, disp = n-4, disp+16 {
		out = append(out, r.dwords4(disp)...)
	}
	if n > 1 {
		out = append(out, r.dwords2(disp)...)
		n, disp = n-2, disp+8
	}
	if n > 0 {
		out = append(out, r.dword(disp))
	}
	return out
}

// words are one 16-bit word of each row, in order, in the low half of the result.
func (r *rows) words(disp int) reg.VecVirtual {
	low := r.s.zeroed()
	for i := range 8 {
		VPINSRW(Imm(uint64(i)), r.at(i, disp), low.AsX(), low.AsX())
	}
	if !r.s.wide() {
		return low
	}
	high := r.s.zeroed()
	for i := range 8 {
		VPINSRW(Imm(uint64(i)), r.at(8+i, disp), high.AsX(), high.AsX())
	}
	VINSERTI32X4(Imm(1), high.AsX(), low.AsY(), low.AsY())
	return low
}

// wordDwords are the words in dwords.
func (r *rows) wordDwords(disp int) reg.VecVirtual {
	w, v := r.words(disp), r.s.vec()
	if r.s.wide() {
		VPMOVZXWD(w.AsY(), v)
	} else {
		VPMOVZXWD(w.AsX(), v)
	}
	return v
}

// byteDwords are one byte of each row in dwords.
func (r *rows) byteDwords(disp int) reg.VecVirtual {
	x, v := XMM(), r.s.vec()
	clearNarrow(x)
	for i := range r.s.lanes {
		VPINSRB(Imm(uint64(i)), r.at(i, disp), x, x)
	}
	VPMOVZXBD(x, v)
	return v
}

// halves are the float32 values of one F16 of each row.
func (r *rows) halves(disp int) reg.VecVirtual {
	w, d := r.words(disp), r.s.vec()
	if r.s.wide() {
		VCVTPH2PS(w.AsY(), d)
	} else {
		VCVTPH2PS(w.AsX(), d)
	}
	return d
}

// columns16 gives take vectors of 16 dwords of every row, eight from each place on; each comes after the one eight before
// it. Between its steps it calls between, unless that is nil.
func (r *rows) columns16(first, second int, take func(dword int, v reg.VecVirtual), between func()) {
	if !r.s.wide() {
		for half, disp := range []int{first, second} {
			v := avx2.vecs(8)
			for i := range v {
				VMOVDQU(r.at(i, disp), v[i])
			}
			transpose8(v, func(dword int, v reg.VecVirtual) { take(8*half+dword, v) })
		}
		return
	}
	v := zmms(16)
	for i := range v {
		if second == first+32 {
			VMOVDQU32(r.at(i, first), v[i])
		} else {
			VBROADCASTI64X4(r.at(i, first), v[i])
			VINSERTI64X4(Imm(1), r.at(i, second), v[i], v[i])
		}
	}
	transpose(v, take, between)
}

// half is the F16 in the low words of v.
func (s isa) half(v reg.VecVirtual) reg.VecVirtual {
	d := s.vec()
	if s.wide() {
		w := YMM()
		VPMOVDW(v, w)
		VCVTPH2PS(w, d)
		return d
	}
	w := YMM()
	s.andDword(0xffff, v, w)
	VPACKUSDW(w, w, w)
	VPERMQ(Imm(8), w, w)
	VCVTPH2PS(w.AsX(), d)
	return d
}

// topHalf is the F16 in the high words.
func (s isa) topHalf(v reg.VecVirtual) reg.VecVirtual {
	t := s.vec()
	VPSRLD(Imm(16), v, t)
	return s.half(t)
}

// table is 16 bytes in every quarter.
func (s isa) table(name string, values [16]byte) reg.VecVirtual {
	m, ok := tables[name]
	if !ok {
		m = GLOBL(name, RODATA|NOPTR)
		for i, v := range values {
			DATA(i, U8(v))
		}
		tables[name] = m
	}
	v := s.vec()
	if s.wide() {
		VBROADCASTI32X4(m, v)
	} else {
		VBROADCASTI128(m, v)
	}
	return v
}

var tables = map[string]Mem{}

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

// transpose8 turns 8 rows of 8 dwords into vectors of one dword of every row.
func transpose8(v []reg.VecVirtual, take func(dword int, v reg.VecVirtual)) {
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
	for j := range 4 {
		low, high := YMM(), YMM()
		VPERM2F128(Imm(0x20), fours[4+j], fours[j], low)
		VPERM2F128(Imm(0x31), fours[4+j], fours[j], high)
		take(j, low)
		take(4+j, high)
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
