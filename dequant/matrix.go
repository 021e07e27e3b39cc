package dequant

import (
	"fmt"
	"math"
)

// A Matrix is a weight as stored: Rows outputs of Cols inputs. It refers to the bytes of its container and owns none.
//
// Data holds native blocks of Format, row after row. Where Scales is set, and in FP8Rows where Global is set, it holds
// the codes alone, as containers do that keep scales apart:
//
//   - an affine format: MLX's bit strings, Scales and Biases one BF16 a group each;
//   - MXFP4: MLX's codes, element e in bits 4(e%2) of byte e/2, and Scales one E8M0 byte for 32 elements;
//   - NVFP4Rows: codes in that same order, Scales one E4M3 byte for 16 elements;
//   - FP8Rows: E4M3 values, a byte each, and no Scales.
type Matrix struct {
	Format     *Format
	Rows, Cols int
	Data       []byte
	Scales     []byte
	Biases     []byte

	// Global is the scale g of NVFP4 and FP8 weights: nil for 1, one value, or one for each equal share of the rows
	// (experts, channels). FP8 values without native blocks always have one. Compressed-tensors stores the divisor of
	// an NVFP4 weight: see Reciprocal.
	Global []float32
}

// DecodeRow writes the F32 values of a row to dst, which must hold Cols elements. It does not allocate. A matrix that
// fails Check may make it panic.
func (m *Matrix) DecodeRow(dst []float32, row int) {
	if row < 0 || row >= m.Rows || len(dst) != m.Cols {
		panic(fmt.Sprintf("dequant: row %d in %d elements of a %d x %d matrix", row, len(dst), m.Rows, m.Cols))
	}
	data := rowOf(m.Data, row, m.rowBytes())
	switch {
	case m.isApart():
		scales, biases := m.scaleRow(row)
		m.Format.apart.decode(dst, data, scales, biases, m.global(row))
	case m.Global != nil:
		m.Format.scaled(dst, data, m.global(row))
	default:
		m.Format.Decode(dst, data)
	}
}

// Slice returns rows of m from row on: an expert of a stacked tensor, a segment of a fused one.
func (m *Matrix) Slice(row, rows int) Matrix {
	s := *m
	s.Rows = rows
	s.Data = rowsOf(m.Data, row, rows, m.rowBytes())
	if m.isApart() {
		groups := m.Cols / m.Format.apart.group
		s.Scales = rowsOf(m.Scales, row, rows, groups*m.Format.apart.scaleBytes)
		s.Biases = rowsOf(m.Biases, row, rows, groups*m.Format.apart.biasBytes)
	}
	if len(m.Global) > 1 && rows > 0 {
		s.Global = m.sliceGlobal(row, rows)
	}
	return s
}

// sliceGlobal is the scales of a run of rows. Only a run that cuts the shares of several scales unevenly needs values
// of its own.
func (m *Matrix) sliceGlobal(row, rows int) []float32 {
	share := m.Rows / len(m.Global)
	first, last := row/share, (row+rows-1)/share
	if first == last || row%share == 0 && rows%share == 0 {
		return m.Global[first : last+1]
	}
	step := gcd(gcd(share, row%share), rows)
	global := make([]float32, 0, rows/step)
	for r := row; r < row+rows; r += step {
		global = append(global, m.global(r))
	}
	return global
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// global is the tensor scale of a row.
func (m *Matrix) global(row int) float32 {
	switch n := len(m.Global); n {
	case 0:
		return 1
	case 1:
		return m.Global[0]
	default:
		return m.Global[row/(m.Rows/n)]
	}
}

// isApart reports whether Data holds codes alone.
func (m *Matrix) isApart() bool {
	return m.Scales != nil || m.Format.Type == FP8Rows && m.Global != nil
}

// rowBytes is the size of a row of Data.
func (m *Matrix) rowBytes() int {
	if m.isApart() {
		return m.Cols * m.Format.apart.bits / 8
	}
	return m.Format.RowBytes(m.Cols)
}

// scaleRow is the scales and biases of a row of codes.
func (m *Matrix) scaleRow(row int) (scales, biases []byte) {
	a := m.Format.apart
	groups := m.Cols / a.group
	return rowOf(m.Scales, row, groups*a.scaleBytes), rowOf(m.Biases, row, groups*a.biasBytes)
}

func rowOf(b []byte, row, n int) []byte { return b[row*n:][:n:n] }

func rowsOf(b []byte, row, rows, n int) []byte { return b[row*n:][: rows*n : rows*n] }

// Check reports what makes m unreadable: columns that are not whole blocks, bytes that do not agree with the shape, or
// a tensor scale that is misplaced or not finite. DecodeRow and Slice work on a matrix that passes.
func (m *Matrix) Check() error {
	switch f := m.Format; {
	case f == nil || !f.Decodes():
		return fmt.Errorf("%v cannot be decoded", m.Format)
	case m.Rows <= 0 || m.Cols <= 0 || m.Cols > math.MaxInt/16:
		return fmt.Errorf("a matrix of %d rows and %d columns", m.Rows, m.Cols)
	case m.Scales != nil && f.apart == nil:
		return fmt.Errorf("scales beside %s, which holds its own", f)
	}
	if err := m.checkBytes(); err != nil {
		return err
	}
	return m.checkGlobal()
}

func (m *Matrix) checkBytes() error {
	a := m.Format.apart
	if !m.isApart() {
		if m.Cols%m.Format.Block != 0 {
			return fmt.Errorf("rows of %d columns are not whole %s blocks of %d elements", m.Cols, m.Format, m.Format.Block)
		}
		return m.checkSize("blocks", m.Data, m.rowBytes())
	}
	if m.Cols%a.group != 0 || m.Cols*a.bits%8 != 0 {
		return fmt.Errorf("rows of %d columns are not whole %s groups of %d elements", m.Cols, m.Format, a.group)
	}
	groups := m.Cols / a.group
	if err := m.checkSize("codes", m.Data, m.rowBytes()); err != nil {
		return err
	}
	if err := m.checkSize("scales", m.Scales, groups*a.scaleBytes); err != nil {
		return err
	}
	return m.checkSize("biases", m.Biases, groups*a.biasBytes)
}

// checkSize holds b to Rows rows of n bytes.
func (m *Matrix) checkSize(what string, b []byte, n int) error {
	if n == 0 && len(b) == 0 || n > 0 && len(b)%n == 0 && len(b)/n == m.Rows {
		return nil
	}
	return fmt.Errorf("%d bytes of %s %s, expected %d rows of %d", len(b), m.Format, what, m.Rows, n)
}

func (m *Matrix) checkGlobal() error {
	if m.Global == nil {
		return nil
	}
	f := m.Format
	switch {
	case m.isApart() && !f.apart.global, !m.isApart() && f.scaled == nil:
		return fmt.Errorf("a tensor scale beside %s", f)
	case len(m.Global) == 0 || m.Rows%len(m.Global) != 0:
		return fmt.Errorf("%d tensor scales for %d rows", len(m.Global), m.Rows)
	}
	for i, g := range m.Global {
		if !finite(g) {
			return fmt.Errorf("non-finite tensor scale %v (value %d)", g, i)
		}
	}
	return nil
}

// Reciprocal is the scale g = rn32(1/divisor) of a compressed-tensors NVFP4 weight, whose weight_global_scale divides.
// Divisors that leave no finite scale, 0 among them, and divisors that are not finite are refused.
func Reciprocal(divisor float32) (float32, error) {
	g := 1 / divisor
	if !finite(divisor) || !finite(g) {
		return 0, fmt.Errorf("a global scale of %v divides to no finite scale", divisor)
	}
	return g, nil
}

func finite(x float32) bool { return x-x == 0 }
