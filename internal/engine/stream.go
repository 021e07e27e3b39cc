package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"splash/internal/model"
	"splash/oracle"
)

// A Request is a prompt and how to go on from it.
type Request struct {
	Prompt    []int32
	Images    []Image // of the prompt, in its order
	MaxTokens int     // 0: what the context leaves
	Priority  Priority
	Policy    oracle.Policy
	Seed      uint64  // of the random stream of a sampled request
	Stop      []int32 // tokens that end the output; they are counted, and delivered as the last token
	// Constraint says which tokens the output may have; nil allows every one.
	Constraint Constraint

	// Score lists tokens whose logits after the prompt are all that is asked for: nothing is put out, and the prompt may fill
	// the context.
	Score []int32

	Tail int // tokens at the prompt's end that a following turn writes differently: its generation prompt
}

func (r *Request) check(limit int) error {
	switch {
	case len(r.Prompt) == 0:
		return fmt.Errorf("engine: the prompt is empty")
	case limit > 0 && len(r.Prompt) >= limit && !(r.Score != nil && len(r.Prompt) == limit):
		return fmt.Errorf("engine: the prompt of %d tokens does not leave room in a context of %d", len(r.Prompt), limit)
	case limit > 0 && r.MaxTokens > limit-len(r.Prompt):
		return fmt.Errorf("engine: %d tokens of prompt and %d of output exceed a context of %d", len(r.Prompt), r.MaxTokens, limit)
	case len(r.Score) > 0 && slices.Min(r.Score) < 0:
		return fmt.Errorf("engine: the logit of token %d", slices.Min(r.Score))
	case r.MaxTokens < 0:
		return fmt.Errorf("engine: %d output tokens", r.MaxTokens)
	}
	return r.checkImages()
}

// A Reason says why a stream ended.
type Reason int

const (
	running   Reason = iota
	Stop             // a stop token
	Length           // the token limit
	Cancelled        // its context ended, or the engine stopped
	Failed           // the pass or the model's result was at fault
)

func (r Reason) String() string {
	return [...]string{"running", "stop", "length", "cancelled", "failed"}[r]
}

// Timing holds the moments of a request: handed in, given a lane, first token, end. A moment that was not reached is zero.
type Timing struct{ Submitted, Started, First, Ended time.Time }

// A Stream is a request under way. Next is for one goroutine at a time.
type Stream struct {
	id      uint64 // in the order of submission
	ctx     context.Context
	unwatch func() bool
	left    func() // it has ended

	// Of the engine's loop alone.
	prompt   []int32 // to be read: the request's, and what was said since where a lane's states were given up
	key      []int32 // of the prompt, by which it is compared with others
	sight    sight
	output   []int32
	lane     model.Lane
	saved    model.Checkpoint // of a suspended stream; noCheckpoint: it reads again
	held     bool             // it is suspended
	charged  int64            // bytes of memory
	stops    []int            // where its states are kept on the way, ascending
	keep     []int            // the stops that are kept for good
	awaited  awaited
	rolling  *prefix // the last one kept that is not
	at       int     // tokens of the prompt that are in the lane
	anchor   int32   // the last token chosen, not in the lane yet
	chosen   int
	limit    int
	request  Request
	cycles   uint64
	uniforms [oracle.Draws]float64
	walk     oracle.Walk        // the cycle's proposals
	slots    []int32            // the candidates each was drawn from
	inputs   []int32            // the rows the target verifies: the anchor, and proposals
	seen     []model.Occurrence // distinct tokens of prompt and output, where penalties need them
	places   map[int32]int32    // of tokens in seen; nil: there are no penalties
	choice   int                // of the pass's, that is the stream's; noChoice: none
	chose    []int32            // the tokens of a choice
	ahead    []int32            // the proposals that a choice's masks follow
	masks    func(rows []uint64) bool
	finished bool

	mu        sync.Mutex
	tokens    []int32
	reason    Reason
	err       error
	timing    Timing
	phase     phase
	said      int // tokens
	cached    int
	processed int // tokens of the prompt
	scores    []float32
	ready     chan struct{} // holds one signal that there is something to take
}

func newStream(ctx context.Context, r Request, contextSize int) *Stream {
	s := &Stream{
		ctx: ctx, unwatch: func() bool { return true }, left: func() {}, request: r, limit: r.MaxTokens,
		lane: noLane, saved: noCheckpoint, choice: noChoice, ready: make(chan struct{}, 1),
	}
	if c, ok := r.Constraint.(BlockConstraint); ok {
		s.masks = s.masksOf(c)
	}
	s.see(r.Prompt)
	if s.limit == 0 {
		s.limit = contextSize - len(r.Prompt)
	}
	if r.Policy.Temperature > 0 {
		s.uniforms[oracle.DrawCorrection] = oracle.FirstUniform(r.Seed)
	}
	s.timing.Submitted = time.Now()
	return s
}

// Next waits for tokens and appends those that came since the last call to dst. When the stream has ended, and everything
// was taken, it returns dst as it is and false. It does not return before the engine has let go of the request's lane, even
// where the request's context has ended.
func (s *Stream) Next(dst []int32) (tokens []int32, more bool) {
	for {
		s.mu.Lock()
		dst = append(dst, s.tokens...)
		got := len(s.tokens) > 0
		s.tokens = s.tokens[:0]
		ended := s.reason != running
		s.mu.Unlock()
		if got {
			return dst, true
		}
		if ended {
			return dst, false
		}
		<-s.ready
	}
}

// Ready receives when there may be something new: a lane, progress of the prompt, tokens, the end. Poll takes what there is.
func (s *Stream) Ready() <-chan struct{} { return s.ready }

// End says why the stream ended; err is nil but for Cancelled and Failed.
func (s *Stream) End() (Reason, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reason, s.err
}

// Cached returns how many tokens of the prompt were not read, as an earlier prompt began with them.
func (s *Stream) Cached() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cached
}

// Timing returns the moments reached so far.
func (s *Stream) Timing() Timing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timing
}

func (s *Stream) start(l model.Lane, cached int) {
	s.lane, s.at = l, cached
	s.mu.Lock()
	s.timing.Started = time.Now()
	s.cached, s.processed = cached, cached
	s.mu.Unlock()
	s.signal()
	if p := s.request.Policy; p.Presence != 0 || p.Frequency != 0 || p.Repetition != 0 && p.Repetition != 1 {
		s.places = make(map[int32]int32)
		for _, t := range s.prompt {
			s.note(t, 0)
		}
	}
}

// note counts an occurrence of t as output, n times.
func (s *Stream) note(t int32, n int32) {
	at, ok := s.places[t]
	if !ok {
		at = int32(len(s.seen))
		s.places[t], s.seen = at, append(s.seen, model.Occurrence{Token: t})
	}
	s.seen[at].Count += n
}

func (s *Stream) decoding() bool { return s.at >= len(s.prompt) }

// begin starts a cycle of one row, the anchor.
func (s *Stream) begin() {
	if s.request.Policy.Temperature > 0 {
		oracle.CycleUniforms(&s.uniforms, s.request.Seed, s.cycles)
	}
	s.cycles++
	s.inputs = append(s.inputs[:0], s.anchor)
}

func (s *Stream) draftLane() DraftLane {
	return DraftLane{
		Lane: s.lane, Anchor: s.anchor, Temperature: s.request.Policy.Temperature, Uniforms: &s.uniforms,
		Walk: &s.walk, Candidates: &s.slots,
	}
}

// ask is the choice of the tokens of the rows from first on, all but one of them of proposals.
func (s *Stream) ask(first, rows int) model.Choice {
	s.ahead = s.ahead[:0]
	if rows > 1 {
		s.ahead = append(s.ahead, s.walk.Tokens[:rows-1]...)
	}
	return model.Choice{
		First: first, Rows: rows, Left: s.limit - s.chosen, Policy: &s.request.Policy, Occurred: s.seen, Uniforms: &s.uniforms,
		Stops: s.request.Stop, Masks: s.masks, Walk: &s.walk, Candidates: s.slots, Tokens: s.chose[:0],
	}
}

// proposal is what a sampled walk proposes at position j.
func (s *Stream) proposal(j int) oracle.Proposal {
	k := len(s.slots) / oracle.Proposals
	return oracle.Proposal{Token: s.walk.Tokens[j], Candidates: s.slots[j*k : (j+1)*k], Q: s.walk.Q[j*k : (j+1)*k]}
}

// propose gives the cycle so many rows in all.
func (s *Stream) propose(rows, vocab int) {
	for _, token := range s.walk.Tokens[:rows-1] {
		s.inputs = append(s.inputs, oracle.VerifyInput(token, vocab))
	}
}

// accept takes the chosen token and says whether it is the last.
func (s *Stream) accept(token int32) Reason {
	s.anchor = token
	s.chosen++
	s.output = append(s.output, token)
	if s.places != nil {
		s.note(token, 1)
	}
	s.mu.Lock()
	if s.chosen == 1 {
		s.timing.First = time.Now()
	}
	s.said++
	s.tokens = append(s.tokens, token)
	s.mu.Unlock()
	s.signal()
	switch {
	case slices.Contains(s.request.Stop, token):
		return Stop
	case s.chosen >= s.limit:
		return Length
	}
	return running
}

func (s *Stream) end(why Reason, err error) {
	s.unwatch()
	s.mu.Lock()
	s.reason, s.err = why, err
	s.timing.Ended = time.Now()
	s.mu.Unlock()
	s.left()
	s.signal()
}

func (s *Stream) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}
