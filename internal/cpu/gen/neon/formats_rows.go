package main

import "splash/dequant"

// rowByRow has the codes of a block from those of its rows.
func (b *format) rowByRow() {
	b.columns = func(u *unpacker) {
		for i := range 2 * b.units {
			for r := range vec(4) {
				b.codes(u.kernel, 4+r, u.rows[r], i/2, i%2)
			}
			u.transpose([4]vec{0, 1, 2, 3}, [4]vec{4, 5, 6, 7}, 8)
			for c := range 4 {
				u.codes(vec(c), 16*i+4*c)
			}
		}
	}
}

// oneMinimum unpacks a scale, and a minimum less than nothing.
func oneMinimum(u *unpacker) {
	u.halves(0, 12)
	u.scale(12, 0)
	u.halves(2, 12)
	u.fneg(12, 12)
	u.minimum(12, 0)
}

func formatQ41() *format {
	b := smallBlocks("Q41", 20, oneMinimum, func(*kernel) {}, func(*kernel, vec) {})
	b.minima = true
	return b
}

// formatQ5 is Q5_0 or, with minima, Q5_1: the fifth bits of 32 codes lie before the others.
func formatQ5(name string, bytes int, minima bool) *format {
	const which, bits, bit = vec(28), vec(29), vec(30)
	b := &format{
		name: name, bytes: bytes, units: 1, groups: 1, minima: minima,
		constants: func(k *kernel) {
			nibbles(k)
			k.bytes(16, bit)
			k.eights(0x0000000000000000, 0x0101010101010101, which)
			k.eights(0x8040201008040201, 0x8040201008040201, bits)
		},
		scales: oneScale,
		codes: func(k *kernel, to vec, row gp, _, part int) {
			k.addTo(bytes-20+2*part, row, spare)
			k.p("VLD1R (R%d), [V%d.H8]", spare, spoiled)
			k.look(spoiled, spoiled, which)
			k.p("VCMTST V%d.B16, V%d.B16, V%d.B16", bits, spoiled, spoiled)
			k.and(spoiled, spoiled, bit)
			k.part(to, row, bytes-16, part == 1)
			k.or(to, to, spoiled)
			if !minima {
				k.subBytes(to, to, bit)
			}
		},
	}
	if minima {
		b.scales = oneMinimum
	}
	b.rowByRow()
	return b
}

// eights sets the lower and the upper eight bytes of v. It changes R25.
func (k *kernel) eights(low, high uint64, v vec) {
	for half, bits := range []uint64{low, high} {
		k.p("MOVD $0x%016x, R25", bits)
		k.p("VMOV R25, V%d.D[%d]", v, half)
	}
}

func formatQ2K() *format {
	const d, dmin, two, four, t = vec(12), vec(13), vec(30), vec(29), vec(20)
	b := &format{
		name: "Q2K", bytes: 84, units: 8, groups: 16, minima: true,
		constants: func(k *kernel) {
			k.bytes(3, two)
			k.constant(15, four)
		},
		scales: func(u *unpacker) {
			u.halves(80, d)
			u.halves(82, dmin)
			u.columns(0, 0)
			for g := range 16 {
				for i, factor := range []vec{d, dmin} {
					u.dwordsRightOrNone(t, vec(g/4), 8*(g%4)+4*i)
					u.and(t, t, four)
					u.toFloats(t, t)
					u.fmul(t, t, factor)
					if i == 0 {
						u.scale(t, g)
					} else {
						u.minimum(t, g)
					}
				}
			}
		},
		codes: func(k *kernel, to vec, row gp, unit, part int) {
			k.load(row, 16+32*(unit/4)+16*part, to)
			k.twoBits(to, unit%4, two)
		},
	}
	b.rowByRow()
	return b
}

// twoBits has code i of each byte of v.
func (k *kernel) twoBits(v vec, i int, mask vec) {
	if i > 0 {
		k.bytesRight(v, v, 2*i)
	}
	if i < 3 {
		k.and(v, v, mask)
	}
}

func (k *kernel) dwordsRightOrNone(to, v vec, n int) {
	if n == 0 {
		k.move(to, v)
	} else {
		k.dwordsRight(to, v, n)
	}
}

func formatQ3K() *format {
	const d, two, third, four, twoOfDword, middle, s, t = vec(12), vec(30), vec(29), vec(28), vec(27), vec(26), vec(19), vec(20)
	b := &format{
		name: "Q3K", bytes: 110, units: 8, groups: 16,
		constants: func(k *kernel) {
			k.bytes(3, two)
			k.bytes(4, third)
			k.constant(15, four)
			k.constant(3, twoOfDword)
			k.constant(0xffffffe0, middle) // -32
		},
		scales: func(u *unpacker) {
			u.halves(108, d)
			u.columns(92, 0) // four bytes before the scales
			for g := range 16 {
				u.dwordsRightOrNone(s, 1+vec(g%8/4), 8*(g%4)+4*(g/8))
				u.and(s, s, four)
				u.dwordsRightOrNone(t, 3, 8*(g%4)+2*(g/4))
				u.and(t, t, twoOfDword)
				u.dwordsLeft(t, t, 4)
				u.or(s, s, t)
				u.addInts(s, s, middle)
				u.toFloats(s, s)
				u.fmul(s, s, d)
				u.scale(s, g)
			}
		},
		codes: func(k *kernel, to vec, row gp, unit, part int) {
			k.load(row, 32+32*(unit/4)+16*part, to)
			k.twoBits(to, unit%4, two)
			k.load(row, 16*part, spoiled)
			k.moved(spoiled, spoiled, 2-unit)
			k.and(spoiled, spoiled, third)
			k.or(to, to, spoiled)
			k.subBytes(to, to, third)
		},
	}
	b.rowByRow()
	return b
}

// formatNVFP4 has a UE4M3 scale for 16 codes, which are twice the values, and a scale of each row, found where minima
// would be written.
func formatNVFP4() *format {
	const packed, row, t, none = vec(12), vec(13), vec(16), vec(17)
	const low, no, power, half = vec(29), vec(28), vec(27), vec(26)
	b := &format{
		name: "NVFP4", bytes: 36, units: 2, groups: 4,
		constants: func(k *kernel) {
			nibbles(k)
			k.codebook(dequant.NVFP4)
			k.constant(0xff, low)
			k.constant(0x7f, no)
			k.constant(0x7b800000, power) // 2^120
			k.constant(0x3f000000, half)
		},
		scales: func(u *unpacker) {
			u.load(minsTo, 16*u.half, row)
			for i, r := range u.rows {
				u.p("VLD1 (R%d), V%d.S[%d]", r, packed, i)
			}
			for g := range 4 {
				u.byteOf(t, packed, g, low)
				u.p("VCMEQ V%d.S4, V%d.S4, V%d.S4", no, t, none) // reads 0
				u.and(t, t, no)
				u.dwordsLeft(t, t, 20)
				u.fmul(t, t, power)
				u.without(t, t, none)
				u.fmul(t, t, row)
				u.fmul(t, t, half)
				u.scale(t, g)
			}
		},
		codes: func(k *kernel, to vec, row gp, unit, part int) {
			k.loadD(row, 4+16*unit+8*part, to)
			k.bytesRight(spoiled, to, 4)
			k.and(to, to, nibble)
			k.p("VZIP1 V%d.D2, V%d.D2, V%d.D2", spoiled, to, to)
			fromBook(k, to)
		},
	}
	b.rowByRow()
	return b
}

// formatTwoBits has a scale, then codes of two bits in order, which are meant less one.
func formatTwoBits(name string, bytes, units int) *format {
	const which, shifts, two, less = vec(30), vec(29), vec(28), vec(27)
	b := &format{
		name: name, bytes: bytes, units: units, groups: units,
		constants: func(k *kernel) {
			k.eights(0x0101010100000000, 0x0303030302020202, which)
			k.eights(0xfafcfe00fafcfe00, 0xfafcfe00fafcfe00, shifts) // to the right by 0, 2, 4, 6
			k.bytes(3, two)
			k.bytes(1, less)
		},
		scales: func(u *unpacker) {
			u.halves(0, 12)
			for g := range units {
				u.scale(12, g)
			}
		},
		codes: func(k *kernel, to vec, row gp, unit, part int) {
			k.loadSAt(row, 2+8*unit+4*part, to)
			k.look(to, to, which)
			k.shiftBytes(to, to, shifts)
			k.and(to, to, two)
			k.subBytes(to, to, less)
		},
	}
	b.rowByRow()
	return b
}

// loadSAt loads a dword that need not be aligned.
func (k *kernel) loadSAt(row gp, disp int, to vec) {
	k.p("MOVWU %d(R%d), R%d", disp, row, other)
	k.p("FMOVS R%d, F%d", other, to)
}

func formatTQ20() *format {
	const two, less = vec(28), vec(27)
	b := &format{
		name: "TQ20", bytes: 66, units: 8, groups: 8,
		constants: func(k *kernel) {
			k.bytes(3, two)
			k.bytes(1, less)
		},
		scales: func(u *unpacker) {
			u.halves(64, 12)
			for g := range 8 {
				u.scale(12, g)
			}
		},
		codes: func(k *kernel, to vec, row gp, unit, part int) {
			k.load(row, 32*(unit/4)+16*part, to)
			k.twoBits(to, unit%4, two)
			k.subBytes(to, to, less)
		},
	}
	b.rowByRow()
	return b
}

// formatQ10 has bits that mean 1 or, where they are not set, -1.
func formatQ10() *format {
	const which, bits, one, all = vec(30), vec(29), vec(28), vec(27)
	b := &format{
		name: "Q10", bytes: 18, units: 4, groups: 4,
		constants: func(k *kernel) {
			k.eights(0x0000000000000000, 0x0101010101010101, which)
			k.eights(0x8040201008040201, 0x8040201008040201, bits)
			k.bytes(1, one)
			k.bytes(0xff, all)
		},
		scales: func(u *unpacker) {
			u.halves(0, 12)
			for g := range 4 {
				u.scale(12, g)
			}
		},
		codes: func(k *kernel, to vec, row gp, unit, part int) {
			k.addTo(2+4*unit+2*part, row, spare)
			k.p("VLD1R (R%d), [V%d.H8]", spare, to)
			k.look(to, to, which)
			k.p("VCMTST V%d.B16, V%d.B16, V%d.B16", bits, to, to)
			k.without(to, all, to)
			k.or(to, to, one)
		},
	}
	b.rowByRow()
	return b
}

// formatNVFP4Rows has a signed E4M3 scale for 16 codes, which are twice the values and in order, and a scale of its own.
func formatNVFP4Rows() *format {
	const global, t, sign = vec(12), vec(16), vec(17)
	const magnitude, top, power, half = vec(29), vec(28), vec(27), vec(26)
	b := &format{
		name: "NVFP4Rows", bytes: 148, units: 8, groups: 16,
		constants: func(k *kernel) {
			nibbles(k)
			k.codebook(dequant.NVFP4)
			k.constant(0x07f00000, magnitude)
			k.constant(0x80000000, top)
			k.constant(0x7b800000, power) // 2^120
			k.constant(0x3f000000, half)
		},
		scales: func(u *unpacker) {
			u.columns(0, 0)
			for i, r := range u.rows {
				u.addTo(16, r, spare)
				u.p("VLD1 (R%d), V%d.S[%d]", spare, global, i)
			}
			for g := range 16 {
				u.dwordsLeftOrNone(sign, vec(g/4), 24-8*(g%4))
				u.dwordsRight(t, sign, 4)
				u.and(t, t, magnitude)
				u.fmul(t, t, power)
				u.and(sign, sign, top)
				u.or(t, t, sign)
				u.fmul(t, t, global)
				u.fmul(t, t, half)
				u.scale(t, g)
			}
		},
		codes: func(k *kernel, to vec, row gp, unit, part int) {
			k.load(row, 20+16*unit, to)
			k.bytesRight(spoiled, to, 4)
			k.and(to, to, nibble)
			k.p("VZIP%d V%d.B16, V%d.B16, V%d.B16", part+1, spoiled, to, to)
			fromBook(k, to)
		},
	}
	b.rowByRow()
	return b
}

func (k *kernel) dwordsLeftOrNone(to, v vec, n int) {
	if n == 0 {
		k.move(to, v)
	} else {
		k.dwordsLeft(to, v, n)
	}
}

// formatTQ10 has ternary digits less one: a byte is a fixed-point fraction of five, which lie a run's length apart: runs of
// 32 bytes, of 16, and of 4 that have four.
func formatTQ10() *format {
	const powers, mixed, less = vec(24), vec(29), vec(30) // powers of three, to V28
	b := &format{
		name: "TQ10", bytes: 54, units: 8, groups: 8,
		constants: func(k *kernel) {
			power := byte(1)
			for i := range vec(5) {
				k.bytes(power, powers+i)
				power *= 3
			}
			k.eights(0x0303030301010101, 0x1b1b1b1b09090909, mixed)
			k.bytes(1, less)
		},
		scales: func(u *unpacker) {
			u.halves(52, 12)
			for g := range 8 {
				u.scale(12, g)
			}
		},
		codes: func(k *kernel, to vec, row gp, unit, part int) {
			power := powers + vec(unit)
			switch at := 2*unit + part; {
			case at < 10:
				k.load(row, 16*part, to)
			case at < 15:
				k.load(row, 32, to)
				power = powers + vec(at-10)
			default:
				k.loadSAt(row, 48, to)
				k.spread(to, to, 0)
				power = mixed
			}
			k.mulBytes(to, to, power)
			// 3 x / 256 is half of x + x / 2 by 64, rounded down each time.
			k.bytesRight(spoiled, to, 1)
			k.halfSum(to, to, spoiled)
			k.bytesRight(to, to, 6)
			k.subBytes(to, to, less)
		},
	}
	b.rowByRow()
	return b
}

// formatCodes is codes alone, whose scales lie elsewhere: of four bits, two in a byte, the low one first, or of eight.
func formatCodes(name string, bits int, constants func(*kernel), value func(k *kernel, v vec)) *format {
	b := &format{
		name: name, bytes: unitColumns * bits / 8, units: 1, groups: 1, minima: true,
		constants: func(k *kernel) {
			nibbles(k)
			constants(k)
		},
		scales: func(*unpacker) {},
		codes: func(k *kernel, to vec, row gp, _, part int) {
			if bits == 8 {
				k.load(row, 16*part, to)
			} else {
				k.load(row, 0, to)
				k.bytesRight(spoiled, to, 4)
				k.and(to, to, nibble)
				k.p("VZIP%d V%d.B16, V%d.B16, V%d.B16", part+1, spoiled, to, to)
			}
			value(k, to)
		},
	}
	b.rowByRow()
	return b
}

// formatsApart are those of containers that keep scales in tensors of their own. Codes of eight bits lose 128.
func formatsApart() []*format {
	const top = vec(30)
	return []*format{
		formatCodes("Codes4", 4, func(*kernel) {}, func(*kernel, vec) {}),
		formatCodes("Codes8", 8, func(k *kernel) { k.bytes(0x80, top) }, func(k *kernel, v vec) { k.subBytes(v, v, top) }),
		formatCodes("CodesFP4", 4, func(k *kernel) { k.codebook(dequant.MXFP4) }, fromBook),
	}
}
