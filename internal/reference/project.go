package reference

import (
	"splash/internal/model"
	"splash/oracle"
)

// Embed writes the table's row of each token, or its embedded values. A rotated table holds H (D e): the transform, then
// the signs, give e.
func (b *Backend) Embed(dst model.Buffer, table model.Matrix) {
	m := b.matrices[table]
	b.each(dst, func(i int) {
		if e := b.rows[i].embedded; e != nil {
			for j, v := range e {
				b.row(dst, i)[j] = float64(v)
			}
			return
		}
		m.gather(b.row(dst, i), int(b.rows[i].token))
	})
}

func (m *matrix) gather(dst []float64, i int) {
	m.Row(dst, i)
	if m.signs != nil {
		oracle.Hadamard(dst)
		for j, s := range m.signs {
			dst[j] *= s
		}
	}
}

// Outputs gathers the rows whose logits are wanted.
func (b *Backend) Outputs(dst, x model.Buffer) {
	for i, r := range b.outputs {
		copy(b.row(dst, i), b.row(x, r))
	}
}

// Copy copies a buffer.
func (b *Backend) Copy(dst, x model.Buffer) {
	copy(b.all(dst), b.all(x))
}

// all is every row of a buffer.
func (b *Backend) all(h model.Buffer) []float64 {
	buf := &b.buffers[h]
	return buf.data[:b.count(buf)*buf.width]
}

// RMSNorm normalizes each row.
func (b *Backend) RMSNorm(dst, x model.Buffer, w model.Vector, eps float64, _ []model.Matrix) {
	b.each(x, func(i int) { oracle.RMSNorm(b.row(dst, i), b.row(x, i), b.vectors[w], eps) })
}

// Project multiplies each row by W.
func (b *Backend) Project(dst, x model.Buffer, w model.Matrix, e model.Epilogue) {
	m := b.matrices[w]
	b.project(m, x, func(r, i int, v float64) {
		if out := &b.row(dst, i)[r]; e == model.Add {
			*out += v
		} else {
			*out = v
		}
	})
}

// ProjectAll multiplies rows by each W.
func (b *Backend) ProjectAll(x model.Buffer, all []model.Projection) {
	for _, p := range all {
		b.Project(p.Dst, x, p.W, model.Store)
	}
}

// GateUp writes silu(gate x) * (up x).
func (b *Backend) GateUp(dst, x model.Buffer, gate, up model.Matrix, _ []model.Matrix) {
	b.project(b.matrices[gate], x, func(r, i int, v float64) { b.row(dst, i)[r] = oracle.SiLU(v) })
	b.project(b.matrices[up], x, func(r, i int, v float64) { b.row(dst, i)[r] *= v })
}

// project gives W x of every row i to put. Rows of weights are spread over the workers, each decoded once for all rows of
// the pass; every product is oracle.Dot.
func (b *Backend) project(m *matrix, x model.Buffer, put func(r, i int, v float64)) {
	rows := b.count(&b.buffers[x])
	inputs := make([][]float64, rows)
	for i := range inputs {
		inputs[i] = b.row(x, i)
	}
	b.multiply(m, inputs, put)
}

func (b *Backend) multiply(m *matrix, inputs [][]float64, put func(r, i int, v float64)) {
	if m.signs != nil {
		inputs = m.rotated(inputs)
	}
	scratch := make([][]float64, b.workers)
	b.parallel(m.rows, func(worker, r int) {
		if scratch[worker] == nil && m.decoded == nil {
			scratch[worker] = make([]float64, m.cols)
		}
		w := m.row(scratch[worker], r)
		for i, x := range inputs {
			put(r, i, oracle.Dot(w, x))
		}
	})
}

// rotated is H (D x) of each input.
func (m *matrix) rotated(inputs [][]float64) [][]float64 {
	out := make([][]float64, len(inputs))
	for i, x := range inputs {
		out[i] = make([]float64, len(x))
		for j, s := range m.signs {
			out[i][j] = x[j] * s
		}
		oracle.Hadamard(out[i])
	}
	return out
}
