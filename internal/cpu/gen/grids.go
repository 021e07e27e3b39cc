package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"splash/dequant"
)

// A gridKernel unpacks formats whose columns are entries of a grid with signs of their own: bytes are gathered from the
// grid, and negated where a sign says so. Codes are 128 more than they mean.
type gridKernel struct {
	k               *blockKernel
	grid            reg.GPVirtual
	all             reg.OpmaskVirtual
	nibbles, parity reg.VecVirtual // by four bits: a mask of four bytes; 8 where their number is odd
}

func newGridKernel(k *blockKernel, t dequant.Type) *gridKernel {
	g := &gridKernel{k: k, grid: GP64(), all: K(), nibbles: ZMM(), parity: ZMM()}
	LEAQ(gridTable(t), g.grid)
	KXNORW(g.all, g.all, g.all)
	VMOVDQU32(tableOf("signMasks", signMasks), g.nibbles)
	VMOVDQU32(tableOf("signParity", signParity), g.parity)
	return g
}

// gridTable is a grid in memory.
func gridTable(t dequant.Type) Mem {
	return tableOf(label("grid%s", t), func() []uint64 { return dequant.Grid(t) })
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

// signs are the masks of eight columns, four each: bits l and on of s, seven of them, and an eighth that makes their
// number even.
func (g *gridKernel) signs(s reg.VecVirtual, l int) (low, high reg.VecVirtual) {
	bits, top := ZMM(), ZMM()
	VPSRLD(Imm(uint64(l)), s, bits)
	VPSRLD(Imm(uint64(l+4)), s, top)
	VPANDD_BCST(dword(7), top, top)
	odd := ZMM()
	VPXORD(bits, top, odd)
	VPERMD(g.parity, odd, odd)
	VPORD(odd, top, top)
	low, high = ZMM(), ZMM()
	VPERMD(g.nibbles, bits, low)
	VPERMD(g.nibbles, top, high)
	return low, high
}

// put takes four columns: bytes 4 half and on of the entries that byte b of v names.
func (g *gridKernel) put(v reg.VecVirtual, b, half int, negative reg.VecVirtual, dwordAt int) {
	index, code, mask := ZMM(), ZMM(), K()
	VPSRLD(Imm(uint64(8*b)), v, index)
	VPANDD_BCST(dword(0xff), index, index)
	KMOVW(g.all, mask)
	clear(code)
	VPGATHERDD(Mem{Base: g.grid, Index: index, Scale: 8, Disp: 4 * half}, mask, code)
	VPXORD(negative, code, code)
	VPSUBB(negative, code, code)
	VPXORD_BCST(bytes4(0x80), code, code)
	g.k.put(code, dwordAt)
}

// scale writes d (1/2 + the top four bits of s) part.
func (g *gridKernel) scale(s, d reg.VecVirtual, part float32, group int) {
	t := ZMM()
	VPSRLD(Imm(28), s, t)
	VCVTDQ2PS(t, t)
	VADDPS_BCST(dword(float32bits(0.5)), t, t)
	VMULPS(d, t, t)
	VMULPS_BCST(dword(float32bits(part)), t, t)
	VMOVUPS(t, g.k.scaleAt(group))
}

// bodyIQ2XXS: d, then for each 32 columns four bytes that name entries of eight, and a dword of their signs and a scale.
func bodyIQ2XXS(k *blockKernel) func() {
	g := newGridKernel(k, dequant.IQ2XXS)
	return func() {
		d := k.rows.halves(0)
		for pair := range 4 {
			h := k.rows.dwords4(2 + 16*pair)
			for i := range 2 {
				group, s := 2*pair+i, h[2*i+1]
				g.scale(s, d, 0.25, group)
				for l := range 4 {
					low, high := g.signs(s, 7*l)
					g.put(h[2*i], l, 0, low, 8*group+2*l)
					g.put(h[2*i], l, 1, high, 8*group+2*l+1)
				}
				k.units(group, group+1)
			}
		}
	}
}

// bodyIQ3XXS: d, 64 bytes that name entries of four, then for each 32 columns a dword of their signs and a scale.
func bodyIQ3XXS(k *blockKernel) func() {
	g := newGridKernel(k, dequant.IQ3XXS)
	return func() {
		d := k.rows.halves(0)
		for four := range 2 {
			signs := k.rows.dwords4(66 + 16*four)
			for pair := range 2 {
				h := k.rows.dwords4(2 + 32*four + 16*pair)
				for i := range 2 {
					group, s := 4*four+2*pair+i, signs[2*pair+i]
					g.scale(s, d, 0.5, group)
					for l := range 4 {
						low, high := g.signs(s, 7*l)
						g.put(h[2*i+l/2], l%2*2, 0, low, 8*group+2*l)
						g.put(h[2*i+l/2], l%2*2+1, 0, high, 8*group+2*l+1)
					}
					k.units(group, group+1)
				}
			}
		}
	}
}
