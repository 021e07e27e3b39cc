package reference

import (
	"fmt"

	"splash/dequant"
	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// A matrix is a projection in the network's order: it decodes rows of the file, unless they are all kept decoded.
type matrix struct {
	stored     dequant.Matrix
	tensor     *planner.Tensor
	rows, cols int
	signs      []float64 // of a rotated input
	decoded    []float64 // all rows, or nil
}

// LoadMatrix loads a projection or a table.
func (b *Backend) LoadMatrix(w planner.Weights, t *planner.Tensor) (model.Matrix, error) {
	stored, err := w.Matrices(t)
	if err != nil {
		return 0, err
	}
	if len(stored) != 1 {
		return 0, fmt.Errorf("reference: %s is %d matrices", t.Name, len(stored))
	}
	m, err := b.newMatrix(t, stored[0])
	if err != nil {
		return 0, err
	}
	b.matrices = append(b.matrices, m)
	return model.Matrix(len(b.matrices) - 1), nil
}

// LoadExperts loads a projection of every expert.
func (b *Backend) LoadExperts(w planner.Weights, t *planner.Tensor) (model.Experts, error) {
	stored, err := w.Matrices(t)
	if err != nil {
		return 0, err
	}
	if len(stored) != t.Experts {
		return 0, fmt.Errorf("reference: %s has %d experts of %d", t.Name, len(stored), t.Experts)
	}
	experts := make([]*matrix, len(stored))
	for i := range stored {
		if experts[i], err = b.newMatrix(t, stored[i]); err != nil {
			return 0, err
		}
	}
	b.experts = append(b.experts, experts)
	return model.Experts(len(b.experts) - 1), nil
}

func (b *Backend) newMatrix(t *planner.Tensor, stored dequant.Matrix) (*matrix, error) {
	if stored.Rows != t.Rows || stored.Cols != t.Cols {
		return nil, fmt.Errorf("reference: %s is %d x %d, planned %d x %d", t.Name, stored.Rows, stored.Cols, t.Rows, t.Cols)
	}
	if t.Conversion == planner.ToQ8_0 || t.Conversion == planner.ToAffine4 {
		var err error
		if stored, err = requantize(t, stored); err != nil {
			return nil, err
		}
	}
	m := &matrix{stored: stored, tensor: t, rows: t.Rows, cols: t.Cols}
	for _, s := range t.Signs {
		m.signs = append(m.signs, float64(s))
	}
	// A table is gathered by few rows; only what is multiplied is worth keeping.
	size := int64(t.Rows) * int64(t.Cols)
	if t.Role != planner.TokenTable && size <= b.cache {
		b.cache -= size
		m.decoded = make([]float64, size)
		b.parallel(m.rows, func(_, i int) { m.decode(m.decoded[i*m.cols:(i+1)*m.cols], i) })
	}
	return m, nil
}

// requantize rounds a matrix to the format that its tensor loads in.
func requantize(t *planner.Tensor, m dequant.Matrix) (dequant.Matrix, error) {
	format, quantize := dequant.Lookup(dequant.Q8_0), dequant.QuantizeQ8_0
	if t.Conversion == planner.ToAffine4 {
		format, quantize = dequant.Lookup(dequant.Affine(4, 64)), dequant.QuantizeAffine4
	}
	n := format.RowBytes(m.Cols)
	out := dequant.Matrix{Format: format, Rows: m.Rows, Cols: m.Cols, Data: make([]byte, m.Rows*n)}
	values := make([]float32, m.Cols)
	for i := range m.Rows {
		m.DecodeRow(values, i)
		if err := quantize(t.Name, out.Data[i*n:(i+1)*n], values); err != nil {
			return out, err
		}
	}
	return out, nil
}

// Dims returns the shape.
func (m *matrix) Dims() (rows, cols int) { return m.rows, m.cols }

// Row writes a row in the network's order.
func (m *matrix) Row(dst []float64, i int) {
	if m.decoded != nil {
		copy(dst, m.decoded[i*m.cols:(i+1)*m.cols])
		return
	}
	m.decode(dst, i)
}

func (m *matrix) decode(dst []float64, i int) {
	values := make([]float32, m.cols)
	m.stored.DecodeRow(values, m.tensor.RowOrder.Source(i))
	for j := range dst {
		dst[j] = float64(values[m.tensor.ColOrder.Source(j)])
	}
}

// row is row i; scratch has room for it.
func (m *matrix) row(scratch []float64, i int) []float64 {
	if m.decoded != nil {
		return m.decoded[i*m.cols : (i+1)*m.cols]
	}
	m.decode(scratch, i)
	return scratch
}

// LoadVector loads a small tensor as the F32 values it holds.
func (b *Backend) LoadVector(w planner.Weights, t *planner.Tensor) (model.Vector, error) {
	stored, err := w.Matrices(t)
	if err != nil {
		return 0, err
	}
	var v []float64
	for i := range stored {
		row := make([]float32, stored[i].Cols)
		for r := range stored[i].Rows {
			stored[i].DecodeRow(row, t.RowOrder.Source(r))
			for c := range row {
				v = append(v, float64(t.Conversion.Of(row[t.ColOrder.Source(c)])))
			}
		}
	}
	b.vectors = append(b.vectors, v)
	return model.Vector(len(b.vectors) - 1), nil
}

var _ oracle.Matrix = (*matrix)(nil)
