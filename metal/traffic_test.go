//go:build cgo

package metal

import (
	"path/filepath"
	"testing"

	"splash/fixtures"
	"splash/internal/gguf"
	"splash/planner"
)

// releasedPlan is the plan of a released size in Q4_K_M.
func releasedPlan(t testing.TB, family string) *planner.Plan {
	t.Helper()
	l := planner.FamilyByName(family).Layout
	g, err := (&fixtures.Recipe{Family: family, Formats: fixtures.Q4KM(&l)}).GGUF()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), family+".gguf")
	if err := g.Empty().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := planner.PlanGGUF(f.Header)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRecordingDoesNotAllocate records cycles of a released size in the memory of the first.
func TestRecordingDoesNotAllocate(t *testing.T) {
	c, err := newDryCycle(releasedPlan(t, "Qwen3.8-27B"), Options{MaxRows: 16, RecordAlways: true}, 2, 8, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer c.backend.Close()
	if n := testing.AllocsPerRun(3, func() { c.record(t) }); n != 0 {
		t.Errorf("%g allocations a cycle of %d dispatches", n, c.backend.commands.Len())
	}
}

// record records the cycle, and takes its rows back.
func (c *dryCycle) record(t testing.TB) {
	if err := c.network.Forward(&c.pass); err != nil {
		t.Fatal(err)
	}
	for i := range c.pass.Segments {
		s := &c.pass.Segments[i]
		if err := c.backend.Rollback(s.Lane, len(s.Tokens)); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkRecord is what a cycle takes before the device has it: recorded anew, and as it was recorded before.
func BenchmarkRecord(b *testing.B) {
	for _, family := range []string{"Qwen3.8-27B", "Qwen3.6-35B-A3B"} {
		for name, anew := range map[string]bool{"recorded": true, "replayed": false} {
			b.Run(family+"/"+name, func(b *testing.B) {
				c, err := newDryCycle(releasedPlan(b, family), Options{MaxRows: 8, RecordAlways: anew}, 1, 8, 4000)
				if err != nil {
					b.Fatal(err)
				}
				defer c.backend.Close()
				c.record(b)
				dispatches := c.backend.commands.Len()
				b.ReportAllocs()
				for b.Loop() {
					c.record(b)
				}
				b.ReportMetric(float64(dispatches), "dispatches")
			})
		}
	}
}
