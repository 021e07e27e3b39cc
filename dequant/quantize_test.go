package dequant

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// series is n values of f.
func series(n int, f func(i int) float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(f(i))
	}
	return x
}

// tie is a group of 64 whose range is 15, so that the scale is -1 and codes of halves are ties.
func tie(i int) float64 {
	switch i {
	case 0:
		return 15
	case 1:
		return 0
	}
	return 0.5 + float64(i%15)
}

func TestQuantizeAffine4(t *testing.T) {
	for _, c := range []struct {
		name        string
		weights     []float32
		scale, bias uint16
		codes       string
	}{
		{"zeros", series(64, func(int) float64 { return 0 }), 0xb3d7, 0, strings.Repeat("00", 32)},
		{"0.75", series(64, func(int) float64 { return 0.75 }), 0xb3d7, 0x3f40, strings.Repeat("00", 32)},
		{"-0.75", series(64, func(int) float64 { return -0.75 }), 0x3d4d, 0xbf40, strings.Repeat("00", 32)},
		{"ties", series(64, func(i int) float64 {
			switch i {
			case 0:
				return 2.5
			case 1:
				return 8.5
			}
			return float64((i - 2) % 16)
		}), 0xbf80, 0x4170, "7defcdab8967452301efcdab8967452301efcdab8967452301efcdab89674523"},
		{"(i % 20)/4 - 4", series(64, func(i int) float64 { return float64(i%20)/4 - 4 }), 0x3e9e, 0xc080,
			"102243657698bacbedff102243657698bacbedff102243657698bacbedff1022"},
		{"negative", series(64, func(i int) float64 { return -float64(i%16+1) / 4 }), 0x3e89, 0xc080,
			strings.Repeat("debc9a7867452301", 4)},
		{"i/64 - 0.5", series(64, func(i int) float64 { return float64(i)/64 - 0.5 }), 0x3d80, 0xbf00,
			"00111122223333444455556666777788889999aaaabbbbccccddddeeeeffffff"},
		{"(i - 20)/8", series(64, func(i int) float64 { return float64(i-20) / 8 }), 0xbf0a, 0x40ac,
			"efeededdddccccbbbbaaaa9a9989887877776666555544443333232212110100"},
		// A tie goes away from zero: the code of 0.5 + k is (0.5 + k - 15)/-1 = 14.5 - k, and 15 - k.
		{"halves", series(64, tie), 0xbf80, 0x4170, affineCodes(func(i int) byte {
			if i < 2 {
				return byte(15 * i)
			}
			return byte(15 - i%15)
		})},
		// Larger than any scale of the kind: the edge over the scale overflows, and the group is its bias.
		{"1e36", series(64, func(int) float64 { return 0x1p119 }), 0x8000, 0x7b00, strings.Repeat("00", 32)},
	} {
		got := make([]byte, 36)
		if err := QuantizeAffine4("w", got, c.weights); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		scale, bias := binary.LittleEndian.Uint16(got), binary.LittleEndian.Uint16(got[2:])
		if scale != c.scale || bias != c.bias || hex.EncodeToString(got[4:]) != c.codes {
			t.Errorf("%s: scale %04x, bias %04x, codes %x; expected %04x, %04x, %s",
				c.name, scale, bias, got[4:], c.scale, c.bias, c.codes)
		}
	}
}

// affineCodes is the hexadecimal form of 64 codes.
func affineCodes(code func(i int) byte) string {
	b := make([]byte, 32)
	for i := range b {
		b[i] = code(2*i) | code(2*i+1)<<4
	}
	return hex.EncodeToString(b)
}

// exactAffine4 is QuantizeAffine4 of a group as the steps of its definition stand, in exact arithmetic rounded to F32
// after each operation.
func exactAffine4(weights []float32) []byte {
	low, high := float32Rat(weights[0]), integer(0)
	for _, w := range weights {
		if r := float32Rat(w); r.Cmp(low) < 0 {
			low = r
		}
		if r := float32Rat(w); r.Cmp(high) > 0 {
			high = r
		}
	}
	lowEdge := new(big.Rat).Abs(low).Cmp(high) > 0
	scale := rounded(new(big.Rat).Quo(rounded(difference(high, low)), integer(15)))
	if least := float32Rat(1e-7); scale.Cmp(least) < 0 {
		scale = least
	}
	edge := low
	if !lowEdge {
		scale, edge = new(big.Rat).Neg(scale), high
	}
	bias := integer(0)
	if q := halfAway(rounded(new(big.Rat).Quo(edge, scale))); q.Sign() != 0 {
		scale, bias = rounded(new(big.Rat).Quo(edge, new(big.Rat).SetInt(q))), edge
	}
	b := binary.LittleEndian.AppendUint16(nil, roundBF16(scale))
	b = binary.LittleEndian.AppendUint16(b, roundBF16(bias))
	codes := make([]byte, 32)
	for i, w := range weights {
		q := halfAway(rounded(new(big.Rat).Quo(rounded(difference(float32Rat(w), bias)), scale)))
		code := min(max(q.Int64(), 0), 15)
		codes[i/2] |= byte(code) << (4 * (i % 2))
	}
	return append(b, codes...)
}

// halfAway is the integer nearest to x, halves away from zero.
func halfAway(x *big.Rat) *big.Int {
	twice := new(big.Int).Lsh(new(big.Int).Abs(x.Num()), 1)
	q := new(big.Int).Div(twice.Add(twice, x.Denom()), new(big.Int).Lsh(x.Denom(), 1))
	if x.Sign() < 0 {
		q.Neg(q)
	}
	return q
}

// roundBF16 rounds to BF16 by trying the patterns on either side of an F32.
func roundBF16(x *big.Rat) uint16 {
	p := uint16(math.Float32bits(rn32(x)) >> 16)
	toward, away := floatValue(uint32(p), 8, 7, 127), floatValue(uint32(p+1), 8, 7, 127)
	below := new(big.Rat).Abs(difference(x, toward))
	above := new(big.Rat).Abs(difference(away, x))
	if c := below.Cmp(above); c > 0 || c == 0 && p&1 == 1 {
		return p + 1
	}
	return p
}

// TestQuantizeAffine4Exact compares groups of many shapes with the definition in exact arithmetic.
func TestQuantizeAffine4Exact(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	for n := range 400 {
		spread, shift := math.Ldexp(1, -rng.IntN(40)), float64(n%4)*rng.NormFloat64()
		weights := series(64, func(int) float64 {
			if n%5 == 1 { // multiples of a step: ties
				return float64(rng.IntN(31)-15) / 8
			}
			return rng.NormFloat64()*spread + shift
		})
		for i, w := range weights {
			weights[i] = FromBF16(ToBF16(w))
		}
		got := make([]byte, 36)
		if err := QuantizeAffine4("w", got, weights); err != nil {
			t.Fatal(err)
		}
		if want := exactAffine4(weights); !bytes.Equal(got, want) {
			t.Fatalf("group %v\n is %x\nexpected %x", weights, got, want)
		}
	}
}

func TestQuantizeQ8_0(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float32
		d      uint16
		codes  string
	}{
		{"(i - 16)/8", series(32, func(i int) float64 { return float64(i-16) / 8 }), 0x2408,
			"81899199a1a9b1b9c0c8d0d8e0e8f0f8000810182028303840474f575f676f77"},
		{"thousandths", series(32, func(i int) float64 { return float64(FromBF16(ToBF16(float32(i) * 1e-3))) }), 0x0c00,
			"0004080c1015191d2125292d3135393e42464a4e52565a5e63676b6f73777b7f"},
		{"zeros", make([]float32, 32), 0, strings.Repeat("00", 32)},
		// The reciprocal of the scale overflows.
		{"1e-38", series(32, func(int) float64 { return 1e-38 }), 0, strings.Repeat("00", 32)},
		// The scale is below F16, and the codes are not: they follow from the unrounded one.
		{"1e-30", series(32, func(int) float64 { return -1e-30 }), 0, strings.Repeat("81", 32)},
		// The scale is 1, and halves go away from zero.
		{"halves", series(32, func(i int) float64 {
			if i == 0 {
				return 127
			}
			return float64(i) - 16.5
		}), 0x3c00, "7ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff" + "0102030405060708090a0b0c0d0e0f"},
	} {
		got := make([]byte, 34)
		if err := QuantizeQ8_0("w", got, c.values); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if d := binary.LittleEndian.Uint16(got); d != c.d || hex.EncodeToString(got[2:]) != c.codes {
			t.Errorf("%s: d %04x, codes %x; expected %04x, %s", c.name, d, got[2:], c.d, c.codes)
		}
	}
}

// TestQuantizeQ8_0Golden quantizes the source of the golden files: llama.cpp made the same blocks of it.
func TestQuantizeQ8_0Golden(t *testing.T) {
	b, err := os.ReadFile("../fixtures/dequant/source.bin")
	if err != nil {
		t.Fatal(err)
	}
	if string(b[:8]) != "SPLDQSRC" {
		t.Fatal("source.bin is not a source")
	}
	source := make([]float32, 8*256)
	if _, err := binary.Decode(b[24:], binary.LittleEndian, source); err != nil {
		t.Fatal(err)
	}
	for _, g := range goldens(t) {
		if g.Type != Q8_0 || g.Sections[0].Kind != quantized {
			continue
		}
		got := make([]byte, len(source)/32*34)
		if err := QuantizeQ8_0("source", got, source); err != nil {
			t.Fatal(err)
		}
		for i, want := range g.Sections[0].Blocks {
			if got[i] != want {
				t.Fatalf("byte %d of block %d is %02x, expected %02x", i%34, i/34, got[i], want)
			}
		}
		return
	}
	t.Fatal("no golden blocks of Q8_0")
}

func TestQuantizeRefuses(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, bad := range []float32{inf, -inf, nan} {
		values := make([]float32, 128)
		values[77] = bad
		for _, c := range []struct {
			err  error
			want string
		}{
			{QuantizeQ8_0("blk.0.hc_attn_down.weight", make([]byte, 4*34), values),
				"blk.0.hc_attn_down.weight: non-finite weight in a BF16 or F16 projection: element 77 is %v"},
			{QuantizeAffine4("layers.0.mlp.up_proj.weight", make([]byte, 2*36), values),
				"layers.0.mlp.up_proj.weight: non-finite weight in a BF16 projection: element 77 is %v"},
		} {
			var nonFinite *NonFiniteError
			if !errors.As(c.err, &nonFinite) || nonFinite.Index != 77 || c.err.Error() != fmt.Sprintf(c.want, bad) {
				t.Errorf("%v, expected %s", c.err, fmt.Sprintf(c.want, bad))
			}
		}
	}
	wide := make([]float32, 128)
	wide[64], wide[65] = 0x1.fep127, -0x1.fep127
	err := QuantizeAffine4("w", make([]byte, 72), wide)
	if want := "w: the range of elements 64 to 127 is beyond F32"; err == nil || err.Error() != want {
		t.Errorf("%v, expected %s", err, want)
	}
}

func TestQuantizeDoesNotAllocate(t *testing.T) {
	values, q8, af := make([]float32, 256), make([]byte, 8*34), make([]byte, 4*36)
	if n := testing.AllocsPerRun(10, func() {
		QuantizeQ8_0("w", q8, values)
		QuantizeAffine4("w", af, values)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkQuantize is the speed of the F32 input.
func BenchmarkQuantize(b *testing.B) {
	rng := rand.New(rand.NewPCG(19, 20))
	values := series(1<<16, func(int) float64 { return rng.NormFloat64() })
	for _, c := range []struct {
		name     string
		quantize func(string, []byte, []float32) error
		bytes    int
	}{{"Q8_0", QuantizeQ8_0, len(values) / 32 * 34}, {"af4g64", QuantizeAffine4, len(values) / 64 * 36}} {
		b.Run(c.name, func(b *testing.B) {
			dst := make([]byte, c.bytes)
			b.SetBytes(int64(4 * len(values)))
			for b.Loop() {
				if err := c.quantize("w", dst, values); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
