package dequant

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/x448/float16"
)

// floatValue is the value of a finite pattern of a binary format with so many bits of exponent and mantissa, from the
// definition of such formats alone.
func floatValue(pattern uint32, exponentBits, mantissaBits, bias int) *big.Rat {
	mantissa := int64(pattern & (1<<mantissaBits - 1))
	exponent := int(pattern >> mantissaBits & (1<<exponentBits - 1))
	if exponent == 0 {
		exponent = 1
	} else {
		mantissa += 1 << mantissaBits
	}
	v := new(big.Rat).SetInt64(mantissa)
	v.Mul(v, powerOfTwo(exponent-bias-mantissaBits))
	if pattern>>(exponentBits+mantissaBits)&1 == 1 {
		v.Neg(v)
	}
	return v
}

func powerOfTwo(n int) *big.Rat {
	p := new(big.Int).Lsh(big.NewInt(1), uint(max(n, -n)))
	if n < 0 {
		return new(big.Rat).SetFrac(big.NewInt(1), p)
	}
	return new(big.Rat).SetInt(p)
}

// rn32 rounds to F32, ties to even, as math/big does.
func rn32(x *big.Rat) float32 {
	f, _ := x.Float32()
	return f
}

func TestBF16(t *testing.T) {
	for p := range uint32(1 << 16) {
		x := FromBF16(uint16(p))
		if exponent := p >> 7 & 0xff; exponent != 0xff {
			if want := rn32(floatValue(p, 8, 7, 127)); !same(x, want) {
				t.Fatalf("BF16 %04x is %v, expected %v", p, x, want)
			}
		}
		want := uint16(p)
		if x != x {
			want |= 0x40
		}
		if got := ToBF16(x); got != want {
			t.Fatalf("BF16 %04x comes back as %04x", p, got)
		}
	}
	for p := range uint32(0x7f80) { // halfway to the next, and beside it; the last next is infinity
		half := p<<16 | 0x8000
		for _, c := range []struct{ bits, want uint32 }{{half - 1, p}, {half, p + p&1}, {half + 1, p + 1}} {
			for _, sign := range []uint32{0, 0x8000} {
				if got := ToBF16(math.Float32frombits(c.bits | sign<<16)); uint32(got) != c.want|sign {
					t.Fatalf("F32 %08x becomes BF16 %04x, expected %04x", c.bits, got, c.want)
				}
			}
		}
	}
}

func TestF16(t *testing.T) {
	for p := range uint32(1 << 16) {
		x := FromF16(uint16(p))
		if want := float16.Frombits(uint16(p)).Float32(); !same(x, want) || math.Signbit(float64(x)) != (p>>15 == 1) {
			t.Fatalf("F16 %04x is %v, expected %v", p, x, want)
		}
		if p>>10&31 != 31 && !same(x, rn32(floatValue(p, 5, 10, 15))) {
			t.Fatalf("F16 %04x is %v", p, x)
		}
		want := uint16(p)
		if x != x {
			want = want&0x8000 | 0x7e00
		}
		if got := ToF16(x); got != want {
			t.Fatalf("F16 %04x comes back as %04x", p, got)
		}
	}
	for p := range uint16(0x7c00) {
		// The middle is exact in F32; above the largest value it is 65520.
		middle := (float64(FromF16(p)) + above16(p)) / 2
		even := p + p&1
		for _, c := range []struct {
			x    float32
			want uint16
		}{
			{float32(middle), even},
			{math.Nextafter32(float32(middle), 0), p},
			{math.Nextafter32(float32(middle), float32(math.Inf(1))), p + 1},
		} {
			if got := ToF16(c.x); got != c.want {
				t.Fatalf("%v becomes F16 %04x, expected %04x", c.x, got, c.want)
			}
			if got := ToF16(-c.x); got != c.want|0x8000 {
				t.Fatalf("%v becomes F16 %04x, expected %04x", -c.x, got, c.want|0x8000)
			}
		}
	}
}

// above16 is the value after F16 pattern p, of an exponent without end.
func above16(p uint16) float64 {
	if p == 0x7bff {
		return 65536
	}
	return float64(FromF16(p + 1))
}

// TestF16Random compares the rounding with an implementation that is not ours on patterns of every exponent.
func TestF16Random(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 1 << 20 {
		x := math.Float32frombits(rng.Uint32())
		want := float16.Fromfloat32(x).Bits()
		if x != x {
			want = want&0x8000 | 0x7e00
		}
		if got := ToF16(x); got != want {
			t.Fatalf("%v (%08x) becomes F16 %04x, expected %04x", x, math.Float32bits(x), got, want)
		}
	}
}

func TestE4M3(t *testing.T) {
	for b := range 256 {
		want := rn32(floatValue(uint32(b), 4, 3, 7)) // 0x7f and 0xff come out as 480 and -480
		if got := FromE4M3(byte(b)); got != want || math.Signbit(float64(got)) != (b >= 128) {
			t.Errorf("E4M3 %02x is %v, expected %v", b, got, want)
		}
		unsigned := rn32(floatValue(uint32(b&0x7f), 4, 3, 7))
		if b == 0x7f {
			unsigned = 0
		}
		if got := FromUE4M3(byte(b)); got != unsigned {
			t.Errorf("UE4M3 %02x is %v, expected %v", b, got, unsigned)
		}
		encoded := byte(b)
		if b&0x7f == 0x7f {
			encoded-- // 480 saturates
		}
		if got := ToE4M3(FromE4M3(byte(b))); got != encoded {
			t.Errorf("E4M3 %02x comes back as %02x", b, got)
		}
	}
	for _, c := range []struct {
		b    byte
		want float32
	}{{0x7e, 448}, {0x7f, 480}, {0xff, -480}, {0x01, 0x1p-9}, {0x08, 0x1p-6}, {0x38, 1}} {
		if got := FromE4M3(c.b); got != c.want {
			t.Errorf("E4M3 %02x is %v, expected %v", c.b, got, c.want)
		}
	}
	for _, c := range []struct {
		b    byte
		want float32
	}{{0x7f, 0}, {0xff, 480}, {0x80, 0}, {0xb8, 1}} {
		if got := FromUE4M3(c.b); got != c.want {
			t.Errorf("UE4M3 %02x is %v, expected %v", c.b, got, c.want)
		}
	}
}

// TestRoundsToNearest checks the encoders of the small formats between all neighbours: below, at and above the middle.
func TestRoundsToNearest(t *testing.T) {
	for _, f := range []struct {
		name    string
		codes   int // of non-negative values
		sign    byte
		decode  func(byte) float32
		encode  func(float32) byte
		largest byte
	}{
		{"E4M3", 0x7f, 0x80, FromE4M3, ToE4M3, 0x7e},
		{"E2M1", 8, 8, FromE2M1, ToE2M1, 7},
	} {
		for b := range byte(f.codes - 1) {
			middle := (f.decode(b) + f.decode(b+1)) / 2
			for _, c := range []struct {
				x    float32
				want byte
			}{
				{f.decode(b), b},
				{math.Nextafter32(middle, 0), b},
				{middle, b + b&1},
				{math.Nextafter32(middle, 1000), b + 1},
			} {
				if got := f.encode(c.x); got != c.want {
					t.Errorf("%v becomes %s %02x, expected %02x", c.x, f.name, got, c.want)
				}
				if got := f.encode(-c.x); got != c.want|f.sign {
					t.Errorf("%v becomes %s %02x, expected %02x", -c.x, f.name, got, c.want|f.sign)
				}
			}
		}
		inf := float32(math.Inf(1))
		if f.encode(inf) != f.largest || f.encode(-inf) != f.largest|f.sign || f.encode(1e30) != f.largest {
			t.Errorf("%s does not saturate", f.name)
		}
	}
	if nan := float32(math.NaN()); ToE4M3(nan) != 0x7f || ToE2M1(nan) != 7 {
		t.Errorf("NaN becomes E4M3 %02x and E2M1 %x", ToE4M3(nan), ToE2M1(nan))
	}
}

func TestE2M1(t *testing.T) {
	want := []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6}
	for code, v := range want {
		if got := FromE2M1(byte(code)); got != v || math.Signbit(float64(got)) != (code >= 8) {
			t.Errorf("E2M1 %d is %v, expected %v", code, got, v)
		}
		if got := FromE2M1(byte(code) | 0xf0); got != v {
			t.Errorf("E2M1 %d under other bits is %v, expected %v", code, got, v)
		}
		if got := Codebook(MXFP4)[code]; float32(got) != 2*v {
			t.Errorf("doubled E2M1 %d is %v, expected %v", code, got, 2*v)
		}
	}
}

func TestE8M0(t *testing.T) {
	for e := range 256 {
		if got, want := FromE8M0(byte(e)), rn32(powerOfTwo(e-127)); got != want {
			t.Errorf("E8M0 %d is %v, expected %v", e, got, want)
		}
		if got, want := FromE8M0Half(byte(e)), rn32(powerOfTwo(e-128)); got != want {
			t.Errorf("half of E8M0 %d is %v, expected %v", e, got, want)
		}
		if e == 255 {
			continue
		}
		x := FromE8M0(byte(e))
		if got := ToE8M0(x); got != byte(e) {
			t.Errorf("E8M0 %d comes back as %d", e, got)
		}
		if got := ToE8M0(math.Nextafter32(2*x, 0)); got != byte(e) {
			t.Errorf("the last value below 2^%d becomes E8M0 %d, expected %d", e-126, got, e)
		}
	}
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		x    float32
		want byte
	}{{0, 0}, {-1, 0}, {-inf, 0}, {0x1p-149, 0}, {inf, 254}, {float32(math.NaN()), 255}} {
		if got := ToE8M0(c.x); got != c.want {
			t.Errorf("%v becomes E8M0 %d, expected %d", c.x, got, c.want)
		}
	}
}

func TestRound(t *testing.T) {
	for _, c := range []struct{ x, away, even float32 }{
		{0, 0, 0}, {0.5, 1, 0}, {1.5, 2, 2}, {2.5, 3, 2}, {-0.5, -1, 0}, {-2.5, -3, -2}, {126.5, 127, 126},
		{0.49999997, 0, 0}, {-0.49999997, 0, 0}, {0x1p-149, 0, 0}, {-7500000.5, -7500001, -7500000},
		{8388607.5, 8388608, 8388608}, {8388609, 8388609, 8388609}, {0x1p60, 0x1p60, 0x1p60}, {-0x1p127, -0x1p127, -0x1p127},
	} {
		if got := RoundHalfAway(c.x); got != c.away {
			t.Errorf("%v rounds away to %v, expected %v", c.x, got, c.away)
		}
		if got := RoundHalfEven(c.x); got != c.even {
			t.Errorf("%v rounds to even %v, expected %v", c.x, got, c.even)
		}
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for range 1 << 18 {
		x := math.Float32frombits(rng.Uint32())
		if got, want := RoundHalfAway(x), float32(math.Round(float64(x))); !same(got, want) {
			t.Fatalf("%v rounds away to %v, expected %v", x, got, want)
		}
	}
}
