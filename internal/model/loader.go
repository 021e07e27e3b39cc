package model

import (
	"fmt"

	"splash/planner"
)

// A loader builds the parts of a network. It keeps the first error, after which it only returns zero values.
type loader struct {
	backend Backend
	weights planner.Weights
	plan    *planner.Plan
	layout  *planner.Layout
	err     error

	blocks [][]Buffer // what the blocks of each kind work in
}

func (l *loader) matrix(format string, args ...any) Matrix {
	return load(l, l.backend.LoadMatrix, fmt.Sprintf(format, args...))
}

func (l *loader) experts(format string, args ...any) Experts {
	return load(l, l.backend.LoadExperts, fmt.Sprintf(format, args...))
}

func (l *loader) vector(format string, args ...any) Vector {
	return load(l, l.backend.LoadVector, fmt.Sprintf(format, args...))
}

func load[H ~int32](l *loader, get func(planner.Weights, *planner.Tensor) (H, error), name string) H {
	return loadTensor(l, get, l.plan.Tensor(name), name)
}

// loadTensor loads the tensor that a plan has under the name; nil is none.
func loadTensor[H ~int32](l *loader, get func(planner.Weights, *planner.Tensor) (H, error), t *planner.Tensor, name string) H {
	if t == nil && l.err == nil {
		l.err = fmt.Errorf("model: the plan has no tensor %s", name)
	}
	if l.err != nil {
		return -1
	}
	h, err := get(l.weights, t)
	if err != nil {
		l.err = fmt.Errorf("load %s: %w", name, err)
	}
	return h
}

func (l *loader) buffer(width int, d Domain) Buffer {
	if l.err != nil {
		return -1
	}
	b, err := l.backend.Buffer(width, d)
	if err != nil {
		l.err = fmt.Errorf("model: a buffer %d wide: %w", width, err)
	}
	return b
}

// block begins the buffers of another kind of block, of which one runs after another.
func (l *loader) block() { l.blocks = append(l.blocks, nil) }

// scratch is a buffer of the kind of block that was begun last: it holds nothing for the blocks after it.
func (l *loader) scratch(width int) Buffer {
	b := l.buffer(width, AllRows)
	last := &l.blocks[len(l.blocks)-1]
	*last = append(*last, b)
	return b
}

// share lets the blocks share their memory.
func (l *loader) share() {
	if s, ok := l.backend.(Sharer); ok && l.err == nil {
		s.Share(l.blocks)
	}
}

// head is the output projection; a tied model without one uses its token table.
func (l *loader) head(table Matrix) Matrix {
	if l.layout.Tied && l.plan.Tensor("output.weight") == nil {
		return table
	}
	return l.matrix("output.weight")
}

func (l *loader) taps(layers []int) []tap {
	taps := make([]tap, len(layers))
	for i, layer := range layers {
		if layer < 0 || layer >= l.layout.Layers {
			l.err = fmt.Errorf("model: tap of layer %d; the target has %d", layer, l.layout.Layers)
			return nil
		}
		taps[i] = tap{layer, l.buffer(l.layout.Hidden, AllRows)}
	}
	return taps
}
