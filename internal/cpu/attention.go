package cpu

import (
	"math"

	"splash/internal/model"
)

// Attention is computed a page of tokens after another: the running maximum, sum and weighted values of a query are
// brought to the page's maximum, and its weights and values added. Pages are counted from the sequence's start, and every
// stretch of stretchPages is summed by itself before it joins the others, so that stretches may run beside each other
// and give, in whatever cut, the same bits.
const stretchPages = 8

// blockRows is the most rows of a segment that read a page together.
const blockRows = 8

var infinity = float32(math.Inf(1))

// attending is what attention works with.
type attending struct {
	queries []float32 // [KV heads][rows][heads of it][dim], normalized, rotated and scaled
	pieces  []piece
	folds   []float32 // of pieces that are parts of a whole
}

// A piece is rows of a segment, heads of one KV head and stretches of tokens that one worker attends.
type piece struct {
	seg         *segment
	row, rows   int // of the pass
	head        int
	first, last int // stretches
	fold        int // where its sums are kept for the end, or -1: it is the whole
}

// attendScratch is a worker's.
type attendScratch struct {
	scores  []float32 // [queries][pageTokens]
	stretch []float32 // sums
	whole   []float32
	blocks  []scoredBlock
	query   []float32 // of a draft's head

	keys, values           []uint16 // a page of one head, where it is not stored so
	keyScales, valueScales []float32
	keys32, values32       []float32
}

// Attention stores the rows' keys and values, then attends.
func (b *Backend) Attention(dst, q, k, v model.Buffer, a *model.Attention) {
	s := a.Layout
	b.attend.queries = grown(b.attend.queries, len(b.rows)*s.Heads*s.HeadDim)
	t := &b.ops.attend
	*t = attendTask{b: b, a: a, dst: dst, q: q, k: k, v: v, group: s.Heads / s.KVHeads, dim: s.HeadDim}
	if a.Rotate || a.Index != nil {
		t.rope = b.rope(s.RopeBase, s.RopeDim, false)
	}
	b.ops.keys = keysTask{t}
	b.pool.run(&b.ops.keys, s.KVHeads*rowCount(len(b.rows)).blocks(), 1)
	if a.Index != nil {
		b.indexKeys(a, t.rope)
	}
	t.cut()
	b.pool.run(t, len(b.attend.pieces), 1)
	if t.parts > 1 {
		b.ops.folds = foldTask{t}
		b.pool.run(&b.ops.folds, len(b.attend.pieces)/t.parts, 1)
	}
}

// attendTask attends piece after piece.
type attendTask struct {
	b          *Backend
	a          *model.Attention
	dst        model.Buffer
	q, k, v    model.Buffer
	group, dim int // query heads of a KV head, and their size
	rope       *ropeTable
	parts      int // pieces of a whole
}

// keysTask prepares the queries and keys of blocks of rows, a head of keys after another, and stores their keys and values.
type keysTask struct{ *attendTask }

func (t *keysTask) run(_, first, last int) {
	rows := rowCount(len(t.b.rows))
	for i := first; i < last; i++ {
		h, row, end := rows.part(i)
		for ; row < end; row++ {
			t.head(row, h)
		}
	}
}

// head prepares a head of keys of a row, and the queries that read it.
func (t *keysTask) head(row, h int) {
	b, step := t.b, t.dim
	if t.a.Layout.Gated {
		step = 2 * t.dim
	}
	for g := range t.group {
		to := t.query(h, row, g)
		t.prepare(to, b.row(t.q, row)[(h*t.group+g)*step:][:t.dim], t.a.QNorm, row)
		b.k.scale(to, float32(1/math.Sqrt(float64(t.dim))))
	}
	key, value := b.row(t.k, row)[h*t.dim:][:t.dim], b.row(t.v, row)[h*t.dim:][:t.dim]
	t.prepare(key, key, t.a.KNorm, row)
	r := &b.rows[row]
	r.lane.states[t.a.KV].(*kvState).store(r.index, h, key, value)
}

// query is where query g of a KV head lies for row i.
func (t *attendTask) query(kvHead, i, g int) []float32 {
	at := ((kvHead*len(t.b.rows)+i)*t.group + g) * t.dim
	return t.b.attend.queries[at : at+t.dim]
}

// prepare writes the head x, normalized and rotated.
func (t *attendTask) prepare(dst, x []float32, norm model.Vector, i int) {
	if norm != model.None {
		t.b.rmsNorm(dst, x, t.b.vectors[norm], t.b.layout.Epsilon)
	} else {
		copy(dst, x)
	}
	if t.a.Rotate {
		t.rope.rotate(dst, i)
	}
}

// cut makes the pieces: where rows are few, a stretch each.
func (t *attendTask) cut() {
	b, heads := t.b, t.a.Layout.KVHeads
	b.attend.pieces = b.attend.pieces[:0]
	blocks, most := 0, 0
	for i := range b.segments {
		seg := &b.segments[i]
		blocks += (seg.n + blockRows - 1) / blockRows
		most = max(most, stretchOf(b.rows[seg.first+seg.n-1].index)+1)
	}
	t.parts = 1
	if blocks*heads < 4*b.pool.workers && t.a.Index == nil {
		t.parts = most
	}
	size := 0
	for i := range b.segments {
		seg := &b.segments[i]
		for at := 0; at < seg.n; at += blockRows {
			p := piece{seg: seg, row: seg.first + at, rows: min(blockRows, seg.n-at), fold: -1, last: most}
			for p.head = range heads {
				for part := range t.parts {
					if t.parts > 1 {
						p.first, p.last, p.fold = part, part+1, size
						size += p.rows * t.group * foldWidth(t.dim)
					}
					b.attend.pieces = append(b.attend.pieces, p)
				}
			}
		}
	}
	b.attend.folds = grown(b.attend.folds, size)
}

func stretchOf(index int) int { return index / (pageTokens * stretchPages) }

// A fold is a query's largest score, the sum of its weights, and its weighted values, for which it has room for a whole
// number of cache lines.
func foldWidth(dim int) int { return dim + 16 }

// clearFolds makes folds of nothing.
func clearFolds(folds []float32, dim int) {
	clear(folds)
	for at := 0; at < len(folds); at += foldWidth(dim) {
		folds[at+dim] = -infinity
	}
}

// join adds folds of later tokens.
func (b *Backend) join(folds, later []float32, dim int) {
	for at := 0; at < len(folds); at += foldWidth(dim) {
		to, from := folds[at:at+foldWidth(dim)], later[at:at+foldWidth(dim)]
		most := max(to[dim], from[dim])
		if most == -infinity {
			continue
		}
		keep, take := exp(to[dim]-most), exp(from[dim]-most)
		to[dim], to[dim+1] = most, to[dim+1]*keep+from[dim+1]*take
		b.k.scale(to[:dim], keep)
		b.k.addScaled(to[:dim], from[:dim], take)
	}
}

func exp(x float32) float32 { return float32(math.Exp(float64(x))) }

func (t *attendTask) run(w, first, last int) {
	for i := first; i < last; i++ {
		p := &t.b.attend.pieces[i]
		if t.a.Index != nil {
			t.sparse(t.b.workers[w], p)
		} else {
			t.dense(t.b.workers[w], p)
		}
	}
}

// dense attends to all tokens that the rows of a piece see.
func (t *attendTask) dense(w *worker, p *piece) {
	s := &w.attend
	n := p.rows * t.group * foldWidth(t.dim)
	s.whole, s.stretch = grown(s.whole, n), grown(s.stretch, n)
	clearFolds(s.whole, t.dim)
	lowest, highest := t.sees(p.row), t.b.rows[p.row+p.rows-1].index
	for stretch := max(p.first, stretchOf(lowest)); stretch < min(p.last, stretchOf(highest)+1); stretch++ {
		clearFolds(s.stretch, t.dim)
		for page := stretch * stretchPages; page < (stretch+1)*stretchPages; page++ {
			if page*pageTokens <= highest && (page+1)*pageTokens > lowest {
				t.page(w, p, page)
			}
		}
		t.b.join(s.whole, s.stretch, t.dim)
	}
	if p.fold >= 0 {
		copy(t.b.attend.folds[p.fold:], s.whole)
		return
	}
	t.finish(p, s.whole)
}

// sees is the first token that row i sees.
func (t *attendTask) sees(i int) int {
	if t.a.Window > 0 {
		return max(0, t.b.rows[i].index-t.a.Window+1)
	}
	return 0
}

// page attends to one page. Rows that see all of it go together, the others one by one.
func (t *attendTask) page(w *worker, p *piece, page int) {
	kv := t.b.rows[p.row].lane.states[t.a.KV].(*kvState)
	head := kv.head(page, p.head, &w.attend)
	first, last := page*pageTokens, (page+1)*pageTokens
	for at := 0; at < p.rows; {
		row := p.row + at
		from, to := max(first, t.sees(row))-first, min(last, t.b.rows[row].index+1)-first
		n := 1
		if from == 0 && to == pageTokens {
			for at+n < p.rows && t.sees(row+n) <= first {
				n++
			}
		}
		if from < to {
			folds := w.attend.stretch[at*t.group*foldWidth(t.dim):]
			t.b.attendPage(w, folds, t.queries(p.head, row, n), &head, t.dim, from, to)
		}
		at += n
	}
}

// queries are those of n rows for a KV head.
func (t *attendTask) queries(kvHead, row, n int) []float32 {
	at := (kvHead*len(t.b.rows) + row) * t.group * t.dim
	return t.b.attend.queries[at : at+n*t.group*t.dim]
}

// attendPage adds what queries make of tokens from to to-1 of a page to their folds.
func (b *Backend) attendPage(w *worker, folds, q []float32, p *headPage, dim, from, to int) {
	queries := len(q) / dim
	w.attend.scores = grown(w.attend.scores, queries*pageTokens)
	scores := w.attend.scores
	if p.keys32 != nil {
		scoresFloat(scores, q, queries, p.keys32, dim, to)
	} else {
		b.k.scores(scores, q, queries, p.keys, dim, to)
	}
	for i := range queries {
		row := scores[i*pageTokens : i*pageTokens+to]
		for j, s := range p.keyScales[:min(len(p.keyScales), to)] {
			row[j] *= s
		}
		clear(row[:from])
		b.weigh(folds[i*foldWidth(dim):(i+1)*foldWidth(dim)], row[from:], dim)
		for j, s := range p.valueScales[:min(len(p.valueScales), to)] {
			row[j] *= s
		}
	}
	if p.values32 != nil {
		valuesFloat(folds, scores, queries, p.values32, dim, to)
	} else {
		b.k.values(folds, scores, queries, p.values, dim, to)
	}
}

// weigh turns a query's scores into weights under the new maximum, which it brings the fold to.
func (b *Backend) weigh(fold, scores []float32, dim int) {
	most := max(fold[dim], b.k.most(scores))
	if most == -infinity {
		clear(scores)
		return
	}
	if most != fold[dim] {
		keep := exp(fold[dim] - most)
		b.k.scale(fold[:dim], keep)
		fold[dim], fold[dim+1] = most, fold[dim+1]*keep
	}
	fold[dim+1] += b.k.soften(scores, most)
}

// foldTask joins the stretches of rows.
type foldTask struct{ *attendTask }

func (t *foldTask) run(_, first, last int) {
	for i := first; i < last; i++ {
		p := &t.b.attend.pieces[i*t.parts]
		n := p.rows * t.group * foldWidth(t.dim)
		whole := t.b.attend.folds[p.fold : p.fold+n]
		for part := 1; part < t.parts; part++ {
			at := t.b.attend.pieces[i*t.parts+part].fold
			t.b.join(whole, t.b.attend.folds[at:at+n], t.dim)
		}
		t.finish(p, whole)
	}
}

// finish writes the results of a piece: the weighted values by the sum of the weights, a sink's among them, and gated.
func (t *attendTask) finish(p *piece, folds []float32) {
	b, gated := t.b, t.a.Layout.Gated
	for i := range p.rows * t.group {
		fold := folds[i*foldWidth(t.dim) : (i+1)*foldWidth(t.dim)]
		row, h := p.row+i/t.group, p.head*t.group+i%t.group
		scale, sum := float32(1), fold[t.dim+1]
		if t.a.Sinks != model.None {
			sink := b.vectors[t.a.Sinks][h]
			most := max(fold[t.dim], sink)
			scale = exp(fold[t.dim] - most)
			sum = sum*scale + exp(sink-most)
		}
		out := b.row(t.dst, row)[h*t.dim : (h+1)*t.dim]
		copy(out, fold[:t.dim])
		b.k.scale(out, scale/sum)
		if gated {
			b.k.gate(out, b.row(t.q, row)[(2*h+1)*t.dim:][:t.dim])
		}
	}
}
