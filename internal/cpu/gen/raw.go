package main

import (
	"fmt"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Instructions that Go's assembler does not know are written byte by byte, below a comment that says in the syntax of GNU
// as what they are: a test compares (encodings_test.go). Their registers are chosen here, not by avo.

// Prefixes, as the two bits of VEX and EVEX have them.
const (
	noPrefix = iota
	prefix66
	prefixF3
	prefixF2
)

// raw emits bytes that read registers and write others.
func raw(isa, text string, code []byte, in, out []Op) {
	Comment(text)
	for i, b := range code {
		next := &ir.Instruction{Opcode: "BYTE", Operands: []Op{Imm(uint64(b))}, ISA: []string{isa}}
		if i == 0 {
			next.Inputs = in
		}
		if i == len(code)-1 {
			next.Outputs = out
		}
		Instruction(next)
	}
}

// A place is memory with registers of this file's choice: base, and a stride of a tile's rows, or nil.
type place struct {
	base, stride reg.GPPhysical
	disp         int
}

func number(r reg.Physical) int { return int(r.PhysicalIndex()) }

func (p place) String() string {
	disp, name := "", func(r reg.Physical) string {
		if n := number(r); n < 8 {
			return "%r" + strings.ToLower(r.Asm())
		}
		return "%" + strings.ToLower(r.Asm())
	}
	if p.disp != 0 {
		disp = fmt.Sprint(p.disp)
	}
	if p.stride == nil {
		return fmt.Sprintf("%s(%s)", disp, name(p.base))
	}
	return fmt.Sprintf("%s(%s,%s,1)", disp, name(p.base), name(p.stride))
}

func (p place) registers() []Op {
	if p.stride == nil {
		return []Op{p.base}
	}
	return []Op{p.base, p.stride}
}

// vex is an instruction of map 0F38 with VEX of 128 bits and W0. Register numbers above 7 have a bit each in it, inverted.
func vex(prefix, opcode, r, x, b, v int, rest ...byte) []byte {
	return append([]byte{0xc4, byte((^r>>3&1)<<7 | (^x>>3&1)<<6 | (^b>>3&1)<<5 | 2), byte((^v&15)<<3 | prefix), byte(opcode)}, rest...)
}

// tileMemory is an instruction of a tile, or of none, and memory.
func tileMemory(name string, prefix, opcode, tile int, p place) []byte {
	base, index, x := number(p.base), 4, 0 // no index
	if p.stride != nil {
		index, x = number(p.stride), number(p.stride)
	}
	mod, disp := 0, []byte(nil)
	switch d := p.disp; {
	case d == 0 && base&7 != 5:
	case d >= -128 && d < 128:
		mod, disp = 1, []byte{byte(d)}
	default:
		mod, disp = 2, []byte{byte(d), byte(d >> 8), byte(d >> 16), byte(d >> 24)}
	}
	if p.stride == nil && base&7 != 4 {
		return vex(prefix, opcode, tile, x, base, 0, append([]byte{byte(mod<<6 | tile<<3 | base&7)}, disp...)...)
	}
	return vex(prefix, opcode, tile, x, base, 0, append([]byte{byte(mod<<6 | tile<<3 | 4), byte(index&7<<3 | base&7)}, disp...)...)
}

// tileConfigure is LDTILECFG.
func tileConfigure(p place) {
	raw("AMX-TILE", fmt.Sprintf("ldtilecfg %s", p), tileMemory("ldtilecfg", noPrefix, 0x49, 0, p), p.registers(), nil)
}

func tileRelease() {
	raw("AMX-TILE", "tilerelease", vex(noPrefix, 0x49, 0, 0, 0, 0, 0xc0), nil, nil)
}

func tileZero(t int) {
	raw("AMX-TILE", fmt.Sprintf("tilezero %%tmm%d", t), vex(prefixF2, 0x49, t, 0, 0, 0, byte(0xc0|t<<3)), nil, nil)
}

func tileLoad(p place, t int) {
	raw("AMX-TILE", fmt.Sprintf("tileloadd %s, %%tmm%d", p, t), tileMemory("tileloadd", prefixF2, 0x4b, t, p), p.registers(), nil)
}

func tileStore(t int, p place) {
	raw("AMX-TILE", fmt.Sprintf("tilestored %%tmm%d, %s", t, p), tileMemory("tilestored", prefixF3, 0x4b, t, p), p.registers(), nil)
}

// tileSignedUnsigned adds the products of the signed bytes of a and the unsigned ones of b to c.
func tileSignedUnsigned(b, a, c int) {
	raw("AMX-INT8", fmt.Sprintf("tdpbsud %%tmm%d, %%tmm%d, %%tmm%d", b, a, c),
		vex(prefixF3, 0x5e, c, 0, a, b, byte(0xc0|c<<3|a)), nil, nil)
}

// tileBFloat16 adds the products of bfloat16 numbers of a and b to c.
func tileBFloat16(b, a, c int) {
	raw("AMX-BF16", fmt.Sprintf("tdpbf16ps %%tmm%d, %%tmm%d, %%tmm%d", b, a, c),
		vex(prefixF3, 0x5c, c, 0, a, b, byte(0xc0|c<<3|a)), nil, nil)
}

// vectorBFloat16 is VDPBF16PS: it adds the products of pairs of bfloat16 numbers of a and b to sum, the second's first.
func vectorBFloat16(b, a, sum reg.VecPhysical) {
	n, m, d := number(b), number(a), number(sum)
	bit := func(r, at int) int { return ^r >> at & 1 }
	code := []byte{
		0x62,
		byte(bit(d, 3)<<7 | bit(n, 4)<<6 | bit(n, 3)<<5 | bit(d, 4)<<4 | 2),
		byte((^m&15)<<3 | 4 | prefixF3),
		byte(2<<5 | bit(m, 4)<<3),
		0x52,
		byte(0xc0 | d&7<<3 | n&7),
	}
	raw("AVX512_BF16", fmt.Sprintf("vdpbf16ps %%zmm%d, %%zmm%d, %%zmm%d", n, m, d), code, []Op{b, a, sum}, []Op{sum})
}
