//go:build linux && amd64 && cgo

package amxtest

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"splash/internal/cpu/amx"
)

func needTiles(t *testing.T) {
	t.Helper()
	if !amx.Runs() {
		t.Skip("neither the machine nor the emulator runs tiles: it lacks AVX-512")
	}
}

var shapes = []Shape{{16, 16, 16}, {16, 8, 16}, {16, 4, 16}, {16, 16, 1}, {3, 8, 16}, {1, 1, 1}, {7, 5, 13}}

// TestBytes holds products of bytes to sums of integers.
func TestBytes(t *testing.T) {
	needTiles(t)
	r := rand.New(rand.NewPCG(1, 2))
	value := func(b byte, signed bool) int32 {
		if signed {
			return int32(int8(b))
		}
		return int32(b)
	}
	for _, k := range []Kind{SignedSigned, SignedUnsigned, UnsignedSigned, UnsignedUnsigned} {
		for _, s := range shapes {
			c, a, b := filled(r), filled(r), filled(r)
			got := c
			Multiply(k, s, &got, &a, &b)
			want := c
			for m := range s.Rows {
				for n := range s.Columns {
					sum := int32(binary.LittleEndian.Uint32(c[64*m+4*n:]))
					for i := range 4 * s.Depth {
						x := value(a[64*m+i], k == SignedSigned || k == SignedUnsigned)
						y := value(b[i/4*64+4*n+i%4], k == SignedSigned || k == UnsignedSigned)
						sum += x * y
					}
					binary.LittleEndian.PutUint32(want[64*m+4*n:], uint32(sum))
				}
			}
			if got != want {
				t.Errorf("kind %d of %+v differs", k, s)
			}
		}
	}
}

func filled(r *rand.Rand) (m [1024]byte) {
	for i := range m {
		m[i] = byte(r.Uint32())
	}
	return m
}

// TestBFloat16 holds products of bfloat16 numbers to the manual's order of operations, each rounded once from the exact
// value: numbers of all sizes, with some that are not normal.
func TestBFloat16(t *testing.T) {
	needTiles(t)
	r := rand.New(rand.NewPCG(3, 4))
	for range 4 {
		for _, s := range shapes {
			c, a, b := filled(r), filled(r), filled(r)
			for _, m := range []*[1024]byte{&a, &b} {
				for i := 0; i < len(m); i += 2 {
					binary.LittleEndian.PutUint16(m[i:], halfOf(r))
				}
			}
			for i := 0; i < len(c); i += 4 {
				binary.LittleEndian.PutUint16(c[i+2:], halfOf(r))
			}
			got := c
			Multiply(BFloat16, s, &got, &a, &b)
			want := c
			for m := range s.Rows {
				for n := range s.Columns {
					var sums [2]float32
					for i := range 2 * s.Depth {
						x := half(binary.LittleEndian.Uint16(a[64*m+2*i:]))
						y := half(binary.LittleEndian.Uint16(b[i/2*64+4*n+i%2*2:]))
						sums[i%2] = fused(x, y, sums[i%2])
					}
					at := 64*m + 4*n
					before := math.Float32frombits(binary.LittleEndian.Uint32(c[at:]))
					sum := fused(1, before, fused(1, sums[0], sums[1]))
					binary.LittleEndian.PutUint32(want[at:], math.Float32bits(sum))
				}
			}
			if got != want {
				for i := 0; i < len(got); i += 4 {
					g, w := binary.LittleEndian.Uint32(got[i:]), binary.LittleEndian.Uint32(want[i:])
					if g != w {
						t.Fatalf("%+v: row %d column %d is %x, want %x", s, i/64, i%64/4, g, w)
					}
				}
			}
		}
	}
}

// halfOf is a number between 2^-20 and 2^20, or in one of eight cases one near the smallest that are normal.
func halfOf(r *rand.Rand) uint16 {
	exponent := 107 + r.IntN(40)
	switch r.IntN(8) {
	case 0:
		exponent = r.IntN(70)
	case 1:
		exponent = r.IntN(3)
	}
	return uint16(r.IntN(2)<<15 | exponent<<7 | r.IntN(128))
}

func half(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// flushed is v, or a zero of its sign where it is not normal.
func flushed(v float32) float32 {
	if math.Abs(float64(v)) < 0x1p-126 {
		return float32(math.Copysign(0, float64(v)))
	}
	return v
}

// fused is x y + z, rounded once, numbers that are not normal being zeros.
func fused(x, y, z float32) float32 {
	x, y, z = flushed(x), flushed(y), flushed(z)
	product := float64(x) * float64(y) // exact: 16 or 25 bits
	if product == 0 && z == 0 {
		return float32(product) + z // the sign
	}
	sum := new(big.Float).SetPrec(600).Add(big.NewFloat(product), big.NewFloat(float64(z)))
	if sum.Sign() == 0 {
		return 0
	}
	v, _ := sum.SetPrec(24).SetMode(big.ToNearestEven).Float64() // of any size: flushed is what is too small after that
	if math.Abs(v) < 0x1p-126 {
		return float32(math.Copysign(0, v))
	}
	return float32(v)
}

// TestIllegal finds, in a process of its own, that what is not emulated is left to the handler before, which ends the
// program.
func TestIllegal(t *testing.T) {
	needTiles(t)
	if os.Getenv("AMXTEST_ILLEGAL") != "" {
		Illegal()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestIllegal$")
	cmd.Env = append(os.Environ(), "AMXTEST_ILLEGAL=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "SIGILL") {
		t.Errorf("an instruction that nothing knows: %v, %s", err, out)
	}
}
