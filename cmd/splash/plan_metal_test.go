package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"splash/fixtures"
	"splash/metal"
	"splash/planner"
)

// TestPlanMetal prints what cycles of released sizes take, from files without weights. A dense model reads its weights once for
// all rows of a lane; what comes on top is bounded.
func TestPlanMetal(t *testing.T) {
	for _, family := range []string{"Qwen3.8-27B", "Qwen3.6-35B-A3B", "Qwen3.8-Flash-Next"} {
		l := planner.FamilyByName(family).Layout
		g, err := (&fixtures.Recipe{Family: family, Formats: fixtures.Q4KM(&l)}).GGUF()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), family+".gguf")
		if err := g.Empty().WriteFile(path); err != nil {
			t.Fatal(err)
		}
		if metal.Usable() != nil {
			if status, _, msg := invoke(t, "plan", "--metal", path); status != exitFailure || !strings.Contains(msg, "no device") {
				t.Errorf("without devices: status %d, %s", status, msg)
			}
			return
		}
		status, out, msg := invoke(t, "plan", "--metal", path)
		if status != 0 {
			t.Fatal(msg)
		}
		t.Logf("%s\n%s", family, out)
		_, out, _ = invoke(t, "plan", "--metal", "--json", path)
		var plan struct{ Cycles []cyclePlan }
		if err := json.Unmarshal([]byte(out), &plan); err != nil || len(plan.Cycles) != 4 {
			t.Fatal(err, out)
		}
		one, eight := plan.Cycles[0], plan.Cycles[1]
		if one.Dispatches == 0 || one.Dispatches != eight.Dispatches {
			t.Errorf("%s: %d dispatches a cycle of one row, %d of eight", family, one.Dispatches, eight.Dispatches)
		}
		if one.Choosing != 2 || eight.Choosing != 2 {
			t.Errorf("%s: %d and %d dispatches choose tokens", family, one.Choosing, eight.Choosing)
		}
		if family == "Qwen3.8-27B" {
			if grown := eight.Weights - one.Weights; grown < 0 || grown > one.Weights/100 {
				t.Errorf("eight rows read %d more bytes of weights than one, which reads %d", grown, one.Weights)
			}
			if eight.OverWeights > 1.1 {
				t.Errorf("%.3f bytes a byte of weights", eight.OverWeights)
			}
		}
	}
}
