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
	for _, s := range isas {
		for _, f := range blockFormats {
			f.unpack(s)
		}
		for _, bits := range []int{2, 3, 4, 5, 6, 8} {
			unpackBits(s, bits)
		}
		unpackPairs(s)
		affineScales(s, false)
		affineScales(s, true)
		scalesE4M3(s)
		scalesE8M0(s)
		decodeE4M3(s)
	}
	for _, f := range blockFormats {
		if f.fuse {
			f.fused()
			f.piped(8)
		}
	}
}

// interleave512 makes a tile of rows in natural order: columns of four bytes, to which bias is added byte by byte.
func interleave512() {
	TEXT("interleave512", NOSPLIT, "func(dst, src *byte, stride, columns int, bias uint32)")
	Doc("Writes 16 columns of dwords of 16 rows at a time, each column's rows side by side, bias added to every byte.")
	dst, r := pointer("dst"), avx512.rowsAt(pointer("src"), pointer("stride"))
	columns := pointer("columns")
	bias := ZMM()
	b := Load(Param("bias"), GP32()).(reg.GPVirtual)
	VPBROADCASTD(b, bias)
	Label("columns")
	r.columns16(0, 32, func(i int, v reg.VecVirtual) {
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
	dst, r := pointer("dst"), avx2.rowsAt(pointer("src"), pointer("stride"))
	columns := pointer("columns")
	Label("columns")
	v := avx2.vecs(8)
	for i := range v {
		VMOVUPS(r.at(i, 0), v[i])
	}
	transpose8(v, func(i int, t reg.VecVirtual) { VMOVUPS(t, at(dst, 32*i)) })
	add(256, dst)
	r.advance(32)
	SUBQ(U32(8), columns)
	JNZ(LabelRef("columns"))
	VZEROUPPER()
	RET()
}
