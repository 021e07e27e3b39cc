package dequant

import "fmt"

// A Matrix is a weight as stored: Rows outputs of Cols inputs. It refers to the bytes of its container and owns none.
//
// Data holds native blocks of Format, row after row. Where Scales is set, and in FP8Rows where Global is set, it holds
// the codes alone, as containers do that keep scales apart:
//
//   - an affine format: MLX's codes, Scales and Biases one BF16 a group each;
//   - MXFP4: MLX's codes (element e in bits 4(e%2) of byte e/2), Scales one E8M0 byte for 32 elements;
//   - NVFP4Rows: codes in that same order, Scales one E4M3 byte for 16 elements;
//   - FP8Rows: E4M3 values.
type Matrix struct {
	Format     *Format
	Rows, Cols int
	Data       []byte
	Scales     []byte
	Biases     []byte

	// Global is the scale g of NVFP4 and FP8 weights: nil for 1, one value, or one for each equal share of the rows
	// (experts, channels). The divisor that compressed-tensors stores must have become g = rn32(1/divisor).
	Global []float32
}

// DecodeRow writes the F32 values of a row to dst, which must hold Cols elements. It does not allocate.
func (m *Matrix) DecodeRow(dst []float32, row int) {
	if row < 0 || row >= m.Rows || len(dst) != m.Cols {
		panic(fmt.Sprintf("dequant: row %d in %d elements of a %d x %d matrix", row, len(dst), m.Rows, m.Cols))
	}
	n := m.Format.RowBytes(m.Cols)
	m.Format.Decode(dst, m.Data[row*n:][:n])
}
