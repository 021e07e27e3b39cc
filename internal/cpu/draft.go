package cpu

import (
	"math"
	"slices"

	"splash/dequant"
	"splash/internal/model"
)

// ring holds a draft layer's keys and values of the last window positions, each in slot position mod window, as BF16
// holds them. It is made of rows that were committed, so nothing takes it back.
type ring struct {
	window, width int
	keys, values  []uint16 // as far as positions have come, up to the window
}

func (s *ring) begin(int) {}
func (s *ring) back(int)  {}
func (s *ring) reset()    { s.keys, s.values = s.keys[:0], s.values[:0] }

// reach makes room for positions up to that one.
func (s *ring) reach(position int) {
	if n := min(position+1, s.window) * s.width; n > len(s.keys) {
		s.keys, s.values = slices.Grow(s.keys, n-len(s.keys))[:n], slices.Grow(s.values, n-len(s.values))[:n]
	}
}

// slot is the keys and values of a position.
func (s *ring) slot(position int) (k, v []uint16) {
	at := position % s.window * s.width
	return s.keys[at : at+s.width], s.values[at : at+s.width]
}

func toBF16(dst []uint16, x []float32) {
	for i, v := range x {
		dst[i] = dequant.ToBF16(v)
	}
}

func roundRow(dst, x []float32) {
	for i, v := range x {
		dst[i] = roundBF16(v)
	}
}

// DraftRows writes a block's rows.
func (b *Backend) DraftRows(dst model.Buffer, table model.Matrix, mask model.Vector) {
	m := b.matrices[table]
	for i := range b.rows {
		out := b.row(dst, i)
		if mask != model.None && !b.rows[i].first {
			copy(out, b.vectors[mask])
			continue
		}
		if i > 0 && !b.rows[i].first && b.rows[i].token == b.rows[i-1].token {
			copy(out, b.row(dst, i-1))
			continue
		}
		m.gather(out, int(b.rows[i].token), b.workers[0].rowOf(m.cols))
		roundRow(out, out)
	}
}

// DraftTaps gathers the taps of the rows.
func (b *Backend) DraftTaps(dst model.Buffer, taps []model.Buffer) {
	for i := range b.rows {
		out := b.row(dst, i)
		for _, t := range taps {
			x := b.row(t, b.rows[i].source)
			roundRow(out[:len(x)], x)
			out = out[len(x):]
		}
	}
}

// prepareDraft normalizes and rotates the heads of x of row i.
func (b *Backend) prepareDraft(x []float32, norm model.Vector, rope *ropeTable, a *model.DraftAttention, i int) {
	for at := 0; at < len(x); at += a.Dim {
		head := x[at : at+a.Dim]
		b.rmsNorm(head, head, b.vectors[norm], a.Epsilon)
		rope.rotate(head, i)
	}
}

// DraftStore fills the rings.
func (b *Backend) DraftStore(k, v model.Buffer, a *model.DraftAttention) {
	b.ops.draftStore = draftStore{b, k, v, a, b.rope(a.Theta, a.Dim, true)}
	for i := range b.rows {
		b.rows[i].lane.states[a.State].(*ring).reach(b.rows[i].index)
	}
	b.pool.run(&b.ops.draftStore, len(b.rows), 4)
}

type draftStore struct {
	b    *Backend
	k, v model.Buffer
	a    *model.DraftAttention
	rope *ropeTable
}

func (t *draftStore) run(_, first, last int) {
	b := t.b
	for i := first; i < last; i++ {
		r, key := &b.rows[i], b.row(t.k, i)
		// Of rows that share a slot, the last is the one to stay.
		if i+t.a.Window < len(b.rows) && b.rows[i+t.a.Window].lane == r.lane {
			continue
		}
		b.prepareDraft(key, t.a.KNorm, t.rope, t.a, i)
		keys, values := r.lane.states[t.a.State].(*ring).slot(r.index)
		toBF16(keys, key)
		toBF16(values, b.row(t.v, i))
	}
}

// DraftConv convolves each segment (oracle.DraftConvolve). dst may be x: the rows are taken from the last to the first.
func (b *Backend) DraftConv(dst, x, kernel model.Buffer, base model.Vector, side, group int, e model.Epilogue) {
	b.ops.draftConv = draftConv{b, dst, x, kernel, b.vectors[base], side, group, e == model.Add}
	b.pool.run(&b.ops.draftConv, len(b.segments), 1)
}

type draftConv struct {
	b              *Backend
	dst, x, kernel model.Buffer
	base           []float32
	side, group    int
	add            bool
}

func (t *draftConv) run(_, first, last int) {
	for i := first; i < last; i++ {
		seg := &t.b.segments[i]
		for r := seg.first + seg.n - 1; r >= seg.first; r-- {
			t.row(r, r == seg.first)
		}
	}
}

func (t *draftConv) row(r int, first bool) {
	out, x := t.b.row(t.dst, r), t.b.row(t.x, r)
	hidden := len(x)
	groups := hidden / t.group
	kernel := t.b.row(t.kernel, r)[2*t.side*groups:]
	now, before := t.base[2*t.side*hidden:], t.base[(2*t.side+1)*hidden:]
	for g := range groups {
		k0, k1 := kernel[g], kernel[groups+g]
		for i := g * t.group; i < (g+1)*t.group; i++ {
			y := x[i] * (now[i] + k0)
			if !first {
				y += t.b.row(t.x, r-1)[i] * (before[i] + k1)
			}
			if t.add {
				y += out[i]
			}
			out[i] = y
		}
	}
}

// DraftAttention attends in each segment, a KV head apart.
func (b *Backend) DraftAttention(dst, q, k, v model.Buffer, a *model.DraftAttention) {
	t := &b.ops.draftAttend
	*t = draftAttend{b, dst, q, k, v, a, b.rope(a.Theta, a.Dim, true)}
	b.ops.draftPrepare = draftPrepare{t}
	b.pool.run(&b.ops.draftPrepare, len(b.rows), 2)
	b.pool.run(t, len(b.segments)*a.KVHeads, 1)
}

type draftAttend struct {
	b       *Backend
	dst     model.Buffer
	q, k, v model.Buffer
	a       *model.DraftAttention
	rope    *ropeTable
}

type draftPrepare struct{ *draftAttend }

func (t *draftPrepare) run(_, first, last int) {
	for i := first; i < last; i++ {
		t.b.prepareDraft(t.b.row(t.q, i), t.a.QNorm, t.rope, t.a, i)
		t.b.prepareDraft(t.b.row(t.k, i), t.a.KNorm, t.rope, t.a, i)
	}
}

func (t *draftAttend) run(w, first, last int) {
	for i := first; i < last; i++ {
		t.head(t.b.workers[w], &t.b.segments[i/t.a.KVHeads], i%t.a.KVHeads)
	}
}

// head attends to a KV head. Its keys and values, of the ring and then of the block, are laid side by side in float32
// pages; the rows of the block see all of the block, and of the ring what the window leaves them.
func (t *draftAttend) head(w *worker, seg *segment, head int) {
	b, a := t.b, t.a
	dim, group := a.Dim, a.Heads/a.KVHeads
	s := &w.attend
	p := b.rows[seg.first].index
	start := max(0, p-a.Window+1)
	total := p - start + seg.n
	queries := seg.n * group
	s.query = grown(s.query, queries*dim)
	scale := float32(1 / math.Sqrt(float64(dim)))
	for r := range seg.n {
		copy(s.query[r*group*dim:(r+1)*group*dim], b.row(t.q, seg.first+r)[head*group*dim:])
	}
	b.k.scale(s.query, scale)
	n := queries * foldWidth(dim)
	s.whole = grown(s.whole, n)
	clearFolds(s.whole, dim)
	for at := 0; at < total; at += pageTokens {
		count := min(pageTokens, total-at)
		page := t.fill(s, seg, head, start+at, count, p)
		for r := range seg.n {
			from := max(0, p+r-a.Window+1-start-at)
			if from < count {
				folds := s.whole[r*group*foldWidth(dim):]
				b.attendPage(w, folds, s.query[r*group*dim:(r+1)*group*dim], &page, dim, from, count)
			}
		}
	}
	for i := range queries {
		fold := s.whole[i*foldWidth(dim) : (i+1)*foldWidth(dim)]
		out := b.row(t.dst, seg.first+i/group)[(head*group+i%group)*dim:][:dim]
		copy(out, fold[:dim])
		b.k.scale(out, 1/fold[dim+1])
	}
}

// fill makes a page of count positions from position first on.
func (t *draftAttend) fill(s *attendScratch, seg *segment, head, first, count, p int) (h headPage) {
	dim := t.a.Dim
	n := pageTokens * dim
	s.keys32, s.values32 = grown(s.keys32, n), grown(s.values32, n)
	h.keys32, h.values32 = s.keys32, s.values32
	for j := range count {
		to, values := h.keys32[j/blockTokens*blockTokens*dim+j%blockTokens:], h.values32[j*dim:(j+1)*dim]
		at := first + j
		if at >= p {
			k, v := t.b.row(t.k, seg.first+at-p)[head*dim:], t.b.row(t.v, seg.first+at-p)[head*dim:]
			for i := range values {
				to[i*blockTokens], values[i] = k[i], v[i]
			}
			continue
		}
		k, v := seg.lane.states[t.a.State].(*ring).slot(at)
		k, v = k[head*dim:], v[head*dim:]
		for i := range values {
			to[i*blockTokens], values[i] = dequant.FromBF16(k[i]), dequant.FromBF16(v[i])
		}
	}
	return h
}
