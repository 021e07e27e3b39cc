package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// instruction emits one that avo does not know: the last operand is read and written.
func instruction(opcode, suffix, isa string, ops ...Op) {
	i := &ir.Instruction{
		Opcode: opcode, Operands: ops, Inputs: ops, Outputs: ops[len(ops)-1:], ISA: []string{isa},
	}
	if suffix != "" {
		i.Suffixes = []string{suffix}
	}
	Instruction(i)
}

// dot adds to each int32 of acc the products of four unsigned bytes of w and four signed bytes at x, for all lanes the
// same ones.
func dot(x Mem, w, acc reg.VecVirtual) { instruction("VPDPBUSD", "BCST", "AVX512VNNI", x, w, acc) }

// clear sets a register to zeros. It says, as VPXORD alone does not, that what was there is not read.
func clear(z reg.VecVirtual) {
	Instruction(&ir.Instruction{
		Opcode: "VPXORD", Operands: []Op{z, z, z}, Outputs: []Op{z}, ISA: []string{"AVX512F"},
	})
}

// clearNarrow is clear of a register of a narrower isa.
func clearNarrow(v reg.VecVirtual) {
	Instruction(&ir.Instruction{Opcode: "VPXOR", Operands: []Op{v, v, v}, Outputs: []Op{v}, ISA: []string{"AVX2"}})
}

// fillNarrow sets one to ones.
func fillNarrow(v reg.VecVirtual) {
	Instruction(&ir.Instruction{Opcode: "VPCMPEQD", Operands: []Op{v, v, v}, Outputs: []Op{v}, ISA: []string{"AVX2"}})
}

// zmms are n registers.
func zmms(n int) []reg.VecVirtual {
	v := make([]reg.VecVirtual, n)
	for i := range v {
		v[i] = ZMM()
	}
	return v
}

// pointer loads a parameter.
func pointer(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }

func at(base reg.Register, disp int) Mem { return Mem{Base: base, Disp: disp} }

func label(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// add advances a pointer.
func add(n int, p reg.Register) { ADDQ(U32(uint32(n)), p) }
