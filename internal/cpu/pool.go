package cpu

import (
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// A task is work that can be cut: run does parts [first, last) on a worker, which no two calls share at a time. Parts
// are independent, and the result does not depend on how they are cut.
type task interface {
	run(w, first, last int)
}

// A pool runs one task at a time on a fixed number of workers, of which the caller is the first. Each has a share of the
// parts, the same of every task with as many, so that what it wrote is in its caches when it comes to it again. It takes runs
// of them, long ones first, which memory is read the fastest in, short ones at the end, and then of what is left of the others'
// shares, so that all are done together. One that is not scheduled in time is not waited for: it finds the task closed. Between tasks they spin
// for a moment, since the next one of a pass is a few microseconds away, and then sleep.
type pool struct {
	workers int

	// state is the task under way: its generation, whether workers may still join, how many have.
	state atomic.Uint64
	left  atomic.Int64 // workers that have joined and are done

	task  task
	parts int
	grain int
	share []share // of each worker
	panic atomic.Pointer[any]

	sleepers atomic.Int32
	mu       sync.Mutex
	wake     *sync.Cond
	closed   atomic.Bool
}

// A share is the parts that one worker takes before others do.
type share struct {
	next atomic.Int64 // the first that no one has taken
	end  int
	_    [cacheLine - 16]byte
}

// The fields of state.
const (
	joinedBits = 16
	openBit    = 1 << joinedBits
	generation = openBit << 1
)

// spins is how often a worker looks for a task before it sleeps: some tens of microseconds.
const spins = 4000

func newPool(workers int) *pool {
	p := &pool{workers: workers, share: make([]share, workers)}
	p.wake = sync.NewCond(&p.mu)
	for w := 1; w < workers; w++ {
		go p.work(w)
	}
	return p
}

func (p *pool) close() {
	p.mu.Lock()
	p.closed.Store(true)
	p.mu.Unlock()
	p.wake.Broadcast()
}

// run runs all parts of a task, at least grain of them at a time, and returns when they are done. A panic of a part is
// the caller's.
func (p *pool) run(t task, parts, grain int) {
	if parts <= 0 {
		return
	}
	if p.workers == 1 || parts <= grain {
		t.run(0, 0, parts)
		return
	}
	p.task, p.parts, p.grain = t, parts, grain
	for w := range p.share {
		p.share[w].next.Store(int64(w * parts / p.workers))
		p.share[w].end = (w + 1) * parts / p.workers
	}
	p.left.Store(0)
	p.state.Store((p.state.Load()/generation+1)*generation + openBit)
	if p.sleepers.Load() > 0 {
		p.mu.Lock()
		p.mu.Unlock()
		p.wake.Broadcast()
	}
	p.take(0)
	joined := int64(p.state.And(^uint64(openBit)) % openBit)
	for i := 0; p.left.Load() != joined; i++ {
		if i < spins {
			pause()
		} else {
			runtime.Gosched()
		}
	}
	p.task = nil
	if v := p.panic.Swap(nil); v != nil {
		panic(*v)
	}
}

// take runs parts until none is left.
func (p *pool) take(w int) {
	defer func() {
		if v := recover(); v != nil {
			p.fail(v)
		}
	}()
	for i := range p.workers {
		p.empty(w, &p.share[(w+i)%p.workers])
	}
}

// empty runs parts of a share until none is left.
func (p *pool) empty(w int, s *share) {
	for {
		first := int(s.next.Load())
		if first >= s.end {
			return
		}
		last := min(first+max(p.grain, (s.end-first)/2), s.end)
		if s.next.CompareAndSwap(int64(first), int64(last)) {
			p.task.run(w, first, last)
		}
	}
}

// fail keeps a panic for the caller, and the parts that are left from being run.
func (p *pool) fail(v any) {
	p.panic.Store(&v)
	for w := range p.share {
		p.share[w].next.Store(math.MaxInt)
	}
}

func (p *pool) work(w int) {
	debug.SetPanicOnFault(true) // weights are mapped: where their file was cut short, the pass fails and not the process
	var done uint64             // the generation seen last
	for idle := 0; ; idle++ {
		s := p.state.Load()
		if s&openBit != 0 && s/generation != done {
			if p.state.CompareAndSwap(s, s+1) {
				done = s / generation
				p.take(w)
				p.left.Add(1)
			}
			idle = 0
			continue
		}
		if idle < spins {
			pause()
			continue
		}
		if !p.sleep(done) {
			return
		}
		idle = 0
	}
}

// sleep waits for a task other than the one seen last. It reports whether the pool is still open.
func (p *pool) sleep(done uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sleepers.Add(1)
	defer p.sleepers.Add(-1)
	for !p.closed.Load() {
		if s := p.state.Load(); s&openBit != 0 && s/generation != done {
			return true
		}
		p.wake.Wait()
	}
	return false
}
