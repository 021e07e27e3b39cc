package engine_test

import (
	"testing"

	"splash/internal/engine"
	"splash/internal/model"
	"splash/internal/target"
	"splash/oracle"
)

// TestDemoChosenDoesNotAllocate decodes the demonstration model, greedily and sampled, on a backend that chooses its draft's proposals
// and its tokens.
func TestDemoChosenDoesNotAllocate(t *testing.T) {
	if _, err := target.FindBackend("metal"); err != nil {
		t.Skip(err)
	}
	m, err := target.Open(t.Context(), target.Options{Backend: "metal", Engine: engine.Options{Context: 512, Chunk: 16, Lanes: 2}})
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
	for range 12 {
		e.Step()
	}
	if n := testing.AllocsPerRun(12, e.Step); n != 0 {
		t.Errorf("a cycle allocates %v times", n)
	}
	if s := e.Speculation(); s.Counts.LaneCycles == 0 {
		t.Error("no cycle was drafted for")
	}
}
