package reference

import (
	"slices"

	"splash/dequant"
	"splash/internal/model"
	"splash/oracle"
)

// ring holds a draft layer's keys and values of the last window positions, each in slot position mod window, as BF16
// holds them. It is made of rows that were committed, so nothing takes it back.
type ring struct {
	window, width int
	keys, values  []float64
}

func newRing(window, width int) *ring {
	return &ring{window, width, make([]float64, window*width), make([]float64, window*width)}
}

func (s *ring) begin(int) {}
func (s *ring) back(int)  {}

func (s *ring) clone() state {
	return &ring{s.window, s.width, slices.Clone(s.keys), slices.Clone(s.values)}
}

func (s *ring) size() int { return 8 * (len(s.keys) + len(s.values)) }

// Context returns the slot of a position.
func (s *ring) Context(_, position int) (k, v []float64) {
	at := position % s.window * s.width
	return s.keys[at : at+s.width], s.values[at : at+s.width]
}

func bf16(x float64) float64 { return float64(dequant.FromBF16(dequant.ToBF16(float32(x)))) }

func roundBF16(dst, x []float64) {
	for i, v := range x {
		dst[i] = bf16(v)
	}
}

// DraftRows writes a block's rows.
func (b *Backend) DraftRows(dst model.Buffer, table model.Matrix, mask model.Vector) {
	m := b.matrices[table]
	b.each(dst, func(i int) {
		out := b.row(dst, i)
		if mask != model.None && !b.rows[i].first {
			copy(out, b.vectors[mask])
			return
		}
		m.gather(out, int(b.rows[i].token))
		roundBF16(out, out)
	})
}

// DraftTaps gathers the taps of the rows.
func (b *Backend) DraftTaps(dst model.Buffer, taps []model.Buffer) {
	b.each(dst, func(i int) {
		out := b.row(dst, i)
		for _, t := range taps {
			x := b.row(t, b.rows[i].source)
			roundBF16(out[:len(x)], x)
			out = out[len(x):]
		}
	})
}

func (b *Backend) draft(a *model.DraftAttention) *oracle.Draft {
	return &oracle.Draft{
		Heads: a.Heads, KVHeads: a.KVHeads, Window: a.Window, Eps: a.Epsilon,
		Freq: oracle.RopeFrequencies(a.Theta, a.Dim),
	}
}

// prepareDraft normalizes and rotates the heads of x.
func (b *Backend) prepareDraft(x []float64, norm model.Vector, d *oracle.Draft, a *model.DraftAttention, index int) {
	for at := 0; at < len(x); at += a.Dim {
		head := x[at : at+a.Dim]
		oracle.RMSNorm(head, head, b.vectors[norm], a.Epsilon)
		oracle.Rope(head, oracle.TextPosition(index), d.Freq)
	}
}

// DraftStore fills the rings.
func (b *Backend) DraftStore(k, v model.Buffer, a *model.DraftAttention) {
	d := b.draft(a)
	for i, r := range b.rows {
		key := b.row(k, i)
		b.prepareDraft(key, a.KNorm, d, a, r.index)
		keys, values := r.lane.states[a.State].(*ring).Context(0, r.index)
		roundBF16(keys, key)
		roundBF16(values, b.row(v, i))
	}
}

// segments calls f with the first row and the number of rows of each segment.
func (b *Backend) segments(f func(first, n int)) {
	for at := 0; at < len(b.rows); {
		n := 1
		for at+n < len(b.rows) && !b.rows[at+n].first {
			n++
		}
		f(at, n)
		at += n
	}
}

// span is the n rows of a buffer from row first on.
func (b *Backend) span(h model.Buffer, first, n int) []float64 {
	width := b.buffers[h].width
	return b.buffers[h].data[first*width : (first+n)*width]
}

// DraftConv convolves each segment.
func (b *Backend) DraftConv(dst, x, kernel model.Buffer, base model.Vector, side, group int, e model.Epilogue) {
	b.segments(func(first, n int) {
		out, in := b.span(dst, first, n), b.span(x, first, n)
		y := make([]float64, len(in))
		oracle.DraftConvolve(y, in, b.vectors[base], b.span(kernel, first, n), side, n, group)
		for i, v := range y {
			if e == model.Add {
				v += out[i]
			}
			out[i] = v
		}
	})
}

// DraftAttention attends in each segment.
func (b *Backend) DraftAttention(dst, q, k, v model.Buffer, a *model.DraftAttention) {
	d := b.draft(a)
	for i, r := range b.rows {
		b.prepareDraft(b.row(q, i), a.QNorm, d, a, r.index)
		b.prepareDraft(b.row(k, i), a.KNorm, d, a, r.index)
	}
	b.segments(func(first, n int) {
		r := &b.rows[first]
		out := b.span(dst, first, n)
		clear(out)
		d.Attend(out, b.span(q, first, n), b.span(k, first, n), b.span(v, first, n), 0, r.index, r.lane.states[a.State].(*ring))
	})
}
