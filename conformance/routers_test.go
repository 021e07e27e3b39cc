package conformance_test

import (
	"math"
	"testing"

	"splash/internal/model"
	"splash/planner"
)

// TestRouters chooses experts by every kind of score, among logits many of which are equal. Rows that fill up a cycle take none.
func TestRouters(t *testing.T) {
	eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
		for _, l := range []planner.MoELayout{
			{Experts: 16, Taken: 4, Normalize: true}, {Experts: 64, Taken: 8}, {Experts: 40, Taken: 3, Sigmoid: true, Normalize: true, Scale: 2.5},
			{Experts: 300, Taken: 10, Sigmoid: true},
		} {
			const rows = 6
			p := newPair(t, b, rows, planner.Layout{MoE: l})
			logits := p.normals(rows * l.Experts)
			for i := range logits {
				logits[i] = float32(math.Round(float64(logits[i]) * 4))
				if i < l.Experts {
					logits[i] = -40 // sigmoids whose sum is bounded from below
				}
			}
			scores, routes := p.input(logits, l.Experts), p.buffer(2*l.Taken)
			p.each(func(b model.Backend) {
				lane, err := b.NewLane()
				if err == nil {
					err = b.Begin(&model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: []int32{0, 1, 2, 3, 4, 5}, Routed: 4}}})
				}
				if err != nil {
					t.Fatal(err)
				}
				scores.set(b)
				b.Route(routes, scores.buffer, &l)
				if err := b.End(); err != nil {
					t.Fatal(err)
				}
			})
			p.compare(routes, "routes", func(row, i int) float64 {
				if i < l.Taken {
					return 1e-300
				}
				return (float64(l.Experts/32) + 24) * float32Roundoff * p.want(routes, row)[i]
			})
			p.report(b, "routers")
		}
	})
}
