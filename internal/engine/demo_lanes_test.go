package engine_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"splash/internal/engine"
	"splash/internal/target"
)

// TestDemoLanes: with three requests at once, one answer in three was once another's. Requests of 1, 37 and 400 tokens, and
// then a fourth, answer as they do alone, ten times over, from random moments on, while one beside them is cancelled on its
// way and another takes its lane.
func TestDemoLanes(t *testing.T) {
	m, err := target.Open(t.Context(), target.Options{Backend: "cpu", Engine: engine.Options{Lanes: 4}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	e := engine.New(m.Network, m.Engine)
	defer e.Close()
	text := m.Tokenizer.Encode(strings.Repeat("The cat sat on the mat, and the dog asked: what is the capital of France? ", 30), true)
	var prompts [][]int32
	for i, n := range []int{1, 37, 400, 64} {
		prompts = append(prompts, text[3*i:][:n])
	}
	ask := func(ctx context.Context, prompt []int32, atMost int) []int32 {
		s, err := e.Submit(ctx, engine.Request{Prompt: prompt, MaxTokens: 20})
		if err != nil {
			t.Error(err)
			return nil
		}
		var tokens []int32
		for more := true; more && len(tokens) < atMost; {
			tokens, more = s.Next(tokens)
		}
		return tokens
	}
	var alone [][]int32
	for _, p := range prompts {
		alone = append(alone, ask(t.Context(), p, 20))
	}
	for round := range 10 {
		var wg sync.WaitGroup
		start := func(f func()) {
			wait := time.Duration(rand.IntN(5000)) * time.Microsecond
			wg.Go(func() { time.Sleep(wait); f() })
		}
		for i := range 3 + round%2 {
			start(func() {
				if got := ask(t.Context(), prompts[i], 20); !slices.Equal(got, alone[i]) {
					t.Errorf("round %d: request %d answers %v, alone %v", round, i, got, alone[i])
				}
			})
		}
		start(func() {
			ctx, cancel := context.WithCancel(t.Context())
			ask(ctx, text[100+round:][:90], 1+rand.IntN(15))
			cancel()
			if got := ask(t.Context(), prompts[1], 20); !slices.Equal(got, alone[1]) {
				t.Errorf("round %d: in the lane of one that was cancelled: %v, alone %v", round, got, alone[1])
			}
		})
		wg.Wait()
	}
}
