package conformance_test

import (
	"testing"

	"splash/dequant"
	"splash/internal/model"
	"splash/planner"
)

// TestProjectParts multiplies few rows by few outputs of many columns, whose sums a backend may split, and many rows, which it may
// take in large tiles.
func TestProjectParts(t *testing.T) {
	eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
		for _, inputs := range []int{1, 3, 70} {
			const rows, cols = 5, 4352
			p := newPair(t, b, inputs, planner.Layout{})
			m := p.blocks(dequant.Lookup(dequant.Q8_0), rows, cols)
			x := p.normals(inputs * cols)
			in, w, out := p.input(x, cols), p.matrix(planner.Tensor{Name: "w"}, m), p.buffer(rows)
			p.pass([]int{inputs}, func(b model.Backend) {
				in.set(b)
				b.Project(out, in.buffer, w, model.Store)
			})
			d, wide := decode(m), widened(x)
			p.compare(out, "project", func(row, i int) float64 { return b.productBound(&d, i, wide[row*cols:][:cols]) })
			p.report(b, "project")
		}
	})
}

// TestDeltaRuleChunked steps states of segments that are long enough for chunks, and short ones beside them.
func TestDeltaRuleChunked(t *testing.T) {
	for _, b := range chunkedBackends() {
		t.Run(b.name, func(t *testing.T) { testDeltaRule(t, b, [2]int{1, 2}, 30, 3, 41) })
	}
}
