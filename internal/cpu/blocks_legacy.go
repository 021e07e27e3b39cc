package cpu

import (
	"encoding/binary"

	"splash/dequant"
)

// Blocks of 32 with one scale, of formats.md 2.

func unpackQ4_0(n *natural, at int, b []byte, _ float32) {
	n.scales[at] = f16(b)
	y := n.codes[at*unit:][:unit]
	for i := 0; i < 16; i += 8 {
		q := load8(b[2+i:])
		store8(y[i:], less(q&lows, 8))
		store8(y[16+i:], less(q>>4&lows, 8))
	}
}

func unpackQ4_1(n *natural, at int, b []byte, _ float32) {
	n.scales[at], n.mins[at] = f16(b), -f16(b[2:])
	y := n.codes[at*unit:][:unit]
	for i := 0; i < 16; i += 8 {
		q := load8(b[4+i:])
		store8(y[i:], q&lows)
		store8(y[16+i:], q>>4&lows)
	}
}

func unpackQ5_0(n *natural, at int, b []byte, _ float32) {
	n.scales[at] = f16(b)
	y, fifth := n.codes[at*unit:][:unit], binary.LittleEndian.Uint32(b[2:])
	for i := 0; i < 16; i += 8 {
		q := load8(b[6+i:])
		store8(y[i:], less(q&lows|spread[fifth>>i&255]&(16*ones), 16))
		store8(y[16+i:], less(q>>4&lows|spread[fifth>>(16+i)&255]&(16*ones), 16))
	}
}

func unpackQ5_1(n *natural, at int, b []byte, _ float32) {
	n.scales[at], n.mins[at] = f16(b), -f16(b[2:])
	y, fifth := n.codes[at*unit:][:unit], binary.LittleEndian.Uint32(b[4:])
	for i := 0; i < 16; i += 8 {
		q := load8(b[8+i:])
		store8(y[i:], q&lows|spread[fifth>>i&255]&(16*ones))
		store8(y[16+i:], q>>4&lows|spread[fifth>>(16+i)&255]&(16*ones))
	}
}

func unpackQ8_0(n *natural, at int, b []byte, _ float32) {
	n.scales[at] = f16(b)
	copy(n.codes[at*unit:][:unit], b[2:])
}

// codebook4 holds the two values of every byte of two 4-bit codes, the low code's in the low byte.
type codebook4 [256]uint16

func newCodebook4(t dequant.Type) *codebook4 {
	values := dequant.Codebook(t)
	var c codebook4
	for b := range c {
		c[b] = uint16(uint8(values[b&15])) | uint16(uint8(values[b>>4]))<<8
	}
	return &c
}

var (
	codebookIQ4 = newCodebook4(dequant.IQ4NL)
	codebookFP4 = newCodebook4(dequant.MXFP4)
)

// halves writes the values of bytes whose low codes are the first elements, the high codes as many after them.
func (c *codebook4) halves(y, b []byte) {
	high := y[len(b):][:len(b)]
	for i, q := range b {
		v := c[q]
		y[i], high[i] = byte(v), byte(v>>8)
	}
}

// pairs writes the values of bytes of two neighbours.
func (c *codebook4) pairs(y, b []byte) {
	for i, q := range b {
		binary.LittleEndian.PutUint16(y[2*i:], c[q])
	}
}

func unpackIQ4NL(n *natural, at int, b []byte, _ float32) {
	n.scales[at] = f16(b)
	codebookIQ4.halves(n.codes[at*unit:], b[2:18])
}

func unpackMXFP4(n *natural, at int, b []byte, _ float32) {
	n.scales[at] = dequant.FromE8M0Half(b[0])
	codebookFP4.halves(n.codes[at*unit:], b[1:17])
}

// unpackNVFP4 takes two units: their codes are twice the values, so their scales are halved.
func unpackNVFP4(n *natural, at int, b []byte, g float32) {
	for s := range 4 {
		n.scales[2*at+s] = g * dequant.FromUE4M3(b[s]) / 2
		codebookFP4.halves(n.codes[at*unit+16*s:], b[4+8*s:][:8])
	}
}

func unpackNVFP4Rows(n *natural, at int, b []byte, _ float32) {
	g := fromBits(b[16:])
	for s := range 16 {
		n.scales[2*at+s] = g * dequant.FromE4M3(b[s]) / 2
	}
	codebookFP4.pairs(n.codes[at*unit:], b[20:148])
}

func unpackApartNVFP4(n *natural, m *dequant.Matrix, row, at, units int) {
	g := globalOf(m, row)
	for s, e := range m.Scales[row*m.Cols/16+2*at:][:2*units] {
		n.scales[s] = g * dequant.FromE4M3(e) / 2
	}
	codebookFP4.pairs(n.codes[:], m.Data[(row*m.Cols+at*unit)/2:][:units*unit/2])
}

func unpackApartMXFP4(n *natural, m *dequant.Matrix, row, at, units int) {
	for s, e := range m.Scales[row*m.Cols/32+at:][:units] {
		n.scales[s] = dequant.FromE8M0Half(e)
	}
	codebookFP4.pairs(n.codes[:], m.Data[(row*m.Cols+at*unit)/2:][:units*unit/2])
}

// Codes of one or two bits in order.

func unpackQ1_0(n *natural, at int, b []byte, _ float32) {
	d := f16(b)
	for i := range 4 {
		n.scales[at+i] = d
	}
	for i, bits := range b[2:18] { // 1 or -1
		store8(n.codes[at*unit+8*i:], spread[^bits]|ones)
	}
}

// fourCodes has the four 2-bit codes of every byte less 1, in order.
var fourCodes = func() (t [256]uint32) {
	for b := range t {
		for k := range 4 {
			t[b] |= uint32(uint8(b>>(2*k)&3-1)) << (8 * k)
		}
	}
	return t
}()

func unpackQ2_0(n *natural, at int, b []byte, _ float32)  { unpackTwoBits(n, at, b[2:18], f16(b)) }
func unpackPQ2_0(n *natural, at int, b []byte, _ float32) { unpackTwoBits(n, at, b[2:34], f16(b)) }

func unpackTwoBits(n *natural, at int, b []byte, d float32) {
	for i := range len(b) * 4 / unit {
		n.scales[at+i] = d
	}
	y := n.codes[at*unit:]
	for i, q := range b {
		binary.LittleEndian.PutUint32(y[4*i:], fourCodes[q])
	}
}

func unpackTQ2_0(n *natural, at int, b []byte, _ float32) {
	d := f16(b[64:])
	for i := range 8 {
		n.scales[at+i] = d
	}
	for half := range 2 {
		y := n.codes[at*unit+128*half:][:128]
		for p := 0; p < 32; p += 8 {
			q := load8(b[32*half+p:])
			for k := range 4 {
				store8(y[32*k+p:], less(q>>(2*k)&pairs, 1))
			}
		}
	}
}

func unpackTQ1_0(n *natural, at int, b []byte, _ float32) {
	d := f16(b[52:])
	for i := range 8 {
		n.scales[at+i] = d
	}
	y := n.codes[at*unit:][:256]
	digits(y[:160], b[:32])
	digits(y[160:240], b[32:48])
	digits(y[240:256], b[48:52])
}

// digits writes the ternary digits of a run less 1: a byte is a fixed-point fraction of its digits, which lie a run's
// length apart.
func digits(y, run []byte) {
	power := byte(1)
	for ; len(y) >= len(run); y = y[len(run):] {
		for i, q := range run {
			y[i] = byte(uint16(q*power)*3>>8&3) - 1
		}
		power *= 3
	}
}
