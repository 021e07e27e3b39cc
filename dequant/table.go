package dequant

import "fmt"

// formats is every format of known size. A loader type's block is the native block that a writer of the weight image
// reads a row as; a block of BF16 or F16 is one value as GGUF and safetensors store it.
var formats = append([]*Format{
	{Type: F32, Name: "F32", Block: 1, Bytes: 4},
	{Type: F16, Name: "F16", Block: 1, Bytes: 2},
	{Type: Q4_0, Name: "Q4_0", Block: 32, Bytes: 18},
	{Type: Q4_1, Name: "Q4_1", Block: 32, Bytes: 20},
	{Type: Q5_0, Name: "Q5_0", Block: 32, Bytes: 22},
	{Type: Q5_1, Name: "Q5_1", Block: 32, Bytes: 24},
	{Type: Q8_0, Name: "Q8_0", Block: 32, Bytes: 34},
	{Type: Q8_1, Name: "Q8_1", Block: 32, Bytes: 36},
	{Type: Q2_K, Name: "Q2_K", Block: 256, Bytes: 84},
	{Type: Q3_K, Name: "Q3_K", Block: 256, Bytes: 110},
	{Type: Q4_K, Name: "Q4_K", Block: 256, Bytes: 144},
	{Type: Q5_K, Name: "Q5_K", Block: 256, Bytes: 176},
	{Type: Q6_K, Name: "Q6_K", Block: 256, Bytes: 210},
	{Type: Q8_K, Name: "Q8_K", Block: 256, Bytes: 292},
	{Type: IQ2XXS, Name: "IQ2_XXS", Block: 256, Bytes: 66},
	{Type: IQ2XS, Name: "IQ2_XS", Block: 256, Bytes: 74},
	{Type: IQ3XXS, Name: "IQ3_XXS", Block: 256, Bytes: 98},
	{Type: IQ1S, Name: "IQ1_S", Block: 256, Bytes: 50},
	{Type: IQ4NL, Name: "IQ4_NL", Block: 32, Bytes: 18},
	{Type: IQ3S, Name: "IQ3_S", Block: 256, Bytes: 110},
	{Type: IQ2S, Name: "IQ2_S", Block: 256, Bytes: 82},
	{Type: IQ4XS, Name: "IQ4_XS", Block: 256, Bytes: 136},
	{Type: I8, Name: "I8", Block: 1, Bytes: 1},
	{Type: I16, Name: "I16", Block: 1, Bytes: 2},
	{Type: I32, Name: "I32", Block: 1, Bytes: 4},
	{Type: I64, Name: "I64", Block: 1, Bytes: 8},
	{Type: F64, Name: "F64", Block: 1, Bytes: 8},
	{Type: IQ1M, Name: "IQ1_M", Block: 256, Bytes: 56},
	{Type: BF16, Name: "BF16", Block: 1, Bytes: 2},
	{Type: TQ1_0, Name: "TQ1_0", Block: 256, Bytes: 54},
	{Type: TQ2_0, Name: "TQ2_0", Block: 256, Bytes: 66},
	{Type: MXFP4, Name: "MXFP4", Block: 32, Bytes: 17},
	{Type: NVFP4, Name: "NVFP4", Block: 64, Bytes: 36},
	{Type: Q1_0, Name: "Q1_0", Block: 128, Bytes: 18},
	{Type: Q2_0, Name: "Q2_0", Block: 64, Bytes: 18},
	{Type: PQ2_0, Name: "PQ2_0", Block: 128, Bytes: 34},
	{Type: PTQ1_0, Name: "PTQ1_0", Block: 128, Bytes: 28},
	{Type: NVFP4Rows, Name: "nvfp4", Block: 256, Bytes: 148},
	{Type: FP8Rows, Name: "fp8", Block: 256, Bytes: 260},
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
