package dequant

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A NonFiniteError names the weight that keeps a tensor from being quantized.
type NonFiniteError struct {
	Tensor string
	Index  int // of the element among those given
	Value  float32
	Source string // what the tensor is: "a BF16 projection"
}

func (e *NonFiniteError) Error() string {
	return fmt.Sprintf("%s: non-finite weight in %s: element %d is %v", e.Tensor, e.Source, e.Index, e.Value)
}

// QuantizeQ8_0 writes the Q8_0 blocks of src to dst: 34 bytes for every 32 values, which must come in whole blocks. It
// rounds as quantize_row_q8_0_ref of ggml/src/ggml-quants.c in llama.cpp: codes by the unrounded scale
// D = rn32(max |x| / 127), q = rha(rn32(x rn32(1/D))), stored d = rn16(D). A block whose 1/D overflows becomes zeros, as
// its d would. A value that is not finite is a *NonFiniteError that names the tensor.
func QuantizeQ8_0(tensor string, dst []byte, src []float32) error {
	if len(src)%32 != 0 || len(dst) != len(src)/32*34 {
		panic(fmt.Sprintf("dequant: %d bytes of Q8_0 are not %d elements", len(dst), len(src)))
	}
	if i := nonFinite(src); i >= 0 {
		return &NonFiniteError{tensor, i, src[i], "a BF16 or F16 projection"}
	}
	for ; len(src) >= 32; dst, src = dst[34:], src[32:] {
		blockQ8_0((*[34]byte)(dst), (*[32]float32)(src))
	}
	return nil
}

func blockQ8_0(dst *[34]byte, src *[32]float32) {
	var largest float32
	for _, x := range src {
		largest = max(largest, abs(x))
	}
	d := largest / 127
	inverse := 1 / d
	if d == 0 || !finite(inverse) {
		*dst = [34]byte{}
		return
	}
	binary.LittleEndian.PutUint16(dst[:], ToF16(d))
	for i, x := range src {
		dst[2+i] = byte(int8(RoundHalfAway(float32(x * inverse))))
	}
}

// QuantizeAffine4 writes the native blocks of Affine(4, 64) of src to dst: 36 bytes for every 64 values, which must come
// in whole groups. It rounds BF16 weights as the Metal kernel of mlx.core.quantize (mode affine) does: a group's range
// reaches up to 0 but not down to it, its larger edge is exact, and codes follow from the unrounded scale. A value that
// is not finite is a *NonFiniteError that names the tensor, as is a group whose range is beyond F32.
func QuantizeAffine4(tensor string, dst []byte, src []float32) error {
	if len(src)%64 != 0 || len(dst) != len(src)/64*36 {
		panic(fmt.Sprintf("dequant: %d bytes of af4g64 are not %d elements", len(dst), len(src)))
	}
	if i := nonFinite(src); i >= 0 {
		return &NonFiniteError{tensor, i, src[i], "a BF16 projection"}
	}
	for at := 0; at < len(src); at += 64 {
		if !groupAffine4((*[36]byte)(dst[at/64*36:]), (*[64]float32)(src[at:])) {
			return fmt.Errorf("%s: the range of elements %d to %d is beyond F32", tensor, at, at+63)
		}
	}
	return nil
}

// groupAffine4 reports whether the group's range is finite.
func groupAffine4(dst *[36]byte, src *[64]float32) bool {
	scale, bias, ok := rangeAffine4(src)
	if !ok {
		return false
	}
	binary.LittleEndian.PutUint16(dst[:], ToBF16(scale))
	binary.LittleEndian.PutUint16(dst[2:], ToBF16(bias))
	for i := range 32 {
		dst[4+i] = codeAffine4(src[2*i], scale, bias) | codeAffine4(src[2*i+1], scale, bias)<<4
	}
	return true
}

// rangeAffine4 is the unrounded scale and the bias of a group.
func rangeAffine4(src *[64]float32) (scale, bias float32, ok bool) {
	low, high := src[0], max(src[0], 0)
	for _, w := range src[1:] {
		low, high = min(low, w), max(high, w)
	}
	scale = max(float32(high-low)/15, 1e-7)
	edge := high
	if abs(low) > abs(high) {
		edge = low
	} else {
		scale = -scale
	}
	if q := RoundHalfAway(edge / scale); q != 0 {
		scale, bias = edge/q, edge
	}
	return scale, bias, finite(scale)
}

// codeAffine4 is the code of w. Where the scale is 0 all weights of the group are its bias, and code 0.
func codeAffine4(w, scale, bias float32) byte {
	q := RoundHalfAway(float32(w-bias) / scale)
	if !(q > 0) {
		return 0
	}
	return byte(min(q, 15))
}

// nonFinite is the index of the first value that is not finite, or -1.
func nonFinite(src []float32) int {
	for i, x := range src {
		if !finite(x) {
			return i
		}
	}
	return -1
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }
