package reference

import (
	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// Route chooses each row's experts.
func (b *Backend) Route(routes, logits model.Buffer, m *planner.MoELayout) {
	router := oracle.Router{Sigmoid: m.Sigmoid, Normalize: m.Normalize, Scale: m.Scale}
	b.each(routes, func(i int) {
		out := b.row(routes, i)
		experts, weights := make([]int, m.Taken), out[m.Taken:]
		router.Route(experts, weights, b.row(logits, i))
		for j, e := range experts {
			out[j] = float64(e)
			if !b.rows[i].routed {
				out[j] = -1
			}
		}
	})
}

// Experts sums the outputs of each row's experts. Rows of one expert are multiplied together, and added up in the order
// of each row's routes.
func (b *Backend) Experts(dst, x, routes model.Buffer, gate, up, down model.Experts, e model.Epilogue) {
	taken := b.buffers[routes].width / 2
	results := make([][]float64, len(b.rows)*taken)
	for expert := range b.experts[gate] {
		var slots []int
		var inputs [][]float64
		for i := range b.rows {
			for j, id := range b.row(routes, i)[:taken] {
				if int(id) == expert {
					slots = append(slots, i*taken+j)
					inputs = append(inputs, b.row(x, i))
				}
			}
		}
		if slots != nil {
			for i, y := range b.swiGLU(inputs, b.experts[gate][expert], b.experts[up][expert], b.experts[down][expert]) {
				results[slots[i]] = y
			}
		}
	}
	b.each(dst, func(i int) {
		out, weights := b.row(dst, i), b.row(routes, i)[taken:]
		if e == model.Store {
			clear(out)
		}
		for j := range taken {
			for c, v := range results[i*taken+j] {
				out[c] += weights[j] * v
			}
		}
	})
}

func (b *Backend) swiGLU(inputs [][]float64, gate, up, down *matrix) [][]float64 {
	wide, out := rowsOf(len(inputs), gate.rows), rowsOf(len(inputs), down.rows)
	b.multiply(gate, inputs, func(r, i int, v float64) { wide[i][r] = oracle.SiLU(v) })
	b.multiply(up, inputs, func(r, i int, v float64) { wide[i][r] *= v })
	b.multiply(down, wide, func(r, i int, v float64) { out[i][r] = v })
	return out
}

func rowsOf(n, width int) [][]float64 {
	data, rows := make([]float64, n*width), make([][]float64, n)
	for i := range rows {
		rows[i] = data[i*width : (i+1)*width]
	}
	return rows
}

// AddGated adds the shared expert's output.
func (b *Backend) AddGated(dst, y, x model.Buffer, gate model.Vector) {
	var inp []float64
	if gate != model.None {
		inp = b.vectors[gate]
	}
	b.each(dst, func(i int) {
		if b.rows[i].routed {
			oracle.AddGated(b.row(dst, i), b.row(y, i), b.row(x, i), inp)
		}
	})
}
