package main

import (
	"fmt"

	"splash/dequant"
)

// unpackKernels fill tiles of 8 rows (product_generic.go): four columns of all rows lie side by side.
func unpackKernels(f *file) {
	interleave(f)
	unpackQ8(f)
	unpackQ4K(f)
	unpackQ5K(f)
	unpackQ6K(f)
	unpackQ40(f)
	unpackCodebook(f, "IQ4NL", dequant.IQ4NL)
	unpackIQ4XS(f)
	unpackMXFP4(f)
	unpackAffine4(f)
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

// An unpacker is a kernel that unpacks blocks of 8 rows, four rows after another.
type unpacker struct {
	*kernel
	rows [4]gp // where the blocks of the four rows are
	half int   // 1: of the upper four
}

const (
	codesTo, scalesTo, minsTo = gp(0), gp(1), gp(2)

	spare = gp(16)

	nibble = vec(31) // 0x0f in every byte
)

// blocks writes a kernel for blocks of so many bytes, units and groups. before loads its constants.
func blocks(f *file, name string, bytes, units, groups int, minima bool, before func(*kernel), of func(*unpacker)) {
	k := f.kernel("unpack"+name+"NEON", "(codes *byte, scales, mins *float32, src *byte, stride, blocks int)",
		fmt.Sprintf("Unpacks blocks of %d bytes, of %d columns, of 8 rows.", bytes, units*unitColumns))
	k.arg("codes", codesTo)
	k.arg("scales", scalesTo)
	k.arg("mins", minsTo)
	k.arg("stride", 4)
	k.arg("blocks", 5)
	row := gp(8)
	k.arg("src", row)
	for i := range gp(7) {
		k.sum(row+i, 4, row+i+1)
	}
	before(k)
	loop := k.label()
	for half := range 2 {
		u := &unpacker{kernel: k, half: half}
		for i := range u.rows {
			u.rows[i] = row + gp(4*half+i)
		}
		of(u)
	}
	for i := range gp(8) {
		k.add(bytes, row+i)
	}
	k.add(units*unitColumns*8, codesTo)
	k.add(groups*32, scalesTo)
	if minima {
		k.add(groups*32, minsTo)
	}
	k.again(5, 1, loop)
	k.ret()
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

func nibbles(k *kernel) { k.bytes(15, nibble) }

func unpackQ8(f *file) {
	blocks(f, "Q8", 34, 1, 1, false, func(*kernel) {}, func(u *unpacker) {
		u.halves(0, 16)
		u.scale(16, 0)
		for h := range 2 {
			u.columns(2+16*h, 0)
			for c := range 4 {
				u.codes(vec(c), 16*h+4*c)
			}
		}
	})
}

// sixBits unpacks the scales and minima of the eight groups of a Q4_K or Q5_K block: d, dmin, and twelve bytes.
func (u *unpacker) sixBits() {
	const d, dmin, scales, mins, t, six, two, one = vec(12), vec(13), vec(16), vec(18), vec(20), vec(30), vec(29), vec(28)
	u.columns(0, 0)
	u.narrow(d, 0)
	u.fromHalves(d, d)
	u.narrowUpper(dmin, 0)
	u.fromHalves(dmin, dmin)
	for i, to := range []vec{scales, mins} {
		low := vec(1 + i)
		u.and(to, low, six)
		u.bytesRight(t, low, 2)
		u.and(t, t, two)
		if i == 0 {
			u.and(to+1, 3, nibble)
		} else {
			u.bytesRight(to+1, 3, 4)
		}
		u.or(to+1, to+1, t)
	}
	for g := range 8 {
		u.byteOf(t, scales+vec(g/4), g%4, one)
		u.toFloats(t, t)
		u.fmul(t, t, d)
		u.scale(t, g)
		u.byteOf(t, mins+vec(g/4), g%4, one)
		u.toFloats(t, t)
		u.fmul(t, t, dmin)
		u.minimum(t, g)
	}
}

// sixBitMasks loads the constants of sixBits.
func sixBitMasks(k *kernel) {
	nibbles(k)
	k.bytes(0x3f, 30)
	k.bytes(0x30, 29)
	k.constant(0xff, 28)
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

func unpackQ4K(f *file) {
	blocks(f, "Q4K", 144, 8, 8, true, sixBitMasks, func(u *unpacker) {
		u.sixBits()
		for j := range 4 {
			for h := range 2 {
				u.columns(16+32*j+16*h, 0)
				for c := range 4 {
					u.and(16, vec(c), nibble)
					u.bytesRight(17, vec(c), 4)
					u.codes(16, 64*j+16*h+4*c)
					u.codes(17, 64*j+32+16*h+4*c)
				}
			}
		}
	})
}

func unpackQ5K(f *file) {
	const fifth, high, bit = vec(24), vec(20), vec(27)
	blocks(f, "Q5K", 176, 8, 8, true, func(k *kernel) {
		sixBitMasks(k)
		k.bytes(16, bit)
	}, func(u *unpacker) {
		u.sixBits()
		for h := range 2 {
			u.columns(16+16*h, high)
			for j := range 4 {
				u.columns(48+32*j+16*h, 0)
				for c := range 4 {
					u.and(16, vec(c), nibble)
					u.bytesRight(17, vec(c), 4)
					for i := range 2 {
						u.moved(fifth, high+vec(c), 4-2*j-i)
						u.and(fifth, fifth, bit)
						u.or(16+vec(i), 16+vec(i), fifth)
						u.codes(16+vec(i), 64*j+32*i+16*h+4*c)
					}
				}
			}
		}
	})
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

func unpackQ6K(f *file) {
	const d, middle, two, t = vec(12), vec(30), vec(29), vec(28)
	blocks(f, "Q6K", 210, 8, 16, false, func(k *kernel) {
		nibbles(k)
		k.bytes(32, middle)
		k.bytes(0x30, two)
	}, func(u *unpacker) {
		u.halves(208, d)
		u.columns(192, 0)
		for g := range 16 {
			v := vec(g / 4)
			if g%4 < 3 {
				u.dwordsLeft(t, v, 24-8*(g%4))
				v = t
			}
			u.signedRight(t, v, 24)
			u.toFloats(t, t)
			u.fmul(t, t, d)
			u.scale(t, g)
		}
		for i := range 4 {
			part, h := i/2, i%2
			u.columns(64*part+16*h, 0)
			u.columns(64*part+32+16*h, 16)
			u.columns(128+32*part+16*h, 20)
			for c := range vec(4) {
				for quarter := range 4 {
					low, code := 16*vec(quarter%2)+c, vec(24)
					if quarter < 2 {
						u.and(code, low, nibble)
					} else {
						u.bytesRight(code, low, 4)
					}
					u.moved(t, 20+c, 4-2*quarter)
					u.and(t, t, two)
					u.or(code, code, t)
					u.subBytes(code, code, middle)
					u.codes(code, 128*part+32*quarter+16*h+4*int(c))
				}
			}
		}
	})
}

func unpackQ40(f *file) {
	blocks(f, "Q40", 18, 1, 1, false, func(k *kernel) {
		nibbles(k)
		k.bytes(8, 30)
	}, func(u *unpacker) {
		u.halves(0, 12)
		u.scale(12, 0)
		u.columns(2, 0)
		for c := range vec(4) {
			u.and(16, c, nibble)
			u.bytesRight(17, c, 4)
			for i := range vec(2) {
				u.subBytes(16+i, 16+i, 30)
				u.codes(16+i, 16*int(i)+4*int(c))
			}
		}
	})
}

// codebook loads the 16 values of a format's codes. It changes R25.
func (k *kernel) codebook(t dequant.Type, to vec) {
	values := dequant.Codebook(t)
	for half := range 2 {
		var bits uint64
		for i, v := range values[8*half : 8*half+8] {
			bits |= uint64(uint8(v)) << (8 * i)
		}
		k.p("MOVD $0x%016x, R25", bits)
		k.p("VMOV R25, V%d.D[%d]", to, half)
	}
}

// valued stores the values of 16 bytes of two codes of each row, the low codes first, from a column on.
func (u *unpacker) valued(disp, column int, book vec) {
	u.columns(disp, 0)
	for c := range vec(4) {
		u.and(16, c, nibble)
		u.bytesRight(17, c, 4)
		for i := range vec(2) {
			u.look(16+i, book, 16+i)
			u.codes(16+i, column+16*int(i)+4*int(c))
		}
	}
}

func unpackCodebook(f *file, name string, t dequant.Type) {
	const book = vec(30)
	blocks(f, name, 18, 1, 1, false, func(k *kernel) {
		nibbles(k)
		k.codebook(t, book)
	}, func(u *unpacker) {
		u.halves(0, 12)
		u.scale(12, 0)
		u.valued(2, 0, book)
	})
}

func unpackIQ4XS(f *file) {
	const d, high, low, t, s = vec(12), vec(16), vec(17), vec(18), vec(19)
	const book, four, two, middle = vec(30), vec(29), vec(28), vec(27)
	blocks(f, "IQ4XS", 136, 8, 8, false, func(k *kernel) {
		nibbles(k)
		k.codebook(dequant.IQ4NL, book)
		k.constant(15, four)
		k.constant(0x30, two)
		k.constant(0xffffffe0, middle) // -32
	}, func(u *unpacker) {
		u.columns(0, 0)
		u.narrow(d, 0)
		u.fromHalves(d, d)
		u.dwordsRight(high, 0, 16)
		u.dwordsLeft(high, high, 4)
		u.move(low, 1)
		for g := range 8 {
			if g == 0 {
				u.and(s, low, four)
				u.and(t, high, two)
			} else {
				u.dwordsRight(s, low, 4*g)
				u.and(s, s, four)
				u.dwordsRight(t, high, 2*g)
				u.and(t, t, two)
			}
			u.or(s, s, t)
			u.addInts(s, s, middle)
			u.toFloats(s, s)
			u.fmul(s, s, d)
			u.scale(s, g)
		}
		for j := range 8 {
			u.valued(8+16*j, 32*j, book)
		}
	})
}

// unpackMXFP4 has codes that are twice the values, and the scale is 2^(e-128).
func unpackMXFP4(f *file) {
	const book, least, e, bits = vec(30), gp(6), gp(7), gp(17)
	blocks(f, "MXFP4", 17, 1, 1, false, func(k *kernel) {
		nibbles(k)
		k.codebook(dequant.MXFP4, book)
		k.p("MOVW $0x00200000, R%d", least)
	}, func(u *unpacker) {
		for i, r := range u.rows {
			u.p("MOVBU (R%d), R%d", r, e)
			u.p("SUB $1, R%d, R%d", e, bits)
			u.p("LSLW $23, R%d, R%d", bits, bits)
			u.p("LSLW R%d, R%d, R%d", e, least, spare) // below the normal numbers
			u.p("CMPW $2, R%d", e)
			u.p("CSELW LT, R%d, R%d, R%d", spare, bits, bits)
			u.p("VMOV R%d, V12.S[%d]", bits, i)
		}
		u.scale(12, 0)
		u.valued(1, 0, book)
	})
}

// unpackAffine4 has a scale and a bias in BF16 for 64 codes, two in a byte, the low one first.
func unpackAffine4(f *file) {
	const scale, bias, upper = vec(12), vec(13), vec(30)
	blocks(f, "Affine4", 36, 2, 2, true, func(k *kernel) {
		nibbles(k)
		k.constant(0xffff0000, upper)
	}, func(u *unpacker) {
		for i, r := range u.rows {
			u.p("VLD1 (R%d), V%d.S[%d]", r, bias, i)
		}
		u.dwordsLeft(scale, bias, 16)
		u.and(bias, bias, upper)
		u.fneg(bias, bias)
		for g := range 2 {
			u.scale(scale, g)
			u.minimum(bias, g)
		}
		for h := range 2 {
			u.columns(4+16*h, 0)
			for c := range vec(4) {
				u.and(16, c, nibble)
				u.bytesRight(17, c, 4)
				u.p("VZIP1 V17.B16, V16.B16, V18.B16")
				u.p("VZIP2 V17.B16, V16.B16, V19.B16")
				u.p("VUZP1 V19.S4, V18.S4, V20.S4")
				u.p("VUZP2 V19.S4, V18.S4, V21.S4")
				for i := range vec(2) {
					u.codes(20+i, 32*h+8*int(c)+4*int(i))
				}
			}
		}
	})
}
