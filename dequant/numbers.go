package dequant

import "math"

// FromBF16 widens a BF16 pattern. It is exact.
func FromBF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// ToBF16 rounds x to BF16, ties to even. Values beyond the largest BF16 become infinite; subnormals are kept; a NaN
// keeps its sign and the high bits of its payload, and becomes quiet.
func ToBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// FromF16 widens an IEEE binary16 pattern: 1 sign bit, 5 of exponent with bias 15, 10 of mantissa. It is exact,
// subnormals included.
func FromF16(h uint16) float32 {
	sign, m := uint32(h&0x8000)<<16, uint32(h&0x7fff)
	switch {
	case m >= 0x7c00: // infinite or NaN
		return math.Float32frombits(sign | 0x7f800000 | m&0x3ff<<13)
	case m < 0x400:
		return math.Float32frombits(sign | math.Float32bits(float32(m)*0x1p-24))
	}
	return math.Float32frombits(sign | (m<<13 + 112<<23))
}

// ToF16 rounds x to IEEE binary16, ties to even. Magnitudes from 65520 on become infinite; a NaN becomes the quiet NaN
// 0x7e00 with its sign.
func ToF16(x float32) uint16 {
	b := math.Float32bits(x)
	sign, a := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case a > 0x7f800000:
		return sign | 0x7e00
	case a >= 0x477ff000: // 65520
		return sign | 0x7c00
	case a < 0x38800000: // below 2^-14: a multiple of 2^-24; 1024 of them are the smallest normal number
		return sign | uint16(math.RoundToEven(math.Abs(float64(x))*0x1p24))
	}
	return sign | uint16((a+0xfff+a>>13&1-112<<23)>>13)
}

// FromE4M3 is the value of an E4M3 (fn) byte: 1 sign bit, 4 of exponent with bias 7, 3 of mantissa. There is no
// infinity, and the NaN patterns 0x7f and 0xff decode arithmetically as 480 and -480, as MLX and Splash's kernels do.
func FromE4M3(b byte) float32 { return e4m3[b] }

// FromUE4M3 is the value of an unsigned E4M3 byte, the block scale of GGUF's NVFP4: bit 7 is ignored, and exactly 0x7f
// reads 0 (so 0xff reads 480), as ggml_ue4m3_to_fp32 of llama.cpp has it.
func FromUE4M3(b byte) float32 { return ue4m3[b] }

// ToE4M3 rounds x to E4M3, ties to even, and saturates at 448. A NaN becomes 0x7f.
func ToE4M3(x float32) byte {
	b := math.Float32bits(x)
	sign, a := byte(b>>24&0x80), b&0x7fffffff
	switch {
	case a > 0x7f800000:
		return 0x7f
	case a >= 0x43e00000: // 448
		return sign | 0x7e
	case a < 0x3c800000: // below 2^-6: a multiple of 2^-9; 8 of them are the smallest normal number
		return sign | byte(math.RoundToEven(math.Abs(float64(x))*0x1p9))
	}
	return sign | byte((a+0x7ffff+a>>20&1-120<<23)>>20)
}

// FromE2M1 is the value of a 4-bit code: 0, 0.5, 1, 1.5, 2, 3, 4, 6, then the same negated. Bits above the fourth are
// ignored.
func FromE2M1(code byte) float32 { return e2m1[code&15] }

// ToE2M1 rounds x to E2M1, ties to the even code, and saturates at 6. A NaN becomes 6, as the format has none.
func ToE2M1(x float32) byte {
	var sign byte
	if math.Signbit(float64(x)) {
		sign, x = 8, -x
	}
	switch {
	case x <= 0.25:
		return sign
	case x < 0.75:
		return sign | 1
	case x <= 1.25:
		return sign | 2
	case x < 1.75:
		return sign | 3
	case x <= 2.5:
		return sign | 4
	case x < 3.5:
		return sign | 5
	case x <= 5:
		return sign | 6
	case x > 5:
		return sign | 7
	}
	return 7 // NaN
}

// FromE8M0 is 2^(e-127), an F32 subnormal for 0. 255, the NaN of the OCP microscaling formats, is the power of two that
// F32 reads as +Inf.
func FromE8M0(e byte) float32 {
	if e == 0 {
		return 0x1p-127
	}
	return math.Float32frombits(uint32(e) << 23)
}

// FromE8M0Half is 2^(e-128), half of FromE8M0: GGML multiplies it by doubled E2M1 codes, which makes 255 a number. 0 and
// 1 are F32 subnormals.
func FromE8M0Half(e byte) float32 {
	if e < 2 {
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

// ToE8M0 is the exponent byte of the largest power of two that is not above x, between 2^-127 and 2^127. A NaN becomes
// 255; zero and negative values become 0.
func ToE8M0(x float32) byte {
	switch {
	case x != x:
		return 0xff
	case x < 0x1p-126:
		return 0
	case x >= 0x1p127:
		return 0xfe
	}
	return byte(math.Float32bits(x) >> 23)
}

// RoundHalfAway rounds x to an integer, halves away from zero: C's roundf.
func RoundHalfAway(x float32) float32 {
	// The sum is exact in float64 wherever it can be near an integer.
	return float32(math.Trunc(float64(x) + math.Copysign(0.5, float64(x))))
}

// RoundHalfEven rounds x to an integer, halves to even: C's rintf in the default mode.
func RoundHalfEven(x float32) float32 { return float32(math.RoundToEven(float64(x))) }

var (
	e4m3  = e4m3Values()
	ue4m3 = ue4m3Values()

	e2m1 = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}
)

func e4m3Values() (v [256]float32) {
	for b := range v {
		exponent, mantissa := b>>3&15, float64(b&7)
		if exponent == 0 {
			mantissa, exponent = mantissa/8, 1
		} else {
			mantissa = 1 + mantissa/8
		}
		v[b] = float32(math.Copysign(math.Ldexp(mantissa, exponent-7), float64(int8(b))+0.5))
	}
	return v
}

func ue4m3Values() (v [256]float32) {
	for b := range v {
		v[b] = e4m3[b&0x7f]
	}
	v[0x7f] = 0
	return v
}
