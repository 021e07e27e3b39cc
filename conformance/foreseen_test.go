package conformance_test

import (
	"slices"
	"testing"

	"splash/dequant"
	"splash/internal/model"
	"splash/planner"
)

// TestForeseen holds products of what a norm or a gate made for them to those of the same values in a buffer, bit for bit: of
// one row, of whole panels and of what is left beside them, for matrices of one form and of several, some of which take the
// values as they are.
func TestForeseen(t *testing.T) {
	const cols, wide, head = 1024, 96, 128
	eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
		for _, kinds := range [][]dequant.Type{
			{dequant.Q4_K}, {dequant.Q4_K, dequant.Q6_K, dequant.Q8_0}, {dequant.Q6_K, dequant.F32}, {dequant.BF16, dequant.Q4_K},
		} {
			if b.only != nil && slices.ContainsFunc(kinds, func(k dequant.Type) bool {
				return !slices.Contains(b.only, dequant.Lookup(k).String())
			}) {
				continue
			}
			for _, rows := range []int{1, 8, 21} {
				p := newPair(t, b, rows, planner.Layout{})
				weights := func(k dequant.Type, rows, cols int) model.Matrix {
					return p.matrix(planner.Tensor{Name: "w"}, p.blocks(dequant.Lookup(k), rows, cols))
				}
				var next, down []model.Matrix
				for _, k := range kinds {
					next = append(next, weights(k, 48, cols))
				}
				down = append(down, weights(dequant.Q8_0, 40, wide))
				gate, up := weights(kinds[0], wide, cols), weights(kinds[0], wide, cols)
				x, z := p.input(p.normals(rows*cols), cols), p.input(p.normals(rows*cols), cols)
				w, heads := p.vector(p.normals(cols)), p.vector(p.normals(head))
				h, narrow := p.buffer(cols), p.buffer(wide)
				var out [2][]model.Buffer
				var all [2][]model.Projection
				for i := range out {
					for range 2*len(kinds) + 1 {
						out[i] = append(out[i], p.buffer(48))
					}
					out[i] = append(out[i], p.buffer(40))
					for j, m := range next {
						all[i] = append(all[i], model.Projection{Dst: out[i][j], W: m})
					}
				}
				p.pass([]int{rows}, func(b model.Backend) {
					x.set(b)
					z.set(b)
					for i, known := range []bool{false, true} {
						of := func(m []model.Matrix) []model.Matrix {
							if known {
								return m
							}
							return nil
						}
						to := out[i][len(kinds):]
						b.RMSNorm(h, x.buffer, w, 1e-6, of(next))
						b.ProjectAll(h, all[i])
						for j := range next {
							b.GatedNorm(h, x.buffer, z.buffer, heads, j%2 == 0, of(next[j:j+1]))
							b.Project(to[j], h, next[j], model.Store)
						}
						to = to[len(kinds):]
						// What is multiplied may be foreseen, and what it makes too.
						b.RMSNorm(h, x.buffer, w, 1e-6, of([]model.Matrix{gate, up}))
						b.GateUp(narrow, h, gate, up, of(down))
						b.Project(to[1], narrow, down[0], model.Store)
						b.Project(to[0], x.buffer, next[0], model.Store)
					}
				})
				for i := range out[0] {
					for r := range rows {
						want, got := p.got.Read(out[0][i], r), p.got.Read(out[1][i], r)
						if !slices.Equal(want, got) {
							t.Fatalf("%v, %d rows: product %d of row %d is %v foreseen, and %v of the buffer", kinds, rows, i, r, got[:4], want[:4])
						}
					}
				}
			}
		}
	})
}
