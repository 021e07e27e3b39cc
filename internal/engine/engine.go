// Package engine decodes requests: it gives them lanes, cuts prompts into passes, runs the lanes that decode together in
// one pass, and chooses their tokens. It knows tokens alone; text and HTTP are the server's.
package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"splash/internal/machine"
	"splash/internal/model"
	"splash/internal/prefixstore"
	"splash/oracle"
	"splash/planner"
)

// Options are an engine's limits. A zero value takes the default.
type Options struct {
	Context int // tokens of prompt and output together; the model's limit
	Lanes   int // requests decoded at once; 4
	Chunk   int // rows of a prompt in one pass; 256
	Queue   int // requests that may wait for a lane; 32

	// DecodeShare is the time that lanes which decode are owed for a unit of time spent on others' prompts; 0.5. Negative:
	// none, but a pass of theirs follows each of a prompt's.
	DecodeShare float64
	// Slice is the time that a pass of prompts is to take while others decode; 500 ms. Its rows follow the speed of those
	// before it.
	Slice time.Duration

	// Cache bounds the memory of prompts that are kept for those that begin alike, in bytes; 1 GiB, negative for none.
	Cache int64
	// Memory bounds that of all lanes and of what is kept of prompts, in bytes; 0 for none. It takes a backend that is a
	// model.Sizer.
	Memory int64

	// Store has what memory cannot keep of prompts; nil: none. It takes a backend that is a model.Portable.
	Store *prefixstore.Store

	Loader      Loader        // nil: the network is never built anew
	IdleRelease time.Duration // without a request, after which the loader releases the weights; 0: never

	Proposer Proposer         // nil: a cycle is one row
	Rows     Rows             // which proposals are verified
	Window   int              // rows of context a draft can see; 2048
	Vocab    int              // of the target, which proposals are held to
	Hidden   int              // of the target: the width of images' rows
	Now      func() time.Time // the clock of passes; time.Now
	Log      func(line string)
	// Fault is told of a pass that failed, before its requests are; nil: nobody. It is called on the engine's goroutine.
	Fault func(f *Fault)
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
	if o.DecodeShare == 0 {
		o.DecodeShare = 0.5
	}
	if o.Slice == 0 {
		o.Slice = 500 * time.Millisecond
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
	if o.Log == nil {
		o.Log = func(string) {}
	}
	return o
}

// MaxLanes is how many requests such an engine decodes at once.
func (o Options) MaxLanes() int { return o.withDefaults().Lanes }

// MaxRows is the most rows a pass of such an engine has: what its network's backend must allow.
func (o Options) MaxRows() int {
	o = o.withDefaults()
	return max(o.Chunk, o.Lanes*model.RollbackRows)
}

// Errors of Submit, and of streams.
var (
	ErrQueueFull  = errors.New("engine: too many requests are waiting")
	ErrStopped    = errors.New("engine: stopped")
	ErrRecovering = errors.New("engine: recovering from a fault")
	ErrGivenUp    = errors.New("engine: its restarts were given up")
	ErrCapacity   = errors.New("engine: the request takes more memory than there is for all requests")
	ErrResource   = errors.New("engine: the weights could not be loaded in good time")
)

// An Engine runs one network. Submit and Close may be called from any goroutine.
type Engine struct {
	o Options

	mu        sync.Mutex
	waiting   []*Stream // by falling priority, then as they came
	live      []*Stream // that have not ended, as they came
	submitted uint64
	stopped   bool
	health    Health
	published figures
	wake      chan struct{} // holds one signal that there may be work
	done      chan struct{}

	// Of the loop alone, as what follows.
	net      model.Network // nil: there is none now
	backend  model.Backend
	chooses  bool // the backend chooses tokens
	proposer Proposer
	instance instance

	active    []*Stream
	suspended []*Stream // by falling priority, then as they came
	pass      model.Pass
	taken     []*Stream // the stream of each segment of pass
	starts    int       // of streams that were given a lane
	turn      int       // the stream whose prompt comes first in the next pass
	schedule  schedule
	memory    governor
	sample    sampler
	figures   figures

	prefixes   prefixes
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
	e := &Engine{
		o: o, wake: make(chan struct{}, 1), done: make(chan struct{}),
		context: model.Pass{Kind: model.ContextPass}, budget: oracle.NewBudget(), prefixes: prefixes{limit: max(o.Cache, 0)},
	}
	e.instance.idle = time.Now()
	e.use(net, o.Proposer)
	return e
}

// use makes a network the engine's.
func (e *Engine) use(net model.Network, p Proposer) {
	e.net, e.backend, e.proposer = net, net.Backend(), p
	_, e.chooses = e.backend.(model.Chooser)
	e.prefixes.backend = e.backend
	if b, ok := e.backend.(model.Portable); ok && e.o.Store != nil {
		e.prefixes.store, e.prefixes.portable, e.prefixes.lasting = e.o.Store, b, e.o.Store.Stats().Persistent
	}
	e.memory.use(e.backend, e.o.Memory)
	e.instance.started = time.Now()
}

// Submit hands in a request. Its stream ends with an error when ctx ends. Errors are ErrQueueFull, ErrStopped,
// ErrRecovering, ErrGivenUp, and those of a request that could never run.
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
	case e.health.err() != nil:
		return nil, e.health.err()
	case len(e.waiting) >= e.o.Queue:
		return nil, ErrQueueFull
	}
	e.submitted++
	s.id = e.submitted
	e.waiting = insert(e.waiting, s)
	e.live = append(e.live, s)
	s.left = func() { e.leave(s) }
	e.stats.requests.Add(1)
	s.unwatch = context.AfterFunc(ctx, e.signal)
	e.signal()
	return s, nil
}

// leave takes a stream that has ended out of those that live.
func (e *Engine) leave(s *Stream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if i := slices.Index(e.live, s); i >= 0 {
		e.live = slices.Delete(e.live, i, i+1)
	}
}

// Close cancels every request and stops the engine. It returns when the pass under way is done.
func (e *Engine) Close() {
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
	e.signal()
	<-e.done
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
		stop := false
		if err := e.guarded(func() error { stop = e.admit(); return nil }); err != nil {
			e.fail(err)
			continue
		}
		if stop {
			e.endAll(ErrStopped)
			return
		}
		if len(e.active) == 0 {
			e.wait()
			continue
		}
		if e.stuck() {
			<-e.wake // an image, or the end of a request
			continue
		}
		if err := e.guarded(func() error { e.step(); return nil }); err != nil {
			e.fail(err)
		}
		e.instance.idle = time.Now()
	}
}

// guarded runs work of the backend; a panic there is a fault of its own, not of the process. So is a read of mapped weights
// whose file has become shorter.
func (e *Engine) guarded(work func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if fault := machine.Unreadable(p); fault != nil {
			err = fmt.Errorf("engine: the pass failed: %w", fault)
		} else {
			err = &panicError{p, debug.Stack()}
		}
	}()
	return work()
}

// A panicError is a panic of the backend, and where it came from.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("engine: the pass failed: %v", e.value) }

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

// finish ends a stream that has, or had, a lane.
func (e *Engine) finish(s *Stream, why Reason, err error) {
	if s.finished {
		return
	}
	s.finished = true
	s.sight.close()
	e.release(s)
	if why == Failed {
		e.stats.failures.Add(1)
	}
	s.end(why, err)
}

// release gives back what a stream has of the backend.
func (e *Engine) release(s *Stream) {
	e.memory.give(s)
	lane, saved := s.lane, s.saved
	s.lane, s.saved = noLane, noCheckpoint
	if lane != noLane {
		e.backend.FreeLane(lane)
	}
	if saved != noCheckpoint {
		e.backend.Drop(saved)
	}
}

func (e *Engine) endAll(err error) {
	for _, s := range slices.Concat(e.active, e.suspended) {
		e.guarded(func() error { e.finish(s, Cancelled, err); return nil })
	}
	e.suspended = nil
	e.compact()
	e.abandon()
	e.guarded(func() error {
		e.prefixes.flush()
		e.prefixes.clear()
		return nil
	})
	e.endWaiting(Cancelled, err)
}

// endWaiting ends the requests that have no lane yet.
func (e *Engine) endWaiting(why Reason, err error) {
	e.mu.Lock()
	waiting := e.waiting
	e.waiting = nil
	e.mu.Unlock()
	for _, s := range waiting {
		if why == Failed {
			e.stats.failures.Add(1)
		}
		s.end(why, err)
	}
}
