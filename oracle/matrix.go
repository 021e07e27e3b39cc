package oracle

// A Matrix is a weight [rows, cols] = [outputs, inputs] whose rows can be decoded.
type Matrix interface {
	// Dims returns the number of outputs and of inputs.
	Dims() (rows, cols int)
	// Row writes row i, the weights of output i, to dst, which has one element a column.
	Row(dst []float64, i int)
}

// Dense is a Matrix of row-major values.
type Dense struct {
	Rows, Cols int
	Values     []float64
}

// Dims returns the shape.
func (m Dense) Dims() (rows, cols int) { return m.Rows, m.Cols }

// Row copies row i to dst.
func (m Dense) Row(dst []float64, i int) { copy(dst, m.Values[i*m.Cols:(i+1)*m.Cols]) }

// MatVec writes W x to dst: dst_r = sum_c W[r][c] x_c, summed in column order.
func MatVec(dst []float64, w Matrix, x []float64) {
	rows, cols := w.Dims()
	row := make([]float64, cols)
	for r := range rows {
		w.Row(row, r)
		dst[r] = Dot(row, x)
	}
}

// Dot is the sum of a_i b_i. Four partial sums over the residues of i mod 4 are added as (s0 + s2) + (s1 + s3), so that
// the order, and with it the last bit, does not depend on the caller.
func Dot(a, b []float64) float64 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float64
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += a[i] * b[i]
		s1 += a[i+1] * b[i+1]
		s2 += a[i+2] * b[i+2]
		s3 += a[i+3] * b[i+3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return (s0 + s2) + (s1 + s3)
}
