package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tileKernels are products on AMX's tiles.
func tileKernels() {
	for _, group := range []int{32, 16} {
		for _, minima := range []bool{false, true} {
			productTiles(group, minima)
		}
	}
}

// A tileShape is rows of some bytes.
type tileShape struct{ rows, bytes int }

// tileConfig is what LDTILECFG reads: palette 1, and the shapes of tiles.
func tileConfig(name string, shapes ...tileShape) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	DATA(0, U64(1))
	DATA(8, U64(0))
	for at := 16; at < 64; at += 8 {
		var word uint64
		for i := range 8 {
			var b int
			switch t := at + i; {
			case t >= 48 && t-48 < len(shapes):
				b = shapes[t-48].rows
			case t < 32 && (t-16)/2 < len(shapes) && t%2 == 0:
				b = shapes[(t-16)/2].bytes
			}
			word |= uint64(b) << (8 * i)
		}
		DATA(at, U64(word))
	}
	return m
}

// productTiles is the product of 16 rows of weights and panels of 16 rows of activations, which lie one after another. A
// group's codes are a tile of four columns a row, which is how the unpacked tile has them, and an activation's are a row of
// another; their product is the exact sums of a group, for all rows of both. It goes through memory to the operations of
// product512, which are in its order, so that the bits are the same. There are two such places: a unit's sums are found
// while those of the unit before are scaled.
func productTiles(group int, minima bool) {
	name := label("productTilesg%d", group)
	if minima {
		name += "m"
	}
	TEXT(name, 0, "func(acc *float32, codes *byte, scales, mins *float32, x *int8, dx, sums *float32, biases *int32, units, panels, cols int)")
	Doc(label("The products of 16 rows of weights in groups of %d and panels of 16 rows of activations.", group))
	groups := 32 / group
	config := tileConfig(name+"Config", productShapes(group)...)
	scratch := AllocLocal(2*1024*groups + 64)

	codes, x, put, get := reg.R8, reg.R9, reg.R10, reg.R11
	wide, narrow := reg.R12, reg.R13 // strides of tiles: 64 bytes, and a unit's codes of a row
	configuration := reg.RAX
	LEAQ(config, configuration)
	tileConfigure(place{base: configuration})
	LEAQ(scratch.Offset(63), put)
	ANDQ(I8(-64), put)
	LEAQ(at(put, 1024*groups), get)
	MOVQ(U32(64), wide)
	MOVQ(U32(32), narrow)
	acc, scales, mins := pointer("acc"), GP64(), GP64()
	dx, sums, biases, units := GP64(), GP64(), GP64(), GP64()
	load := func(name string, r reg.Register) { MOVQ(parameter(name), r) }

	multiply := func() {
		for g := range groups {
			tileLoad(place{x, narrow, group * g}, 2+g)
			tileLoad(place{codes, wide, 16 * group * g}, 4+g)
			tileZero(g)
			tileSignedUnsigned(4+g, 2+g, g)
			tileStore(g, place{put, wide, 1024 * g})
		}
		add(16*32, x)
		add(16*32, codes)
	}

	Label("panel")
	f := zmms(16)
	for r := range f {
		VMOVUPS(at(acc, 64*r), f[r])
	}
	load("codes", codes)
	load("scales", scales)
	load("x", x)
	load("dx", dx)
	load("biases", biases)
	load("units", units)
	if minima {
		load("mins", mins)
		load("sums", sums)
	}
	multiply()
	Label("unit")
	XCHGQ(put, get)
	CMPQ(units, Imm(1))
	JEQ(LabelRef("last"))
	multiply()
	Label("last")
	scaleTiles(f, groups, minima, get, scales, mins, dx, sums, biases)
	add(64*groups, scales)
	add(64, dx)
	add(64*groups, biases)
	if minima {
		add(64*groups, mins)
		add(64*groups, sums)
	}
	DECQ(units)
	JNZ(LabelRef("unit"))
	for r := range f {
		VMOVUPS(f[r], at(acc, 64*r))
	}
	add(16*64, acc)
	step := GP64() // to the next panel: 16 codes a column, and 16 values a unit or a group
	MOVQ(parameter("cols"), step)
	SHLQ(Imm(1), step)
	ADDQ(step, parameter("dx"))
	if groups == 2 {
		ADDQ(step, step)
	}
	ADDQ(step, parameter("sums"))
	ADDQ(step, parameter("biases"))
	SHLQ(Imm(uint64(4-groups)), step)
	ADDQ(step, parameter("x"))
	DECQ(parameter("panels"))
	JNZ(LabelRef("panel"))
	tileRelease()
	VZEROUPPER()
	RET()
}

// productShapes are the tiles of sums, of activations and of weights, each by group.
func productShapes(group int) []tileShape {
	sums, rows, columns := tileShape{16, 64}, tileShape{16, group}, tileShape{group / 4, 64}
	if group == 32 {
		return []tileShape{sums, {}, rows, {}, columns}
	}
	return []tileShape{sums, sums, rows, rows, columns, columns}
}

// scaleTiles adds a unit's sums, which lie at get, to what 16 rows have.
func scaleTiles(f []reg.VecVirtual, groups int, minima bool, get reg.Register, scales, mins, dx, sums, biases reg.Register) {
	scale, least := zmms(groups), zmms(groups)
	for g := range groups {
		VMOVUPS(at(scales, 64*g), scale[g])
		if minima {
			VMOVUPS(at(mins, 64*g), least[g])
		}
	}
	for r := range f {
		var v reg.VecVirtual
		for g := range groups {
			i := ZMM()
			VPBROADCASTD(at(biases, 64*g+4*r), i)
			VPADDD(at(get, 1024*g+64*r), i, i)
			VCVTDQ2PS(i, i)
			if g == 0 {
				v = i
				VMULPS(scale[g], i, v)
			} else {
				VFMADD231PS(scale[g], i, v)
			}
		}
		VFMADD231PS_BCST(at(dx, 4*r), v, f[r])
		if minima {
			for g := range groups {
				VFNMADD231PS_BCST(at(sums, 64*g+4*r), least[g], f[r])
			}
		}
	}
}
