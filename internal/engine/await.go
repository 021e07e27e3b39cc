package engine

import "slices"

// sharedTokens is how many tokens two prompts share, beyond what is kept already, for one to wait while the other reads them.
const sharedTokens = 256

// An awaited is a beginning that a request lets another one read.
type awaited struct {
	by     *Stream // nil: nothing is awaited
	at     int     // the place up to which both prompts are the same
	starts int     // of the engine, when by was looked for
}

// awaits reports whether a request is to wait for the beginning of its prompt, which a lane reads that came before it and is
// of its priority at least. The lane keeps its states there, and the request begins with them.
func (e *Engine) awaits(s *Stream) bool {
	if s.held || e.prefixes.limit == 0 {
		return false
	}
	a := &s.awaited
	if a.by != nil {
		if e.reads(a.by, s) {
			return true
		}
		a.by = nil
	}
	if a.starts == e.starts {
		return false
	}
	a.starts = e.starts
	e.share(s)
	return a.by != nil
}

// reads reports whether a stream still reads the beginning that another one awaits of it.
func (e *Engine) reads(by, s *Stream) bool {
	return by.at < s.awaited.at && slices.Contains(e.active, by) && s.request.Priority <= by.request.Priority
}

// share finds the lane that reads most of a request's beginning, and has it keep its states where they part.
func (e *Engine) share(s *Stream) {
	a := &s.awaited
	for _, v := range e.active {
		if v.chosen > 0 || v.request.Priority < s.request.Priority {
			continue
		}
		n := v.keepable(s.keepable(min(alike(v.key, s.key), len(s.key)-1) / pageTokens * pageTokens))
		if n > a.at || a.by == nil {
			a.by, a.at = v, n
		}
	}
	if a.by == nil {
		return
	}
	if a.at-max(e.prefixes.kept(s.key), a.by.at) < sharedTokens {
		a.by = nil
		return
	}
	a.by.keepAt(a.at)
}

// alike is the number of tokens that two prompts begin with alike.
func alike(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// keepAt has a stream keep its states at a place of its prompt that it has not reached.
func (s *Stream) keepAt(at int) {
	if i, found := slices.BinarySearch(s.stops, at); !found {
		s.stops = slices.Insert(s.stops, i, at)
	}
	s.keep = append(s.keep, at)
}

// awaiting is the number of requests that let others read their beginnings.
func (e *Engine) awaiting() (n int) {
	for _, s := range e.waiting {
		if by := s.awaited.by; by != nil && e.reads(by, s) {
			n++
		}
	}
	return n
}
