package engine_test

import (
	"path/filepath"
	"testing"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/engine"
	"splash/internal/model"
	"splash/internal/target"
	"splash/oracle"
)

// tinyModel writes a tiny model.
func tinyModel(t *testing.T) string {
	t.Helper()
	r := fixtures.Recipe{Family: "tiny-qwen35", Seed: 1, Formats: fixtures.Uniform(dequant.Q8_0)}
	g, err := r.GGUF()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := g.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// tinyDraft writes its draft.
func tinyDraft(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := (&fixtures.Draft{Family: "tiny-qwen35"}).WriteDir(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestModelChosenDoesNotAllocate decodes a tiny model, greedily and sampled, on a backend that chooses its draft's proposals and its
// tokens.
func TestModelChosenDoesNotAllocate(t *testing.T) {
	if _, err := target.FindBackend("metal"); err != nil {
		t.Skip(err)
	}
	m, err := target.Open(t.Context(), target.Options{
		Path: tinyModel(t), Draft: tinyDraft(t), Backend: "metal", Images: t.TempDir(), Engine: engine.Options{Context: 512, Chunk: 16, Lanes: 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, ok := m.Network.Backend().(model.Chooser); !ok {
		t.Fatal("the backend does not choose")
	}
	e := engine.NewStepper(m.Network, m.Engine)
	prompt := m.Tokenizer.Encode("Once there was a fox", true)
	e.Add(engine.Request{Prompt: prompt}, 512)
	e.Add(engine.Request{Prompt: prompt, Policy: oracle.Policy{Temperature: 0.9, Repetition: 1.1}, Seed: 3}, 512)
	for range 6 {
		e.Step()
	}
	// Lists of what was put out grow now and then.
	if n := testing.AllocsPerRun(9, e.Step); n != 0 {
		t.Errorf("a cycle allocates %v times", n)
	}
	if s := e.Speculation(); s.Counts.LaneCycles == 0 {
		t.Error("no cycle was drafted for")
	}
}
