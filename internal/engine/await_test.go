package engine

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// beginAlike is n prompts whose first tokens are the same, then tail tokens of their own.
func beginAlike(n, shared, tail int) (all []Request) {
	system := prompt(shared, 1)
	for i := range n {
		all = append(all, Request{Prompt: append(slices.Clone(system), prompt(tail, uint64(i+2))...), MaxTokens: 5, Tail: 3})
	}
	return all
}

// TestSharedBeginningIsReadOnce hands in requests that begin alike, at once: one reads the beginning, the others wait and
// start where they part. Every text is the one it is alone.
func TestSharedBeginningIsReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(97)
		paced(f, time.Millisecond)
		e := New(f, Options{Context: 1 << 20, Chunk: 100, Lanes: 4})
		defer e.Close()
		requests := beginAlike(6, 2000, 40)
		other := Request{Prompt: prompt(300, 99), MaxTokens: 5}
		var streams []*Stream
		for _, r := range append(requests, other) {
			streams = append(streams, submit(t, e, r))
		}
		time.Sleep(time.Second)
		if s := e.Stats(); s.Admission.Prefix != 5 || s.Active != 1 || streams[6].Timing().Ended.IsZero() {
			t.Errorf("%d wait for a beginning, %d have lanes; the request that shares nothing ended at %v", s.Admission.Prefix, s.Active,
				streams[6].Timing().Ended)
		}
		for i, s := range streams[:6] {
			if d := cmp.Diff(text(t, requests[i]), finished(t, s)); d != "" {
				t.Errorf("request %d: %s", i, d)
			}
			if want := 2000 / pageTokens * pageTokens; i > 0 && s.Cached() != want {
				t.Errorf("request %d began with %d tokens, want %d", i, s.Cached(), want)
			}
		}
		finished(t, streams[6])
		if s := e.Stats(); s.PromptRows > 2000+6*(40+pageTokens)+300 || s.Admission.Prefix != 0 {
			t.Errorf("%d rows were read; %d requests still wait", s.PromptRows, s.Admission.Prefix)
		}
	})
}

// TestBeginningThatWasReadIsNotAwaited: requests that find no lane once the beginning is read wait for a lane, not for it.
func TestBeginningThatWasReadIsNotAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(97)
		paced(f, time.Millisecond)
		e := New(f, Options{Context: 1 << 20, Chunk: 100, Lanes: 2})
		defer e.Close()
		for _, r := range beginAlike(6, 2000, 40) {
			r.MaxTokens = 2000
			submit(t, e, r)
		}
		for _, want := range []int{5, 0} {
			time.Sleep(1500 * time.Millisecond)
			if s := e.Stats(); s.Admission.Prefix != want {
				t.Errorf("%d of %d that wait do so for a beginning, want %d", s.Admission.Prefix, s.Waiting, want)
			}
		}
		if s := e.Stats(); s.Active != 2 || s.Waiting != 4 || s.Admission.Lanes == 0 {
			t.Errorf("%d have lanes, %d wait: %+v", s.Active, s.Waiting, s.Admission)
		}
	})
}

// TestBeginningOfOthers holds what no request waits for: a lane of a lower priority, one that was cancelled, and a beginning
// that is not kept.
func TestBeginningOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		o          Options
		first      Priority
		cancel     bool
		cached     int
		begunAfter time.Duration // of the second, at least
	}{
		"equals":              {o: Options{}, cached: 1984, begunAfter: time.Second},
		"a lower priority":    {o: Options{}, first: Background},
		"cancelled":           {o: Options{}, cancel: true},
		"without a cache":     {o: Options{Cache: -1}},
		"no room to keep any": {o: Options{Cache: 100}, begunAfter: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(97)
				paced(f, time.Millisecond)
				c.o.Context, c.o.Chunk, c.o.Lanes = 1<<20, 100, 2
				e := New(f, c.o)
				defer e.Close()
				requests := beginAlike(2, 2000, 40)
				requests[0].Priority = c.first
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				first, err := e.Submit(ctx, requests[0])
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				time.Sleep(250 * time.Millisecond)
				second := submit(t, e, requests[1])
				if c.cancel {
					time.Sleep(250 * time.Millisecond)
					cancel()
				}
				if d := cmp.Diff(text(t, requests[1]), finished(t, second)); d != "" {
					t.Error(d)
				}
				if second.Cached() != c.cached {
					t.Errorf("the second began with %d tokens, want %d", second.Cached(), c.cached)
				}
				if at := second.Timing().Started.Sub(began); at < c.begunAfter {
					t.Errorf("the second had a lane after %v", at)
				}
				if !c.cancel {
					finished(t, first)
				}
			})
		})
	}
}
