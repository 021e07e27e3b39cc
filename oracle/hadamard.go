package oracle

import (
	"math"

	"splash/dequant"
)

// HadamardBlock is the number of consecutive inputs that the rotation of Prism's GGUFs mixes.
const HadamardBlock = 1024

// hadamardScale normalizes a block: 1 / sqrt(HadamardBlock), exact.
const hadamardScale = 1.0 / 32

// Hadamard transforms every block of 1024 values of x by the normalized Sylvester Walsh-Hadamard matrix
// H[i][k] = (-1)^popcount(i & k) / 32, in place. Arithmetic is F32 in an order that fixes the bits: stages of stride 1,
// 2, 4, .., 512, each taking a pair (a, b) at that distance to (rn32(a+b), rn32(a-b)); then times 1/32. H is its own
// inverse. On float64 values the same stages run unrounded. len(x) must be a multiple of 1024.
//
// Source: splash's gguf_rotation.metal (formats.md 6.1).
func Hadamard[F float32 | float64](x []F) {
	for at := 0; at < len(x); at += HadamardBlock {
		hadamardBlock(x[at : at+HadamardBlock])
	}
}

func hadamardBlock[F float32 | float64](x []F) {
	for stride := 1; stride < len(x); stride *= 2 {
		for i := range x {
			if i&stride == 0 {
				a, b := x[i], x[i+stride]
				x[i], x[i+stride] = a+b, a-b
			}
		}
	}
	for i := range x {
		x[i] *= hadamardScale
	}
}

// HadamardInput writes H (D x) to dst, rounded once to BF16: the input of a rotated weight, which multiplies signs first,
// then the transform. x holds BF16 values, sign one +1 or -1 an input. dst may be x.
func HadamardInput(dst, x []float32, sign []int8) {
	rotate(dst, x, sign)
	for i, v := range dst {
		dst[i] = roundBF16(v)
	}
}

// rotate writes H (D x) to dst in F32.
func rotate(dst, x []float32, sign []int8) {
	for i, v := range x {
		dst[i] = v * float32(sign[i])
	}
	Hadamard(dst)
}

// HadamardTokenRow writes e = D (H r) to dst, rounded once to BF16, for the decoded row r of a rotated token table: the
// transform first, then the signs. dst may be r.
func HadamardTokenRow(dst, r []float32, sign []int8) {
	copy(dst, r)
	Hadamard(dst)
	for i, v := range dst {
		dst[i] = roundBF16(v * float32(sign[i]))
	}
}

// HadamardInt8 quantizes the rotated input y = H (D x), not rounded to BF16, to one scale a block of 1024 and one code
// an input: scale = rn32(max|y| / 127), code = clamp(rint_even(rn32(y / scale)), -127, 127). A block whose scale is 0 has
// codes 0.
func HadamardInt8(codes []int8, scales, x []float32, sign []int8) {
	y := make([]float32, len(x))
	rotate(y, x, sign)
	for b := range scales {
		at := b * HadamardBlock
		quantizeInt8(codes[at:at+HadamardBlock], &scales[b], y[at:at+HadamardBlock])
	}
}

func quantizeInt8(codes []int8, scale *float32, y []float32) {
	var largest float64
	for _, v := range y {
		largest = math.Max(largest, math.Abs(float64(v)))
	}
	*scale = float32(largest) / 127
	if *scale == 0 {
		clear(codes)
		return
	}
	for i, v := range y {
		q := float64(dequant.RoundHalfEven(v / *scale))
		codes[i] = int8(math.Max(-127, math.Min(q, 127)))
	}
}

// int8Group is the number of weights that share a scale in PQ2_0, the one format of rotated weights.
const int8Group = 128

// HadamardInt8Dot is the product of a rotated PQ2_0 row with an int8 input: weight i is (ternary_i - 1) d of its group
// of 128. Each group's sum of (code - 1) q is exact; acc = rn32(acc + rn32(rn32(d t) s)) in F32, groups in ascending
// order. weights holds the codes 0..3 one a byte, d one scale a group, codes and scales are of [HadamardInt8].
func HadamardInt8Dot(weights []uint8, d []float32, codes []int8, scales []float32) float32 {
	var acc float32
	for g, dg := range d {
		var t int32
		for i := g * int8Group; i < (g+1)*int8Group; i++ {
			t += (int32(weights[i]) - 1) * int32(codes[i])
		}
		product := float32(dg * float32(t))
		acc += float32(product * scales[g*int8Group/HadamardBlock])
	}
	return acc
}

// roundBF16 rounds to the nearest BF16, ties to even.
func roundBF16(x float32) float32 { return dequant.FromBF16(dequant.ToBF16(x)) }
