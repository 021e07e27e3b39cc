package main

import "splash/dequant"

// formats are those whose blocks hold everything.
func formats() []*format {
	return []*format{
		formatQ8(), formatQ4K(), formatQ5K(), formatQ6K(), formatQ40(), formatIQ4NL(), formatIQ4XS(), formatMXFP4(),
		formatAffine4(), formatQ41(), formatQ5("Q50", 22, false), formatQ5("Q51", 24, true), formatQ2K(), formatQ3K(), formatNVFP4(),
		formatIQ2XXS(), formatIQ3XXS(), formatIQ2XS(), formatIQ2S(), formatIQ3S(), formatIQ1S(),
		formatTwoBits("Q20", 18, 2), formatTwoBits("PQ20", 34, 4), formatTQ20(), formatQ10(),
		formatNVFP4Rows(), formatTQ10(), formatIQ1M(),
	}
}

func nibbles(k *kernel) { k.bytes(15, nibble) }

// part takes the low nibbles of 16 bytes of a row, or the high ones.
func (k *kernel) part(to vec, row gp, disp int, high bool) {
	k.load(row, disp, to)
	if high {
		k.bytesRight(to, to, 4)
	} else {
		k.and(to, to, nibble)
	}
}

// oneScale unpacks a float16 at the beginning of a block.
func oneScale(u *unpacker) {
	u.halves(0, 12)
	u.scale(12, 0)
}

func formatQ8() *format {
	return &format{
		name: "Q8", bytes: 34, units: 1, groups: 1,
		constants: func(*kernel) {},
		scales:    oneScale,
		columns: func(u *unpacker) {
			for h := range 2 {
				u.columns(2+16*h, 0)
				for c := range 4 {
					u.codes(vec(c), 16*h+4*c)
				}
			}
		},
		codes: func(k *kernel, to vec, row gp, _, part int) { k.load(row, 2+16*part, to) },
	}
}

// sixBits unpacks the scales and minima of the eight groups of a Q4_K or Q5_K block: d, dmin, and twelve bytes.
func sixBits(u *unpacker) {
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

func formatQ4K() *format {
	return &format{
		name: "Q4K", bytes: 144, units: 8, groups: 8, minima: true,
		constants: sixBitMasks,
		scales:    sixBits,
		columns: func(u *unpacker) {
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
		},
		codes: func(k *kernel, to vec, row gp, unit, part int) { k.part(to, row, 16+unit/2*32+16*part, unit%2 == 1) },
	}
}

func formatQ5K() *format {
	const fifth, high, bit = vec(24), vec(20), vec(27)
	return &format{
		name: "Q5K", bytes: 176, units: 8, groups: 8, minima: true,
		constants: func(k *kernel) {
			sixBitMasks(k)
			k.bytes(16, bit)
		},
		scales: sixBits,
		columns: func(u *unpacker) {
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
		},
		codes: func(k *kernel, to vec, row gp, unit, part int) {
			k.part(to, row, 48+unit/2*32+16*part, unit%2 == 1)
			k.load(row, 16+16*part, spoiled)
			k.moved(spoiled, spoiled, 4-unit)
			k.and(spoiled, spoiled, bit)
			k.or(to, to, spoiled)
		},
	}
}

func formatQ6K() *format {
	const d, middle, two, t = vec(12), vec(30), vec(29), vec(28)
	return &format{
		name: "Q6K", bytes: 210, units: 8, groups: 16,
		constants: func(k *kernel) {
			nibbles(k)
			k.bytes(32, middle)
			k.bytes(0x30, two)
		},
		scales: func(u *unpacker) {
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
		},
		columns: func(u *unpacker) {
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
		},
		codes: func(k *kernel, to vec, row gp, unit, part int) {
			half, quarter := unit/4, unit%4
			k.part(to, row, 64*half+32*(quarter%2)+16*part, quarter >= 2)
			k.load(row, 128+32*half+16*part, spoiled)
			k.moved(spoiled, spoiled, 4-2*quarter)
			k.and(spoiled, spoiled, two)
			k.or(to, to, spoiled)
			k.subBytes(to, to, middle)
		},
	}
}

// nibblesOf stores what value makes of 16 bytes of two codes of each row, the low codes first, from a column on.
func (u *unpacker) nibblesOf(disp, column int, value func(k *kernel, v vec)) {
	u.columns(disp, 0)
	for c := range vec(4) {
		u.and(16, c, nibble)
		u.bytesRight(17, c, 4)
		for i := range vec(2) {
			value(u.kernel, 16+i)
			u.codes(16+i, column+16*int(i)+4*int(c))
		}
	}
}

// smallBlocks is a format of blocks of one unit that has its codes after a scale: 16 bytes of two codes.
func smallBlocks(name string, bytes int, scales func(*unpacker), constants func(*kernel), value func(k *kernel, v vec)) *format {
	disp := bytes - 16
	return &format{
		name: name, bytes: bytes, units: 1, groups: 1,
		constants: func(k *kernel) {
			nibbles(k)
			constants(k)
		},
		scales:  scales,
		columns: func(u *unpacker) { u.nibblesOf(disp, 0, value) },
		codes: func(k *kernel, to vec, row gp, _, part int) {
			k.part(to, row, disp, part == 1)
			value(k, to)
		},
	}
}

func formatQ40() *format {
	const middle = vec(30)
	return smallBlocks("Q40", 18, oneScale, func(k *kernel) { k.bytes(8, middle) },
		func(k *kernel, v vec) { k.subBytes(v, v, middle) })
}

// book is the values of 16 codes.
const book = vec(30)

// codebook loads the values of a format's codes. It changes R25.
func (k *kernel) codebook(t dequant.Type) {
	values := dequant.Codebook(t)
	var halves [2]uint64
	for i, v := range values {
		halves[i/8] |= uint64(uint8(v)) << (i % 8 * 8)
	}
	k.eights(halves[0], halves[1], book)
}

func fromBook(k *kernel, v vec) { k.look(v, book, v) }

func formatIQ4NL() *format {
	return smallBlocks("IQ4NL", 18, oneScale, func(k *kernel) { k.codebook(dequant.IQ4NL) }, fromBook)
}

func formatIQ4XS() *format {
	const d, high, low, t, s = vec(12), vec(16), vec(17), vec(18), vec(19)
	const four, two, middle = vec(29), vec(28), vec(27)
	return &format{
		name: "IQ4XS", bytes: 136, units: 8, groups: 8,
		constants: func(k *kernel) {
			nibbles(k)
			k.codebook(dequant.IQ4NL)
			k.constant(15, four)
			k.constant(0x30, two)
			k.constant(0xffffffe0, middle) // -32
		},
		scales: func(u *unpacker) {
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
		},
		columns: func(u *unpacker) {
			for j := range 8 {
				u.nibblesOf(8+16*j, 32*j, fromBook)
			}
		},
		codes: func(k *kernel, to vec, row gp, unit, part int) {
			k.part(to, row, 8+16*unit, part == 1)
			fromBook(k, to)
		},
	}
}

// formatMXFP4 has codes that are twice the values, and the scale is 2^(e-128).
func formatMXFP4() *format {
	const least, e, bits = gp(22), gp(23), gp(24)
	return smallBlocks("MXFP4", 17, func(u *unpacker) {
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
	}, func(k *kernel) {
		k.codebook(dequant.MXFP4)
		k.p("MOVW $0x00200000, R%d", least)
	}, fromBook)
}

// formatAffine4 has a scale and a bias in BF16 for 64 codes, two in a byte, the low one first.
func formatAffine4() *format {
	const scale, bias, upper = vec(12), vec(13), vec(30)
	return &format{
		name: "Affine4", bytes: 36, units: 2, groups: 2, minima: true,
		constants: func(k *kernel) {
			nibbles(k)
			k.constant(0xffff0000, upper)
		},
		scales: func(u *unpacker) {
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
		},
		columns: func(u *unpacker) {
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
		},
		codes: func(k *kernel, to vec, row gp, unit, part int) {
			k.load(row, 4+16*unit, to)
			k.bytesRight(spoiled, to, 4)
			k.and(to, to, nibble)
			k.p("VZIP%d V%d.B16, V%d.B16, V%d.B16", part+1, spoiled, to, to)
		},
	}
}
