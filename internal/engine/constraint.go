package engine

import (
	"errors"
	"fmt"
	"math"
)

// A Constraint says which tokens may come next in a request's output, such as a grammar does. The engine calls it from one
// goroutine. Neither call may keep the row.
type Constraint interface {
	// Allowed writes the tokens that may come next to row: bit t%64 of word t/64 for token t.
	Allowed(row []uint64) error
	// Accept goes on by a token that was allowed.
	Accept(token int32) error
}

// ErrNothingAllowed is the error of a request whose constraint leaves no token.
var ErrNothingAllowed = errors.New("engine: the output's grammar allows no token")

// restrict is a copy of the logits without the tokens that the stream's constraint does not allow. Proposals that it
// forbids have no probability, so they are refused; rows after them are not looked at.
func (p *sampler) restrict(s *Stream, logits []float32) ([]float32, error) {
	words := (len(logits) + 63) / 64
	if cap(p.allowed) < words {
		p.allowed = make([]uint64, words)
	}
	p.allowed = p.allowed[:words]
	clear(p.allowed)
	if err := s.request.Constraint.Allowed(p.allowed); err != nil {
		return nil, fmt.Errorf("engine: the output's grammar: %w", err)
	}
	if len(p.logits) == 0 || &p.logits[0] != &logits[0] { // penalize has copied them already
		p.logits = append(p.logits[:0], logits...)
	}
	none := true
	for t := range p.logits {
		if p.allowed[t/64]>>(t%64)&1 == 0 {
			p.logits[t] = float32(math.Inf(-1))
		} else {
			none = false
		}
	}
	if none {
		return nil, ErrNothingAllowed
	}
	return p.logits, nil
}

// constrained reports whether a cycle has a lane whose output is constrained: its cost is another's.
func (e *Engine) constrained() bool {
	for _, s := range e.drafted {
		if s.request.Constraint != nil {
			return true
		}
	}
	return false
}
