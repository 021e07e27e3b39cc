package engine_test

import (
	"slices"
	"strings"
	"testing"

	"splash/internal/engine"
	"splash/internal/target"
)

// TestDemoReuseAtEdges: recurrent states cannot be cut back, so what is kept of a prompt is good at its checkpoints alone.
// Prompts that part from one another beside a page's end, that end there, or that are sent twice, answer as they do on an
// engine that keeps nothing.
func TestDemoReuseAtEdges(t *testing.T) {
	m, err := target.Open(t.Context(), target.Options{Backend: "cpu", Engine: engine.Options{Lanes: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	text := m.Tokenizer.Encode(strings.Repeat("The cat sat on the mat, and the dog asked: what is the capital of France? ", 30), true)
	var requests []engine.Request
	for _, at := range []int{31, 32, 33, 63, 64, 65, 97} {
		for _, tail := range []int{1, 5} {
			p := append(slices.Clone(text[:at]), text[at+7:at+20]...)
			requests = append(requests, engine.Request{Prompt: p[:at+tail], MaxTokens: 4, Tail: tail},
				engine.Request{Prompt: p, MaxTokens: 4, Tail: tail}, engine.Request{Prompt: text[:at], MaxTokens: 4})
		}
	}
	answers := func(cache int64) (all [][]int32, cached int) {
		o := m.Engine
		o.Cache = cache
		e := engine.New(m.Network, o)
		defer e.Close()
		for _, r := range requests {
			s, err := e.Submit(t.Context(), r)
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
			all, cached = append(all, tokens), cached+s.Cached()
		}
		return all, cached
	}
	cold, none := answers(-1)
	warm, reused := answers(m.Engine.Cache)
	if none != 0 || reused == 0 {
		t.Errorf("%d tokens are reused without a cache, %d with one", none, reused)
	}
	for i := range requests {
		if !slices.Equal(cold[i], warm[i]) {
			t.Errorf("request %d of %d tokens answers %v, cold %v", i, len(requests[i].Prompt), warm[i], cold[i])
		}
	}
}
