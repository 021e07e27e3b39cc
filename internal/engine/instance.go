package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"splash/internal/model"
)

// A Loader builds an engine's network anew, after a fault or after its weights were released. Only one call is under way at
// a time; none after the engine is closed.
type Loader interface {
	// Load builds the network. progress may be called as it comes on.
	Load(ctx context.Context, progress func()) (model.Network, Proposer, error)
	// Release lets go of the weights. A backend that is a model.Unloader stays, and the next network is built on it.
	Release()
	// Discard lets go of the weights and of a backend that is at fault.
	Discard()
}

// A State is whether an engine can run requests.
type State int

const (
	Ready      State = iota
	Released         // the weights are not there; the next request has them loaded
	Loading          // they are being loaded, after they were released
	Recovering       // from a fault
	GivenUp          // too many faults one after another
	Stopped
)

func (s State) String() string {
	return [...]string{"ready", "released", "loading", "recovering", "given up", "stopped"}[s]
}

// A Health is how an engine's network fares.
type Health struct {
	State                               State
	Failures, Restarts                  int64 // of the network, and after them
	Released, Restores, RestoreFailures int64 // of the weights
	LastFailure                         string
}

// err is why no request is taken.
func (h *Health) err() error {
	switch h.State {
	case Recovering:
		return fmt.Errorf("%w (last failure: %s)", ErrRecovering, h.LastFailure)
	case GivenUp:
		return fmt.Errorf("%w (last failure: %s)", ErrGivenUp, h.LastFailure)
	}
	return nil
}

// Running reports whether the engine takes requests.
func (e *Engine) Running() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.stopped && e.health.err() == nil
}

// Times of an engine's instances.
const (
	steadyTime  = 60 * time.Second // an instance that ran so long is not one that fails at its start
	secondPause = 5 * time.Second  // before the second restart of those that do; there is no third
	loadWait    = 30 * time.Second // that requests wait for weights without progress
)

// An instance is the network that an engine runs, as far as it can be built anew.
type instance struct {
	started  time.Time // the instance
	idle     time.Time // since when there was no request
	strikes  int       // faults one after another
	retry    time.Time // when the next one is to be loaded
	loading  chan loaded
	cancel   context.CancelFunc
	began    time.Time     // the loading
	progress *atomic.Int64 // nanoseconds after that, when loading last came on
}

// loaded is what a Loader came to.
type loaded struct {
	net      model.Network
	proposer Proposer
	err      error
}

func (e *Engine) setHealth(change func(h *Health)) {
	e.mu.Lock()
	change(&e.health)
	e.mu.Unlock()
}

// attend takes a network that was loaded, and has one loaded where it is time to.
func (e *Engine) attend() {
	i := &e.instance
	if i.loading != nil {
		select {
		case l := <-i.loading:
			i.loading = nil
			i.cancel()
			e.loaded(l)
		default:
			e.endImpatient()
		}
	}
	if e.net != nil || i.loading != nil {
		return
	}
	switch e.health.State { // the loop alone changes it
	case Recovering:
		if !time.Now().Before(i.retry) {
			e.load()
		}
	case Released:
		if e.queued() > 0 {
			e.setHealth(func(h *Health) { h.State = Loading })
			e.load()
		}
	}
}

// patience is when a request no longer waits for the weights: so long after it came, or after loading last came on.
func (i *instance) patience(s *Stream) time.Time {
	last := i.began.Add(time.Duration(i.progress.Load()))
	if came := s.timing.Submitted; came.After(last) {
		last = came
	}
	return last.Add(loadWait)
}

// endImpatient ends the requests that waited too long for the weights.
func (e *Engine) endImpatient() {
	e.mu.Lock()
	waiting := slices.Clone(e.waiting)
	e.mu.Unlock()
	for _, s := range waiting {
		if !time.Now().Before(e.instance.patience(s)) {
			e.take(s)
			e.stats.failures.Add(1)
			s.end(Failed, ErrResource)
		}
	}
}

func (e *Engine) queued() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.waiting)
}

// load has the network built beside the loop, which goes on ending requests that are cancelled.
func (e *Engine) load() {
	i := &e.instance
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan loaded, 1)
	began, progress := time.Now(), new(atomic.Int64)
	i.loading, i.cancel, i.began, i.progress = done, cancel, began, progress
	go func() {
		var l loaded
		err := e.guarded(func() (err error) {
			l.net, l.proposer, err = e.o.Loader.Load(ctx, func() { progress.Store(int64(time.Since(began))) })
			return err
		})
		l.err = err
		done <- l
		e.signal()
	}()
}

// loaded takes what was loaded.
func (e *Engine) loaded(l loaded) {
	restored := e.health.State == Loading
	switch {
	case l.err != nil && restored:
		e.setHealth(func(h *Health) { h.State, h.LastFailure = Released, l.err.Error(); h.RestoreFailures++ })
		e.o.Log(fmt.Sprintf("Weights could not be loaded again: %v", l.err))
		e.endWaiting(Failed, l.err)
	case l.err != nil:
		e.fault(l.err)
	default:
		e.use(l.net, l.proposer)
		e.instance.idle = time.Now()
		e.setHealth(func(h *Health) {
			h.State = Ready
			if restored {
				h.Restores++
			} else {
				h.Restarts++
			}
		})
	}
}

// abandon ends a loading that is under way.
func (e *Engine) abandon() {
	if i := &e.instance; i.loading != nil {
		i.cancel()
		<-i.loading
		i.loading = nil
	}
	e.setHealth(func(h *Health) { h.State = Stopped })
}

// fail ends the requests under way with the error of a pass, and the engine's instance with them where another can be
// built.
func (e *Engine) fail(err error) {
	end := slices.Clone(e.active)
	if e.o.Fault != nil {
		e.o.Fault(describe(err, end))
	}
	if e.o.Loader != nil {
		end = append(end, e.suspended...)
		e.suspended = nil
		e.fault(err) // before anyone learns of it
	}
	for _, s := range end {
		e.guarded(func() error { e.release(s); return nil }) // which may be what fails
		e.finish(s, Failed, err)
	}
	e.compact()
	if e.o.Loader != nil {
		e.net = nil
		e.prefixes.forget()
		e.o.Loader.Discard()
	}
}

// A Fault is what an engine knows of a pass that failed.
type Fault struct {
	Err      error
	Stack    []byte         // of a panic; nil without one
	Requests []FaultRequest // that were under way
}

// A FaultRequest is a request of a pass that failed.
type FaultRequest struct {
	Prompt    []int32 // the request's own
	Processed int     // rows that are part of the lane
	Generated int     // tokens chosen
	Inputs    []int32 // of the cycle: the anchor and its proposals
	Seed      uint64
}

func describe(err error, streams []*Stream) *Fault {
	f := &Fault{Err: err}
	var p *panicError
	if errors.As(err, &p) {
		f.Stack = p.stack
	}
	for _, s := range streams {
		f.Requests = append(f.Requests, FaultRequest{s.request.Prompt, s.at, s.chosen, slices.Clone(s.inputs), s.request.Seed})
	}
	return f
}

// fault says when the next instance is built: at once, after a pause where the last one failed soon, and not at all where
// it was the third to do so.
func (e *Engine) fault(err error) {
	i := &e.instance
	if time.Since(i.started) >= steadyTime {
		i.strikes = 0
	}
	i.strikes++
	i.retry = time.Now()
	state := Recovering
	switch i.strikes {
	case 1:
		e.o.Log(fmt.Sprintf("Engine failed and starts again: %v", err))
	case 2:
		i.retry = i.retry.Add(secondPause)
		e.o.Log(fmt.Sprintf("Engine failed again and starts in %v: %v", secondPause, err))
	default:
		state = GivenUp
		e.o.Log(fmt.Sprintf("Engine failed too often and does not start again: %v", err))
	}
	e.setHealth(func(h *Health) { h.State, h.LastFailure = state, err.Error(); h.Failures++ })
	if state == GivenUp {
		e.endWaiting(Failed, e.health.err())
	}
}

// wait waits for work: a request, a network that is loaded, or the time to load one, to release it or to write what is kept.
func (e *Engine) wait() {
	due := e.due()
	if due.IsZero() {
		<-e.wake
		return
	}
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-e.wake:
	case <-timer.C:
		e.retire()
	}
}

// due is when the engine is to do something of itself; zero: never.
func (e *Engine) due() (due time.Time) {
	i := &e.instance
	at := func(t time.Time) {
		if due.IsZero() || t.Before(due) {
			due = t
		}
	}
	switch {
	case i.loading != nil:
		e.mu.Lock()
		for _, s := range e.waiting {
			at(i.patience(s))
		}
		e.mu.Unlock()
	case e.health.State == Recovering:
		at(i.retry)
	case e.net != nil:
		if e.o.IdleRelease > 0 && e.o.Loader != nil {
			at(i.idle.Add(e.o.IdleRelease))
		}
		if p, t := e.prefixes.next(); p != nil {
			at(t)
		}
	}
	return due
}

// retire releases the weights of an engine that was idle for long enough.
func (e *Engine) retire() {
	i := &e.instance
	if e.net == nil || e.o.Loader == nil || e.o.IdleRelease <= 0 || time.Since(i.idle) < e.o.IdleRelease || e.queued() > 0 {
		return
	}
	if _, keeps := e.backend.(model.Unloader); !keeps {
		e.prefixes.stash()
		e.prefixes.clear()
		e.publishCache()
	}
	e.net, e.proposer = nil, nil
	e.o.Loader.Release()
	e.setHealth(func(h *Health) { h.State = Released; h.Released++ })
	e.o.Log(fmt.Sprintf("Weights released after %v without a request", e.o.IdleRelease))
}
