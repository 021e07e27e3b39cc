package oracle_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/bits"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/oracle"
)

// hadamardVector is the block of formats.md 9.4 and its signs.
func hadamardVector() (x []float32, sign []int8) {
	x, sign = make([]float32, 1024), make([]int8, 1024)
	for i := range x {
		x[i] = float32((37*i+11)%509-254) / 64
		sign[i] = -1
		if (7*i+3)%5 < 3 {
			sign[i] = 1
		}
	}
	return x, sign
}

func TestHadamardInput(t *testing.T) {
	x, sign := hadamardVector()
	y := make([]float32, 1024)
	oracle.HadamardInput(y, x, sign)
	var bytes []byte
	for _, v := range y {
		b := math.Float32bits(v)
		if b&0xffff != 0 {
			t.Fatalf("%v is no BF16", v)
		}
		bytes = binary.LittleEndian.AppendUint16(bytes, uint16(b>>16))
	}
	if got := hex.EncodeToString(bytes[:16]); got != "953f5e3d96bfe7be623eb9bec5bf2a3e" {
		t.Errorf("first values %s", got)
	}
	sum := sha256.Sum256(bytes)
	if got := hex.EncodeToString(sum[:]); got != "5761bbf65dec16eb28114b482804c16c17f26286e4e55832d6b25963bdbb8301" {
		t.Errorf("SHA-256 of the BF16 values %s", got)
	}
	copy(y, x)
	oracle.HadamardInput(y, y, sign) // in place
	if y[1023] != math.Float32frombits(0xbfad0000) {
		t.Errorf("y_1023 = %v", y[1023])
	}
}

// TestHadamard holds the stages to the matrix: every partial sum of these values is exact in F32.
func TestHadamard(t *testing.T) {
	x, sign := hadamardVector()
	two := make([]float32, 2048)
	for i, v := range x {
		two[i] = v * float32(sign[i])
		two[1024+(i+5)%1024] = v
	}
	y, wide := append([]float32(nil), two...), make([]float64, len(two))
	for i, v := range two {
		wide[i] = float64(v)
	}
	oracle.Hadamard(y)
	oracle.Hadamard(wide)
	for i, got := range y {
		var want float64
		for k := range 1024 {
			v := float64(two[i&^1023+k])
			if bits.OnesCount(uint(i&1023&k))%2 == 1 {
				v = -v
			}
			want += v / 32
		}
		if float64(got) != want || wide[i] != want {
			t.Fatalf("y_%d = %v in F32, %v in float64, want %v", i, got, wide[i], want)
		}
	}
	oracle.Hadamard(y) // its own inverse
	if diff := cmp.Diff(two, y); diff != "" {
		t.Errorf("twice (-want +got)\n%s", diff)
	}
}

// TestHadamardStages tells the order of the stages by what rounding loses: 1 is added to 2^24 by the first stage and is
// gone, though the second would have taken 2^24 away.
func TestHadamardStages(t *testing.T) {
	x := make([]float32, 1024)
	x[0], x[1], x[2] = 1<<24, 1, -1<<24
	oracle.Hadamard(x)
	// Stage 1: (2^24, 2^24 - 1), (-2^24, -2^24). Stage 2: elements 0 and 2 give 0, 1 and 3 give -1.
	if x[0] != 0 || x[1] != -1./32 || x[2] != 1<<20 || x[3] != float32(1<<25-1)/32 {
		t.Errorf("got %v", x[:4])
	}
}

func TestHadamardTokenRow(t *testing.T) {
	x, sign := hadamardVector()
	r := make([]float32, 1024)
	for i, v := range x {
		r[i] = v * float32(sign[i])
	}
	oracle.Hadamard(r)
	e := make([]float32, 1024)
	oracle.HadamardTokenRow(e, r, sign)
	// The values of x are multiples of 1/64 below 4: all are BF16.
	if diff := cmp.Diff(x, e); diff != "" {
		t.Errorf("row (-want +got)\n%s", diff)
	}
	// A row that is no BF16 rounds once, after the signs: 1 + 3 * 2^-9 lies between 1 and 1 + 2^-7, nearer the latter.
	clear(r)
	r[0] = 32 * (1 + 3*0x1p-9)
	oracle.HadamardTokenRow(r, r, sign)
	for i, v := range r {
		if v != float32(sign[i])*(1+0x1p-7) {
			t.Fatalf("e_%d = %v", i, v)
		}
	}
}

// TestHadamardInt8 is formats.md 9.4.
func TestHadamardInt8(t *testing.T) {
	x, sign := hadamardVector()
	x, sign = append(x, make([]float32, 1024)...), append(sign, sign...)
	codes, scales := make([]int8, 2048), make([]float32, 2)
	codes[1500] = 3
	oracle.HadamardInt8(codes, scales, x, sign)
	if scales[0] != 0x1.7dddbcp-3 || scales[1] != 0 {
		t.Errorf("scales %x", scales)
	}
	if diff := cmp.Diff([]int8{6, 0, -6, -2, 1, -2, -8, 1}, codes[:8]); diff != "" {
		t.Errorf("codes (-want +got)\n%s", diff)
	}
	if codes[1500] != 0 {
		t.Error("a block of zeros has codes")
	}
	largest := int8(0)
	for _, q := range codes {
		largest = max(largest, q, -q)
	}
	if largest != 127 {
		t.Errorf("largest code %d", largest)
	}
}

// TestHadamardInt8Ties rounds halves to even: an impulse of 254 and one that makes half steps.
func TestHadamardInt8Ties(t *testing.T) {
	// y of an impulse v at 0 is v/32 everywhere; adding w at 1023, whose signs alternate in both halves, gives v/32 +-
	// w/32. With v/32 = 64.75 and w/32 = 62.25 y is 127 or 2.5: scale 1, codes 127 or 2.
	x, sign := make([]float32, 1024), make([]int8, 1024)
	for i := range sign {
		sign[i] = 1
	}
	x[0], x[1023] = 32*64.75, 32*62.25
	codes, scales := make([]int8, 1024), make([]float32, 1)
	oracle.HadamardInt8(codes, scales, x, sign)
	if scales[0] != 1 || codes[0] != 127 || codes[1] != 2 {
		t.Errorf("scale %v, codes %v", scales[0], codes[:2])
	}
}

func TestHadamardInt8Dot(t *testing.T) {
	weights, codes := make([]uint8, 2048), make([]int8, 2048)
	d := make([]float32, 16)
	for i := range weights {
		weights[i], codes[i] = uint8(i*7%4), int8(i*31%255-127)
	}
	for g := range d {
		d[g] = float32(g+1) / 1024
	}
	// Powers of two for scales and d of few bits: the sum is exact, in any order.
	got := oracle.HadamardInt8Dot(weights, d, codes, []float32{0.25, 0.5})
	var want float64
	for i := range weights {
		want += (float64(weights[i]) - 1) * float64(d[i/128]) * float64(codes[i]) * []float64{0.25, 0.5}[i/1024]
	}
	if float64(got) != want {
		t.Errorf("product %v, want %v", got, want)
	}

	// Groups add up in ascending order in F32: 1 drowns in 2^24.
	for i := range weights {
		weights[i], codes[i] = 1, 0
	}
	weights[0], weights[128], weights[256] = 2, 2, 0
	codes[0], codes[128], codes[256] = 1, 1, 1
	d[0], d[1], d[2] = 1<<24, 1, 1<<24
	if got := oracle.HadamardInt8Dot(weights, d, codes, []float32{1, 1}); got != 0 {
		t.Errorf("product %v, want 0", got)
	}
}
