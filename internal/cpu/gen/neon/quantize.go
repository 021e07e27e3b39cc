package main

// quantizeKernels round activations to 8 bits (product_generic.go).
func quantizeKernels(f *file) {
	quantize(f, 32)
	quantize(f, 16)
}

// quantize rounds a row of a panel, unit after unit. Its codes lie in fours, step bytes apart, its scales and sums a
// quarter of that.
func quantize(f *file, group int) {
	name := "quantizeNEONg32"
	if group == 16 {
		name = "quantizeNEONg16"
	}
	k := f.kernel(name, "(codes *int8, scales, sums, x *float32, units, rows int)",
		"Rounds units of a row of a panel of rows, and sums their groups.")
	const codes, scales, sums, x, units, step = gp(0), gp(1), gp(2), gp(3), gp(4), gp(5)
	for i, name := range []string{"codes", "scales", "sums", "x", "units", "rows"} {
		k.arg(name, gp(i))
	}
	k.shift(step, 2, step)
	const unsigned, least, all, share, none = vec(16), vec(24), vec(25), vec(26), vec(27)
	k.constant(0x00800000, least) // 2^-126
	k.constant(0x42fe0000, all)   // 127
	k.constant(0x3c010204, share) // 1/127, rounded
	k.zero(none)
	loop := k.label()
	k.next(x, 0, 4)
	k.next(x, 4, 4)
	for i := range vec(8) {
		k.fabs(unsigned+i, i)
	}
	for n := vec(4); n > 0; n /= 2 {
		for i := range n {
			k.umax(unsigned+i, unsigned+i, unsigned+i+n)
		}
	}
	const most, scale, inverse = vec(28), vec(29), vec(30)
	k.largestBits(most, unsigned)
	k.p("FMULS F%d, F%d, F%d", share, most, scale)
	k.p("FDIVS F%d, F%d, F%d", most, all, inverse)
	k.p("FCMPS F%d, F%d", least, scale)
	k.p("FCSELS GE, F%d, F%d, F%d", inverse, none, inverse)
	k.p("FCSELS MI, F%d, F%d, F%d", none, scale, scale)
	k.p("FMOVS F%d, (R%d)", scale, scales)
	k.sum(scales, step, scales)
	for i := range vec(8) {
		k.mulLane(i, i, inverse, 0)
		k.toInts(i, i)
	}
	parts := vec(group / 4)
	for first := vec(0); first < 8; first += parts {
		for i := range parts / 2 {
			k.addInts(unsigned+i, first+2*i, first+2*i+1)
		}
		for n := parts / 4; n > 0; n /= 2 {
			for i := range n {
				k.addInts(unsigned+i, unsigned+i, unsigned+i+n)
			}
		}
		k.sumInts(unsigned, unsigned)
		k.toFloats(unsigned, unsigned)
		k.mulLane(unsigned, unsigned, scale, 0)
		k.p("FMOVS F%d, (R%d)", unsigned, sums)
		k.sum(sums, step, sums)
	}
	for i := vec(0); i < 8; i += 4 {
		for j := range vec(2) {
			k.p("VUZP1 V%d.H8, V%d.H8, V%d.H8", i+2*j+1, i+2*j, i+j)
		}
		k.p("VUZP1 V%d.B16, V%d.B16, V%d.B16", i+1, i, i)
		for l := range 4 {
			k.lane(i, l, codes, step)
		}
	}
	k.again(units, 1, loop)
	k.ret()
}
