package conformance_test

import (
	"math"
	"testing"

	"splash/dequant"
	"splash/internal/model"
	"splash/oracle"
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

// TestRotatedCodes multiplies rotated weights by inputs in codes of 8 bits: an input strays up to half of a 127th of the largest of
// its block.
func TestRotatedCodes(t *testing.T) {
	for _, b := range codedBackends() {
		t.Run(b.name, func(t *testing.T) {
			const rows, cols, inputs = 20, 2 * oracle.HadamardBlock, 3
			signs := make([]int8, cols)
			for i := range signs {
				signs[i] = int8(1 - i*i%7%2*2)
			}
			p := newPair(t, b, inputs, planner.Layout{})
			m := p.blocks(dequant.Lookup(dequant.PQ2_0), rows, cols)
			x := p.normals(inputs * cols)
			in, w, out := p.input(x, cols), p.matrix(planner.Tensor{Name: "w", Signs: signs}, m), p.buffer(rows)
			p.pass([]int{inputs}, func(b model.Backend) {
				in.set(b)
				b.Project(out, in.buffer, w, model.Store)
			})
			d, weights := decode(m), make([]float64, cols)
			p.compare(out, "codes", func(row, i int) float64 {
				y := widened(x[row*cols : (row+1)*cols])
				for j, s := range signs {
					y[j] *= float64(s)
				}
				oracle.Hadamard(y)
				bound := 0.0
				for j := range weights {
					block := y[j/oracle.HadamardBlock*oracle.HadamardBlock:][:oracle.HadamardBlock]
					bound += math.Abs(d.values[i*cols+j]) * most(block) * (codeRoundoff + 64*float32Roundoff)
				}
				return bound
			})
			p.report(b, "project")
		})
	}
}
