package dequant

import (
	"fmt"
	"slices"
)

// formats is every format of known size. A loader type's block is the native block that a writer of the weight image
// reads a row as; a block of BF16 or F16 is one value as GGUF and safetensors store it.
var formats = append([]*Format{
	{Type: F32, Name: "F32", Block: 1, Bytes: 4, decode: decodeF32},
	{Type: F16, Name: "F16", Block: 1, Bytes: 2, decode: decodeF16},
	{Type: Q4_0, Name: "Q4_0", Block: 32, Bytes: 18, decode: decodeQ4_0},
	{Type: Q4_1, Name: "Q4_1", Block: 32, Bytes: 20, decode: decodeQ4_1},
	{Type: Q5_0, Name: "Q5_0", Block: 32, Bytes: 22, decode: decodeQ5_0},
	{Type: Q5_1, Name: "Q5_1", Block: 32, Bytes: 24, decode: decodeQ5_1},
	{Type: Q8_0, Name: "Q8_0", Block: 32, Bytes: 34, decode: decodeQ8_0},
	{Type: Q8_1, Name: "Q8_1", Block: 32, Bytes: 36},
	{Type: Q2_K, Name: "Q2_K", Block: 256, Bytes: 84, decode: decodeQ2_K},
	{Type: Q3_K, Name: "Q3_K", Block: 256, Bytes: 110, decode: decodeQ3_K},
	{Type: Q4_K, Name: "Q4_K", Block: 256, Bytes: 144, decode: decodeQ4_K},
	{Type: Q5_K, Name: "Q5_K", Block: 256, Bytes: 176, decode: decodeQ5_K},
	{Type: Q6_K, Name: "Q6_K", Block: 256, Bytes: 210, decode: decodeQ6_K},
	{Type: Q8_K, Name: "Q8_K", Block: 256, Bytes: 292},
	{Type: IQ2XXS, Name: "IQ2_XXS", Block: 256, Bytes: 66, decode: decodeIQ2XXS},
	{Type: IQ2XS, Name: "IQ2_XS", Block: 256, Bytes: 74, decode: decodeIQ2XS},
	{Type: IQ3XXS, Name: "IQ3_XXS", Block: 256, Bytes: 98, decode: decodeIQ3XXS},
	{Type: IQ1S, Name: "IQ1_S", Block: 256, Bytes: 50, decode: decodeIQ1S},
	{Type: IQ4NL, Name: "IQ4_NL", Block: 32, Bytes: 18, decode: decodeIQ4NL},
	{Type: IQ3S, Name: "IQ3_S", Block: 256, Bytes: 110, decode: decodeIQ3S},
	{Type: IQ2S, Name: "IQ2_S", Block: 256, Bytes: 82, decode: decodeIQ2S},
	{Type: IQ4XS, Name: "IQ4_XS", Block: 256, Bytes: 136, decode: decodeIQ4XS},
	{Type: I8, Name: "I8", Block: 1, Bytes: 1},
	{Type: I16, Name: "I16", Block: 1, Bytes: 2},
	{Type: I32, Name: "I32", Block: 1, Bytes: 4},
	{Type: I64, Name: "I64", Block: 1, Bytes: 8},
	{Type: F64, Name: "F64", Block: 1, Bytes: 8},
	{Type: IQ1M, Name: "IQ1_M", Block: 256, Bytes: 56, decode: decodeIQ1M},
	{Type: BF16, Name: "BF16", Block: 1, Bytes: 2, decode: decodeBF16},
	{Type: TQ1_0, Name: "TQ1_0", Block: 256, Bytes: 54, decode: decodeTQ1_0},
	{Type: TQ2_0, Name: "TQ2_0", Block: 256, Bytes: 66, decode: decodeTQ2_0},
	{
		Type: MXFP4, Name: "MXFP4", Block: 32, Bytes: 17, decode: decodeMXFP4,
		apart: &apart{bits: 4, group: 32, scaleBytes: 1, decode: apartMXFP4, native: nativeMXFP4},
	},
	{Type: NVFP4, Name: "NVFP4", Block: 64, Bytes: 36, decode: decodeNVFP4, scaled: decodeScaledNVFP4},
	{Type: Q1_0, Name: "Q1_0", Block: 128, Bytes: 18, decode: decodeQ1_0},
	{Type: Q2_0, Name: "Q2_0", Block: 64, Bytes: 18, decode: decodeQ2_0},
	{Type: PQ2_0, Name: "PQ2_0", Block: 128, Bytes: 34, decode: decodePQ2_0},
	{Type: PTQ1_0, Name: "PTQ1_0", Block: 128, Bytes: 28},
	{
		Type: NVFP4Rows, Name: "nvfp4", Block: 256, Bytes: 148, decode: decodeNVFP4Rows,
		apart: &apart{bits: 4, group: 16, scaleBytes: 1, global: true, decode: apartNVFP4, native: nativeNVFP4Rows},
	},
	{
		Type: FP8Rows, Name: "fp8", Block: 256, Bytes: 260, decode: decodeFP8Rows,
		apart: &apart{bits: 8, group: 1, global: true, decode: apartFP8, native: nativeFP8Rows},
	},
}, affineFormats()...)

// affineFormats is MLX's affine formats: a block is one group, its scale and bias in BF16 before its codes.
func affineFormats() []*Format {
	var all []*Format
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, group := range []int{32, 64, 128} {
			all = append(all, &Format{
				Type:  Affine(bits, group),
				Name:  fmt.Sprintf("af%dg%d", bits, group),
				Block: group,
				Bytes: 4 + group*bits/8,

				decode: decodeAffine(bits, group),
				apart: &apart{
					bits: bits, group: group, scaleBytes: 2, biasBytes: 2,
					decode: apartAffine(bits, group), native: nativeAffine(bits, group),
				},
			})
		}
	}
	return all
}

var byType = func() map[Type]*Format {
	m := make(map[Type]*Format, len(formats))
	for _, f := range formats {
		m[f.Type] = f
	}
	return m
}()

// Formats lists every format of known size, those of GGUF first.
func Formats() []*Format { return slices.Clone(formats) }
