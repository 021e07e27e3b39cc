// Package dequant decodes every weight format the project reads, and holds the number formats beneath them.
//
// A decoded value is defined as the F32 value of the format's public reference: GGML's dequantize_row for a GGUF type,
// mlx.core.dequantize for an MLX one. Decoders are held to those bit for bit.
package dequant

import "fmt"

// A Type names a weight format: the tensor type id of GGML, or a loader type of the weight image for a format that
// GGUF does not define.
type Type uint32

// Types of GGML (ids of ggml.h), and Prism ML's two beyond them.
const (
	F32    Type = 0
	F16    Type = 1
	Q4_0   Type = 2
	Q4_1   Type = 3
	Q5_0   Type = 6
	Q5_1   Type = 7
	Q8_0   Type = 8
	Q8_1   Type = 9
	Q2_K   Type = 10
	Q3_K   Type = 11
	Q4_K   Type = 12
	Q5_K   Type = 13
	Q6_K   Type = 14
	Q8_K   Type = 15
	IQ2XXS Type = 16
	IQ2XS  Type = 17
	IQ3XXS Type = 18
	IQ1S   Type = 19
	IQ4NL  Type = 20
	IQ3S   Type = 21
	IQ2S   Type = 22
	IQ4XS  Type = 23
	I8     Type = 24
	I16    Type = 25
	I32    Type = 26
	I64    Type = 27
	F64    Type = 28
	IQ1M   Type = 29
	BF16   Type = 30
	TQ1_0  Type = 34
	TQ2_0  Type = 35
	MXFP4  Type = 39
	NVFP4  Type = 40
	Q1_0   Type = 41
	Q2_0   Type = 42
	PQ2_0  Type = 142
	PTQ1_0 Type = 143
)

// Loader types of the weight image.
const (
	NVFP4Rows Type = 0x4E564634 // 256 codes, 16 E4M3 scales and the FP32 scale of the rows
	FP8Rows   Type = 0x46503845 // 256 E4M3 values and the FP32 scale of the rows
	affine    Type = 0x4D4C0000
)

// Affine is the type of MLX's affine format of so many bits in groups of so many weights.
func Affine(bits, group int) Type { return affine | Type(bits)<<8 | Type(group) }

// A Format describes the blocks of a type. A block holds Block consecutive elements of one row in Bytes bytes.
type Format struct {
	Type  Type
	Name  string
	Block int
	Bytes int

	decode func(dst []float32, src []byte)
	scaled func(dst []float32, src []byte, g float32) // decode of blocks that a tensor scale applies to
	apart  *apart                                     // the form of containers that keep scales apart from codes
}

// An apart is a format's form in containers that hold codes, scales and biases in tensors of their own.
type apart struct {
	bits                  int  // of a code
	group                 int  // codes that share a scale
	scaleBytes, biasBytes int  // of a group
	global                bool // whether a tensor scale applies

	decode func(dst []float32, codes, scales, biases []byte, g float32)
	native func(dst, codes, scales, biases []byte, g float32) // to native blocks
}

// BitsPerWeight is the size of a stored weight.
func (f *Format) BitsPerWeight() float64 { return 8 * float64(f.Bytes) / float64(f.Block) }

// RowBytes is the size of a row of cols elements, which must be whole blocks.
func (f *Format) RowBytes(cols int) int { return cols / f.Block * f.Bytes }

// Decodes reports whether the format's values can be decoded, and not its sizes alone.
func (f *Format) Decodes() bool { return f.decode != nil }

// Decode writes the values of the whole blocks in src to dst. The lengths must agree.
func (f *Format) Decode(dst []float32, src []byte) {
	if len(dst)%f.Block != 0 || len(src) != f.RowBytes(len(dst)) {
		panic(fmt.Sprintf("dequant: %d bytes of %s are not %d elements", len(src), f.Name, len(dst)))
	}
	f.decode(dst, src)
}

// Lookup returns the format of t, or nil for a type of unknown size.
func Lookup(t Type) *Format { return byType[t] }

// String is the type's public name, or "type-N" where it has none.
func (t Type) String() string {
	if f := Lookup(t); f != nil {
		return f.Name
	}
	return fmt.Sprintf("type-%d", uint32(t))
}

// String is the format's name.
func (f *Format) String() string {
	if f == nil {
		return "an unknown format"
	}
	return f.Name
}

// Affine is the code bits and the group of an affine type, and whether t is one.
func (t Type) Affine() (bits, group int, ok bool) {
	if t&^0xffff != affine || Lookup(t) == nil {
		return 0, 0, false
	}
	return int(t >> 8 & 0xff), int(t & 0xff), true
}
