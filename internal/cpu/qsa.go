package cpu

import (
	"math"
	"slices"

	"splash/internal/model"
	"splash/oracle"
)

// indexState is the keys of a sparse attention layer: the raw ones of the last tokens, and the pooled one of every
// complete block. Taking rows back uncovers at most what the ring still holds.
type indexState struct {
	dim, block int
	rows       int
	raw        []float32 // [ring][dim]
	positions  []oracle.Position
	pooled     []float32 // [blocks][dim]
}

// ring is the number of tokens whose raw keys are kept.
func (s *indexState) ring() int { return s.block + model.RollbackRows }

func (s *indexState) begin(int) {
	if s.raw == nil {
		s.raw, s.positions = floats(s.ring()*s.dim), make([]oracle.Position, s.ring())
	}
}

func (s *indexState) back(n int) {
	s.rows -= n
	s.pooled = s.pooled[:s.rows/s.block*s.dim]
}

func (s *indexState) reset() { s.rows, s.pooled = 0, s.pooled[:0] }

// push keeps a token's raw key and reports whether it completes a block.
func (s *indexState) push(key []float32, p oracle.Position) (complete bool) {
	at := s.rows % s.ring()
	copy(s.raw[at*s.dim:(at+1)*s.dim], key)
	s.positions[at] = p
	s.rows++
	return s.rows%s.block == 0
}

// choice is what sparse rows see.
type choice struct {
	width   int     // room for a row
	tokens  []int32 // [rows][width]
	counts  []int   // -1: all tokens
	queries []float32
}

// indexKeys keeps the raw keys of the rows, pools the blocks they complete and chooses what the rows see.
func (b *Backend) indexKeys(a *model.Attention, rope *ropeTable) {
	x := a.Index
	for i := range b.rows {
		s := b.rows[i].lane.states[x.State].(*indexState)
		if s.push(b.row(x.K, i), b.rows[i].pos) {
			b.pool1(s, b.vectors[x.KNorm], rope)
		}
	}
	c := &b.choice
	c.width = (x.Layout.Budget + 1) * x.Layout.Block
	c.tokens, c.queries = grown(c.tokens, len(b.rows)*c.width), grown(c.queries, len(b.rows)*b.buffers[x.Q].width)
	c.counts = slices.Grow(c.counts[:0], len(b.rows))[:len(b.rows)]
	b.ops.choose = chooseTask{b, x, rope}
	b.pool.run(&b.ops.choose, len(b.rows), 1)
}

// pool1 makes the key of the block that the last token completed: the mean of its raw keys, normalized, and rotated at the
// position of its first token.
func (b *Backend) pool1(s *indexState, norm []float32, rope *ropeTable) {
	n := len(s.pooled)
	s.pooled = slices.Grow(s.pooled, s.dim)[:n+s.dim]
	key := s.pooled[n:]
	clear(key)
	first := s.rows - s.block
	for t := first; t < s.rows; t++ {
		at := t % s.ring()
		b.k.addScaled(key, s.raw[at*s.dim:(at+1)*s.dim], 1)
	}
	b.k.scale(key, 1/float32(s.block))
	b.rmsNorm(key, key, norm, b.layout.Epsilon)
	w := b.workers[0].rowOf(rope.dims)
	sin, cos := w[:rope.dims/2], w[rope.dims/2:]
	rope.at(sin, cos, s.positions[first%s.ring()])
	rotate(key, sin, cos)
}

// chooseTask chooses the tokens of rows.
type chooseTask struct {
	b    *Backend
	x    *model.Indexer
	rope *ropeTable
}

func (t *chooseTask) run(w, first, last int) {
	for i := first; i < last; i++ {
		t.choose(t.b.workers[w], i)
	}
}

// choose writes the tokens that row i sees (oracle.SparseSeen): those of the blocks of the largest scores and those after
// the last complete block.
func (t *chooseTask) choose(w *worker, i int) {
	b, l := t.b, t.x.Layout
	index := b.rows[i].index
	complete := oracle.SparseBlocks(index, l.Block)
	if complete <= l.Budget {
		b.choice.counts[i] = -1
		return
	}
	best := t.best(w, i, complete)
	to := b.choice.tokens[i*b.choice.width : i*b.choice.width]
	for _, s := range best {
		for j := range l.Block {
			to = append(to, int32(s.block*l.Block+j))
		}
	}
	for j := complete * l.Block; j <= index; j++ {
		to = append(to, int32(j))
	}
	b.choice.counts[i] = len(to)
}

type scoredBlock struct {
	score float32
	block int
}

// below reports whether a comes after c: by falling score, NaN last, then by block.
func (a scoredBlock) below(c scoredBlock) bool {
	switch {
	case a.score < c.score || a.score != a.score && c.score == c.score:
		return true
	case a.score > c.score || c.score != c.score && a.score == a.score:
		return false
	}
	return a.block > c.block
}

// best returns the blocks of the budget by rising place. It keeps the best so far in a heap whose root is the last of
// them.
func (t *chooseTask) best(w *worker, i, complete int) []scoredBlock {
	b, l := t.b, t.x.Layout
	q := t.query(i)
	pooled := b.rows[i].lane.states[t.x.State].(*indexState).pooled
	heap := w.attend.blocks[:0]
	for at := 0; at < complete; at += b.k.lanes {
		n := min(b.k.lanes, complete-at)
		r := &w.floats
		*r = floatRows{values: pooled[at*l.HeadDim : (at+n)*l.HeadDim], rows: n, cols: l.HeadDim, lanes: b.k.lanes}
		acc := w.accumulators(0, l.Heads*b.k.lanes)
		b.k.dot(acc, r, q, l.HeadDim, l.Heads)
		for j := range n {
			var sum float32
			for h := range l.Heads {
				sum += max(acc[h*b.k.lanes+j], 0)
			}
			heap = offer(heap, scoredBlock{sum / float32(math.Sqrt(float64(l.HeadDim))), at + j}, l.Budget)
		}
	}
	slices.SortFunc(heap, func(a, c scoredBlock) int { return a.block - c.block })
	w.attend.blocks = heap
	return heap
}

// query is the indexer's queries of row i, normalized and rotated.
func (t *chooseTask) query(i int) []float32 {
	b, dim := t.b, t.x.Layout.HeadDim
	raw := b.row(t.x.Q, i)
	q := b.choice.queries[i*len(raw) : (i+1)*len(raw)]
	for at := 0; at < len(q); at += dim {
		b.rmsNorm(q[at:at+dim], raw[at:at+dim], b.vectors[t.x.QNorm], b.layout.Epsilon)
		t.rope.rotate(q[at:at+dim], i)
	}
	return q
}

// offer adds a block to the best ones, most of them at the most.
func offer(heap []scoredBlock, s scoredBlock, most int) []scoredBlock {
	if len(heap) < most {
		heap = append(heap, s)
		for i := len(heap) - 1; i > 0 && heap[i].below(heap[(i-1)/2]); i = (i - 1) / 2 {
			heap[i], heap[(i-1)/2] = heap[(i-1)/2], heap[i]
		}
		return heap
	}
	if s.below(heap[0]) {
		return heap
	}
	heap[0] = s
	for i := 0; ; {
		last := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(heap); c++ {
			if heap[c].below(heap[last]) {
				last = c
			}
		}
		if last == i {
			return heap
		}
		heap[i], heap[last] = heap[last], heap[i]
		i = last
	}
}

// sparse attends to what the rows of a piece chose.
func (t *attendTask) sparse(w *worker, p *piece) {
	for r := range p.rows {
		one := *p
		one.row, one.rows = p.row+r, 1
		if t.b.choice.counts[one.row] < 0 {
			t.dense(w, &one)
		} else {
			t.chosen(w, &one)
		}
	}
}

// chosen attends to the chosen tokens of one row, gathered into pages.
func (t *attendTask) chosen(w *worker, p *piece) {
	b, s := t.b, &w.attend
	kv := b.rows[p.row].lane.states[t.a.KV].(*kvState)
	tokens := b.choice.tokens[p.row*b.choice.width:][:b.choice.counts[p.row]]
	n := t.group * foldWidth(t.dim)
	s.whole, s.stretch = grown(s.whole, n), grown(s.stretch, n)
	clearFolds(s.whole, t.dim)
	for page := 0; len(tokens) > 0; page++ {
		if page%stretchPages == 0 {
			clearFolds(s.stretch, t.dim)
		}
		count := min(pageTokens, len(tokens))
		head := kv.gather(s, p.head, tokens[:count])
		b.attendPage(w, s.stretch, t.queries(p.head, p.row, 1), &head, t.dim, 0, count)
		if tokens = tokens[count:]; len(tokens) == 0 || page%stretchPages == stretchPages-1 {
			b.join(s.whole, s.stretch, t.dim)
		}
	}
	t.finish(p, s.whole)
}
