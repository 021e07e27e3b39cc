package model

import (
	"errors"

	"splash/oracle"
	"splash/planner"
)

// A Chooser is a backend that chooses tokens where the logits are, which stay there: a draft's proposals, and its target's
// tokens. It does so by the rules of package oracle (selector.go, sampling.go, accept.go), ties and draws included, in F32.
// Without it whoever runs a network reads logits and chooses.
type Chooser interface {
	// LoadSelector loads a draft's selector of candidates: the codebooks of predecessors and successors. It comes before Propose.
	LoadSelector(w planner.Weights, before, after *planner.Tensor) error

	// Propose ends a DraftPass as End does, and chooses the proposals of its segments, which lanes has in their order, each of
	// oracle.Proposals output rows: from their logits and selector states.
	Propose(logits, state Buffer, lanes []DraftLane) error

	// Choose ends a TargetPass as End does, and chooses tokens from the logits of its output rows. Penalties and masks may change
	// the logits of rows that tokens are chosen from.
	Choose(logits Buffer, choices []Choice) error
}

// A DraftLane is a lane that a block is drafted for.
type DraftLane struct {
	Lane        Lane
	Anchor      int32
	Temperature float64                // 0: the greedy walk
	Uniforms    *[oracle.Draws]float64 // of the cycle

	Walk       *oracle.Walk // receives the proposals
	Candidates *[]int32     // receives the candidates that a sampled walk drew from, position after position
}

// An Occurrence is a token that occurred in a prompt or its output, and how often it was put out.
type Occurrence struct{ Token, Count int32 }

// A Choice says how a lane's tokens are chosen, and receives them. Its rows follow each other among a pass's output rows:
// the first is of the lane's last token, each further one of a proposal more.
type Choice struct {
	First, Rows int
	Left        int // tokens that may still be put out, at least 1
	Policy      *oracle.Policy
	Occurred    []Occurrence           // before the first row, none twice; where the policy has penalties
	Uniforms    *[oracle.Draws]float64 // of the cycle, or of a first token in the place of the correction; nil where greedy
	Stops       []int32                // tokens that end what is retained

	// Masks writes the tokens that may come at each row to rows, one row after the other: bit t%64 of word t/64 for token t. It
	// is called while the pass runs. Where it returns false nothing is chosen for the lane. nil: every token may come.
	Masks func(rows []uint64) bool

	Walk       *oracle.Walk // the proposals; not looked at for one row
	Candidates []int32      // that a sampled walk drew from

	Chosen   bool    // whether tokens were chosen
	Tokens   []int32 // the accepted proposals and the target's own token after them; oracle.NoToken where no logit is a finite number
	Accepted int     // proposals
	Retained int     // of Tokens
}

// Penalized reports whether the choice's policy has penalties.
func (c *Choice) Penalized() bool {
	p := c.Policy
	return p.Repetition != 0 && p.Repetition != 1 || p.Presence != 0 || p.Frequency != 0
}

// end ends a target's pass, whose logits are given; tokens are chosen where it asks for that.
func end(b Backend, p *Pass, logits Buffer) error {
	if len(p.Choices) == 0 {
		return b.End()
	}
	c, ok := b.(Chooser)
	if !ok {
		return errors.New("model: tokens are to be chosen by a backend that does not choose")
	}
	return c.Choose(logits, p.Choices)
}
