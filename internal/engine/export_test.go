package engine

import (
	"context"

	"splash/internal/model"
)

// A Stepper is an engine whose cycles a test runs one by one.
type Stepper struct{ *Engine }

// NewStepper returns an engine that only Step moves.
func NewStepper(net model.Network, o Options) Stepper { return Stepper{newEngine(net, o)} }

// Add adds a request that has room for its tokens.
func (s Stepper) Add(r Request, limit int) {
	stream := newStream(context.Background(), r, limit)
	stream.tokens = make([]int32, 0, limit)
	s.waiting = append(s.waiting, stream)
}

// Step runs one cycle.
func (s Stepper) Step() {
	s.admit()
	s.step()
}
