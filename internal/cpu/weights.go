package cpu

import (
	"fmt"

	"splash/dequant"
	"splash/internal/model"
	"splash/planner"
)

// A matrix is a projection or a table as stored, rows and columns in the file's order.
type matrix struct {
	stored     dequant.Matrix
	rows, cols int
	rowOrder   *planner.HeadOrder
	colOrder   *planner.HeadOrder
	signs      []float32 // of a rotated input; nil: unrotated

	blocks *blockFormat // of weights in blocks of small integers; nil: the product is one of float32 values
	exact  bool         // activations are not rounded beside them
	floats floatKind    // of the float32 product's weights
	bf16   bool         // activations are bfloat16 numbers beside them
}

// A floatKind says how the weights of a float32 product are stored.
type floatKind int

const (
	decodedRows floatKind = iota // a row is decoded before it is multiplied
	storedF32
	storedF16
	storedBF16
)

// LoadMatrix loads a projection or a table.
func (b *Backend) LoadMatrix(w planner.Weights, t *planner.Tensor) (model.Matrix, error) {
	stored, err := w.Matrices(t)
	if err != nil {
		return 0, err
	}
	if len(stored) != 1 {
		return 0, fmt.Errorf("cpu: %s is %d matrices", t.Name, len(stored))
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
		return 0, fmt.Errorf("cpu: %s has %d experts of %d", t.Name, len(stored), t.Experts)
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
		return nil, fmt.Errorf("cpu: %s is %d x %d, planned %d x %d", t.Name, stored.Rows, stored.Cols, t.Rows, t.Cols)
	}
	if err := stored.Check(); err != nil {
		return nil, fmt.Errorf("cpu: %s: %w", t.Name, err)
	}
	if len(t.Signs) != 0 && len(t.Signs) != t.Cols {
		return nil, fmt.Errorf("cpu: %s has %d signs for %d columns", t.Name, len(t.Signs), t.Cols)
	}
	if t.Conversion == planner.ToQ8_0 || t.Conversion == planner.ToAffine4 {
		var err error
		if stored, err = requantize(t, stored); err != nil {
			return nil, err
		}
	}
	m := &matrix{stored: stored, rows: t.Rows, cols: t.Cols, rowOrder: t.RowOrder, colOrder: t.ColOrder}
	for _, s := range t.Signs {
		m.signs = append(m.signs, float32(s))
	}
	m.floats = floatsOf(&stored)
	m.exact = b.exact || precise(t.Role)
	m.bf16 = b.k.multipliesBF16(m)
	if m.blocks = blocksOf(&stored); m.blocks != nil {
		b.k.form(m.blocks, &stored)
	}
	if m.exact && b.k.exact == nil {
		m.blocks = nil
	}
	return m, nil
}

// precise reports whether a role's products decide something, an expert, a decay, a block of keys, and so keep their
// inputs as they are.
func precise(r planner.Role) bool {
	switch r {
	case planner.Router, planner.AlphaBeta, planner.Indexer, planner.Injection:
		return true
	}
	return false
}

func floatsOf(m *dequant.Matrix) floatKind {
	switch m.Format.Type {
	case dequant.F32:
		return storedF32
	case dequant.F16:
		return storedF16
	case dequant.BF16:
		return storedBF16
	}
	return decodedRows
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

// gather writes row i of the network's order to dst, unrotated. A rotated table holds H (D e): the transform, then the
// signs, give e. scratch has room for a row.
func (m *matrix) gather(dst []float32, i int, scratch []float32) {
	i = m.rowOrder.Source(i)
	if m.colOrder == nil {
		m.stored.DecodeRow(dst[:m.cols], i)
	} else {
		m.stored.DecodeRow(scratch[:m.cols], i)
		for j := range dst {
			dst[j] = scratch[m.colOrder.Source(j)]
		}
	}
	if m.signs != nil {
		hadamard(dst)
		for j, s := range m.signs {
			dst[j] *= s
		}
	}
}

// LoadVector loads a small tensor as the F32 values it holds.
func (b *Backend) LoadVector(w planner.Weights, t *planner.Tensor) (model.Vector, error) {
	stored, err := w.Matrices(t)
	if err != nil {
		return 0, err
	}
	n, cols := 0, 0
	for i := range stored {
		n, cols = n+stored[i].Rows*stored[i].Cols, max(cols, stored[i].Cols)
	}
	v, values := floats(n)[:0], make([]float32, cols)
	for i := range stored {
		row := values[:stored[i].Cols]
		for r := range stored[i].Rows {
			stored[i].DecodeRow(row, t.RowOrder.Source(r))
			for c := range row {
				v = append(v, t.Conversion.Of(row[t.ColOrder.Source(c)]))
			}
		}
	}
	b.vectors = append(b.vectors, v)
	return model.Vector(len(b.vectors) - 1), nil
}
