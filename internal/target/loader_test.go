package target

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/engine"
	"splash/internal/model"
	"splash/metal"
)

// tiny writes a generated model and returns its path.
func tiny(t *testing.T, family string) string {
	t.Helper()
	r := fixtures.Recipe{Family: family, Seed: 1, Formats: fixtures.Uniform(dequant.Q8_0)}
	g, err := r.GGUF()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), family+".gguf")
	if err := g.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// say runs a greedy request, and returns how many tokens of its prompt were cached.
func say(t *testing.T, e *engine.Engine, prompt []int32) ([]int32, int) {
	t.Helper()
	s, err := e.Submit(t.Context(), engine.Request{Prompt: prompt, MaxTokens: 8})
	if err != nil {
		t.Fatal(err)
	}
	var tokens []int32
	for more := true; more; {
		tokens, more = s.Next(tokens)
	}
	if _, err := s.End(); err != nil {
		t.Error(err)
	}
	return tokens, s.Cached()
}

// until waits for an engine to be in a state.
func until(t *testing.T, e *engine.Engine, want engine.State) {
	t.Helper()
	for e.Stats().Health.State != want {
		if t.Context().Err() != nil {
			t.Fatalf("the engine is %v, not %v", e.Stats().Health.State, want)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestReleaseAndRestore: weights go when there is nothing to do and come back, with what was kept of prompts; after a fault
// the network is another, without it. The text stays the same.
func TestReleaseAndRestore(t *testing.T) {
	for _, c := range []struct {
		backend, path string
	}{{"cpu", ""}, {"cpu", tiny(t, "tiny-qwen4exp")}, {"oracle", tiny(t, "tiny-qwen35")}, {"metal", ""}, {"metal", tiny(t, "tiny-qwen35")}} {
		if c.backend == "metal" && metal.Usable() != nil {
			continue
		}
		m, err := Open(t.Context(), Options{
			Path: c.path, Backend: c.backend, Images: t.TempDir(), Engine: engine.Options{Context: 512, IdleRelease: time.Millisecond},
		})
		if err != nil {
			t.Fatal(err)
		}
		prompt := m.Tokenizer.Encode(strings.Repeat("The fox asked the way to the sea. ", 8), true)
		e := engine.New(m.Network, m.Engine)
		want, _ := say(t, e, prompt)
		for range 2 {
			until(t, e, engine.Released)
			if c.path != "" && runtime.GOOS == "linux" {
				if kb := resident(t, c.path); kb != 0 {
					t.Errorf("%d KB of a released model's file are in memory", kb)
				}
			}
			got, cached := say(t, e, prompt)
			if d := cmp.Diff(want, got); d != "" || cached != (len(prompt)-1)/32*32 {
				t.Errorf("%s %s: %d of %d tokens cached: %s", c.backend, c.path, cached, len(prompt), d)
			}
		}
		if h := e.Stats().Health; h.Restores < 2 || h.RestoreFailures != 0 || h.Restarts != 0 {
			t.Errorf("%+v", h)
		}
		e.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// resident is how much of a mapped file is in this process's memory, in KB.
func resident(t *testing.T, path string) (kb int) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if strings.Contains(fields[0], "-") {
			inside = strings.HasSuffix(strings.TrimSpace(line), path)
		}
		if inside && fields[0] == "Rss:" {
			n, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			kb += n
		}
	}
	return kb
}

// broken fails its first pass.
type broken struct {
	model.Network
	err error
}

func (b *broken) Forward(*model.Pass) error { return b.err }

func TestRecovery(t *testing.T) {
	for _, backend := range []string{"cpu", "oracle"} {
		m, err := Open(t.Context(), Options{Path: tiny(t, "tiny-qwen35"), Backend: backend, Engine: engine.Options{Context: 512}})
		if err != nil {
			t.Fatal(err)
		}
		prompt := m.Tokenizer.Encode(strings.Repeat("The fox asked the way. ", 4), true)
		alone := engine.New(m.Network, m.Engine)
		want, _ := say(t, alone, prompt)
		alone.Close()
		lost := errors.New("device lost")
		e := engine.New(&broken{m.Network, lost}, m.Engine)
		s, err := e.Submit(t.Context(), engine.Request{Prompt: prompt})
		if err != nil {
			t.Fatal(err)
		}
		for more := true; more; _, more = s.Next(nil) {
		}
		if _, err := s.End(); !errors.Is(err, lost) {
			t.Errorf("ended with %v", err)
		}
		until(t, e, engine.Ready)
		if got, _ := say(t, e, prompt); cmp.Diff(want, got) != "" {
			t.Errorf("after a fault it says %v, before it %v", got, want)
		}
		e.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestKVFormats(t *testing.T) {
	for _, c := range []struct{ backend, kv, says string }{
		{"cpu", "int8", ""}, {"cpu", "bf16", ""}, {"oracle", "", ""},
		{"cpu", "fp8", "backend cpu keeps keys and values in int8 or bf16, not in fp8"},
		{"oracle", "int8", "backend oracle keeps keys and values in a format of its own, not in int8"},
	} {
		m, err := Open(t.Context(), Options{Backend: c.backend, KV: c.kv})
		if err == nil {
			m.Close()
		}
		if c.says == "" && err != nil || c.says != "" && (err == nil || err.Error() != c.says) {
			t.Errorf("%s %s: %v", c.backend, c.kv, err)
		}
	}
}
