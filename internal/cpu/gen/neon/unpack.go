package main

import "fmt"

// unpackKernels fill tiles of 8 rows (product_generic.go): four columns of all rows lie side by side.
func unpackKernels(f *file) {
	interleave(f)
	for _, b := range append(formats(), formatsApart()...) {
		b.unpack(f)
	}
}

// interleave brings the dwords of 8 rows side by side.
func interleave(f *file) {
	k := f.kernel("interleaveNEON", "(dst, src *byte, stride, columns int)",
		"Writes columns of dwords of 8 rows, a whole number of 4, each column's rows side by side.")
	k.arg("dst", 0)
	k.arg("stride", 1)
	k.arg("columns", 2)
	row := gp(8)
	k.arg("src", row)
	for i := range gp(7) {
		k.sum(row+i, 1, row+i+1)
	}
	loop := k.label()
	for i := range gp(8) {
		k.next(row+i, vec(i), 1)
	}
	for half := range vec(2) {
		k.transpose([4]vec{16 + half, 18 + half, 20 + half, 22 + half}, [4]vec{4 * half, 4*half + 1, 4*half + 2, 4*half + 3}, 24)
	}
	k.put(16, 4, 0)
	k.put(20, 4, 0)
	k.again(2, 4, loop)
	k.ret()
}

// A format is how blocks of 8 rows become codes, scales and minima.
type format struct {
	name                 string
	bytes, units, groups int // of a block
	minima               bool

	constants func(*kernel)
	scales    func(*unpacker) // writes those of a block, [groups][8], and its minima
	columns   func(*unpacker) // writes the codes of a block, four columns of all rows side by side

	// codes has 16 codes of a row in order, those of part 0 or 1 of a unit. It changes spoiled.
	codes func(k *kernel, to vec, row gp, unit, part int)
}

// An unpacker is a kernel that takes blocks of 8 rows, four rows after another.
type unpacker struct {
	*kernel
	rows [4]gp // where the blocks of the four rows are
	half int   // 1: of the upper four
}

const (
	codesTo, scalesTo, minsTo = gp(0), gp(1), gp(2)

	spare, ahead = gp(16), gp(19)

	nibble  = vec(31) // 0x0f in every byte
	spoiled = vec(14) // and the next
)

// unpack writes the kernel that fills a tile.
func (b *format) unpack(f *file) {
	k := f.kernel("unpack"+b.name+"NEON", "(codes *byte, scales, mins *float32, src *byte, stride, blocks int, ahead uintptr)",
		fmt.Sprintf("Unpacks blocks of %d bytes, of %d columns, of 8 rows, and fetches as many bytes from ahead on.", b.bytes, b.units*unitColumns))
	k.arg("codes", codesTo)
	k.arg("scales", scalesTo)
	k.arg("mins", minsTo)
	k.arg("blocks", 5)
	k.eightRows("src", "stride")
	k.arg("ahead", ahead)
	b.constants(k)
	loop := k.label()
	b.fetch(k)
	for half := range 2 {
		u := k.fourRows(half)
		b.scales(u)
		b.columns(u)
	}
	b.nextBlock(k)
	k.add(b.units*unitColumns*8, codesTo)
	k.add(b.groups*32, scalesTo)
	if b.minima {
		k.add(b.groups*32, minsTo)
	}
	k.again(5, 1, loop)
	k.ret()
}

// firstRow is where the first row's block is; the registers of the others follow.
const firstRow = gp(8)

// eightRows sets the registers of the rows.
func (k *kernel) eightRows(src, stride string) {
	k.arg(src, firstRow)
	k.arg(stride, spare)
	for i := range gp(7) {
		k.sum(firstRow+i, spare, firstRow+i+1)
	}
}

func (k *kernel) fourRows(half int) *unpacker {
	u := &unpacker{kernel: k, half: half}
	for i := range u.rows {
		u.rows[i] = firstRow + gp(4*half+i)
	}
	return u
}

// fetch asks for as many bytes as a block of all rows has.
func (b *format) fetch(k *kernel) {
	for at := 0; at < 8*b.bytes; at += 64 {
		k.p("PRFM %d(R%d), PLDL1KEEP", at, ahead)
	}
	k.add(8*b.bytes, ahead)
}

func (b *format) nextBlock(k *kernel) {
	for i := range gp(8) {
		k.add(b.bytes, firstRow+i)
	}
}

// bytes has the byte in all lanes of v.
func (k *kernel) bytes(b byte, v vec) { k.p("VMOVI $%d, V%d.B16", b, v) }

// columns loads 16 bytes of each row and turns them: dword c of the rows is in to + c. It changes V4 to V11.
func (u *unpacker) columns(disp int, to vec) {
	for i, r := range u.rows {
		u.load(r, disp, vec(4+i))
	}
	u.transpose([4]vec{to, to + 1, to + 2, to + 3}, [4]vec{4, 5, 6, 7}, 8)
}

// codes stores those of four columns.
func (u *unpacker) codes(v vec, column int) { u.store(v, codesTo, column/4*32+u.half*16) }

// scale stores those of a group, mins its minima.
func (u *unpacker) scale(v vec, group int)   { u.store(v, scalesTo, group*32+u.half*16) }
func (u *unpacker) minimum(v vec, group int) { u.store(v, minsTo, group*32+u.half*16) }

// halves loads a float16 of each row to the lanes of v.
func (u *unpacker) halves(disp int, v vec) {
	for i, r := range u.rows {
		if disp != 0 {
			u.addTo(disp, r, spare)
			r = spare
		}
		u.kernel.half(r, v, i)
	}
	u.fromHalves(v, v)
}

// moved shifts bytes to the left, or to the right by less than nothing.
func (k *kernel) moved(to, v vec, by int) {
	switch {
	case by > 0:
		k.bytesLeft(to, v, by)
	case by < 0:
		k.bytesRight(to, v, -by)
	default:
		k.move(to, v)
	}
}

// byteOf has byte i of each dword of v.
func (k *kernel) byteOf(to, v vec, i int, mask vec) {
	if i > 0 {
		k.dwordsRight(to, v, 8*i)
		v = to
	}
	if i < 3 {
		k.and(to, v, mask)
	}
}
