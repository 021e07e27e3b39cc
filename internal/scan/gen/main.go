// Command gen writes the assembly of package scan; go generate, in the package's directory, runs it.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// block is the number of values that are compared between two branches.
const block = 64

func main() {
	ConstraintExpr("amd64")
	notAbove512()
	notAbove256()
	Generate()
}

// begin is what both kernels begin with: least in every lane of v, nothing passed yet.
func begin(name string, v reg.VecVirtual) (x, at reg.GPVirtual) {
	TEXT(name, NOSPLIT, "func(x *float32, n int, least float32) int")
	Doc(fmt.Sprintf("The number of values before the first block of %d with one above least, n where there is none.", block))
	x, at = Load(Param("x"), GP64()).(reg.GPVirtual), GP64()
	VBROADCASTSS(parameter("least"), v)
	XORQ(at, at)
	JMP(LabelRef("more"))
	Label("block")
	return x, at
}

// end is what they end with: at is where they stopped.
func end(at reg.GPVirtual) {
	ADDQ(Imm(block), at)
	Label("more")
	CMPQ(at, parameter("n"))
	JLT(LabelRef("block"))
	Label("found")
	Store(at, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// parameter is one's place in memory.
func parameter(name string) Mem {
	b, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

const lessOrdered = 0x11 // of VCMPPS: false for NaN

func notAbove512() {
	least := ZMM()
	x, at := begin("notAbove512", least)
	var any reg.OpmaskVirtual
	for i := range block / 16 {
		k := K()
		VCMPPS(Imm(lessOrdered), Mem{Base: x, Index: at, Scale: 4, Disp: 64 * i}, least, k)
		if i == 0 {
			any = k
		} else {
			KORW(k, any, any)
		}
	}
	KTESTW(any, any)
	JNZ(LabelRef("found"))
	end(at)
}

func notAbove256() {
	least := YMM()
	x, at := begin("notAbove256", least)
	var any reg.VecVirtual
	for i := range block / 8 {
		y := YMM()
		VCMPPS(Imm(lessOrdered), Mem{Base: x, Index: at, Scale: 4, Disp: 32 * i}, least, y)
		if i == 0 {
			any = y
		} else {
			VORPS(y, any, any)
		}
	}
	VPTEST(any, any)
	JNZ(LabelRef("found"))
	end(at)
}
