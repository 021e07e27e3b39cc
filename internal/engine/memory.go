package engine

import (
	"slices"

	"splash/internal/model"
)

// A governor counts what lanes take of the memory that there is for them and for what is kept of prompts. Lanes begin with
// what their prompts take and grow.
type governor struct {
	limit        int64 // 0: none
	lane, token  int64 // bytes of a lane, and of each of its tokens
	charged      int64 // of all lanes, running and suspended
	peak, denied int64
}

func (g *governor) use(b model.Backend, limit int64) {
	g.limit, g.charged = 0, 0
	if sizer, ok := b.(model.Sizer); ok && limit > 0 {
		g.limit = limit
		g.lane, g.token = sizer.LaneBytes()
	}
}

// need is what a lane of so many rows takes, a whole number of pages and a cycle's rows among them.
func (g *governor) need(rows int) int64 {
	rows += model.RollbackRows
	return g.lane + g.token*int64((rows+pageTokens-1)/pageTokens*pageTokens)
}

// room is how much of a limit is left for what is kept of prompts.
func (g *governor) room(limit int64) int64 {
	if g.limit == 0 {
		return limit
	}
	return max(0, min(limit, g.limit-g.charged))
}

// give takes a stream's bytes back.
func (g *governor) give(s *Stream) {
	g.charged -= s.charged
	s.charged = 0
}

// reserve charges a stream with so many rows. What is kept of prompts makes room.
func (e *Engine) reserve(s *Stream, rows int) bool {
	g := &e.memory
	if g.limit == 0 {
		return true
	}
	more := g.need(rows) - s.charged
	if more <= 0 {
		return true
	}
	for g.charged+more+e.prefixes.bytes > g.limit {
		if g.charged+more > g.limit || !e.prefixes.evict() {
			g.denied++
			return false
		}
		e.publishCache()
	}
	s.charged += more
	g.charged += more
	g.peak = max(g.peak, g.charged+e.prefixes.bytes)
	return true
}

// makeRoom charges a stream that is to have a lane. Lanes of lower priorities are suspended for it; where nothing runs, the
// states of those suspended before give way. A request that does not fit alone is ended.
func (e *Engine) makeRoom(s *Stream) bool {
	for !e.reserve(s, e.first(s)) {
		if v := e.lowest(s.request.Priority); v != nil {
			e.figures.PrioritySuspensions++
			e.giveUp(v)
			continue
		}
		if len(e.active) > 0 {
			return false
		}
		if e.dropSuspended(s) {
			continue
		}
		e.figures.CapacityFailures++
		e.take(s)
		e.finish(s, Failed, ErrCapacity)
		return false
	}
	return true
}

// headroom is the rows of output that a lane has room for when it begins beside others: one without would give up its states
// with the next cycle.
const headroom = 256

// first is the rows that a stream's lane begins with room for.
func (e *Engine) first(s *Stream) int {
	rows := max(len(s.prompt), s.at)
	if len(e.active) == 0 {
		return rows
	}
	return min(rows+headroom, len(s.request.Prompt)+s.limit)
}

// dropSuspended gives up the states of the suspended stream that comes last and is not the one they are wanted for.
func (e *Engine) dropSuspended(but *Stream) bool {
	for _, s := range slices.Backward(e.suspended) {
		if s != but && s.saved != noCheckpoint {
			e.replay(s)
			return true
		}
	}
	return false
}

// giveUp suspends a stream without its states: it reads its prompt, and what it has said, again.
func (e *Engine) giveUp(s *Stream) {
	e.replay(s)
	e.hold(s)
}

// replay gives back what a stream has of the backend and makes a prompt of its tokens.
func (e *Engine) replay(s *Stream) {
	e.release(s)
	s.at = 0
	prompt := s.request.Prompt
	if s.chosen > 0 {
		prompt = slices.Concat(prompt, s.output[:s.chosen-1]) // the last one is the anchor
	}
	s.see(prompt)
}

// grow charges the lanes of the next pass with the rows it adds. Where there is no room, the lanes that come last give up
// theirs.
func (e *Engine) grow() {
	if e.memory.limit == 0 {
		return
	}
	for i := 0; i < len(e.active); i++ {
		s := e.active[i]
		for s.decoding() && !e.reserve(s, s.at+1) {
			v := e.lowest(Foreground + 1)
			switch {
			case e.dropSuspended(s):
				continue
			case len(e.active) == 1:
				e.figures.CapacityFailures++
				e.finish(s, Failed, ErrCapacity)
				e.compact()
				return
			}
			e.figures.ResourceSuspensions++
			e.giveUp(v)
			i = -1 // from the start: the lanes are others
			break
		}
	}
}
