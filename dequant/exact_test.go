package dequant

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// The decoders once more, as the formulas of the formats stand: one element at a time in exact rational arithmetic,
// rounded to F32 at the end. They share the grids with the package (see TestTables), and no code.

// A block reads fields.
type block []byte

func (b block) u16(at int) int        { return int(binary.LittleEndian.Uint16(b[at:])) }
func (b block) u32(at int) int        { return int(binary.LittleEndian.Uint32(b[at:])) }
func (b block) half(at int) *big.Rat  { return floatValue(uint32(b.u16(at)), 5, 10, 15) }
func (b block) brain(at int) *big.Rat { return floatValue(uint32(b.u16(at)), 8, 7, 127) }
func (b block) bits(at, n int) int { // bits [at, at+n) of b as a little-endian bit string
	v := 0
	for k := range n {
		v |= int(b[(at+k)/8]>>((at+k)%8)&1) << k
	}
	return v
}

// nibble is code e of 32, the low nibbles of 16 bytes first.
func (b block) nibble(at, e int) int { return int(b[at+e%16]>>(4*(e/16))) & 15 }

func integer(n int) *big.Rat { return new(big.Rat).SetInt64(int64(n)) }

func product(factors ...*big.Rat) *big.Rat {
	p := integer(1)
	for _, f := range factors {
		p.Mul(p, f)
	}
	return p
}

func sum(a, b *big.Rat) *big.Rat        { return new(big.Rat).Add(a, b) }
func difference(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }
func ratio(a, b int64) *big.Rat         { return big.NewRat(a, b) }

// e2m1Rat is 1 sign bit, 2 of exponent with bias 1, 1 of mantissa.
func e2m1Rat(code int) *big.Rat { return floatValue(uint32(code&15), 2, 1, 1) }

func e4m3Rat(b byte) *big.Rat { return floatValue(uint32(b), 4, 3, 7) }

func ue4m3Rat(b byte) *big.Rat {
	if b == 0x7f {
		return integer(0)
	}
	return e4m3Rat(b & 0x7f)
}

// gridRat is element k of a grid entry, with the sign bit k of sign.
func gridRat(grid []uint64, index, k, sign int) *big.Rat {
	v := int(int8(grid[index] >> (8 * k)))
	if sign>>k&1 == 1 {
		v = -v
	}
	return integer(v)
}

// paritySigns is a 7-bit index with its parity above it.
func paritySigns(index int) int {
	s := index & 127
	for k := range 7 {
		s ^= (s >> k & 1) << 7
	}
	return s
}

var (
	grid2XXS, grid2XS, grid2S = Grid(IQ2XXS), Grid(IQ2XS), Grid(IQ2S)
	grid3XXS, grid3S, grid1   = Grid(IQ3XXS), Grid(IQ3S), Grid(IQ1S)
	values4NL                 = Codebook(IQ4NL)
)

// exact is the value of element e of a block before the last rounding.
var exact = map[Type]func(b block, e int) *big.Rat{
	F32:  func(b block, e int) *big.Rat { return floatValue(uint32(b.u32(0)), 8, 23, 127) },
	F16:  func(b block, e int) *big.Rat { return b.half(0) },
	BF16: func(b block, e int) *big.Rat { return b.brain(0) },
	Q4_0: func(b block, e int) *big.Rat { return product(integer(b.nibble(2, e)-8), b.half(0)) },
	Q4_1: func(b block, e int) *big.Rat { return sum(product(integer(b.nibble(4, e)), b.half(0)), b.half(2)) },
	Q5_0: func(b block, e int) *big.Rat {
		return product(integer(b.nibble(6, e)+b.u32(2)>>e&1*16-16), b.half(0))
	},
	Q5_1: func(b block, e int) *big.Rat {
		return sum(product(integer(b.nibble(8, e)+b.u32(4)>>e&1*16), b.half(0)), b.half(2))
	},
	Q8_0: func(b block, e int) *big.Rat { return product(integer(int(int8(b[2+e]))), b.half(0)) },
	Q2_K: func(b block, e int) *big.Rat {
		n, j, p := e/128, e%128/32, e%32
		q, s := int(b[16+32*n+p])>>(2*j)&3, int(b[e/16])
		return difference(product(b.half(80), integer(s&15), integer(q)), product(b.half(82), integer(s>>4)))
	},
	Q3_K: exactQ3K,
	Q4_K: func(b block, e int) *big.Rat {
		j, p := e/32, e%32
		q := int(b[16+32*(j/2)+p]) >> (4 * (j % 2)) & 15
		return exactQ4K(b, j, q)
	},
	Q5_K: func(b block, e int) *big.Rat {
		j, p := e/32, e%32
		q := int(b[48+32*(j/2)+p])>>(4*(j%2))&15 + 16*(int(b[16+p])>>j&1)
		return exactQ4K(b, j, q)
	},
	Q6_K: func(b block, e int) *big.Rat {
		n, r, p := e/128, e%128/32, e%32
		q := int(b[64*n+32*(r%2)+p])>>(4*(r/2))&15 | int(b[128+32*n+p])>>(2*r)&3<<4
		return product(b.half(208), integer(int(int8(b[192+e/16]))), integer(q-32))
	},
	IQ4NL: func(b block, e int) *big.Rat { return product(b.half(0), integer(int(values4NL[b.nibble(2, e)]))) },
	IQ4XS: func(b block, e int) *big.Rat {
		j := e / 32
		ls := int(b[4+j/2])>>(4*(j%2))&15 | b.u16(2)>>(2*j)&3<<4
		return product(b.half(0), integer(ls-32), integer(int(values4NL[b.nibble(8+16*j, e%32)])))
	},
	IQ2XXS: func(b block, e int) *big.Rat {
		j, l, k := e/32, e%32/8, e%8
		a := b.u32(2 + 8*j + 4)
		g := gridRat(grid2XXS, int(b[2+8*j+l]), k, paritySigns(a>>(7*l)))
		return product(b.half(0), ratio(int64(1+2*(a>>28)), 8), g)
	},
	IQ2XS: func(b block, e int) *big.Rat {
		j, l, k := e/32, e%32/8, e%8
		q, s := b.u16(2+2*(4*j+l)), int(b[66+j])>>(4*(l/2))&15
		return product(b.half(0), ratio(int64(1+2*s), 8), gridRat(grid2XS, q&511, k, paritySigns(q>>9)))
	},
	IQ2S: func(b block, e int) *big.Rat {
		j, l, k := e/32, e%32/8, e%8
		index, s := int(b[2+4*j+l])|int(b[66+j])>>(2*l)&3<<8, int(b[74+j])>>(4*(l/2))&15
		return product(b.half(0), ratio(int64(1+2*s), 8), gridRat(grid2S, index, k, int(b[34+4*j+l])))
	},
	IQ3XXS: func(b block, e int) *big.Rat {
		j, p := e/32, e%32
		a := b.u32(66 + 4*j)
		sign := paritySigns(a>>(7*(p/8))) >> (p % 8) << (p % 4)
		g := gridRat(grid3XXS, int(b[2+8*j+p/4]), p%4, sign)
		return product(b.half(0), ratio(int64(1+2*(a>>28)), 4), g)
	},
	IQ3S: func(b block, e int) *big.Rat {
		j, p := e/32, e%32
		index := int(b[2+8*j+p/4]) | int(b[66+j])>>(p/4)&1<<8
		s := int(b[106+j/2]) >> (4 * (j % 2)) & 15
		sign := int(b[74+4*j+p/8]) >> (p % 8) << (p % 4)
		return product(b.half(0), integer(1+2*s), gridRat(grid3S, index, p%4, sign))
	},
	IQ1S: func(b block, e int) *big.Rat {
		j, l, k := e/32, e%32/8, e%8
		h := b.u16(34 + 2*j)
		return exactIQ1(b.half(0), int(b[2+4*j+l])|h>>(3*l)&7<<8, k, h>>12&7, h>>15)
	},
	IQ1M: func(b block, e int) *big.Rat {
		j, l, k := e/32, e%32/8, e%8
		d := uint32(b.u16(48)>>12 | b.u16(50)>>12<<4 | b.u16(52)>>12<<8 | b.u16(54)>>12<<12)
		h := int(b[32+2*j+l/2]) >> (4 * (l % 2)) & 15
		s := b.u16(48+2*(j/2)) >> (6*(j%2) + 3*(l/2)) & 7
		return exactIQ1(floatValue(d, 5, 10, 15), int(b[4*j+l])|h&7<<8, k, s, h>>3)
	},
	MXFP4: func(b block, e int) *big.Rat {
		return product(e2m1Rat(b.nibble(1, e)), integer(2), powerOfTwo(int(b[0])-128))
	},
	NVFP4: func(b block, e int) *big.Rat {
		s, t := e/16, e%16
		return product(e2m1Rat(int(b[4+8*s+t%8])>>(4*(t/8))), ue4m3Rat(b[s]))
	},
	Q1_0:  func(b block, e int) *big.Rat { return product(integer(2*b.bits(16+e, 1)-1), b.half(0)) },
	Q2_0:  func(b block, e int) *big.Rat { return product(integer(b.bits(16+2*e, 2)-1), b.half(0)) },
	PQ2_0: func(b block, e int) *big.Rat { return product(integer(b.bits(16+2*e, 2)-1), b.half(0)) },
	TQ1_0: exactTQ1,
	TQ2_0: func(b block, e int) *big.Rat {
		return product(integer(int(b[32*(e/128)+e%32])>>(2*(e%128/32))&3-1), b.half(64))
	},
	NVFP4Rows: func(b block, e int) *big.Rat {
		g := floatValue(uint32(b.u32(16)), 8, 23, 127)
		return product(rounded(product(g, e4m3Rat(b[e/16]))), e2m1Rat(b.bits(8*20+4*e, 4)))
	},
	FP8Rows: func(b block, e int) *big.Rat {
		return product(floatValue(uint32(b.u32(0)), 8, 23, 127), e4m3Rat(b[4+e]))
	},
}

// rounded is the F32 nearest to x, which must be finite.
func rounded(x *big.Rat) *big.Rat { return new(big.Rat).SetFloat64(float64(rn32(x))) }

func exactQ3K(b block, e int) *big.Rat {
	n, j, p, i := e/128, e%128/32, e%32, e/16
	q := int(b[32+32*n+p]) >> (2 * j) & 3
	if int(b[p])>>(4*n+j)&1 == 0 {
		q -= 4
	}
	low := int(b[96+i%8]) & 15
	if i >= 8 {
		low = int(b[96+i-8]) >> 4
	}
	scale := low | int(b[96+8+i%4])>>(2*(i/4))&3<<4
	return product(b.half(108), integer(scale-32), integer(q))
}

func exactQ4K(b block, j, q int) *big.Rat {
	s := func(i int) int { return int(b[4+i]) }
	scale, minimum := s(j%4)&63, s(j%4+4)&63
	if j >= 4 {
		scale, minimum = s(j+4)&15|s(j-4)>>6<<4, s(j+4)>>4|s(j)>>6<<4
	}
	return difference(product(b.half(0), integer(scale), integer(q)), product(b.half(2), integer(minimum)))
}

func exactIQ1(d *big.Rat, index, k, s, negative int) *big.Rat {
	delta := ratio(int64(1-2*negative), 8)
	return product(d, integer(2*s+1), sum(gridRat(grid1, index, k, 0), delta))
}

// exactTQ1 reads a digit by long multiplication: the digits of byte q are those of the fraction q/256 in base three.
func exactTQ1(b block, e int) *big.Rat {
	at, digit := e%32, e/32
	switch {
	case e >= 240:
		at, digit = 48+e%4, (e-240)/4
	case e >= 160:
		at, digit = 32+e%16, (e-160)/16
	}
	fraction := int(b[at])
	for range digit {
		fraction = fraction * 3 % 256
	}
	return product(integer(fraction*3/256-1), b.half(52))
}

// exactAffine is element e of a native block of an affine format.
func exactAffine(bits int) func(b block, e int) *big.Rat {
	return func(b block, e int) *big.Rat {
		return sum(product(b.brain(0), integer(b.bits(32+bits*e, bits))), b.brain(2))
	}
}

func exactOf(f *Format) func(b block, e int) *big.Rat {
	if f.Type&^0xffff == affine {
		return exactAffine(int(f.Type >> 8 & 0xff))
	}
	return exact[f.Type]
}

// TestExact compares every decoder with exact arithmetic on random blocks, some with extreme scales.
func TestExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, f := range Formats() {
		if !f.Decodes() {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			value := exactOf(f)
			if value == nil {
				t.Fatal("no exact decoder")
			}
			for n := range 24 + 256/f.Block {
				b := randomBytes(rng, f.Bytes)
				if n%3 == 0 {
					extreme(f, b, rng)
				} else {
					tame(f, b, rng)
				}
				checkExact(t, f, b, value)
			}
		})
	}
}

// TestExactGolden decodes the adversarial golden blocks in exact arithmetic: llama.cpp's values are those.
func TestExactGolden(t *testing.T) {
	for _, g := range goldens(t) {
		f := Lookup(g.Type)
		for _, s := range g.Sections {
			if s.Kind != adversarial {
				continue
			}
			for at := range min(len(s.Blocks)/f.Bytes, 16+256/f.Block) {
				b := block(s.Blocks[at*f.Bytes:][:f.Bytes])
				for e, want := range s.Values[at*f.Block:][:f.Block] {
					if got := rn32(exact[f.Type](b, e)); !same(got, want) {
						t.Fatalf("%s block %d element %d is %v exactly, %v in the golden file", f, at, e, got, want)
					}
				}
			}
		}
	}
}

func checkExact(t *testing.T, f *Format, b []byte, value func(b block, e int) *big.Rat) {
	t.Helper()
	got := make([]float32, f.Block)
	f.Decode(got, b)
	for e := range got {
		if want := rn32(value(b, e)); !same(got[e], want) {
			t.Fatalf("element %d of block %x is %v (%08x), expected %v (%08x)", e, b,
				got[e], math.Float32bits(got[e]), want, math.Float32bits(want))
		}
	}
}

// extreme gives the scales of a random block finite values at the ends of their range.
func extreme(f *Format, b []byte, rng *rand.Rand) {
	halves := []uint16{0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x7bff, 0xfbff, 0x3c00}
	for _, at := range fieldsF16[f.Type] {
		binary.LittleEndian.PutUint16(b[at:], halves[rng.IntN(len(halves))])
	}
	words := []uint32{0, 1 << 31, 1, 0x007fffff, 0x00800000, 0x3f800000, 0x3f7fffff, 0x33333333, 0x7d000000}
	word := words[rng.IntN(len(words))]
	switch f.Type {
	case F32:
		binary.LittleEndian.PutUint32(b, word)
	case BF16:
		binary.LittleEndian.PutUint16(b, uint16(word>>16))
	case FP8Rows:
		binary.LittleEndian.PutUint32(b, word&^0x02000000) // so that products with 480 stay finite
	case NVFP4Rows:
		binary.LittleEndian.PutUint32(b[16:], word&^0x04000000)
	case MXFP4:
		b[0] = []byte{0, 1, 2, 127, 128, 252, 253, 254, 255}[rng.IntN(9)]
	case IQ1M:
		setScaleIQ1M(b, halves[rng.IntN(len(halves))])
	}
	if f.Type&^0xffff == affine {
		binary.LittleEndian.PutUint16(b, uint16(word>>16))
		binary.LittleEndian.PutUint16(b[2:], uint16(words[rng.IntN(len(words))]>>16))
	}
}

// TestInfiniteScales checks that no value of a block is finite where its scale is not, and all are NaN where it is.
func TestInfiniteScales(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, f := range Formats() {
		at, ok := fieldsF16[f.Type]
		if !ok && f.Type != IQ1M {
			continue
		}
		for _, pattern := range []uint16{0x7c00, 0xfc00, 0x7e00} {
			b := randomBytes(rng, f.Bytes)
			tame(f, b, rng)
			if f.Type == IQ1M {
				setScaleIQ1M(b, pattern)
			} else {
				binary.LittleEndian.PutUint16(b[at[0]:], pattern)
			}
			got := make([]float32, f.Block)
			f.Decode(got, b)
			for e, v := range got {
				if finite(v) || pattern == 0x7e00 && v == v {
					t.Fatalf("%s: element %d is %v where the scale is %v", f, e, v, FromF16(pattern))
				}
			}
		}
	}
}
