package cpu

// The k-quants: 256 elements in groups of 16 or 32.

func unpackQ2_K(n *natural, at int, b []byte, _ float32) {
	d, dmin := f16(b[80:]), f16(b[82:])
	for i, s := range b[:16] {
		n.scales[2*at+i], n.mins[2*at+i] = d*float32(s&15), dmin*float32(s>>4)
	}
	for half := range 2 {
		y := n.codes[at*unit+128*half:][:128]
		for p := 0; p < 32; p += 8 {
			q := load8(b[16+32*half+p:])
			for k := range 4 {
				store8(y[32*k+p:], q>>(2*k)&pairs)
			}
		}
	}
}

func unpackQ3_K(n *natural, at int, b []byte, _ float32) {
	d, six := f16(b[108:]), b[96:108]
	for i := range 16 {
		low, high := six[i%8]>>(i/8*4)&15, six[8+i%4]>>(i/4*2)&3
		n.scales[2*at+i] = d * float32(int32(low|high<<4)-32)
	}
	for half := range 2 {
		y := n.codes[at*unit+128*half:][:128]
		for p := 0; p < 32; p += 8 {
			q, third := load8(b[32+32*half+p:]), load8(b[p:])>>(4*half)
			for k := range 4 {
				store8(y[32*k+p:], less(q>>(2*k)&pairs|third>>k&ones<<2, 4))
			}
		}
	}
}

// sixBits are the scales and minima of the eight groups of a Q4_K or Q5_K block.
func sixBits(n *natural, at int, b []byte) {
	d, dmin, s := f16(b), f16(b[2:]), b[4:16]
	for j := range 4 {
		n.scales[at+j], n.mins[at+j] = d*float32(s[j]&63), dmin*float32(s[j+4]&63)
		n.scales[at+j+4] = d * float32(s[j+8]&15|s[j]>>6<<4)
		n.mins[at+j+4] = dmin * float32(s[j+8]>>4|s[j+4]>>6<<4)
	}
}

func unpackQ4_K(n *natural, at int, b []byte, _ float32) {
	sixBits(n, at, b)
	for j := 0; j < 4; j++ {
		y := n.codes[at*unit+64*j:][:64]
		for p := 0; p < 32; p += 8 {
			q := load8(b[16+32*j+p:])
			store8(y[p:], q&lows)
			store8(y[32+p:], q>>4&lows)
		}
	}
}

func unpackQ5_K(n *natural, at int, b []byte, _ float32) {
	sixBits(n, at, b)
	for j := 0; j < 4; j++ {
		y := n.codes[at*unit+64*j:][:64]
		for p := 0; p < 32; p += 8 {
			q, fifth := load8(b[48+32*j+p:]), load8(b[16+p:])>>(2*j)
			store8(y[p:], q&lows|fifth&ones<<4)
			store8(y[32+p:], q>>4&lows|fifth>>1&ones<<4)
		}
	}
}

func unpackQ6_K(n *natural, at int, b []byte, _ float32) {
	d := f16(b[208:])
	for i, s := range b[192:208] {
		n.scales[2*at+i] = d * float32(int8(s))
	}
	for half := range 2 {
		y := n.codes[at*unit+128*half:][:128]
		for p := 0; p < 32; p += 8 {
			q0, q1, high := load8(b[64*half+p:]), load8(b[64*half+32+p:]), load8(b[128+32*half+p:])
			store8(y[p:], less(q0&lows|high&pairs<<4, 32))
			store8(y[32+p:], less(q1&lows|high>>2&pairs<<4, 32))
			store8(y[64+p:], less(q0>>4&lows|high>>4&pairs<<4, 32))
			store8(y[96+p:], less(q1>>4&lows|high>>6&pairs<<4, 32))
		}
	}
}
