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

// TestSharedExpert adds a shared expert's rows, gated or not: the gate strays by the roundings of its product, times the slope of a
// sigmoid, a quarter.
func TestSharedExpert(t *testing.T) {
	eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
		for _, gated := range []bool{false, true} {
			const rows, hidden = 4, 320
			p := newPair(t, b, rows, planner.Layout{Hidden: hidden})
			base, y, x, w := p.normals(rows*hidden), p.normals(rows*hidden), p.normals(rows*hidden), p.normals(hidden)
			for i := range w {
				w[i] /= 16
			}
			out, shared, in := p.input(base, hidden), p.input(y, hidden), p.input(x, hidden)
			gate := model.None
			if v := p.vector(w); gated {
				gate = v
			}
			p.pass([]int{1, 3}, func(b model.Backend) {
				out.set(b)
				shared.set(b)
				in.set(b)
				b.AddGated(out.buffer, shared.buffer, in.buffer, gate)
			})
			p.compare(out.buffer, "shared", func(row, i int) float64 {
				stray := 12 * float32Roundoff
				for j, v := range w {
					stray += (hidden/8 + 4) * float32Roundoff * math.Abs(float64(v)*float64(x[row*hidden+j])) / 4
				}
				v := math.Abs(float64(y[row*hidden+i]))
				return stray*v + 3*float32Roundoff*(math.Abs(p.want(out.buffer, row)[i])+v)
			})
			p.report(b, "shared expert")
		}
	})
}
