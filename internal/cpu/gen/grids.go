package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A gridKernel unpacks formats whose columns are entries of a grid with signs of their own: bytes are gathered from the
// grid, and negated where a sign says so.
type gridKernel struct {
	k    *blockKernel
	s    isa
	grid reg.GPVirtual

	// Of the wide isa, by four bits: a mask of four bytes; 8 where their number is odd.
	nibbles, odd reg.VecVirtual
	all          reg.OpmaskVirtual
	// Of the narrow one: 0x80 where the number of four bits is odd; the lowest byte of a dword in all its bytes.
	parity, replica reg.VecVirtual
}

// newGridKernel takes the grid from the package's variable of that name, a pointer to entries of eight bytes.
func newGridKernel(k *blockKernel, grid string) *gridKernel {
	g := &gridKernel{k: k, s: k.s, grid: GP64()}
	MOVQ(Mem{Symbol: Symbol{Name: "·" + grid}, Base: reg.StaticBase}, g.grid)
	if k.s.wide() {
		g.nibbles, g.odd, g.all = ZMM(), ZMM(), K()
		KXNORW(g.all, g.all, g.all)
		VMOVDQU32(tableOf("signMasks", signMasks), g.nibbles)
		VMOVDQU32(tableOf("signParity", signParity), g.odd)
		return g
	}
	var parity [16]byte
	for n := range parity {
		parity[n] = byte(n^n>>1^n>>2^n>>3) & 1 << 7
	}
	g.parity, g.replica = k.s.table("signParityBytes", parity), k.s.replicas(0)
	return g
}

func signMasks() (masks []uint64) {
	for n := range uint64(16) {
		masks = append(masks, 0xff*(n&1|n>>1&1<<8|n>>2&1<<16|n>>3&1<<24))
	}
	return pairsOf(masks)
}

func signParity() (odd []uint64) {
	for n := range uint64(16) {
		odd = append(odd, (n^n>>1^n>>2^n>>3)&1<<3)
	}
	return pairsOf(odd)
}

// pairsOf are dwords two by two.
func pairsOf(dwords []uint64) (out []uint64) {
	for i := 0; i < len(dwords); i += 2 {
		out = append(out, dwords[i]|dwords[i+1]<<32)
	}
	return out
}

// tableOf is a table of qwords in memory, made when it is first asked for.
func tableOf(name string, values func() []uint64) Mem {
	m, ok := tables[name]
	if !ok {
		m = qwordTable(name, values())
		tables[name] = m
	}
	return m
}

// evenSigns are the masks of eight columns, four each: bits l and on of v, seven of them, and an eighth that makes their
// number even.
func (g *gridKernel) evenSigns(v reg.VecVirtual, l int) (low, high reg.VecVirtual) {
	s := g.s
	if s.wide() {
		bits, top := ZMM(), ZMM()
		VPSRLD(Imm(uint64(l)), v, bits)
		VPSRLD(Imm(uint64(l+4)), v, top)
		VPANDD_BCST(dword(7), top, top)
		odd := ZMM()
		VPXORD(bits, top, odd)
		VPERMD(g.odd, odd, odd)
		VPORD(odd, top, top)
		low, high = ZMM(), ZMM()
		VPERMD(g.nibbles, bits, low)
		VPERMD(g.nibbles, top, high)
		return low, high
	}
	bits, odd := s.vec(), s.vec()
	s.shift(-l, v, bits)
	s.andDword(0x7f, bits, bits)
	VPSRLD(Imm(4), bits, odd)
	VPXOR(bits, odd, odd)
	VPSHUFB(odd, g.parity, odd)
	VPOR(odd, bits, bits)
	return g.byteSigns(bits)
}

// byteSigns are the masks of the eight bits of the lowest byte of every dword, which are spread in the narrow isa.
func (g *gridKernel) byteSigns(bits reg.VecVirtual) (low, high reg.VecVirtual) {
	s := g.s
	low, high = s.vec(), s.vec()
	if s.wide() {
		VPERMD(g.nibbles, bits, low)
		VPSRLD(Imm(4), bits, high)
		VPERMD(g.nibbles, high, high)
		return low, high
	}
	VPSHUFB(g.replica, bits, high)
	for i, v := range []reg.VecVirtual{low, high} {
		places := s.memory(0x08040201 << (4 * i))
		VPAND(places, high, v)
		VPCMPEQB(places, v, v)
	}
	return low, high
}

// signsOf are those of byte b of v.
func (g *gridKernel) signsOf(v reg.VecVirtual, b int) (low, high reg.VecVirtual) {
	bits := g.s.vec()
	g.s.shift(-8*b, v, bits)
	return g.byteSigns(bits)
}

// index is byte b of every dword.
func (g *gridKernel) index(v reg.VecVirtual, b int) reg.VecVirtual {
	i := g.s.vec()
	g.s.shift(-8*b, v, i)
	if b < 3 {
		g.s.andDword(0xff, i, i)
	}
	return i
}

// indexOver is the index with the bit or bits of high that lie under the mask once moved to the left.
func (g *gridKernel) indexOver(v reg.VecVirtual, b int, high reg.VecVirtual, left int, mask uint32) reg.VecVirtual {
	i, t := g.index(v, b), g.s.vec()
	g.s.shift(left, high, t)
	g.s.andDword(mask, t, t)
	g.s.or(t, i, i)
	return i
}

// gather is bytes 4 half and on of the entries.
func (g *gridKernel) gather(index reg.VecVirtual, half int) reg.VecVirtual {
	code := g.s.zeroed()
	from := Mem{Base: g.grid, Index: index, Scale: 8, Disp: 4 * half}
	if g.s.wide() {
		mask := K()
		KMOVW(g.all, mask)
		VPGATHERDD(from, mask, code)
	} else {
		all := g.s.vec()
		fillNarrow(all)
		VPGATHERDD(all, from, code)
	}
	return code
}

// put takes four columns: bytes 4 half and on of the entries, negated where the mask says so.
func (g *gridKernel) put(index reg.VecVirtual, half int, negative reg.VecVirtual, dwordAt int) {
	code := g.gather(index, half)
	g.s.xor(negative, code, code)
	VPSUBB(negative, code, code)
	g.k.putSigned(code, dwordAt)
}

// scale writes d (1/2 + the integers of v) part.
func (g *gridKernel) scale(v, d reg.VecVirtual, part float32, group int) {
	VCVTDQ2PS(v, v)
	g.s.addFloat(0.5, v, v)
	VMULPS(d, v, v)
	g.s.mulFloat(part, v, v)
	VMOVUPS(v, g.k.scaleAt(group))
}

// topScale is that of the top four bits of v.
func (g *gridKernel) topScale(v, d reg.VecVirtual, part float32, group int) {
	t := g.s.vec()
	VPSRLD(Imm(28), v, t)
	g.scale(t, d, part, group)
}

// nibble is nibble n of every dword.
func (s isa) nibble(v reg.VecVirtual, n int) reg.VecVirtual {
	t := s.vec()
	s.shift(-4*n, v, t)
	if n < 7 {
		s.andDword(15, t, t)
	}
	return t
}

// bodyIQ2XXS: d, then for each 32 columns four bytes that name entries of eight, and a dword of their signs and a scale.
func bodyIQ2XXS(k *blockKernel) func() {
	g := newGridKernel(k, "gridIQ2XXS")
	return func() {
		d := k.rows.halves(0)
		for pair := range 4 {
			h := k.rows.dwords4(2 + 16*pair)
			for i := range 2 {
				group, v := 2*pair+i, h[2*i+1]
				g.topScale(v, d, 0.25, group)
				for l := range 4 {
					low, high := g.evenSigns(v, 7*l)
					index := g.index(h[2*i], l)
					g.put(index, 0, low, 8*group+2*l)
					g.put(index, 1, high, 8*group+2*l+1)
				}
				k.units(group, group+1)
			}
		}
	}
}

// bodyIQ3XXS: d, 64 bytes that name entries of four, then for each 32 columns a dword of their signs and a scale.
func bodyIQ3XXS(k *blockKernel) func() {
	g := newGridKernel(k, "gridIQ3XXS")
	return func() {
		d := k.rows.halves(0)
		for four := range 2 {
			signs := k.rows.dwords4(66 + 16*four)
			for pair := range 2 {
				h := k.rows.dwords4(2 + 32*four + 16*pair)
				for i := range 2 {
					group, v := 4*four+2*pair+i, signs[2*pair+i]
					g.topScale(v, d, 0.5, group)
					for l := range 4 {
						low, high := g.evenSigns(v, 7*l)
						g.put(g.index(h[2*i+l/2], l%2*2), 0, low, 8*group+2*l)
						g.put(g.index(h[2*i+l/2], l%2*2+1), 0, high, 8*group+2*l+1)
					}
					k.units(group, group+1)
				}
			}
		}
	}
}

// bodyIQ2XS: d, 32 words of nine bits that name entries of eight and seven of their signs, eight bytes of two scales.
func bodyIQ2XS(k *blockKernel) func() {
	g, s := newGridKernel(k, "gridIQ2XS"), k.s
	return func() {
		d := k.rows.halves(0)
		for i, v := range k.rows.dwords2(66) {
			for n := range 8 {
				g.scale(s.nibble(v, n), d, 0.25, 8*i+n)
			}
		}
		for four := range 4 {
			for i, v := range k.rows.dwords4(2 + 16*four) {
				for half := range 2 {
					index := s.vec()
					s.shift(-16*half, v, index)
					s.andDword(0x1ff, index, index)
					low, high := g.evenSigns(v, 16*half+9)
					at := 16*four + 4*i + 2*half
					g.put(index, 0, low, at)
					g.put(index, 1, high, at+1)
				}
			}
		}
	}
}

// bodyIQ2S: d, 32 low bytes of what names entries of eight, 32 of signs, eight of four high pairs of bits, eight of two
// scales.
func bodyIQ2S(k *blockKernel) func() {
	g, s := newGridKernel(k, "gridIQ2S"), k.s
	return func() {
		d := k.rows.halves(0)
		for i, v := range k.rows.dwords2(74) {
			for n := range 8 {
				g.scale(s.nibble(v, n), d, 0.25, 8*i+n)
			}
		}
		for part := range 2 {
			top := k.rows.dword(66 + 4*part)
			h, signs := k.rows.dwords4(2+16*part), k.rows.dwords4(34+16*part)
			for i := range 4 {
				for b := range 4 {
					low, high := g.signsOf(signs[i], b)
					index := g.indexOver(h[i], b, top, 8-8*i-2*b, 0x300)
					at := 32*part + 8*i + 2*b
					g.put(index, 0, low, at)
					g.put(index, 1, high, at+1)
				}
			}
		}
	}
}

// bodyIQ3S: d, 64 low bytes of what names entries of four, eight of their high bits, 32 of signs, four of two scales.
func bodyIQ3S(k *blockKernel) func() {
	g, s := newGridKernel(k, "gridIQ3S"), k.s
	return func() {
		d, scales := k.rows.halves(0), k.rows.dword(106)
		for j := range 8 {
			t := s.nibble(scales, j)
			VPADDD(t, t, t)
			s.addDword(1, t, t)
			VCVTDQ2PS(t, t)
			VMULPS(d, t, t)
			VMOVUPS(t, k.scaleAt(j))
		}
		for part := range 2 {
			top := k.rows.dword(66 + 4*part)
			signs := k.rows.dwords4(74 + 16*part)
			for pair := range 2 {
				h := k.rows.dwords4(2 + 32*part + 16*pair)
				for i := range 2 {
					j := 2*pair + i // of the part's four 32 columns
					for l := range 4 {
						low, high := g.signsOf(signs[j], l)
						at := 32*part + 8*j + 2*l
						for side, negative := range []reg.VecVirtual{low, high} {
							index := g.indexOver(h[2*i+l/2], l%2*2+side, top, 8-8*j-2*l-side, 0x100)
							g.put(index, 0, negative, at+side)
						}
					}
				}
			}
		}
	}
}

// shifted takes eight columns: the entries that lie 8 and an eighth above, and where the mask says so 8 and an eighth
// below.
func (g *gridKernel) shifted(index, below reg.VecVirtual, dwordAt int) {
	for half := range 2 {
		code, two := g.gather(index, half), g.s.vec()
		g.s.andDword(0x02020202, below, two)
		VPSUBB(two, code, code)
		g.k.putSigned(code, dwordAt+half)
	}
}

// oddScale writes d (2 v + 1) / 8.
func (g *gridKernel) oddScale(v, d reg.VecVirtual, group int) {
	VPADDD(v, v, v)
	g.s.addDword(1, v, v)
	VCVTDQ2PS(v, v)
	VMULPS(d, v, v)
	g.s.mulFloat(0.125, v, v)
	VMOVUPS(v, g.k.scaleAt(group))
}

// bodyIQ1S: d, 32 low bytes of what names entries of eight, eight words of four times three high bits of those, a scale and
// the sign of the shift.
func bodyIQ1S(k *blockKernel) func() {
	g, s := newGridKernel(k, "gridIQ1"), k.s
	return func() {
		d := k.rows.halves(0)
		for part := range 2 {
			h := k.rows.dwords4(2 + 16*part)
			for pair, top := range k.rows.dwords2(34 + 8*part) {
				for i := range 2 {
					j := 4*part + 2*pair + i
					t, below := s.vec(), s.vec()
					s.shift(-16*i-12, top, t)
					s.andDword(7, t, t)
					g.oddScale(t, d, j)
					s.shift(16-16*i, top, below)
					VPSRAD(Imm(31), below, below)
					for l := range 4 {
						index := g.indexOver(h[2*pair+i], l, top, 8-16*i-3*l, 0x700)
						g.shifted(index, below, 8*j+2*l)
					}
				}
			}
		}
	}
}

// bodyIQ1M: 32 low bytes of what names entries of eight, 16 of two times their three high bits and the sign of the shift,
// four words of four scales of three bits and, on top, a fourth of an F16.
func bodyIQ1M(k *blockKernel) func() {
	g, s := newGridKernel(k, "gridIQ1"), k.s
	return func() {
		words, bits := k.rows.dwords2(48), s.vec()
		for w := range 4 {
			t := s.vec()
			s.shift(4*w-12-16*(w%2), words[w/2], t)
			s.andDword(0xf<<(4*w), t, t)
			if w == 0 {
				bits = t
			} else {
				s.or(t, bits, bits)
			}
		}
		d := s.half(bits)
		for i := range 16 {
			t := s.vec()
			s.shift(-(i/4%2*16 + i%4*3), words[i/8], t)
			s.andDword(7, t, t)
			g.oddScale(t, d, i)
		}
		for part := range 2 {
			h, tops := k.rows.dwords4(16*part), k.rows.dwords2(32+8*part)
			for n := range 16 { // entries of the part
				top, below := tops[n/8], s.vec()
				s.shift(28-n%8*4, top, below)
				VPSRAD(Imm(31), below, below)
				index := g.indexOver(h[n/4], n%4, top, 8-n%8*4, 0x700)
				g.shifted(index, below, 32*part+2*n)
			}
		}
	}
}
