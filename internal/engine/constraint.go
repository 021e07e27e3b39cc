package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// A Constraint says which tokens may come next in a request's output, such as a grammar does. The engine calls it from one
// goroutine. Neither call may keep the row.
type Constraint interface {
	// Allowed writes the tokens that may come next to row: bit t%64 of word t/64 for token t.
	Allowed(row []uint64) error
	// Accept goes on by a token that was allowed.
	Accept(token int32) error
}

// A BlockConstraint also says what a drafted block's rows allow before the target has run them. Where it cannot, the tokens of
// the cycle are chosen from logits that are read, a row after another.
type BlockConstraint interface {
	Constraint
	// Rows writes the tokens that may come next, and those that may come after each of the proposals in turn, to rows, which has a
	// row of words for each, one after the other. The output stays where it is. Rows after a proposal that is not allowed may be
	// anything.
	Rows(rows []uint64, proposals []int32) (allowed int, err error)
}

// masksOf are a choice's masks: those of the proposals that it follows.
func (s *Stream) masksOf(c BlockConstraint) func(rows []uint64) bool {
	return func(rows []uint64) bool {
		_, err := c.Rows(rows, s.ahead)
		return err == nil
	}
}

// ErrNothingAllowed is the error of a request whose constraint leaves no token.
var ErrNothingAllowed = errors.New("engine: the output's grammar allows no token")

// restrict is a copy of the logits without the tokens that the stream's constraint does not allow. Proposals that it
// forbids have no probability, so they are refused; rows after them are not looked at.
func (p *sampler) restrict(s *Stream, logits []float32) ([]float32, error) {
	if err := p.allow(s, len(logits)); err != nil {
		return nil, err
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

// allow takes the tokens that the stream's constraint allows next.
func (p *sampler) allow(s *Stream, vocab int) error {
	words := (vocab + 63) / 64
	if cap(p.allowed) < words {
		p.allowed = make([]uint64, words)
	}
	p.allowed = p.allowed[:words]
	clear(p.allowed)
	if err := s.request.Constraint.Allowed(p.allowed); err != nil {
		return fmt.Errorf("engine: the output's grammar: %w", err)
	}
	return nil
}

// nothing is why no token of a row could be chosen.
func (p *sampler) nothing(s *Stream, vocab int) error {
	if s.request.Constraint != nil {
		if err := p.allow(s, vocab); err != nil {
			return err
		}
		if !slices.ContainsFunc(p.allowed, func(w uint64) bool { return w != 0 }) {
			return ErrNothingAllowed
		}
	}
	return ErrNotFinite
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
