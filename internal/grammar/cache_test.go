package grammar

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCache(t *testing.T) {
	ctx := context.Background()
	c := NewCache[int](3, 100)
	made := 0
	get := func(key string) int {
		v, err := c.Get(ctx, key, func(context.Context) (int, error) { made++; return len(key), nil })
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, key := range []string{"a", "bb", "a", "ccc", "a", "dddd", "a", "bb"} {
		if get(key) != len(key) {
			t.Error(key)
		}
	}
	want := CacheStats{Entries: 3, Capacity: 3, SourceBytes: 7, SourceBudgetBytes: 100, Hits: 3, Misses: 5}
	if diff := cmp.Diff(want, c.Stats()); diff != "" || made != 5 {
		t.Errorf("%d made; %s", made, diff)
	}
	get(strings.Repeat("x", 95)) // drops one
	if s := c.Stats(); s.Entries != 3 || s.SourceBytes != 98 {
		t.Errorf("%+v", s)
	}
	get(strings.Repeat("y", 101)) // is not kept
	if s := c.Stats(); s.Entries != 3 {
		t.Errorf("%+v", s)
	}
	failure := errors.New("failure")
	for range 2 {
		if _, err := c.Get(ctx, "e", func(context.Context) (int, error) { return 0, failure }); err != failure {
			t.Error(err)
		}
	}
	if _, err := c.Get(ctx, "p", func(context.Context) (int, error) { panic("no") }); err == nil || !strings.Contains(err.Error(), "no") {
		t.Error(err)
	}
}

// TestCacheOnce has many ask for one value at once.
func TestCacheOnce(t *testing.T) {
	c := NewCache[int](3, 100)
	var made atomic.Int32
	start := newSignal()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			v, err := c.Get(context.Background(), "k", func(context.Context) (int, error) {
				<-start
				return int(made.Add(1)), nil
			})
			if v != 1 || err != nil {
				t.Error(v, err)
			}
		})
	}
	for c.Stats().Hits+c.Stats().Misses < 20 {
		runtime.Gosched()
	}
	close(start)
	wg.Wait()
	if made.Load() != 1 {
		t.Errorf("made %d times", made.Load())
	}
}

// TestCacheCancelled has those who wait leave: the first alone, then all.
func TestCacheCancelled(t *testing.T) {
	c := NewCache[int](3, 100)
	var wg sync.WaitGroup
	first, cancelFirst := context.WithCancel(context.Background())
	second, cancelSecond := context.WithCancel(context.Background())
	ended := newSignal()
	work := func(ctx context.Context) (int, error) {
		<-ctx.Done()
		close(ended)
		return 0, ctx.Err()
	}
	for _, ctx := range []context.Context{first, second} {
		wg.Go(func() {
			if _, err := c.Get(ctx, "k", work); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	for c.Stats().Hits+c.Stats().Misses < 2 {
		runtime.Gosched()
	}
	cancelFirst()
	select {
	case <-ended:
		t.Error("the work ended while somebody waited")
	default:
	}
	cancelSecond()
	<-ended
	wg.Wait()
	if v, err := c.Get(context.Background(), "k", func(context.Context) (int, error) { return 7, nil }); v != 7 || err != nil {
		t.Error(v, err)
	}
}
