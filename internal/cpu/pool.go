package cpu

import (
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
// shares, so that all are done together. One that is not scheduled in time is not waited for: it finds its share taken. Between
// tasks they spin for a moment, since the next one of a pass is a few microseconds away, and then sleep.
//
// Cores are far apart, so a task crosses between them twice: a worker reads the call and takes of its share, which no one else
// writes to while there is enough for all, and the caller reads that it is done.
type pool struct {
	workers int
	share   []share // of each worker
	_       [cacheLine - 32]byte

	// state is the task under way: a call.
	state atomic.Uint64
	task  task
	_     [cacheLine - 24]byte

	panic    atomic.Pointer[any]
	sleepers atomic.Int32
	mu       sync.Mutex
	wake     *sync.Cond
	closed   atomic.Bool
}

// A share is the parts that one worker takes before others do.
type share struct {
	taken atomic.Uint64 // the last call that some of it were taken in, how many, and whether by its worker
	done  atomic.Uint64 // the last call that its worker is done with
	_     [cacheLine - 16]byte
}

// A call is a task that is handed out: its number, its parts, and how many are worth taking.
type call struct {
	number       uint64
	parts, grain int
}

// The fields of state: number, parts, grain; and of taken: number, whether its worker is there, parts.
const (
	numberBits = 24
	partsBits  = 24
	grainBits  = 16

	mostParts = 1<<partsBits - 1
	mostGrain = 1<<grainBits - 1
	present   = 1 << partsBits
)

func callOf(state uint64) call {
	return call{state >> (partsBits + grainBits), int(state >> grainBits & mostParts), int(state & mostGrain)}
}

func (c call) state() uint64 {
	return c.number<<(partsBits+grainBits) | uint64(c.parts)<<grainBits | uint64(c.grain)
}

// taken is what is taken of a share.
type taken struct {
	number uint64
	there  bool // its worker
	parts  int
}

func takenOf(v uint64) taken {
	return taken{v >> (partsBits + 1), v&present != 0, int(v & mostParts)}
}

func (t taken) value() uint64 {
	v := t.number<<(partsBits+1) | uint64(t.parts)
	if t.there {
		v |= present
	}
	return v
}

// spins is how often a worker looks for a task before it sleeps: some tens of microseconds. patience is how often one that
// was there the last time is looked for before its share is taken, some microseconds.
const (
	spins    = 4000
	patience = 200
)

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
	if p.workers == 1 || parts <= grain || parts > mostParts {
		t.run(0, 0, parts)
		return
	}
	c := call{(callOf(p.state.Load()).number + 1) % (1 << numberBits), parts, min(grain, mostGrain)}
	p.task = t
	p.state.Store(c.state())
	if p.sleepers.Load() > 0 {
		p.mu.Lock()
		p.mu.Unlock()
		p.wake.Broadcast()
	}
	first, n := p.claim(0, 0, c)
	p.take(0, c, first, n)
	for w := 1; w < p.workers; w++ {
		p.await(w, c)
	}
	p.task = nil
	if p.panic.Load() != nil {
		panic(*p.panic.Swap(nil))
	}
}

// await waits for a worker that has taken part in a call, all of whose parts are taken.
func (p *pool) await(w int, c call) {
	s := &p.share[w]
	if t := takenOf(s.taken.Load()); t.number != c.number || !t.there {
		return
	}
	for i := 0; s.done.Load() != c.number; i++ {
		if i < spins {
			pause()
		} else {
			runtime.Gosched()
		}
	}
}

// bounds are the parts of a worker's share.
func (p *pool) bounds(w int, c call) (first, end int) {
	return w * c.parts / p.workers, (w + 1) * c.parts / p.workers
}

// take runs n parts that a worker has claimed, and then more until none is left, of its own share first.
func (p *pool) take(w int, c call, first, n int) {
	defer func() {
		if v := recover(); v != nil {
			p.fail(c, v)
		}
	}()
	for of := 0; of < p.workers; {
		if n > 0 {
			p.task.run(w, first, first+n)
		}
		if first, n = p.claim(w, (w+of)%p.workers, c); n == 0 {
			of++
		}
	}
}

// claim takes parts of a share for a worker, none if there are none left. A worker that comes late to its own finds it
// taken, or in use for another call.
func (p *pool) claim(w, of int, c call) (first, n int) {
	first, end := p.bounds(of, c)
	if first == end {
		return 0, 0
	}
	s := &p.share[of]
	for waited := 0; ; {
		old := s.taken.Load()
		t := takenOf(old)
		if t.number != c.number {
			if c.before(t.number) {
				return 0, 0
			}
			if t.there && of != w && waited < patience {
				waited++
				pause()
				continue
			}
			t = taken{number: c.number}
		}
		left := end - first - t.parts
		if left == 0 {
			return 0, 0
		}
		n = min(max(c.grain, left/2), left)
		next := taken{c.number, t.there || of == w, t.parts + n}
		if s.taken.CompareAndSwap(old, next.value()) {
			return first + t.parts, n
		}
	}
}

// before reports whether a call is older than another one.
func (c call) before(number uint64) bool {
	return (number-c.number)%(1<<numberBits) < 1<<(numberBits-1)
}

// fail keeps a panic for the caller, and the parts that are left from being run.
func (p *pool) fail(c call, v any) {
	p.panic.Store(&v)
	for w := range p.share {
		s := &p.share[w]
		first, end := p.bounds(w, c)
		for {
			old := s.taken.Load()
			t := takenOf(old)
			there := t.there && t.number == c.number
			if s.taken.CompareAndSwap(old, taken{c.number, there, end - first}.value()) {
				break
			}
		}
	}
}

func (p *pool) work(w int) {
	debug.SetPanicOnFault(true) // weights are mapped: where their file was cut short, the pass fails and not the process
	var seen uint64             // the call looked at last
	for idle := 0; ; idle++ {
		c := callOf(p.state.Load())
		if c.number != seen {
			seen, idle = c.number, 0
			if first, n := p.claim(w, w, c); n > 0 {
				p.take(w, c, first, n)
				p.share[w].done.Store(c.number)
			}
			continue
		}
		if idle < spins {
			pause()
			continue
		}
		if !p.sleep(seen) {
			return
		}
		idle = 0
	}
}

// sleep waits for a call other than the one seen last. It reports whether the pool is still open.
func (p *pool) sleep(seen uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sleepers.Add(1)
	defer p.sleepers.Add(-1)
	for !p.closed.Load() {
		if callOf(p.state.Load()).number != seen {
			return true
		}
		p.wake.Wait()
	}
	return false
}
