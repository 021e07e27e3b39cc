package engine

import (
	"splash/internal/model"
	"splash/oracle"
)

// A Proposer drafts what the target may say next. The engine calls it from one goroutine.
type Proposer interface {
	// Propose drafts a block for each lane. Lanes stay as they are.
	Propose(lanes []DraftLane) error
	// Commit makes the draft's context of the rows the target has kept of its last pass: p is a model.ContextPass.
	Commit(p *model.Pass) error
}

// A DraftLane is a lane that a block is drafted for.
type DraftLane = model.DraftLane

// A Walk is how a greedy lane's proposals are chosen.
type Walk int

const (
	GreedyWalk    Walk = iota // the best score at each position
	LookAheadWalk             // the largest expected number of accepted proposals
)

// NewProposer returns the proposer of a DFlash2 draft.
func NewProposer(d *model.Draft, source model.DraftSource, w Walk) (Proposer, error) {
	selector, err := source.Selector()
	if err != nil {
		return nil, err
	}
	return &drafter{
		draft: d, selector: newSelector(selector, candidates), mask: source.Sizes.Mask, lookAhead: w == LookAheadWalk,
		lattice: oracle.NewLattice(oracle.Proposals, candidates),
		block:   model.Pass{Kind: model.DraftPass},
	}, nil
}

// candidates is the number of candidates a position's proposal is chosen from.
const candidates = 16

type drafter struct {
	draft     *model.Draft
	selector  *selector
	mask      int32
	lookAhead bool

	block   model.Pass
	tokens  []int32
	lattice *oracle.Lattice
	logits  []float64
	state   []float64
}

func (d *drafter) Commit(p *model.Pass) error { return d.draft.Commit(p) }

func (d *drafter) Propose(lanes []DraftLane) error {
	d.fill(lanes)
	if d.draft.Chooses() && !d.lookAhead {
		return d.draft.Propose(&d.block, lanes)
	}
	if err := d.draft.Block(&d.block); err != nil {
		return err
	}
	for i := range lanes {
		l, first := &lanes[i], i*oracle.Proposals
		if d.lookAhead && l.Temperature == 0 {
			*l.Walk = d.ahead(l.Anchor, first)
		} else {
			d.selector.walk(l, d.draft, first)
		}
	}
	return nil
}

// ahead is the look-ahead walk, which needs the whole lattice.
func (d *drafter) ahead(anchor int32, first int) oracle.Walk {
	for j := range oracle.Proposals {
		d.logits = widen(d.logits, d.draft.Logits(first+j))
		d.state = widen(d.state, d.draft.State(first+j))
		d.lattice.Fill(&d.selector.Selector, j, anchor, d.logits, d.state)
	}
	w, _ := d.lattice.LookAhead()
	return w
}

// fill makes the block pass: a segment a lane, of the anchor and mask tokens.
func (d *drafter) fill(lanes []DraftLane) {
	d.tokens, d.block.Segments = d.tokens[:0], d.block.Segments[:0]
	for i := range lanes {
		d.tokens = append(d.tokens, lanes[i].Anchor)
		for range oracle.Proposals {
			d.tokens = append(d.tokens, d.mask)
		}
	}
	for i := range lanes {
		d.block.Segments = append(d.block.Segments, model.Segment{
			Lane: lanes[i].Lane, Tokens: d.tokens[i*oracle.CycleRows : (i+1)*oracle.CycleRows], Outputs: oracle.Proposals,
		})
	}
}

func widen(dst []float64, x []float32) []float64 {
	dst = dst[:0]
	for _, v := range x {
		dst = append(dst, float64(v))
	}
	return dst
}
