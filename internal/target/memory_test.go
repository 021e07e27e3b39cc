package target

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/internal/engine"
	"splash/internal/model"
	"splash/metal"
)

// TestMemoryPlan adds up what the demonstration model takes on backends that read files' blocks and images, and opens it with less and
// less.
func TestMemoryPlan(t *testing.T) {
	testMemoryPlan(t, "cpu")
	if metal.Usable() == nil {
		testMemoryPlan(t, "metal")
	}
}

func testMemoryPlan(t *testing.T, backend string) {
	open := func(memory int64, context int) (*Target, error) {
		m, err := Open(t.Context(), Options{Memory: memory, Backend: backend, KV: "int8", Engine: engine.Options{Context: context}})
		if err == nil {
			t.Cleanup(func() { m.Close() })
		}
		return m, err
	}
	m, err := open(1<<30, 0)
	if err != nil {
		t.Fatal(err)
	}
	plan := *m.Memory
	if lane, token := m.Network.Backend().(model.Sizer).LaneBytes(); backend == "metal" && (lane != plan.Lane || token != plan.Token) {
		t.Errorf("a lane of %d bytes and %d a token, planned as %d and %d", lane, token, plan.Lane, plan.Token)
	}
	weights := plan.Weights + plan.Passes
	if plan.Weights == 0 || (plan.Passes == 0) != (backend == "cpu") || plan.Lane == 0 || plan.Token == 0 || plan.Context != 4096 || plan.KV != "int8" {
		t.Errorf("%+v", plan)
	}
	if m.Engine.Memory != 1<<30-weights || m.Engine.Cache != 1<<30-weights-plan.Lane-4096*plan.Token {
		t.Errorf("lanes and prompts have %d, prompts %d of %v", m.Engine.Memory, m.Engine.Cache, &plan)
	}
	full := weights + plan.Full()
	if m, err = open(full, 4096); err != nil || m.Engine.Context != 4096 || m.Engine.Cache != -1 {
		t.Errorf("what it takes is not enough: %v", err)
	}
	// Without a context that was asked for there is as much as fits, in thousands.
	if m, err = open(full-1, 0); err != nil || m.Engine.Context != 3072 || m.Memory.Context != 3072 {
		t.Errorf("a byte less: %v", err)
	}
	for _, c := range []struct {
		memory  int64
		context int
		says    string
	}{
		{full - 1, 4096, "the demonstration model: a context of 4096 tokens does not fit in memory, at most 4095 do: weights "},
		{weights + plan.Lane + 1000*plan.Token, 0, "the demonstration model: the model does not fit in memory: weights "},
		{weights, 1, "the demonstration model: the model does not fit in memory: weights "},
		{1, 0, " of 1 B"},
	} {
		_, err := open(c.memory, c.context)
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d bytes, a context of %d: %v", c.memory, c.context, err)
		}
	}
	if m, err = open(weights+plan.Lane+1000*plan.Token, 1000); err != nil || m.Engine.Context != 1000 {
		t.Errorf("a context of 1000: %v", err)
	}
	if m, err = open(0, 0); err != nil || m.Engine.Memory != 0 || m.Memory.Limit != 0 {
		t.Errorf("without a limit: %v", err)
	}
}

func TestSpellBytes(t *testing.T) {
	want := map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 28 << 30: "28 GiB", 5<<20 + 1: "5 MiB"}
	got := map[int64]string{}
	for n := range want {
		got[n] = bytes(n)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
