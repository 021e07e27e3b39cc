package target

import (
	"context"

	"splash/dequant"
	"splash/planner"
)

// A meter tells how far loading is, by the bytes of the tensors that a backend has asked for.
type meter struct {
	ctx         context.Context
	done, total int64
	report      func(done, total int64) // may be nil
}

// count adds the bytes of the tensors to the total.
func (m *meter) count(w planner.Weights, tensors []planner.Tensor) error {
	for i := range tensors {
		all, err := w.Matrices(&tensors[i])
		if err != nil {
			return err
		}
		m.total += size(all)
	}
	return nil
}

func size(all []dequant.Matrix) int64 {
	var n int64
	for i := range all {
		n += int64(len(all[i].Data) + len(all[i].Scales) + len(all[i].Biases))
	}
	return n
}

// metered are weights whose every use the meter sees. They end with the meter's context.
type metered struct {
	planner.Weights
	m *meter
}

func (w metered) Matrices(t *planner.Tensor) ([]dequant.Matrix, error) {
	if err := w.m.ctx.Err(); err != nil {
		return nil, err
	}
	all, err := w.Weights.Matrices(t)
	if err == nil && w.m.report != nil {
		w.m.done = min(w.m.done+size(all), w.m.total)
		w.m.report(w.m.done, w.m.total)
	}
	return all, err
}
