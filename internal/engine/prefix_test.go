package engine

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ask runs a request to its end and returns its tokens and how many of its prompt were cached.
func ask(t *testing.T, e *Engine, r Request) ([]int32, int) {
	t.Helper()
	s, err := e.Submit(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	var tokens []int32
	for more := true; more; {
		tokens, more = s.Next(tokens)
	}
	if _, err := s.End(); err != nil {
		t.Fatal(err)
	}
	return tokens, s.Cached()
}

// TestConversationIsReadOnce sends the turns of conversations: each turn finds what the one before it read, up to the last
// page before its generation prompt, and answers as it does on a cold engine.
func TestConversationIsReadOnce(t *testing.T) {
	const tail = 5
	e := New(newFake(97), Options{Context: 1 << 20, Chunk: 100})
	defer e.Close()
	for name, c := range map[string]struct{ first, turn int }{
		"long": {2000, 50}, "short": {40, 10}, "very long": {20_000, 300},
	} {
		base := prompt(c.first, uint64(c.first))
		var before int
		for turn := range 4 {
			r := Request{Prompt: slices.Clone(base), MaxTokens: 7, Tail: tail}
			got, cached := ask(t, e, r)
			if d := cmp.Diff(text(t, r), got); d != "" {
				t.Errorf("%s: turn %d: %s", name, turn, d)
			}
			want := 0
			if turn > 0 {
				want = (before - tail) / pageTokens * pageTokens
			}
			if cached != want {
				t.Errorf("%s: turn %d of %d tokens has %d cached, want %d", name, turn, len(base), cached, want)
			}
			before = len(base)
			// The next turn writes the generation prompt differently.
			base = append(base[:len(base)-tail], prompt(c.turn+tail, uint64(turn+c.first+1))...)
		}
		if _, cached := ask(t, e, Request{Prompt: base[:before], MaxTokens: 3, Tail: tail}); cached != (before-tail)/pageTokens*pageTokens && cached == 0 {
			t.Errorf("%s: the last prompt again has %d cached", name, cached)
		}
	}
	if s := e.Stats().Cache; s.Hits == 0 || s.Entries == 0 || s.Bytes == 0 {
		t.Errorf("figures %+v", s)
	}
}

// TestSharedBeginning sends conversations that begin alike: the second leaves a checkpoint where it departs from the
// first, which the third begins with.
func TestSharedBeginning(t *testing.T) {
	e := New(newFake(97), Options{Context: 1 << 20})
	defer e.Close()
	system := prompt(1000, 1)
	var cached []int
	for i := range 3 {
		_, n := ask(t, e, Request{Prompt: append(slices.Clone(system), prompt(100, uint64(i+2))...), MaxTokens: 2, Tail: 3})
		cached = append(cached, n)
	}
	if d := cmp.Diff([]int{0, 0, 1000 / pageTokens * pageTokens}, cached); d != "" {
		t.Error(d)
	}
	// A long one is found on the way, without a second.
	long := prompt(20_000, 9)
	ask(t, e, Request{Prompt: long, MaxTokens: 2})
	if _, n := ask(t, e, Request{Prompt: append(slices.Clone(long[:18_000]), 1, 2, 3), MaxTokens: 2}); n != 16384 {
		t.Errorf("%d tokens of a long beginning are cached", n)
	}
}

func TestCacheStaysWithinItsLimit(t *testing.T) {
	f := newFake(97)
	e := New(f, Options{Context: 1 << 20, Cache: 20_000})
	defer e.Close()
	for i := range 40 {
		ask(t, e, Request{Prompt: prompt(100+20*i, uint64(i)), MaxTokens: 2})
		if s := e.Stats().Cache; s.Bytes > 20_000 {
			t.Fatalf("%d bytes are kept", s.Bytes)
		}
	}
	s := e.Stats().Cache
	if s.Evictions == 0 || s.Entries == 0 {
		t.Errorf("figures %+v", s)
	}
	kept := 0
	for _, h := range f.saved {
		if h != nil {
			kept++
		}
	}
	if kept != s.Entries {
		t.Errorf("the backend keeps %d checkpoints, the engine knows %d", kept, s.Entries)
	}
	off := New(newFake(97), Options{Context: 1 << 20, Cache: -1})
	defer off.Close()
	p := prompt(500, 1)
	ask(t, off, Request{Prompt: p, MaxTokens: 1})
	if _, n := ask(t, off, Request{Prompt: p, MaxTokens: 1}); n != 0 {
		t.Errorf("%d tokens cached without a cache", n)
	}
}
