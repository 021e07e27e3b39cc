package planner

import (
	"encoding/binary"
	"fmt"
	"math"

	"splash/dequant"
	"splash/internal/gguf"
	"splash/internal/safetensors"
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
		return nil, fmt.Errorf("%s: %s has %d rows of %d, the plan is another file's",
			w.file.Name, piece.Name, m.Rows, m.Cols)
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

// OpenSafetensors gives the plan's tensors from its checkpoint, in place. The plan must be that of the checkpoint.
func OpenSafetensors(c *safetensors.Checkpoint, p *Plan) Weights { return &shardWeights{c} }

type shardWeights struct{ c *safetensors.Checkpoint }

// Matrices returns the tensor's matrix, or one an expert.
func (w *shardWeights) Matrices(t *Tensor) ([]dequant.Matrix, error) {
	if len(t.Source) > 1 {
		all := make([]dequant.Matrix, len(t.Source))
		for i := range t.Source {
			m, err := w.matrix(t, &t.Source[i], t.Rows)
			if err != nil {
				return nil, err
			}
			all[i] = m
		}
		return all, nil
	}
	m, err := w.matrix(t, &t.Source[0], t.Rows*max(t.Experts, 1))
	if err != nil {
		return nil, err
	}
	if t.Experts == 0 {
		return []dequant.Matrix{m}, nil
	}
	all := make([]dequant.Matrix, t.Experts)
	for e := range all {
		all[e] = m.Slice(e*t.Rows, t.Rows)
	}
	return all, nil
}

// matrix is one piece as stored, its global scale read.
func (w *shardWeights) matrix(t *Tensor, piece *Piece, rows int) (m dequant.Matrix, err error) {
	m = dequant.Matrix{Format: dequant.Lookup(t.Type), Rows: rows, Cols: t.Cols}
	if m.Data, err = w.data(piece.Name); err != nil {
		return m, err
	}
	if piece.Scales != "" {
		if m.Scales, err = w.data(piece.Scales); err != nil {
			return m, err
		}
	}
	if piece.Biases != "" {
		if m.Biases, err = w.data(piece.Biases); err != nil {
			return m, err
		}
	}
	if piece.Global != "" {
		if m.Global, err = w.global(piece); err != nil {
			return m, err
		}
	}
	if err := m.Check(); err != nil {
		return m, fmt.Errorf("%s: %w", piece.Name, err)
	}
	return m, nil
}

func (w *shardWeights) data(name string) ([]byte, error) {
	t := w.c.Tensor(name)
	if t == nil {
		return nil, fmt.Errorf("%s is missing: the plan is another checkpoint's", name)
	}
	data := w.c.Data(t)
	if data == nil {
		return nil, fmt.Errorf("%s has no data: its header alone was read", name)
	}
	return data, nil
}

// global reads the tensor scale of a piece, or one of each row.
func (w *shardWeights) global(piece *Piece) ([]float32, error) {
	data, err := w.data(piece.Global)
	if err != nil {
		return nil, err
	}
	t := w.c.Tensor(piece.Global)
	values := make([]float32, t.Elements())
	for i := range values {
		v := float32(0)
		if t.DType == safetensors.BF16 {
			v = dequant.FromBF16(binary.LittleEndian.Uint16(data[2*i:]))
		} else {
			v = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
		if v-v != 0 {
			return nil, fmt.Errorf("%s is %v; a tensor scale is finite", piece.Global, v)
		}
		if piece.GlobalIsReciprocal {
			if v, err = dequant.Reciprocal(v); err != nil {
				return nil, fmt.Errorf("%s: %w", piece.Global, err)
			}
		}
		values[i] = v
	}
	return values, nil
}
