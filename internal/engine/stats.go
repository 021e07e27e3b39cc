package engine

import (
	"slices"
	"time"

	"splash/internal/prefixstore"
)

// A Stats is what an engine has done, and what it does now.
type Stats struct {
	Waiting, Active                      int
	Requests, Passes                     int64
	PromptTokens, OutputTokens, Failures int64

	Prefilling, Decoding, Suspended int
	Figures
	Admission Admission
	Memory    MemoryStats
	Health    Health
	Cache     CacheStats
	Disk      *prefixstore.Stats // nil: there is no store
}

// Figures are what the passes of an engine came to.
type Figures struct {
	PromptBatches, PromptRows, DecodeBatches int64
	Widths                                   [4]int64 // passes of so many decoding lanes; the last stands for more too
	PromptTime, DecodeTime                   time.Duration

	PrioritySuspensions, ResourceSuspensions, Resumptions, ReplayTokens, CapacityFailures int64
}

// An Admission is why requests wait.
type Admission struct {
	Memory, Lanes, Held int // that wait for memory, for a lane, and behind one that waits for memory
	Prefix              int // that wait while another reads the beginning of their prompt
	Oldest              time.Duration
}

// MemoryStats are the bytes of lanes and of what is kept of prompts. Without a limit they are not counted.
type MemoryStats struct {
	Limit, Charged, Peak int64
	Denied               int64 // lanes that had no room
}

// figures are what the loop publishes.
type figures struct {
	Figures
	wait   wait
	prefix int // requests that wait for a beginning
	memory MemoryStats
}

// publish lets Stats see the loop's figures.
func (e *Engine) publish() {
	g := &e.memory
	e.figures.memory = MemoryStats{Limit: g.limit, Charged: g.charged + e.prefixes.bytes, Peak: g.peak, Denied: g.denied}
	e.mu.Lock()
	e.figures.prefix = e.awaiting()
	e.published = e.figures
	e.mu.Unlock()
}

// Stats returns the engine's figures.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Stats{
		Waiting: len(e.waiting), Active: int(e.stats.active.Load()),
		Requests: e.stats.requests.Load(), Passes: e.stats.passes.Load(),
		PromptTokens: e.stats.prompt.Load(), OutputTokens: e.stats.output.Load(), Failures: e.stats.failures.Load(),
		Figures: e.published.Figures, Memory: e.published.memory, Health: e.health, Cache: e.stats.cacheStats(),
	}
	if e.o.Store != nil {
		disk := e.o.Store.Stats()
		s.Disk = &disk
	}
	for _, l := range e.live {
		switch l.phaseNow() {
		case phasePrefill:
			s.Prefilling++
		case phaseDecode:
			s.Decoding++
		case phaseSuspended:
			s.Suspended++
		}
	}
	a := &s.Admission
	a.Prefix = min(e.published.prefix, s.Waiting)
	switch others := s.Waiting - a.Prefix; e.published.wait {
	case waitMemory:
		a.Memory, a.Held = min(1, others), max(0, others-1)
	case waitWeights:
		a.Memory = others
	case waitLanes, waitPriority:
		a.Lanes = others
	}
	for _, w := range e.waiting {
		a.Oldest = max(a.Oldest, time.Since(w.timing.Submitted))
	}
	return s
}

// A phase is where a request is.
type phase int

const (
	phaseQueued phase = iota
	phasePrefill
	phaseDecode
	phaseSuspended
)

func (p phase) String() string {
	return [...]string{"queued", "prefill", "decode", "suspended"}[p]
}

func (s *Stream) setPhase(p phase) {
	s.mu.Lock()
	s.phase = p
	s.mu.Unlock()
}

func (s *Stream) phaseNow() phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase
}

// A RequestStatus is a request that has not ended.
type RequestStatus struct {
	ID                        uint64
	Phase                     string
	Priority                  Priority
	Prompt, Processed, Output int // tokens; of the prompt, read or cached, said
	Limit                     int // of the output
	Age                       time.Duration
}

// Live lists the requests that have not ended, as they came.
func (e *Engine) Live() []RequestStatus {
	e.mu.Lock()
	streams := slices.Clone(e.live)
	e.mu.Unlock()
	list := make([]RequestStatus, len(streams))
	for i, s := range streams {
		s.mu.Lock()
		list[i] = RequestStatus{
			ID: s.id, Phase: s.phase.String(), Priority: s.request.Priority, Prompt: len(s.request.Prompt), Processed: s.processed,
			Output: s.said, Limit: s.limit, Age: time.Since(s.timing.Submitted),
		}
		s.mu.Unlock()
	}
	return list
}
