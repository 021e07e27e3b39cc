package engine

import (
	"fmt"
	"slices"
	"time"

	"splash/internal/model"
	"splash/oracle"
)

// Rows says which of a drafted block's rows the target verifies.
type Rows int

const (
	AllRows    Rows = iota // every row a lane may still keep
	BudgetRows             // those whose expected tokens are worth what they cost (draft.md 9)
)

// step runs one pass of the target: a cycle of the lanes that decode, each a block as far as it is verified, or a slice of
// the prompts of those that do not yet.
func (e *Engine) step() {
	e.grow()
	e.choose()
	began := e.o.Now()
	err := e.draft()
	if err == nil {
		e.build()
		if len(e.taken) == 0 {
			return
		}
		e.ask()
		err = e.guarded(func() error { return e.net.Forward(&e.pass) })
		e.stats.passes.Add(1)
	}
	if err != nil {
		e.fail(err)
		return
	}
	output := 0
	e.context.Segments = e.context.Segments[:0]
	for i, s := range e.taken {
		seg := &e.pass.Segments[i]
		kept := len(seg.Tokens)
		if seg.Outputs > 0 {
			kept = e.accept(s, output, len(seg.Tokens))
			output += seg.Outputs
		}
		if !s.finished {
			e.commit(s, seg, kept)
		}
	}
	if e.proposer != nil && len(e.context.Segments) > 0 {
		if err := e.guarded(func() error { return e.proposer.Commit(&e.context) }); err != nil {
			e.fail(err)
			return
		}
	}
	for _, s := range e.taken {
		if !s.finished && s.at <= len(s.prompt) {
			e.checkpoint(s)
		}
	}
	took := e.o.Now().Sub(began)
	e.settle(took)
	e.observe(took)
	e.compact()
	e.publish()
}

// draft starts a cycle for the lanes that decode: proposals, and how many rows of each are verified.
func (e *Engine) draft() error {
	e.drafting, e.drafted = e.drafting[:0], e.drafted[:0]
	for _, s := range e.active {
		if !s.decoding() || !e.schedule.takes(s) {
			continue
		}
		s.begin()
		if e.proposer != nil && s.limit-s.chosen > 1 {
			e.drafting = append(e.drafting, s.draftLane())
			e.drafted = append(e.drafted, s)
		}
	}
	if len(e.drafting) == 0 {
		return nil
	}
	if err := e.guarded(func() error { return e.proposer.Propose(e.drafting) }); err != nil {
		return err
	}
	e.rows, e.limits, e.confidence = e.rows[:0], e.limits[:0], e.confidence[:0]
	for _, s := range e.drafted {
		limit := min(oracle.CycleRows, s.limit-s.chosen)
		e.rows, e.limits = append(e.rows, limit), append(e.limits, limit)
		e.confidence = append(e.confidence, s.walk.Confidence)
	}
	if e.o.Rows == BudgetRows {
		e.budget.Choose(e.rows, e.confidence, e.limits, e.constrained())
	}
	for i, s := range e.drafted {
		s.propose(e.rows[i], e.o.Vocab)
	}
	return nil
}

// build makes the next pass. Prompts share a slice's rows, starting with another one every time.
func (e *Engine) build() {
	e.pass.Segments, e.taken = e.pass.Segments[:0], e.taken[:0]
	if !e.schedule.prompts {
		for _, s := range e.active {
			if e.schedule.takes(s) {
				e.add(s, s.inputs, len(s.inputs))
			}
		}
		return
	}
	left := e.slice()
	e.turn++
	for i := range e.active {
		s := e.active[(e.turn+i)%len(e.active)]
		if left == 0 || !e.schedule.takes(s) {
			continue
		}
		chunk := s.prompt[s.at:s.blind(min(s.next(), s.at+left))]
		left -= len(chunk)
		outputs := 0
		if s.at+len(chunk) == len(s.prompt) && s.chosen == 0 {
			outputs = 1
		}
		e.add(s, chunk, outputs)
		e.stats.prompt.Add(int64(len(chunk)))
	}
}

func (e *Engine) add(s *Stream, tokens []int32, outputs int) {
	seg := model.Segment{Lane: s.lane, Tokens: tokens, Outputs: outputs}
	s.dress(&seg)
	e.pass.Segments = append(e.pass.Segments, seg)
	e.taken = append(e.taken, s)
}

// accept takes the tokens the target agrees to, of a stream whose rows' logits begin at output, and the target's own
// after them. It returns how many tokens that is, which is how many of the rows are kept; for a prompt, all of them.
func (e *Engine) accept(s *Stream, output, rows int) int {
	if s.request.Score != nil {
		e.score(s, e.net.Logits(output))
		return rows
	}
	prompt := !s.decoding()
	verify := 1
	if !prompt {
		verify = rows
	}
	chosen, looked := e.chosen(s), verify
	if chosen != nil {
		looked = chosen.Retained
	}
	accepted, tokens := 0, 0
	for j := range looked {
		token, agreed, err := e.token(s, chosen, output, j, verify)
		if err != nil {
			e.finish(s, Failed, err)
			return rows
		}
		if c := s.request.Constraint; c != nil {
			if err := c.Accept(token); err != nil {
				e.finish(s, Failed, fmt.Errorf("engine: the output's grammar: %w", err))
				return rows
			}
		}
		tokens++
		e.stats.output.Add(1)
		why := s.accept(token)
		if agreed {
			accepted++
		}
		if why != running {
			e.finish(s, why, nil)
			break
		}
		if !agreed {
			break
		}
	}
	if prompt {
		return rows
	}
	e.count(s, verify, accepted, tokens)
	return tokens
}

// ask has the backend choose the tokens of the pass's streams, where it chooses tokens. It does not where a request asks for
// logits themselves, nor under a constraint that cannot say ahead what it allows.
func (e *Engine) ask() {
	e.pass.Choices = e.pass.Choices[:0]
	if !e.chooses {
		return
	}
	output := 0
	for i, s := range e.taken {
		rows := e.pass.Segments[i].Outputs
		s.choice = noChoice
		if rows > 0 && s.request.Score == nil && (s.request.Constraint == nil || s.masks != nil) {
			s.choice = len(e.pass.Choices)
			e.pass.Choices = append(e.pass.Choices, s.ask(output, rows))
		}
		output += rows
	}
}

// chosen is what the backend chose for a stream; nil: nothing.
func (e *Engine) chosen(s *Stream) *model.Choice {
	if s.choice == noChoice {
		return nil
	}
	c := &e.pass.Choices[s.choice]
	s.choice, s.chose = noChoice, c.Tokens
	if !c.Chosen {
		return nil
	}
	return c
}

// token is the token of row j of a cycle of the stream, whose rows' logits begin at output. agreed says that it is the row's
// proposal and the next row is to be looked at.
func (e *Engine) token(s *Stream, c *model.Choice, output, j, verify int) (token int32, agreed bool, err error) {
	if c == nil {
		return e.sample.verify(s, e.net.Logits(output+j), j, j == verify-1)
	}
	if token = c.Tokens[j]; token == oracle.NoToken {
		return 0, false, e.sample.nothing(s, e.o.Vocab)
	}
	return token, j < c.Accepted, nil
}

// commit keeps the first rows of a stream's segment, in the target and in the draft's context.
func (e *Engine) commit(s *Stream, seg *model.Segment, kept int) {
	if err := e.backend.Rollback(s.lane, len(seg.Tokens)-kept); err != nil {
		e.finish(s, Failed, err)
		return
	}
	prompt := !s.decoding()
	s.at += kept
	if prompt {
		s.passBy()
		s.progress(min(s.at, len(s.request.Prompt)))
		if s.decoding() {
			s.setPhase(phaseDecode)
		}
	}
	// Rows of a prompt that no window can reach any more need no context.
	if e.proposer == nil || prompt && s.reach()-s.at >= e.o.Window {
		return
	}
	e.context.Segments = append(e.context.Segments, model.Segment{Lane: s.lane, Tokens: seg.Tokens[:kept]})
}

// count keeps the figures of a lane's cycle, and what the budget learns from it.
func (e *Engine) count(s *Stream, verify, accepted, retained int) {
	e.speculation.Lock()
	defer e.speculation.Unlock()
	e.speculation.Counts.Add(verify, accepted, retained)
	if verify == 1 {
		return
	}
	for j := range min(accepted, retained) {
		e.speculation.Accepted[j]++
	}
	if accepted < verify-1 && retained > accepted {
		e.speculation.Rejected[accepted]++
	}
	e.speculation.Histogram[accepted]++
	e.budget.Labels.AddCycle(s.walk.Confidence, verify, accepted, retained)
}

// observe gives the budget a cycle's time.
func (e *Engine) observe(took time.Duration) {
	if len(e.drafted) == 0 {
		return
	}
	e.speculation.Lock()
	defer e.speculation.Unlock()
	e.speculation.Cycles++
	e.budget.EndCycle()
	if e.o.Rows != BudgetRows {
		return
	}
	rows := 0
	for _, r := range e.rows {
		rows += r
	}
	ms := float64(took) / float64(time.Millisecond)
	counted := e.budget.Line(len(e.drafted), e.constrained()).Observe(rows, ms)
	if line, ok := e.stall.Note(e.o.Now(), ms, rows, counted); ok {
		e.o.Log(line)
	}
}

// Speculation returns the figures of the cycles so far.
func (e *Engine) Speculation() Speculation {
	e.speculation.Lock()
	defer e.speculation.Unlock()
	s := e.speculation.Speculation
	s.Model, s.Labels, s.Refits = e.budget.Model, len(e.budget.Labels.Labels()), e.budget.Refits
	s.Lines = slices.Clone(e.budget.Lines())
	return s
}

// A Speculation is what the cycles of an engine came to.
type Speculation struct {
	Cycles             int // with a draft
	Counts             oracle.SpeculationCounts
	Accepted, Rejected [oracle.Proposals]int // verified proposals by position
	Histogram          [oracle.CycleRows]int // lane cycles by accepted proposals
	Model              oracle.AcceptanceModel
	Labels, Refits     int
	Lines              []oracle.CostLine
}

// poorCycles and poorShare say when a draft is of no use: under this share of proposals accepted in so many cycles.
const (
	poorCycles = 256
	poorShare  = 0.02
)

// Poor reports a draft whose proposals the target does not take: that of another model, as a rule.
func (s *Speculation) Poor() bool {
	return s.Cycles >= poorCycles && s.Counts.AcceptanceRate() < poorShare
}
