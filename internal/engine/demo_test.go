package engine_test

import (
	"context"
	"testing"

	"splash/internal/engine"
	"splash/internal/target"
	"splash/oracle"
)

// TestDemoCycleDoesNotAllocate decodes with the real draft on the cpu backend, a greedy and a sampled request beside each
// other, between two pages of keys and values.
func TestDemoCycleDoesNotAllocate(t *testing.T) {
	model, err := target.Open(context.Background(), target.Options{Backend: "cpu", Engine: engine.Options{Lanes: 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	e := engine.NewStepper(model.Network, model.Engine)
	prompt := model.Tokenizer.Encode("One two three four five six seven eight nine ten", true)
	for _, policy := range []oracle.Policy{{}, {Temperature: 0.8, TopK: 20, TopP: 0.95}} {
		e.Add(engine.Request{Prompt: prompt, Policy: policy}, 4000)
	}
	for range 30 {
		e.Step()
	}
	const cycles = 10
	least := -1.0
	for range 12 { // a cycle that begins a page takes room for it
		if n := testing.AllocsPerRun(cycles, e.Step); least < 0 || n < least {
			least = n
		}
	}
	if drafted := e.Speculation().Counts.Drafted; drafted == 0 || least != 0 {
		t.Errorf("%g allocations a cycle, %d proposals verified", least, drafted)
	}
}
