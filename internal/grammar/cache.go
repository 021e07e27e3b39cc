package grammar

import (
	"container/list"
	"context"
	"fmt"
	"sync"
)

// A Cache keeps what was last made of sources, such as grammars. What is asked for by several at once is made once. It is
// safe for concurrent use.
type Cache[V any] struct {
	capacity, budget int

	mu      sync.Mutex
	entries map[string]*list.Element // of *cached[V]
	order   list.List                // the last used first
	bytes   int
	flights map[string]*flight[V]
	hits    int64
	misses  int64
}

type cached[V any] struct {
	key   string
	value V
}

// A flight is a value being made.
type flight[V any] struct {
	done    chan struct{}
	waiting int
	cancel  context.CancelFunc
	value   V
	err     error
}

// CacheStats are the counters of a Cache.
type CacheStats struct {
	Entries, Capacity              int
	SourceBytes, SourceBudgetBytes int
	Hits, Misses                   int64
}

// NewCache returns a cache of at most so many values, whose sources have at most so many bytes together.
func NewCache[V any](capacity, bytes int) *Cache[V] {
	return &Cache[V]{
		capacity: capacity, budget: bytes, entries: map[string]*list.Element{}, flights: map[string]*flight[V]{},
	}
}

// Get returns the value of a source, making it if it is not there. It waits no longer than ctx allows; the context that
// make gets ends when nobody waits any more. Errors are not kept.
func (c *Cache[V]) Get(ctx context.Context, source string, make func(context.Context) (V, error)) (V, error) {
	c.mu.Lock()
	if e, ok := c.entries[source]; ok {
		c.hits++
		c.order.MoveToFront(e)
		c.mu.Unlock()
		return e.Value.(*cached[V]).value, nil
	}
	if err := context.Cause(ctx); err != nil {
		c.mu.Unlock()
		var zero V
		return zero, err
	}
	f, ok := c.flights[source]
	if ok {
		c.hits++
	} else {
		c.misses++
		f = c.take(ctx, source, make)
	}
	f.waiting++
	c.mu.Unlock()
	return c.wait(ctx, source, f)
}

// take starts to make a value.
func (c *Cache[V]) take(ctx context.Context, source string, make func(context.Context) (V, error)) *flight[V] {
	f := &flight[V]{done: newSignal()}
	ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.flights[source] = f
	go func() {
		defer f.cancel()
		f.value, f.err = protected(ctx, make)
		c.land(source, f)
	}()
	return f
}

func newSignal() chan struct{} { return make(chan struct{}) }

// protected turns a panic into an error: it would end the process, and is one request's alone.
func protected[V any](ctx context.Context, make func(context.Context) (V, error)) (v V, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("grammar: compiling failed: %v", p)
		}
	}()
	return make(ctx)
}

// land keeps the value that was made.
func (c *Cache[V]) land(source string, f *flight[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flights[source] == f {
		delete(c.flights, source)
	}
	close(f.done)
	if f.err != nil || len(source) > c.budget || c.entries[source] != nil {
		return
	}
	c.entries[source] = c.order.PushFront(&cached[V]{source, f.value})
	c.bytes += len(source)
	for len(c.entries) > c.capacity || c.bytes > c.budget {
		last := c.order.Back()
		old := c.order.Remove(last).(*cached[V])
		delete(c.entries, old.key)
		c.bytes -= len(old.key)
	}
}

// wait returns what a flight brings. The last to leave one ends it.
func (c *Cache[V]) wait(ctx context.Context, source string, f *flight[V]) (V, error) {
	select {
	case <-f.done:
		return f.value, f.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.waiting--; f.waiting == 0 {
		f.cancel()
		// Who asks from here on needs one that is not being ended.
		if c.flights[source] == f {
			delete(c.flights, source)
		}
	}
	var zero V
	return zero, context.Cause(ctx)
}

// Stats returns the counters.
func (c *Cache[V]) Stats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return CacheStats{
		Entries: len(c.entries), Capacity: c.capacity,
		SourceBytes: c.bytes, SourceBudgetBytes: c.budget,
		Hits: c.hits, Misses: c.misses,
	}
}
