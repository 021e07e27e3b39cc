package conformance_test

import (
	"math"
	"slices"
	"testing"

	"splash/conformance"
	"splash/internal/model"
	"splash/internal/reference"
	"splash/planner"
)

// routes is the oracle backend, keeping what its routers saw and chose.
type routes struct {
	*reference.Backend
	rows   int
	logits [][][]float32 // [layer][row][expert]
	taken  [][][]int32   // [layer][row][taken]
}

func (r *routes) Route(to, logits model.Buffer, m *planner.MoELayout) {
	r.Backend.Route(to, logits, m)
	var seen [][]float32
	var taken [][]int32
	for i := range r.rows {
		seen = append(seen, slices.Clone(r.Read(logits, i)))
		var ids []int32
		for _, id := range r.Read(to, i)[:m.Taken] {
			ids = append(ids, int32(id))
		}
		taken = append(taken, ids)
	}
	r.logits, r.taken = append(r.logits, seen), append(r.taken, taken)
}

// TestGoldenRouting holds the routers of the MoE hybrid to the golden logits, and their choices to the golden experts in
// their order.
func TestGoldenRouting(t *testing.T) {
	const name = "tiny-qwen35moe-Q4_K_M"
	g, err := conformance.ReadGolden(tinyPath(name + ".logits.bin"))
	if err != nil {
		t.Fatal(err)
	}
	p, w := openFile(t, tinyPath(name+".gguf"))
	b := &routes{Backend: reference.New(p, 64), rows: len(g.Tokens)}
	n, err := model.New(b, p, w, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	forward(t, n, newLane(t, n), g.Tokens)
	if len(b.logits) != len(g.Router) {
		t.Fatalf("%d layers route, %d are golden", len(b.logits), len(g.Router))
	}
	worst := 0.0
	for l := range g.Router {
		for i := range g.Tokens {
			worst = math.Max(worst, maxDiff(b.logits[l][i], g.Router[l][i]))
			if !slices.Equal(b.taken[l][i], g.Taken[l][i]) {
				t.Errorf("layer %d, row %d takes %v, golden %v", l, i, b.taken[l][i], g.Taken[l][i])
			}
		}
	}
	t.Logf("%d layers, %d rows: router logits within %.2g, the same experts taken", len(g.Router), len(g.Tokens), worst)
	if !(worst <= goldenTolerance) {
		t.Errorf("router logits stray %g; %g is allowed", worst, goldenTolerance)
	}
}
