package engine_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/engine"
	"splash/internal/model"
	"splash/internal/target"
)

// hooked calls a function before every pass of a network.
type hooked struct {
	model.Network
	before func()
}

func (h *hooked) Forward(p *model.Pass) error {
	h.before()
	return h.Network.Forward(p)
}

// TestDemoSuspended suspends a request at every few passes, in its prompt and in its answer, on every backend and
// architecture: what it says is what it says undisturbed, to the last token.
func TestDemoSuspended(t *testing.T) {
	dir := t.TempDir()
	paths := map[string]string{"demonstration": ""}
	for _, family := range []string{"tiny-qwen35", "tiny-qwen35moe", "tiny-flint", "tiny-qwen4exp"} {
		r := fixtures.Recipe{Family: family, Seed: 1, Formats: fixtures.Uniform(dequant.Q8_0)}
		g, err := r.GGUF()
		if err != nil {
			t.Fatal(err)
		}
		paths[family] = filepath.Join(dir, family+".gguf")
		if err := g.WriteFile(paths[family]); err != nil {
			t.Fatal(err)
		}
	}
	for _, backend := range []string{"oracle", "cpu"} {
		for name, path := range paths {
			if backend == "oracle" && name != "tiny-qwen35" && name != "tiny-qwen4exp" {
				continue // it takes long, and keeps the states of all in one way
			}
			t.Run(backend+" "+name, func(t *testing.T) { suspendOn(t, backend, path) })
		}
	}
}

func suspendOn(t *testing.T, backend, path string) {
	m, err := target.Open(t.Context(), target.Options{Path: path, Backend: backend, Engine: engine.Options{Context: 512, Chunk: 24, Lanes: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	prompt := m.Tokenizer.Encode("Once there was a fox who asked every animal of the forest the way to the sea. ", true)
	for len(prompt) < 70 {
		prompt = append(prompt, prompt...)
	}
	r := engine.Request{Prompt: prompt[:70], MaxTokens: 12, Priority: engine.Background}
	other := engine.Request{Prompt: prompt[7:20], MaxTokens: 3, Priority: engine.Foreground}

	net := &hooked{m.Network, func() {}}
	run := func(before func(e *engine.Engine, pass int)) ([]int32, engine.Stats) {
		e := engine.New(net, m.Engine)
		defer e.Close()
		passes := 0
		net.before = func() {
			passes++
			before(e, passes)
		}
		return say(t, e, r), e.Stats()
	}
	want, _ := run(func(*engine.Engine, int) {})
	suspensions := int64(0)
	got, stats := run(func(e *engine.Engine, pass int) {
		if pass%4 == 2 && pass < 60 {
			if _, err := e.Submit(t.Context(), other); err != nil {
				t.Error(err)
			}
			suspensions++
		}
	})
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if stats.PrioritySuspensions < min(2, suspensions) || stats.Resumptions != stats.PrioritySuspensions {
		t.Errorf("%d suspensions, %d resumptions", stats.PrioritySuspensions, stats.Resumptions)
	}
}

func say(t *testing.T, e *engine.Engine, r engine.Request) (tokens []int32) {
	t.Helper()
	s, err := e.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for more := true; more; {
		tokens, more = s.Next(tokens)
	}
	if _, err := s.End(); err != nil {
		t.Error(err)
	}
	return tokens
}
