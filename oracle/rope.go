package oracle

import "math"

// A Position is a token's place for the rotary embedding: its time, height and width. Text tokens have all three equal.
type Position struct{ T, H, W int32 }

// TextPosition is the position of a text token at index t.
func TextPosition(t int) Position { return Position{int32(t), int32(t), int32(t)} }

// RopeFrequencies returns rn32(base^(-2i/dims)) for the dims/2 rotated pairs. They are F32 by definition: the angle of
// a pair is an F32 number in the reference implementations, and at long positions another number would be wrong.
func RopeFrequencies(base float64, dims int) []float32 {
	f := make([]float32, dims/2)
	for i := range f {
		f[i] = float32(math.Pow(base, -2*float64(i)/float64(dims)))
	}
	return f
}

// Rope rotates the first 2 len(freq) values of the head x in place, the rest is unchanged. Pair i is the elements i and
// i + len(freq) ("NEOX" pairing); its angle is rn32(float32(axis) * freq_i), axis = T, H, W for i mod 3 = 0, 1, 2, the
// interleaved sections 11, 11, 10 of the Qwen3.5 M-RoPE; cosine and sine are those of that F32 angle.
//
// Source: Su et al., RoFormer, 2021; interleaving as transformers' Qwen3.5 and llama.cpp's IMROPE.
func Rope(x []float64, p Position, freq []float32) {
	n := len(freq)
	for i, f := range freq {
		axis := p.T
		switch i % 3 {
		case 1:
			axis = p.H
		case 2:
			axis = p.W
		}
		sin, cos := math.Sincos(float64(float32(axis) * f))
		a, b := x[i], x[i+n]
		x[i] = a*cos - b*sin
		x[i+n] = b*cos + a*sin
	}
}
