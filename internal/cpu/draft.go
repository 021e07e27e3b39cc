package cpu

import (
	"math"

	"splash/internal/model"
)

// ring holds a draft layer's keys and values of at least the last window positions, in pages of BF16 that follow each
// other in a circle. It is made of rows that were committed, so nothing takes it back.
type ring struct {
	window int
	shape  pageShape
	last   int    // the last position kept, or -1
	pages  []page // position p lies in page p / pageTokens of the circle; as many as positions have come to
}

// circle is the number of pages: those that a window touches wherever it begins, and the one that is being filled.
func (s *ring) circle() int { return s.window/pageTokens + 2 }

func (s *ring) begin(int) {}
func (s *ring) back(int)  {}
func (s *ring) reset()    { s.last = -1 }

// reach makes room for positions up to that one.
func (s *ring) reach(position int) {
	for n := pageTokens * s.shape.kvHeads * s.shape.dim; len(s.pages) < min(pagesOf(position+1), s.circle()); {
		s.pages = append(s.pages, page{keys: aligned[uint16](n), values: aligned[uint16](n)})
	}
	s.last = max(s.last, position)
}

// page is where the tokens of page n of the sequence lie.
func (s *ring) page(n int) *page { return &s.pages[n%s.circle()] }

// keeps says whether a position has room beside the last one.
func (s *ring) keeps(position int) bool { return position/pageTokens+s.circle() > s.last/pageTokens }

// store keeps a position's key and value of all heads.
func (s *ring) store(position int, k, v []float32) {
	p, t, dim := s.page(position/pageTokens), position%pageTokens, s.shape.dim
	for h := range s.shape.kvHeads {
		storeBF16(p.keys[h*pageTokens*dim:], p.values[h*pageTokens*dim:], t, k[h*dim:(h+1)*dim], v[h*dim:])
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
		s := r.lane.states[t.a.State].(*ring)
		if !s.keeps(r.index) {
			continue
		}
		b.prepareDraft(key, t.a.KNorm, t.rope, t.a, i)
		s.store(r.index, key, b.row(t.v, i))
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

// DraftAttention attends in each segment, a KV head apart, and where these are few a part of the rows apart.
func (b *Backend) DraftAttention(dst, q, k, v model.Buffer, a *model.DraftAttention) {
	t := &b.ops.draftAttend
	*t = draftAttend{b: b, dst: dst, q: q, k: k, v: v, a: a, rope: b.rope(a.Theta, a.Dim, true), parts: 1}
	if len(b.segments)*a.KVHeads < 2*b.pool.workers {
		t.parts = 2
	}
	b.ops.draftPrepare = draftPrepare{t}
	b.pool.run(&b.ops.draftPrepare, len(b.rows), 2)
	b.pool.run(t, len(b.segments)*a.KVHeads*t.parts, 1)
}

type draftAttend struct {
	b       *Backend
	dst     model.Buffer
	q, k, v model.Buffer
	a       *model.DraftAttention
	rope    *ropeTable
	parts   int // of a segment's rows
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
		part, whole := i%t.parts, i/t.parts
		seg := &t.b.segments[whole/t.a.KVHeads]
		t.head(t.b.workers[w], seg, whole%t.a.KVHeads, part*seg.n/t.parts, (part+1)*seg.n/t.parts)
	}
}

// head attends to a KV head for rows first to last-1 of a segment: to what the window leaves them of the ring, and then
// to the block, all of which they see and which is not rounded.
func (t *draftAttend) head(w *worker, seg *segment, head, first, last int) {
	b, dim, group := t.b, t.a.Dim, t.a.Heads/t.a.KVHeads
	s := &w.attend
	t.queries(s, seg, head, first, last)
	s.whole = grown(s.whole, (last-first)*group*foldWidth(dim))
	clearFolds(s.whole, dim)
	ring := seg.lane.states[t.a.State].(*ring)
	p := b.rows[seg.first].index
	for at := max(0, p+first-t.a.Window+1) / pageTokens * pageTokens; at < p; at += pageTokens {
		stored, n := ring.page(at/pageTokens), pageTokens*dim
		page := headPage{keys: stored.keys[head*n : (head+1)*n], values: stored.values[head*n : (head+1)*n]}
		t.page(w, &page, first, last, p, at, min(pageTokens, p-at))
	}
	block := t.block(s, seg, head)
	t.page(w, &block, first, last, p, p, seg.n)
	for r := first; r < last; r++ {
		out := b.row(t.dst, seg.first+r)[head*group*dim : (head+1)*group*dim]
		for g := range group {
			fold := s.whole[((r-first)*group+g)*foldWidth(dim):][:foldWidth(dim)]
			copy(out[g*dim:(g+1)*dim], fold[:dim])
			b.k.scale(out[g*dim:(g+1)*dim], 1/fold[dim+1])
		}
	}
}

// queries lays the scaled queries of rows side by side.
func (t *draftAttend) queries(s *attendScratch, seg *segment, head, first, last int) {
	n := t.a.Heads / t.a.KVHeads * t.a.Dim
	s.query = grown(s.query, (last-first)*n)
	for r := first; r < last; r++ {
		copy(s.query[(r-first)*n:(r-first+1)*n], t.b.row(t.q, seg.first+r)[head*n:])
	}
	t.b.k.scale(s.query, float32(1/math.Sqrt(float64(t.a.Dim))))
}

// page attends to count tokens from position at on, of a block that begins at position p. Rows whose windows hold all of
// them go together.
func (t *draftAttend) page(w *worker, page *headPage, first, last, p, at, count int) {
	dim, group := t.a.Dim, t.a.Heads/t.a.KVHeads
	from := func(r int) int { return max(0, p+r-t.a.Window+1-at) }
	for r := first; r < last; {
		n := 1
		for from(r) == 0 && r+n < last && from(r+n) == 0 {
			n++
		}
		if from(r) < count {
			folds := w.attend.whole[(r-first)*group*foldWidth(dim):]
			q := w.attend.query[(r-first)*group*dim : (r-first+n)*group*dim]
			t.b.attendPage(w, folds, q, page, dim, from(r), count)
		}
		r += n
	}
}

// block makes a page of the block itself.
func (t *draftAttend) block(s *attendScratch, seg *segment, head int) headPage {
	dim := t.a.Dim
	s.keys32, s.values32 = grown(s.keys32, pageTokens*dim), grown(s.values32, pageTokens*dim)
	for j := range seg.n {
		k, v := t.b.row(t.k, seg.first+j)[head*dim:], t.b.row(t.v, seg.first+j)[head*dim:]
		copy(s.values32[j*dim:(j+1)*dim], v)
		to := s.keys32[j/blockTokens*blockTokens*dim+j%blockTokens:]
		for i := range dim {
			to[i*blockTokens] = k[i]
		}
	}
	return headPage{keys32: s.keys32, values32: s.values32}
}
