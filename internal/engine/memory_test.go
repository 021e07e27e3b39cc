package engine

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/internal/model"
)

// sized is a fake whose backend says what lanes take: 1000 bytes, and 10 a token.
type sized struct{ *fake }

type sizedBackend struct{ fakeBackend }

func (sizedBackend) LaneBytes() (lane, token int64) { return 1000, 10 }

func (s sized) Backend() model.Backend { return sizedBackend{fakeBackend{fake: s.fake}} }

// TestMemory decodes requests that do not fit together: some wait, some give up their lanes and read again, and every text
// is the one it is alone.
func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(97)
		paced(f, 100*time.Microsecond)
		s := newScript(f, func() int { return 3 })
		const limit = 12_000
		e := New(sized{f}, Options{Context: 1 << 20, Memory: limit, Proposer: s, Vocab: 97})
		var requests []Request
		var streams []*Stream
		random := rand.New(rand.NewPCG(1, 2))
		for i := range 12 {
			r := Request{Prompt: prompt(10+random.IntN(200), uint64(i)), MaxTokens: 350 + random.IntN(300), Priority: Priority(i%3 - 1)}
			requests = append(requests, r)
			streams = append(streams, submit(t, e, r))
			time.Sleep(20 * time.Millisecond)
			if m := e.Stats().Memory; m.Charged > limit || m.Limit != limit {
				t.Errorf("%+v", m)
			}
		}
		for i, s := range streams {
			if d := cmp.Diff(text(t, requests[i]), finished(t, s)); d != "" {
				t.Errorf("request %d: %s", i, d)
			}
		}
		synctest.Wait()
		got := e.Stats()
		if got.ResourceSuspensions == 0 || got.ReplayTokens == 0 || got.Memory.Denied == 0 || got.Memory.Peak > limit {
			t.Errorf("%+v %+v", got.Figures, got.Memory)
		}
		e.Close()
		if e.memory.charged != 0 || len(f.history) != 0 || slices.ContainsFunc(f.saved, func(h []uint64) bool { return h != nil }) || s.fault != nil {
			t.Errorf("%d bytes and %d lanes left, %v", e.memory.charged, len(f.history), s.fault)
		}
	})
}

// TestCapacity: a request that does not fit alone is refused, at its start or where it grows too large; those that do fit
// go on. What is kept of prompts gives way.
func TestCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(97)
		paced(f, 100*time.Microsecond)
		e := New(sized{f}, Options{Context: 1 << 20, Memory: 5000})
		defer e.Close()
		small := Request{Prompt: prompt(100, 1), MaxTokens: 100}
		finished(t, submit(t, e, small))
		if e.Stats().Cache.Entries == 0 {
			t.Error("nothing is kept")
		}
		if why, err := ended(submit(t, e, Request{Prompt: prompt(500, 2), MaxTokens: 1})); why != Failed || !errors.Is(err, ErrCapacity) {
			t.Errorf("ended %v: %v", why, err)
		}
		grows := submit(t, e, Request{Prompt: prompt(100, 3), MaxTokens: 1000})
		fits := submit(t, e, small)
		if d := cmp.Diff(text(t, small), finished(t, fits)); d != "" {
			t.Error(d)
		}
		if why, err := ended(grows); why != Failed || !errors.Is(err, ErrCapacity) {
			t.Errorf("ended %v: %v", why, err)
		}
		large := Request{Prompt: prompt(370, 4), MaxTokens: 5} // 4840 of 5000 bytes
		if d := cmp.Diff(text(t, large), finished(t, submit(t, e, large))); d != "" {
			t.Error(d)
		}
		synctest.Wait()
		if s := e.Stats(); s.CapacityFailures != 2 || s.Memory.Charged > 5000 {
			t.Errorf("%+v %+v", s.Figures, s.Memory)
		}
	})
}
