package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/internal/model"
)

// paced makes a fake's passes take time: so much a row.
func paced(f *fake, row time.Duration) {
	f.fail = func(p *model.Pass) error {
		rows, _ := p.Rows()
		time.Sleep(time.Duration(rows) * row)
		return nil
	}
}

// submit hands in a request that must be taken.
func submit(t *testing.T, e *Engine, r Request) *Stream {
	t.Helper()
	s, err := e.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// finished reads a stream to its end.
func finished(t *testing.T, s *Stream) []int32 {
	t.Helper()
	var tokens []int32
	for more := true; more; {
		tokens, more = s.Next(tokens)
	}
	if _, err := s.End(); err != nil {
		t.Error(err)
	}
	return tokens
}

// TestPriorities: with one lane, a foreground request suspends the one that runs, background ones come last, and equals
// keep their order. Every text is the one it is alone.
func TestPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(97)
		paced(f, time.Millisecond)
		s := newScript(f, func() int { return 3 })
		e := New(f, Options{Context: 1 << 20, Lanes: 1, Proposer: s, Vocab: 97})
		defer e.Close()
		var requests []Request
		for i, p := range []Priority{Normal, Background, Normal, Foreground, Background, Foreground} {
			requests = append(requests, Request{Prompt: prompt(50+i, uint64(i)), MaxTokens: 30 + i, Priority: p})
		}
		streams := []*Stream{submit(t, e, requests[0])}
		time.Sleep(90 * time.Millisecond) // the first has read its prompt and says something
		for _, r := range requests[1:] {
			streams = append(streams, submit(t, e, r))
		}
		synctest.Wait()
		for i, l := range e.Live() {
			if l.Priority != requests[i].Priority || l.Prompt != 50+i || l.Limit != 30+i {
				t.Errorf("request %d is told as %+v", i, l)
			}
		}
		ended := make([]time.Time, len(streams))
		for i, s := range streams {
			if d := cmp.Diff(text(t, requests[i]), finished(t, s)); d != "" {
				t.Errorf("request %d: %s", i, d)
			}
			ended[i] = s.Timing().Ended
		}
		order := []int{3, 5, 0, 2, 1, 4}
		if !slices.IsSortedFunc(order, func(a, b int) int { return ended[a].Compare(ended[b]) }) {
			t.Errorf("the requests ended at %v", ended)
		}
		synctest.Wait()
		if s.fault != nil {
			t.Error(s.fault)
		}
		if got := e.Stats(); got.PrioritySuspensions != 1 || got.Resumptions != 1 || len(e.Live()) != 0 {
			t.Errorf("figures %+v, %d live", got.Figures, len(e.Live()))
		}
	})
}

// TestSuspendAnywhere suspends a request at every pass it has, in its prompt and in its answer.
func TestSuspendAnywhere(t *testing.T) {
	r := Request{Prompt: prompt(300, 1), MaxTokens: 20, Priority: Background}
	urgent := Request{Prompt: prompt(5, 2), MaxTokens: 2, Priority: Foreground}
	want, wantUrgent := text(t, r), text(t, urgent)
	for at := range 15 {
		f := newFake(97)
		s := newScript(f, func() int { return 2 })
		e := newEngine(f, Options{Context: 1 << 20, Lanes: 1, Chunk: 64, Proposer: s, Vocab: 97})
		first := newStream(context.Background(), r, 1<<20)
		first.id = 1
		e.waiting = append(e.waiting, first)
		run := func(passes int) {
			for range passes {
				if e.admit(); len(e.active) > 0 {
					e.step()
				}
			}
		}
		run(at)
		second := newStream(context.Background(), urgent, 1<<20)
		second.id = 2
		e.waiting = insert(e.waiting, second)
		run(100)
		got, _ := first.Poll(nil)
		gotUrgent, _ := second.Poll(nil)
		if d := cmp.Diff([][]int32{want, wantUrgent}, [][]int32{got, gotUrgent}); d != "" {
			t.Errorf("suspended after %d passes: %s", at, d)
		}
		suspended := int64(1)
		if at == 0 || first.timing.Ended.Before(second.timing.Started) {
			suspended = 0
		}
		if e.figures.PrioritySuspensions != suspended || s.fault != nil || len(f.history) != 0 {
			t.Errorf("after %d passes: %d suspensions, %v, %d lanes left", at, e.figures.PrioritySuspensions, s.fault, len(f.history))
		}
	}
}

// TestLowerWaits: a request below a lane that runs does not start, though there is another lane; one of its priority does.
func TestLowerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(97)
		paced(f, time.Millisecond)
		e := New(f, Options{Context: 1 << 20, Lanes: 4})
		defer e.Close()
		high := submit(t, e, Request{Prompt: prompt(10, 1), MaxTokens: 50, Priority: Foreground})
		low := submit(t, e, Request{Prompt: prompt(10, 2), MaxTokens: 5, Priority: Background})
		same := submit(t, e, Request{Prompt: prompt(10, 3), MaxTokens: 5, Priority: Foreground})
		finished(t, same)
		if !low.Timing().Started.IsZero() {
			t.Error("a background request started beside one in the foreground")
		}
		if s := e.Stats(); s.Waiting != 1 || s.Admission.Lanes != 1 || s.Admission.Oldest == 0 {
			t.Errorf("%d wait: %+v", s.Waiting, s.Admission)
		}
		finished(t, high)
		finished(t, low)
	})
}

// TestCancelSuspended: a request that ends while it is suspended leaves nothing.
func TestCancelSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(97)
		paced(f, time.Millisecond)
		e := New(f, Options{Context: 1 << 20, Lanes: 1})
		ctx, cancel := context.WithCancel(t.Context())
		s, err := e.Submit(ctx, Request{Prompt: prompt(40, 1)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		high := submit(t, e, Request{Prompt: prompt(10, 2), MaxTokens: 50, Priority: Foreground})
		time.Sleep(20 * time.Millisecond)
		if got := e.Stats(); got.Suspended != 1 || got.Active != 1 {
			t.Errorf("%d suspended, %d active", got.Suspended, got.Active)
		}
		cancel()
		for more := true; more; _, more = s.Next(nil) {
		}
		if why, err := s.End(); why != Cancelled || !errors.Is(err, context.Canceled) {
			t.Errorf("ended %v: %v", why, err)
		}
		finished(t, high)
		e.Close()
		if len(f.history) != 0 || slices.ContainsFunc(f.saved, func(h []uint64) bool { return h != nil }) {
			t.Errorf("%d lanes left, checkpoints %v", len(f.history), f.saved)
		}
	})
}
