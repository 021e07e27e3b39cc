package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/internal/model"
)

// A shop is a loader of fakes.
type shop struct {
	load func(ctx context.Context, progress func()) error // nil: at once
	made *fake                                            // the last one
	fail func(p *model.Pass) error                        // of the next ones

	loads, released, discarded atomic.Int64
}

func (s *shop) Load(ctx context.Context, progress func()) (model.Network, Proposer, error) {
	s.loads.Add(1)
	if s.load != nil {
		if err := s.load(ctx, progress); err != nil {
			return nil, nil, err
		}
	}
	s.made = newFake(97)
	s.made.fail = s.fail
	return s.made, nil, nil
}

func (s *shop) Release() { s.released.Add(1) }
func (s *shop) Discard() { s.discarded.Add(1) }

// ended reads a stream to its end and returns why it ended.
func ended(s *Stream) (Reason, error) {
	for more := true; more; _, more = s.Next(nil) {
	}
	return s.End()
}

// TestRecovery: a fault ends the requests under way; the engine starts again at once, after a pause when it fails again
// within a minute, and not at all the third time. An instance that ran for a minute counts for none before it.
func TestRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("device lost")
		fault := func(*model.Pass) error { return broken }
		f, l := newFake(97), &shop{}
		var lines []string
		e := New(f, Options{Context: 1 << 20, Lanes: 1, Loader: l, Log: func(line string) { lines = append(lines, line) }})
		defer e.Close()
		r := Request{Prompt: prompt(30, 1), MaxTokens: 5}
		want := text(t, r)
		finished(t, submit(t, e, r))
		breaks := func(net *fake) {
			t.Helper()
			net.fail = fault
			if why, err := ended(submit(t, e, r)); why != Failed || !errors.Is(err, broken) {
				t.Errorf("ended %v: %v", why, err)
			}
			synctest.Wait()
		}
		breaks(f)
		// The first restart is at once, and what the first network kept is forgotten.
		if h := e.Stats().Health; h.State != Ready || h.Restarts != 1 || h.LastFailure != "device lost" || !e.Running() {
			t.Errorf("after a fault: %+v", h)
		}
		s := submit(t, e, r)
		if d := cmp.Diff(want, finished(t, s)); d != "" || s.Cached() != 0 {
			t.Errorf("%d cached, %s", s.Cached(), d)
		}
		breaks(l.made)
		if h := e.Stats().Health; h.State != Recovering || e.Running() {
			t.Errorf("after a second fault: %+v", h)
		}
		if _, err := e.Submit(t.Context(), r); !errors.Is(err, ErrRecovering) || !strings.Contains(err.Error(), "device lost") {
			t.Errorf("a recovering engine says %v", err)
		}
		time.Sleep(secondPause)
		synctest.Wait()
		if d := cmp.Diff(want, finished(t, submit(t, e, r))); d != "" {
			t.Error(d)
		}
		// One that ran for long enough begins anew.
		time.Sleep(steadyTime)
		breaks(l.made)
		if h := e.Stats().Health; h.State != Ready || h.Restarts != 3 {
			t.Errorf("after a steady minute: %+v", h)
		}
		breaks(l.made)
		time.Sleep(secondPause)
		synctest.Wait()
		breaks(l.made)
		if h := e.Stats().Health; h.State != GivenUp || e.Running() {
			t.Errorf("after three faults: %+v", h)
		}
		if _, err := e.Submit(t.Context(), r); !errors.Is(err, ErrGivenUp) {
			t.Errorf("an engine that gave up says %v", err)
		}
		if l.loads.Load() != 4 || l.discarded.Load() != 5 || len(lines) != 5 || !strings.Contains(lines[4], "does not start again") {
			t.Errorf("%d loads, %d discards, %q", l.loads.Load(), l.discarded.Load(), lines)
		}
	})
}

// TestWaitingSurvives: a request that has no lane yet outlives a fault.
func TestWaitingSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := newFake(97), &shop{}
		passes := 0
		f.fail = func(*model.Pass) error {
			time.Sleep(time.Millisecond)
			if passes++; passes > 5 {
				panic("a kernel")
			}
			return nil
		}
		e := New(f, Options{Context: 1 << 20, Lanes: 1, Loader: l})
		defer e.Close()
		r := Request{Prompt: prompt(30, 1), MaxTokens: 50}
		first, second := submit(t, e, r), submit(t, e, r)
		if why, err := ended(first); why != Failed || !strings.Contains(err.Error(), "a kernel") {
			t.Errorf("ended %v: %v", why, err)
		}
		if d := cmp.Diff(text(t, r), finished(t, second)); d != "" {
			t.Error(d)
		}
	})
}

// TestLoadFails: a network that cannot be built again counts as a fault.
func TestLoadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(97)
		f.fail = func(*model.Pass) error { return errors.New("first") }
		l := &shop{load: func(context.Context, func()) error { return errors.New("no memory") }}
		e := New(f, Options{Context: 1 << 20, Loader: l})
		defer e.Close()
		ended(submit(t, e, Request{Prompt: prompt(3, 1)}))
		time.Sleep(secondPause)
		synctest.Wait()
		if h := e.Stats().Health; h.State != GivenUp || h.LastFailure != "no memory" || l.loads.Load() != 2 {
			t.Errorf("%d loads, %+v", l.loads.Load(), h)
		}
	})
}

// keeper is a backend that keeps its checkpoints when its weights go.
type keeper struct{ fakeBackend }

func (keeper) Unload() {}

type keeping struct{ *fake }

func (k keeping) Backend() model.Backend { return keeper{fakeBackend{fake: k.fake}} }

// keepShop loads the network on the backend that there is.
type keepShop struct {
	shop
	net keeping
}

func (s *keepShop) Load(ctx context.Context, progress func()) (model.Network, Proposer, error) {
	_, _, err := s.shop.Load(ctx, progress)
	return s.net, nil, err
}

// TestIdleRelease: the weights go after the time without a request, and come back for the next one, which waits. A backend
// that keeps its checkpoints still has what was read of the conversation.
func TestIdleRelease(t *testing.T) {
	const after = 10 * time.Minute
	r := Request{Prompt: prompt(100, 1), MaxTokens: 5}
	want := text(t, r)
	for _, keeps := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := &keepShop{net: keeping{newFake(97)}}
			l.load = func(context.Context, func()) error { time.Sleep(2 * time.Second); return nil }
			var net model.Network = l.net
			o := Options{Context: 1 << 20, IdleRelease: after, Loader: l}
			if !keeps {
				net, o.Loader = l.net.fake, &l.shop
			}
			e := New(net, o)
			defer e.Close()
			finished(t, submit(t, e, r))
			time.Sleep(after - time.Second)
			synctest.Wait()
			if h := e.Stats().Health; h.State != Ready {
				t.Errorf("too soon: %+v", h)
			}
			finished(t, submit(t, e, r)) // which begins the time anew
			time.Sleep(after - time.Second)
			synctest.Wait()
			if h := e.Stats().Health; h.State != Ready {
				t.Errorf("too soon after a request: %+v", h)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if h := e.Stats().Health; h.State != Released || h.Released != 1 || l.released.Load() != 1 || !e.Running() {
				t.Errorf("not released: %+v", h)
			}
			s := submit(t, e, r)
			time.Sleep(time.Second)
			if st := e.Stats(); st.Health.State != Loading || st.Admission.Memory != 1 {
				t.Errorf("while it loads: %+v %+v", st.Health, st.Admission)
			}
			cached := 0
			if keeps {
				cached = 96
			}
			if d := cmp.Diff(want, finished(t, s)); d != "" || s.Cached() != cached {
				t.Errorf("keeps %v: %d cached, %s", keeps, s.Cached(), d)
			}
			synctest.Wait()
			if h := e.Stats().Health; h.State != Ready || h.Restores != 1 || h.Restarts != 0 {
				t.Errorf("not restored: %+v", h)
			}
		})
	}
}

// TestRestoreFails: requests that wait for weights end with the reason, the next one tries again; without progress they
// wait 30 s.
func TestRestoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &shop{load: func(context.Context, func()) error { return fmt.Errorf("the file is gone") }}
		e := New(newFake(97), Options{Context: 1 << 20, IdleRelease: time.Minute, Loader: l})
		defer e.Close()
		time.Sleep(time.Minute + time.Second)
		r := Request{Prompt: prompt(10, 1), MaxTokens: 2}
		if why, err := ended(submit(t, e, r)); why != Failed || !strings.Contains(err.Error(), "the file is gone") {
			t.Errorf("ended %v: %v", why, err)
		}
		synctest.Wait()
		if h := e.Stats().Health; h.State != Released || h.RestoreFailures != 1 {
			t.Errorf("%+v", h)
		}
		l.load = func(_ context.Context, progress func()) error {
			for range 3 {
				time.Sleep(20 * time.Second)
				progress()
			}
			time.Sleep(40 * time.Second)
			return nil
		}
		began := time.Now()
		if why, err := ended(submit(t, e, r)); why != Failed || !errors.Is(err, ErrResource) {
			t.Errorf("ended %v: %v", why, err)
		}
		if took := time.Since(began); took != 90*time.Second {
			t.Errorf("it waited %v", took)
		}
		// Loading goes on for the next one.
		finished(t, submit(t, e, r))
	})
}

// TestCloseWhileLoading ends a loading that would take for ever.
func TestCloseWhileLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &shop{load: func(ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() }}
		e := New(newFake(97), Options{Context: 1 << 20, IdleRelease: time.Minute, Loader: l})
		time.Sleep(2 * time.Minute)
		s := submit(t, e, Request{Prompt: prompt(10, 1)})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		gone, err := e.Submit(ctx, Request{Prompt: prompt(10, 1)})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if why, _ := ended(gone); why != Cancelled {
			t.Errorf("cancelled, it ended %v", why)
		}
		e.Close()
		if why, err := ended(s); why != Cancelled || !errors.Is(err, ErrStopped) {
			t.Errorf("ended %v: %v", why, err)
		}
	})
}
