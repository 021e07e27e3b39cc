package reference

import (
	"math"

	"splash/internal/model"
	"splash/oracle"
)

// Conv runs the causal convolution over the rows of each lane in turn.
func (b *Backend) Conv(dst, x model.Buffer, w model.Vector, s model.State) {
	for i := range b.rows {
		win := b.rows[i].lane.states[s].(*window)
		in := b.row(x, i)
		history := append([]float64(nil), win.history()...)
		win.push(in)
		oracle.Conv(b.row(dst, i), history, in, b.vectors[w])
	}
}

// GDN runs the gated delta rule, every head of every lane by itself.
func (b *Backend) GDN(dst, qkv, beta, alpha model.Buffer, g *model.GDN) {
	heads := g.Layout.ValueHeads
	for at := 0; at < len(b.rows); {
		lane, n := b.rows[at].lane, 1
		for at+n < len(b.rows) && b.rows[at+n].lane == lane {
			n++
		}
		state, first := lane.states[g.State].(*recurrence), at
		b.parallel(heads, func(_, h int) { b.recur(dst, qkv, beta, alpha, g, state, h, first, n) })
		at += n
	}
}

// recur steps value head h over the n rows from first on.
func (b *Backend) recur(dst, qkv, beta, alpha model.Buffer, g *model.GDN, s *recurrence, h, first, n int) {
	d := g.Layout.HeadDim
	keyWidth := g.Layout.KeyHeads * d
	keyHead := h / (g.Layout.ValueHeads / g.Layout.KeyHeads)
	q, k, delta := make([]float64, d), make([]float64, d), make([]float64, d)
	now := s.head(s.now, h)
	for r := range n {
		in := b.row(qkv, first+r)
		oracle.L2Norm(q, in[keyHead*d:(keyHead+1)*d], b.layout.Epsilon)
		for j := range q {
			q[j] /= math.Sqrt(float64(d))
		}
		oracle.L2Norm(k, in[keyWidth+keyHead*d:keyWidth+(keyHead+1)*d], b.layout.Epsilon)
		v := in[2*keyWidth+h*d : 2*keyWidth+(h+1)*d]
		decay := oracle.GDNDecay(b.row(alpha, first+r)[h], b.vectors[g.Bias][h], b.vectors[g.Decay][h])
		if r == s.from {
			copy(s.head(s.before, h), now)
		}
		oracle.GDNStep(b.row(dst, first+r)[h*d:(h+1)*d], delta, now, q, k, v, oracle.GDNBeta(b.row(beta, first+r)[h]), decay)
		if r >= s.from {
			keptK, keptD, keptG := s.update(r-s.from, h)
			copy(keptK, k)
			copy(keptD, delta)
			*keptG = decay
		}
	}
}

// GatedNorm normalizes each head and gates it.
func (b *Backend) GatedNorm(dst, x, z model.Buffer, w model.Vector, sigmoid bool, _ []model.Matrix) {
	gate := oracle.SiLU
	if sigmoid {
		gate = oracle.Sigmoid
	}
	norm := b.vectors[w]
	b.each(x, func(i int) {
		out, in, zs := b.row(dst, i), b.row(x, i), b.row(z, i)
		for at := 0; at < len(in); at += len(norm) {
			oracle.GatedNorm(out[at:at+len(norm)], in[at:at+len(norm)], zs[at:at+len(norm)], norm, b.layout.Epsilon, gate)
		}
	})
}
