package main

// The registers of grids and of what is looked up in them.
const (
	gridAt, signsAt           = gp(22), gp(23)
	one, other, high, highBit = gp(20), gp(21), gp(24), gp(3)
)

// A grid is a format of 256 columns, whose codes are entries of a table of the package, a pointer's, with signs of their
// own.
type grid struct {
	name, table   string
	bytes, groups int
	signs         string // the table of their masks; "": there are none

	constants func(k *kernel)
	scales    func(u *unpacker)
	entries   func(k *kernel, to vec, row gp, unit, part int)
	// indices sets the registers one and other to the indices of the signs' masks of the lower eight codes and the upper.
	indices func(k *kernel, row gp, unit, part int)
}

func (g *grid) format() *format {
	b := &format{
		name: g.name, bytes: g.bytes, units: 8, groups: g.groups,
		constants: func(k *kernel) {
			k.p("MOVD ·%s(SB), R%d", g.table, gridAt)
			if g.signs != "" {
				k.p("MOVD %s(SB), R%d", g.signs, signsAt)
			}
			g.constants(k)
		},
		scales: g.scales,
		codes: func(k *kernel, to vec, row gp, unit, part int) {
			g.entries(k, to, row, unit, part)
			if g.signs == "" {
				return
			}
			g.indices(k, row, unit, part)
			k.entry(spoiled, signsAt, one, 0)
			k.entry(spoiled, signsAt, other, 1)
			k.p("VEOR V%d.B16, V%d.B16, V%d.B16", spoiled, to, to)
			k.subBytes(to, to, spoiled)
		},
	}
	b.rowByRow()
	return b
}

// The tables of signs: a pointer to those of 7-bit indices, and those of bytes.
const (
	evenSigns = "·signMasks"
	byteSigns = "$·spread"
)

// entry loads the eight bytes that i counts of a table to a half of v: the lower first. It changes i.
func (k *kernel) entry(v vec, table, i gp, half int) {
	if half == 0 {
		k.p("FMOVD (R%d)(R%d<<3), F%d", table, i, v)
		return
	}
	k.p("ADD R%d<<3, R%d, R%d", i, table, i)
	k.p("VLD1 (R%d), V%d.D[1]", i, v)
}

// entry4 loads the four bytes that i counts of a table of eights to a quarter of v, the lowest first. It changes i.
func (k *kernel) entry4(v vec, table, i gp, quarter int) {
	k.p("ADD R%d<<3, R%d, R%d", i, table, i)
	if quarter == 0 {
		k.loadS(i, 0, v)
	} else {
		k.p("VLD1 (R%d), V%d.S[%d]", i, v, quarter)
	}
}

// bits has n bits of v from bit at on.
func (k *kernel) bits(to, v gp, at, n int) { k.p("UBFX $%d, R%d, $%d, R%d", at, v, n, to) }

// twoBytes sets one and other to the bytes at disp.
func (k *kernel) twoBytes(row gp, disp int) {
	k.p("MOVHU %d(R%d), R%d", disp, row, other)
	k.p("AND $255, R%d, R%d", other, one)
	k.p("LSR $8, R%d, R%d", other, other)
}

// withHigh adds n bits of high, from bit at on, to the eight of i.
func (k *kernel) withHigh(i gp, at, n int) {
	k.bits(highBit, high, at, n)
	k.p("ORR R%d<<8, R%d, R%d", highBit, i, i)
}

// The registers of scales.
const (
	gridD, gridT, gridHalf, gridFactor, gridFour = vec(12), vec(16), vec(30), vec(29), vec(28)
)

// halfAndMore is d (1/2 + s) times a factor, of the integers s in gridT.
func (u *unpacker) halfAndMore(group int) {
	u.toFloats(gridT, gridT)
	u.fadd(gridT, gridT, gridHalf)
	u.fmul(gridT, gridT, gridD)
	u.fmul(gridT, gridT, gridFactor)
	u.scale(gridT, group)
}

const half, quarter, eighth = 0x3f000000, 0x3e800000, 0x3e000000 // float32

func halfAndMore(factor uint32) func(k *kernel) {
	return func(k *kernel) {
		k.constant(half, gridHalf)
		k.constant(factor, gridFactor)
		k.constant(15, gridFour)
	}
}

// topScales are those above a unit's four indices of signs, stride bytes apart.
func topScales(signs, stride int) func(u *unpacker) {
	return func(u *unpacker) {
		u.halves(0, gridD)
		for i := range 8 {
			disp := signs + stride*i
			c := (disp - 2) % 16 / 4
			if i == 0 || c < stride/4 {
				u.columns(disp-4*c, 0)
			}
			u.dwordsRight(gridT, vec(c), 28)
			u.halfAndMore(i)
		}
	}
}

// topIndices are those of the signs of a unit.
func topIndices(signs, stride int) func(k *kernel, row gp, unit, part int) {
	return func(k *kernel, row gp, unit, part int) {
		k.p("MOVWU %d(R%d), R%d", signs+stride*unit, row, other)
		k.bits(one, other, 14*part, 7)
		k.bits(other, other, 14*part+7, 7)
	}
}

func formatIQ2XXS() *format {
	g := &grid{
		name: "IQ2XXS", table: "gridIQ2XXS", bytes: 66, groups: 8, signs: evenSigns,
		constants: halfAndMore(quarter), scales: topScales(6, 8), indices: topIndices(6, 8),
		entries: func(k *kernel, to vec, row gp, unit, part int) {
			k.twoBytes(row, 2+8*unit+2*part)
			k.entry(to, gridAt, one, 0)
			k.entry(to, gridAt, other, 1)
		},
	}
	return g.format()
}

// formatIQ3XXS has entries of four bytes, which lie as far apart as those of eight.
func formatIQ3XXS() *format {
	g := &grid{
		name: "IQ3XXS", table: "gridIQ3XXS", bytes: 98, groups: 8, signs: evenSigns,
		constants: halfAndMore(half), scales: topScales(66, 4), indices: topIndices(66, 4),
		entries: func(k *kernel, to vec, row gp, unit, part int) {
			k.p("MOVWU %d(R%d), R%d", 2+8*unit+4*part, row, other)
			for i := range 4 {
				k.bits(one, other, 8*i, 8)
				k.entry4(to, gridAt, one, i)
			}
		},
	}
	return g.format()
}

// nibbleScales are sixteen of four bits, in the last eight bytes of a block.
func nibbleScales(bytes int) func(u *unpacker) {
	return func(u *unpacker) {
		u.halves(0, gridD)
		u.columns(bytes-16, 0)
		for g := range 16 {
			u.dwordsRightOrNone(gridT, 2+vec(g/8), 4*(g%8))
			u.and(gridT, gridT, gridFour)
			u.halfAndMore(g)
		}
	}
}

func formatIQ2XS() *format {
	at := func(k *kernel, row gp, unit, part, bit, n int) {
		k.p("MOVWU %d(R%d), R%d", 2+8*unit+4*part, row, other)
		k.bits(one, other, bit, n)
		k.bits(other, other, 16+bit, n)
	}
	g := &grid{
		name: "IQ2XS", table: "gridIQ2XS", bytes: 74, groups: 16, signs: evenSigns,
		constants: halfAndMore(quarter), scales: nibbleScales(74),
		entries: func(k *kernel, to vec, row gp, unit, part int) {
			at(k, row, unit, part, 0, 9)
			k.entry(to, gridAt, one, 0)
			k.entry(to, gridAt, other, 1)
		},
		indices: func(k *kernel, row gp, unit, part int) { at(k, row, unit, part, 9, 7) },
	}
	return g.format()
}

func formatIQ2S() *format {
	g := &grid{
		name: "IQ2S", table: "gridIQ2S", bytes: 82, groups: 16, signs: byteSigns,
		constants: halfAndMore(quarter), scales: nibbleScales(82),
		entries: func(k *kernel, to vec, row gp, unit, part int) {
			k.p("MOVBU %d(R%d), R%d", 66+unit, row, high)
			k.twoBytes(row, 2+4*unit+2*part)
			k.withHigh(one, 4*part, 2)
			k.withHigh(other, 4*part+2, 2)
			k.entry(to, gridAt, one, 0)
			k.entry(to, gridAt, other, 1)
		},
		indices: func(k *kernel, row gp, unit, part int) { k.twoBytes(row, 34+4*unit+2*part) },
	}
	return g.format()
}

// formatIQ3S has scales d (1 + 2 s).
func formatIQ3S() *format {
	const odd = vec(30)
	g := &grid{
		name: "IQ3S", table: "gridIQ3S", bytes: 110, groups: 8, signs: byteSigns,
		constants: func(k *kernel) {
			k.constant(15, gridFour)
			k.constant(1, odd)
		},
		scales: func(u *unpacker) {
			const packed = vec(17)
			u.halves(0, gridD)
			for i, r := range u.rows {
				u.addTo(106, r, spare)
				u.p("VLD1 (R%d), V%d.S[%d]", spare, packed, i)
			}
			for g := range 8 {
				u.dwordsRightOrNone(gridT, packed, 4*g)
				u.and(gridT, gridT, gridFour)
				u.odd(g, odd)
			}
		},
		entries: func(k *kernel, to vec, row gp, unit, part int) {
			k.p("MOVBU %d(R%d), R%d", 66+unit, row, high)
			k.p("MOVWU %d(R%d), R%d", 2+8*unit+4*part, row, other)
			for i := range 4 {
				k.bits(one, other, 8*i, 8)
				k.withHigh(one, 4*part+i, 1)
				k.entry4(to, gridAt, one, i)
			}
		},
		indices: func(k *kernel, row gp, unit, part int) { k.twoBytes(row, 74+4*unit+2*part) },
	}
	return g.format()
}

// odd is d (1 + 2 s), of the integers s in gridT, which one is 1 beside.
func (u *unpacker) odd(group int, one vec) {
	u.dwordsLeft(gridT, gridT, 1)
	u.or(gridT, gridT, one)
	u.toFloats(gridT, gridT)
	u.fmul(gridT, gridT, gridD)
	u.scale(gridT, group)
}

// formatIQ1S has eight times its codes, whose grid's second half is that of the other shift.
func formatIQ1S() *format {
	const odd, seven = vec(30), vec(28)
	g := &grid{
		name: "IQ1S", table: "gridIQ1", bytes: 50, groups: 8,
		constants: func(k *kernel) {
			k.constant(7, seven)
			k.constant(1, odd)
			k.constant(eighth, gridFactor)
		},
		scales: func(u *unpacker) {
			u.halves(0, gridD)
			u.fmul(gridD, gridD, gridFactor)
			u.columns(34, 0)
			for g := range 8 {
				u.dwordsRight(gridT, vec(g/2), 12+16*(g%2))
				u.and(gridT, gridT, seven)
				u.odd(g, odd)
			}
		},
		entries: func(k *kernel, to vec, row gp, unit, part int) {
			k.p("MOVHU %d(R%d), R%d", 34+2*unit, row, high)
			k.twoBytes(row, 2+4*unit+2*part)
			for i, r := range []gp{one, other} {
				k.withHigh(r, 6*part+3*i, 3)
				k.bits(highBit, high, 15, 1)
				k.p("ORR R%d<<11, R%d, R%d", highBit, r, r)
				k.entry(to, gridAt, r, i)
			}
		},
	}
	return g.format()
}

// formatIQ1M has codes as IQ1_S, sixteen scales of three bits, and d in the top nibbles of their four words.
func formatIQ1M() *format {
	const odd, d16, seven, t = vec(30), vec(13), vec(28), vec(17)
	const nibble0 = vec(24) // and those above it, to V27
	g := &grid{
		name: "IQ1M", table: "gridIQ1", bytes: 56, groups: 16,
		constants: func(k *kernel) {
			k.constant(7, seven)
			k.constant(1, odd)
			k.constant(eighth, gridFactor)
			for i := range 4 {
				k.constant(0xf<<(4*i), nibble0+vec(i))
			}
		},
		scales: func(u *unpacker) {
			u.columns(40, 0)
			for i, by := range []int{12, 24, 4, 16} {
				u.dwordsRight(t, vec(2+i/2), by)
				u.and(t, t, nibble0+vec(i))
				if i == 0 {
					u.move(d16, t)
				} else {
					u.or(d16, d16, t)
				}
			}
			u.narrow(gridD, d16)
			u.fromHalves(gridD, gridD)
			u.fmul(gridD, gridD, gridFactor)
			for g := range 16 {
				u.dwordsRightOrNone(gridT, vec(2+g/8), g/4%2*16+g%4*3)
				u.and(gridT, gridT, seven)
				u.odd(g, odd)
			}
		},
		entries: func(k *kernel, to vec, row gp, unit, part int) {
			k.p("MOVBU %d(R%d), R%d", 32+2*unit+part, row, high)
			k.twoBytes(row, 4*unit+2*part)
			for i, r := range []gp{one, other} {
				k.withHigh(r, 4*i, 3)
				k.bits(highBit, high, 4*i+3, 1)
				k.p("ORR R%d<<11, R%d, R%d", highBit, r, r)
				k.entry(to, gridAt, r, i)
			}
		},
	}
	return g.format()
}
