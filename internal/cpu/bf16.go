package cpu

// bf16Kernels are products of BF16 weights as they are stored and activations in bfloat16 numbers, of which terms make a
// value. Rows are taken in groups of up to tileRows.
type bf16Kernels struct {
	terms int
	// exact says that no bit of an activation is lost.
	exact bool
	// split writes a group of rows of cols values, stride apart in x, in the form that product reads.
	split func(dst []uint16, x []float32, stride, rows, cols int)
	// product writes the products of rows of weights and all rows of an input to acc, [input rows][lanes].
	product func(w *worker, acc []float32, weights []byte, rows int, in *input)
}

// multipliesBF16 reports whether the level takes the activations beside m in bfloat16 numbers.
func (k *kernels) multipliesBF16(m *matrix) bool {
	return k.bf16 != nil && m.floats == storedBF16 && m.cols%unit == 0 && (k.bf16.exact || !m.exact)
}

// bf16Product writes the products of rows of a matrix and all rows of an input to acc, [input rows][lanes].
func (b *Backend) bf16Product(w *worker, acc []float32, m *matrix, in *input, row, rows int) {
	n := m.stored.Format.RowBytes(m.cols)
	b.k.bf16.product(w, acc, m.stored.Data[row*n:(row+rows)*n], rows, in)
}

// groupsOf is the number of groups of tileRows rows.
func groupsOf(rows int) int { return (rows + tileRows - 1) / tileRows }
