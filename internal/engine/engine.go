// Package engine decodes requests: it gives them lanes, cuts prompts into passes, runs the lanes that decode together in
// one pass, and chooses their tokens. It knows tokens alone; text and HTTP are the server's.
package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// Options are an engine's limits. A zero value takes the default.
type Options struct {
	Context int // tokens of prompt and output together; the model's limit
	Lanes   int // requests decoded at once; 4
	Chunk   int // rows of a prompt in one pass; 256
	Queue   int // requests that may wait for a lane; 32

	// Cache bounds the memory of prompts that are kept for those that begin alike, in bytes; 1 GiB, negative for none.
	Cache int64

	Proposer Proposer         // nil: a cycle is one row
	Rows     Rows             // which proposals are verified
	Window   int              // rows of context a draft can see; 2048
	Vocab    int              // of the target, which proposals are held to
	Now      func() time.Time // the budget's clock; time.Now
	Log      func(line string)
}

func (o Options) withDefaults() Options {
	if o.Lanes == 0 {
		o.Lanes = 4
	}
	if o.Chunk == 0 {
		o.Chunk = 256
	}
	if o.Queue == 0 {
		o.Queue = 32
	}
	if o.Cache == 0 {
		o.Cache = 1 << 30
	}
	if o.Window == 0 {
		o.Window = planner.DraftWindow
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// MaxRows is the most rows a pass of such an engine has: what its network's backend must allow.
func (o Options) MaxRows() int {
	o = o.withDefaults()
	return o.Chunk + o.Lanes*model.RollbackRows
}

// Errors of Submit, and of streams whose engine stopped.
var (
	ErrQueueFull = errors.New("engine: too many requests are waiting")
	ErrStopped   = errors.New("engine: stopped")
)

// An Engine runs one network. Submit and Close may be called from any goroutine.
type Engine struct {
	net     model.Network
	backend model.Backend
	o       Options

	mu      sync.Mutex
	waiting []*Stream
	stopped bool
	wake    chan struct{} // holds one signal that there may be work
	done    chan struct{}

	active     []*Stream // of the loop alone, as what follows
	pass       model.Pass
	taken      []*Stream // the stream of each segment of pass
	turn       int       // the stream whose prompt comes first in the next pass
	prefilling bool      // pass holds rows of prompts
	sample     sampler

	prefixes   prefixes
	proposer   Proposer
	context    model.Pass  // the rows kept of pass
	drafting   []DraftLane // the lanes that a block is drafted for
	drafted    []*Stream   // their streams
	rows       []int       // that are verified of each
	limits     []int
	confidence [][]float64
	budget     *oracle.Budget
	stall      oracle.StallLog

	speculation struct {
		sync.Mutex
		Speculation
	}

	stats counters
}

// A Stats is what an engine has done, and what it does now.
type Stats struct {
	Waiting, Active                      int
	Requests, Passes                     int64
	PromptTokens, OutputTokens, Failures int64

	Cache CacheStats
}

type counters struct {
	requests, passes, prompt, output, failures, active atomic.Int64

	cache atomic.Pointer[CacheStats]
}

func (c *counters) cacheStats() CacheStats {
	if s := c.cache.Load(); s != nil {
		return *s
	}
	return CacheStats{}
}

// New starts an engine on the network. The network's lanes are the engine's alone from now on.
func New(net model.Network, o Options) *Engine {
	e := newEngine(net, o)
	go e.run()
	return e
}

func newEngine(net model.Network, o Options) *Engine {
	o = o.withDefaults()
	return &Engine{
		net: net, backend: net.Backend(), o: o,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		proposer: o.Proposer, context: model.Pass{Kind: model.ContextPass}, budget: oracle.NewBudget(),
		prefixes: prefixes{backend: net.Backend(), limit: max(o.Cache, 0)},
	}
}

// Submit hands in a request. Its stream ends with an error when ctx ends. Errors are ErrQueueFull, ErrStopped, and those of
// a request that could never run.
func (e *Engine) Submit(ctx context.Context, r Request) (*Stream, error) {
	if err := r.check(e.o.Context); err != nil {
		return nil, err
	}
	s := newStream(ctx, r, e.o.Context)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.stopped:
		return nil, ErrStopped
	case len(e.waiting) >= e.o.Queue:
		return nil, ErrQueueFull
	}
	e.waiting = append(e.waiting, s)
	e.stats.requests.Add(1)
	s.unwatch = context.AfterFunc(ctx, e.signal)
	e.signal()
	return s, nil
}

// Close cancels every request and stops the engine. It returns when the pass under way is done.
func (e *Engine) Close() {
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
	e.signal()
	<-e.done
}

// Stats returns the engine's figures.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return Stats{
		Waiting: len(e.waiting), Active: int(e.stats.active.Load()),
		Requests: e.stats.requests.Load(), Passes: e.stats.passes.Load(),
		PromptTokens: e.stats.prompt.Load(), OutputTokens: e.stats.output.Load(), Failures: e.stats.failures.Load(),
		Cache: e.stats.cacheStats(),
	}
}

func (e *Engine) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func (e *Engine) run() {
	defer close(e.done)
	for {
		if e.admit() {
			e.endAll(ErrStopped)
			return
		}
		if len(e.active) == 0 {
			<-e.wake
			continue
		}
		e.step()
	}
}

// admit drops requests that were cancelled and gives waiting ones the free lanes. It reports whether the engine is to stop.
func (e *Engine) admit() (stop bool) {
	e.reap()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return true
	}
	kept := e.waiting[:0]
	for _, s := range e.waiting {
		switch {
		case s.ctx.Err() != nil:
			s.end(Cancelled, context.Cause(s.ctx))
		case len(e.active) >= e.o.Lanes:
			kept = append(kept, s)
		default:
			e.start(s)
		}
	}
	clear(e.waiting[len(kept):])
	e.waiting = kept
	return false
}

func (e *Engine) start(s *Stream) {
	lane, err := e.backend.NewLane()
	if err != nil {
		e.stats.failures.Add(1)
		s.end(Failed, err)
		return
	}
	cached := 0
	if e.prefixes.limit > 0 {
		cached = e.prefixes.resume(lane, s.prompt)
		s.plan(&e.prefixes, cached)
		e.publish()
	}
	s.start(lane, cached)
	e.active = append(e.active, s)
	e.stats.active.Store(int64(len(e.active)))
}

// reap frees the lanes of requests that were cancelled.
func (e *Engine) reap() {
	for _, s := range e.active {
		if s.ctx.Err() != nil {
			e.finish(s, Cancelled, context.Cause(s.ctx))
		}
	}
	e.compact()
}

// compact takes finished streams out of the active ones.
func (e *Engine) compact() {
	kept := e.active[:0]
	for _, s := range e.active {
		if !s.finished {
			kept = append(kept, s)
		}
	}
	clear(e.active[len(kept):])
	e.active = kept
	e.stats.active.Store(int64(len(kept)))
}

func (e *Engine) finish(s *Stream, why Reason, err error) {
	if s.finished {
		return
	}
	s.finished = true
	e.backend.FreeLane(s.lane)
	if why == Failed {
		e.stats.failures.Add(1)
	}
	s.end(why, err)
}

func (e *Engine) endAll(err error) {
	for _, s := range e.active {
		e.finish(s, Cancelled, err)
	}
	e.compact()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.prefixes.clear()
	for _, s := range e.waiting {
		s.end(Cancelled, err)
	}
	e.waiting = nil
}
