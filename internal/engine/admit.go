package engine

import (
	"context"
	"slices"
	"time"

	"splash/internal/model"
)

// A wait is why no further request has a lane.
type wait int

const (
	waitNone wait = iota
	waitLanes
	waitMemory
	waitPriority // a lane of a higher priority runs
	waitWeights  // they are not there
)

const (
	noLane       model.Lane       = -1
	noCheckpoint model.Checkpoint = -1
	noChoice                      = -1
)

// admit drops requests that were cancelled, and gives lanes to those whose turn it is. It reports whether the engine is to
// stop.
func (e *Engine) admit() (stop bool) {
	e.mu.Lock()
	stop = e.stopped
	e.mu.Unlock()
	if stop {
		return true
	}
	e.receive()
	e.reap()
	e.attend()
	e.figures.wait = waitNone
	if e.net == nil {
		e.figures.wait = waitWeights
	} else {
		for e.place() {
		}
		e.prefixes.writeBehind(time.Now())
	}
	e.publish()
	return false
}

// reap ends requests that were cancelled.
func (e *Engine) reap() {
	for _, s := range e.active {
		if s.ctx.Err() != nil {
			e.finish(s, Cancelled, context.Cause(s.ctx))
		}
	}
	e.compact()
	e.suspended = slices.DeleteFunc(e.suspended, func(s *Stream) bool {
		if s.ctx.Err() != nil {
			e.finish(s, Cancelled, context.Cause(s.ctx))
		}
		return s.finished
	})
	e.mu.Lock()
	kept := e.waiting[:0]
	var gone []*Stream
	for _, s := range e.waiting {
		if s.ctx.Err() != nil {
			gone = append(gone, s)
		} else {
			kept = append(kept, s)
		}
	}
	clear(e.waiting[len(kept):])
	e.waiting = kept
	e.mu.Unlock()
	for _, s := range gone {
		s.end(Cancelled, context.Cause(s.ctx))
	}
}

// next is the request to have a lane before all others: one that was suspended before new ones of its priority. Those whose
// beginning is being read are passed over.
func (e *Engine) next() *Stream {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := slices.IndexFunc(e.waiting, func(s *Stream) bool { return !e.awaits(s) })
	switch {
	case len(e.suspended) == 0 && at < 0:
		return nil
	case len(e.suspended) == 0:
		return e.waiting[at]
	case at < 0 || e.waiting[at].request.Priority <= e.suspended[0].request.Priority:
		return e.suspended[0]
	}
	return e.waiting[at]
}

// place gives the next request a lane. It reports false when none can have one now; those behind it wait with it.
func (e *Engine) place() bool {
	s := e.next()
	switch {
	case s == nil:
		return false
	case !s.held && e.runs(s.request.Priority+1):
		e.figures.wait = waitPriority
		return false
	}
	if len(e.active) >= e.o.Lanes {
		if v := e.lowest(s.request.Priority); v == nil || !e.suspend(v) {
			e.figures.wait = waitLanes
			return false
		}
	}
	if !e.makeRoom(s) {
		e.figures.wait = waitMemory
		return s.finished
	}
	resumed := s.held
	e.take(s)
	e.start(s)
	return !resumed // those suspended come back one at a time
}

// take takes a stream out of its queue.
func (e *Engine) take(s *Stream) {
	if s.held {
		i := slices.Index(e.suspended, s)
		e.suspended = slices.Delete(e.suspended, i, i+1)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	i := slices.Index(e.waiting, s)
	e.waiting = slices.Delete(e.waiting, i, i+1)
}

// runs reports whether a lane of at least that priority runs.
func (e *Engine) runs(least Priority) bool {
	return slices.ContainsFunc(e.active, func(s *Stream) bool { return s.request.Priority >= least })
}

// lowest is the lane of the lowest priority below one, of those the one that came last.
func (e *Engine) lowest(below Priority) (v *Stream) {
	for _, s := range e.active {
		if s.request.Priority < below && (v == nil || before(v, s) < 0) {
			v = s
		}
	}
	return v
}

// suspend takes a stream's lane and keeps its states.
func (e *Engine) suspend(s *Stream) bool {
	at, _, err := e.backend.Save(s.lane)
	if err != nil {
		return false
	}
	e.backend.FreeLane(s.lane)
	s.lane, s.saved = noLane, at
	e.figures.PrioritySuspensions++
	e.hold(s)
	return true
}

// hold makes an active stream a suspended one.
func (e *Engine) hold(s *Stream) {
	s.held = true
	s.setPhase(phaseSuspended)
	i := slices.Index(e.active, s)
	e.active = slices.Delete(e.active, i, i+1)
	e.suspended = insert(e.suspended, s)
	e.stats.active.Store(int64(len(e.active)))
}

// start gives a stream a lane, with what is kept of its states or of its prompt's beginning.
func (e *Engine) start(s *Stream) {
	e.active = append(e.active, s) // before the backend is called, whose faults end what is active
	e.stats.active.Store(int64(len(e.active)))
	lane, err := e.backend.NewLane()
	if err == nil {
		s.lane = lane
		if s.saved != noCheckpoint {
			err = e.backend.Resume(lane, s.saved)
		}
	}
	if err != nil {
		e.finish(s, Failed, err)
		e.compact()
		return
	}
	if s.saved != noCheckpoint {
		e.backend.Drop(s.saved)
		s.saved = noCheckpoint
	} else {
		e.begin(s)
	}
	e.starts++
	if s.held {
		s.held = false
		e.figures.Resumptions++
	}
	s.setPhase(phasePrefill)
	if s.decoding() {
		s.setPhase(phaseDecode)
	}
}

// begin starts a stream's prompt, or what it has said too where its states were given up.
func (e *Engine) begin(s *Stream) {
	cached := 0
	if e.prefixes.limit > 0 || e.prefixes.store != nil {
		e.prefixes.room = e.memory.room(e.prefixes.limit)
		cached = e.prefixes.resume(s.lane, s.key)
		if s.chosen == 0 {
			s.plan(&e.prefixes, cached)
		} else {
			s.stops = s.stops[:0]
		}
		e.publishCache()
	}
	if s.held {
		s.at = cached
		e.figures.ReplayTokens += int64(len(s.prompt) - cached)
	} else {
		s.start(s.lane, cached)
	}
	e.look(s)
}
