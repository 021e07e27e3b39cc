package planner

import (
	"fmt"

	"splash/dequant"
	"splash/internal/gguf"
)

// OpenGGUF gives the plan's tensors from its file, in place. The plan must be that of the file's header.
func OpenGGUF(f *gguf.File, p *Plan) Weights { return &ggufWeights{f} }

type ggufWeights struct{ file *gguf.File }

// Matrices returns the tensor's matrix, or one an expert.
func (w *ggufWeights) Matrices(t *Tensor) ([]dequant.Matrix, error) {
	if len(t.Source) != 1 {
		return nil, fmt.Errorf("%s: the plan reads %d tensors, a GGUF's is one", t.Name, len(t.Source))
	}
	piece := &t.Source[0]
	m, err := w.file.Matrix(piece.Name)
	if err != nil {
		return nil, err
	}
	if t.Rows > 1 && t.Cols != m.Cols || t.Rows*t.Cols*max(t.Experts, 1) > m.Rows*m.Cols {
		return nil, fmt.Errorf("%s: %s has %d rows of %d, the plan is another file's", w.file.Name, piece.Name, m.Rows, m.Cols)
	}
	if t.Experts == 0 {
		m.Rows, m.Cols = t.Rows, t.Cols
		return []dequant.Matrix{m}, nil
	}
	stride, width := piece.Stride, piece.Width
	if stride == 0 {
		stride, width = t.Rows, t.Rows
	}
	all := make([]dequant.Matrix, t.Experts)
	for e := range all {
		all[e] = m.Slice(piece.First+e*stride, width)
	}
	return all, nil
}
