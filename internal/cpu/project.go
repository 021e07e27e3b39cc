package cpu

import (
	"iter"

	"splash/internal/model"
)

// A product is W x of some rows of activations, x in the form its matrix multiplies (inputs), and where the results go.
type product struct {
	m, up *matrix // up: the other half of a gate, silu(m x) * (up x); nil: m x alone
	in    *input
	upIn  *input // of up
	dst   []float32
	width int // of a row of dst
	add   bool
	next  *foreseen // what the results are rounded to, or nil
}

// A span is tiles of one product, which follow on others among those of a task.
type span struct {
	p      *product
	tile   int // its first, of the product
	before int // tiles of the task
}

// Project multiplies each row by W.
func (b *Backend) Project(dst, x model.Buffer, w model.Matrix, e model.Epilogue) {
	rows := b.rowsOf(x)
	if rows == 0 {
		return
	}
	b.inputs.reset()
	p := b.productTo(dst, rows, w)
	p.in, p.add = b.input(p.m, x), e == model.Add
	b.runProduct(p)
	b.forget(x)
}

// productTo is a product whose input is yet to be made.
func (b *Backend) productTo(dst model.Buffer, rows int, w model.Matrix) product {
	return product{m: b.matrices[w], dst: b.span(dst, 0, rows), width: b.buffers[dst].width}
}

// ProjectAll multiplies each row by each W, all in one task.
func (b *Backend) ProjectAll(x model.Buffer, all []model.Projection) {
	rows := b.rowsOf(x)
	if rows == 0 {
		return
	}
	b.inputs.reset()
	t := &b.ops.products
	t.all = t.all[:0]
	for _, to := range all {
		p := b.productTo(to.Dst, rows, to.W)
		for i := range t.all {
			if t.all[i].m.sameInput(p.m) {
				p.in = t.all[i].in
			}
		}
		if p.in == nil {
			p.in = b.input(p.m, x)
		}
		t.all = append(t.all, p)
	}
	b.runProducts(true)
	b.forget(x)
}

// GateUp writes silu(gate x) * (up x), or rounds it.
func (b *Backend) GateUp(dst, x model.Buffer, gate, up model.Matrix, next []model.Matrix) {
	rows := b.rowsOf(x)
	if rows == 0 {
		return
	}
	b.inputs.reset()
	p := b.productTo(dst, rows, gate)
	p.up = b.matrices[up]
	if p.in = b.input(p.m, x); p.m.sameInput(p.up) {
		p.upIn = p.in
	} else {
		p.upIn = b.input(p.up, x)
	}
	b.forget(x)
	if b.k.put != nil && p.m.rowOrder == nil && p.m.rows%unit == 0 {
		if f := b.foresee(ofBlock, dst, next); f.forms() {
			p.next = f
		}
	}
	b.runProduct(p)
}

// multiply runs one product of rows rows of x.
func (b *Backend) multiply(m *matrix, dst []float32, width int, x []float32, rows int) {
	if rows == 0 {
		return
	}
	b.inputs.reset()
	b.runProduct(product{m: m, dst: dst, width: width, in: b.inputs.of(b, m, x, m.cols, rows)})
}

func (b *Backend) runProduct(p product) {
	t := &b.ops.products
	t.all = append(t.all[:0], p)
	b.runProducts(false)
}

// runProducts runs the products of the task, tiles apart: one after another, or, where all are cut, a part of each for every
// worker, so that what it makes of each is where it would be if the products were run by themselves.
func (b *Backend) runProducts(cut bool) {
	t := &b.ops.products
	t.b, t.spans = b, t.spans[:0]
	parts, tiles := 1, 0
	if cut {
		parts = b.pool.workers
	}
	for part := range parts {
		for i := range t.all {
			p := &t.all[i]
			for from, to := range b.cuts(p.m.rows, part, parts, b.k.lanes) {
				t.spans = append(t.spans, span{p, from / b.k.lanes, tiles})
				tiles += (to - from + b.k.lanes - 1) / b.k.lanes
			}
		}
	}
	t.tiles, t.step = tiles, 1
	if t.all[0].next != nil {
		t.step = unit / b.k.lanes
	}
	t.shares = &b.shares[b.kind]
	t.shares.begin(t)
	b.pool.run(t, tiles/t.step, max(1, t.grain(tiles)/t.step))
	t.shares.number++
}

// cuts are a part of a row of so many values, in whole units but for the row's end. The queries, keys and values of a gated
// delta net are cut each by itself, so that what belongs to a head is one worker's.
func (b *Backend) cuts(width, part, parts, unit int) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		cut := func(from, to int) bool {
			n := (to - from + unit - 1) / unit
			first, last := from+part*n/parts*unit, min(from+(part+1)*n/parts*unit, to)
			return first == last || yield(first, last)
		}
		l := &b.layout.GDN
		key, value := l.KeyHeads*l.HeadDim, l.ValueHeads*l.HeadDim
		if parts == 1 || width != 2*key+value || key%unit != 0 {
			cut(0, width)
			return
		}
		_ = cut(0, key) && cut(key, 2*key) && cut(2*key, width)
	}
}

// productTask runs tiles of products.
type productTask struct {
	b      *Backend
	all    []product
	spans  []span
	tiles  int
	step   int     // tiles of a part: those of a unit where results are rounded
	shares *shares // of the pass
}

// grain is the number of tiles of a part: enough that taking it costs nothing beside it, few enough that the workers end
// together. It is some microseconds: what comes first of a run was not fetched before.
func (t *productTask) grain(tiles int) int {
	work := t.all[0].m.cols * (1 + t.all[0].in.rows/4) // of a tile
	return max(1, min(tiles/(4*t.b.pool.workers), 16384/work))
}

func (t *productTask) run(w, first, last int) {
	at := 0
	for i := first * t.step; i < last*t.step; {
		at = t.spanOf(i, at)
		end := last * t.step
		if at+1 < len(t.spans) {
			end = min(end, t.spans[at+1].before)
		}
		s, n := &t.spans[at], t.step
		if rows := s.p.in.rows; rows == 1 || rows == pipedRows {
			n = min(end-i, mostTiles)
		}
		t.some(t.b.workers[w], s.p, s.tile+i-s.before, n, t.next(w, i+n, at))
		i += n
	}
}

// mostTiles bounds those that a worker multiplies in one go before it puts their results where they go: of a gate as many as
// that before those of its other half.
const mostTiles = 32

// some runs n tiles of a product from tile i on, with what is next to be fetched behind them.
func (t *productTask) some(w *worker, p *product, i, n int, next uintptr) {
	b, lanes := t.b, t.b.k.lanes
	row, size := i*lanes, p.in.rows*lanes
	acc := w.accumulators(0, roundUp(n*size, vector))
	if w.next = next; p.up != nil {
		w.next = p.up.address(row)
	}
	b.tileProducts(w, acc[:n*size], p.m, p.in, row, n)
	if p.up != nil {
		w.next = next
		up := w.accumulators(1, roundUp(n*size, vector))
		b.tileProducts(w, up[:n*size], p.up, p.upIn, row, n)
		b.k.swish(acc, acc, up)
	}
	if p.next != nil {
		if p.round(b, w, acc, row, n); p.next.whole {
			return
		}
	}
	if o, end := p.m.rowOrder, row+n*lanes; b.k.put != nil && end <= p.m.rows && (o == nil || end <= o.From) {
		b.k.put(p.dst[row:(p.in.rows-1)*p.width+row+n*lanes], p.width, acc, p.in.rows, n, p.add)
		return
	}
	for j := range n {
		p.put(acc[j*size:(j+1)*size], lanes, row, min(lanes, p.m.rows-row))
		row += lanes
	}
}

// round rounds the results of n tiles from row on.
func (p *product) round(b *Backend, w *worker, acc []float32, row, n int) {
	width := n * b.k.lanes
	to := strip{w.stripOf(p.in.rows * width), 0, width}
	b.k.put(to.values, width, acc, p.in.rows, n, false)
	for i, block := range p.next.panels() {
		s := strip{to.row(block.first), block.first, width}
		p.next.round(b, w, i, row, width, &s)
	}
}

// vector is the number of values that elementwise kernels take together: what is left goes another way, and may round
// otherwise.
const vector = 16

func roundUp(n, to int) int { return (n + to - 1) / to * to }

func (w *worker) accumulators(i, n int) []float32 {
	w.acc[i] = grown(w.acc[i], n)
	return w.acc[i]
}

// tileProducts writes the products of n tiles of rows, from row on, and all rows of an input to acc, [n][input rows][lanes].
func (b *Backend) tileProducts(w *worker, acc []float32, m *matrix, in *input, row, n int) {
	lanes, size, next := b.k.lanes, in.rows*b.k.lanes, w.next
	if whole := min(n, (m.rows-row)/lanes); whole > 0 && m.rounded() && in.rows == pipedRows && b.k.piped != nil {
		clear(acc[:whole*size])
		if whole < n {
			w.next = m.address(row + whole*lanes)
		}
		if b.k.piped(w, acc, m, in, row, whole) {
			acc, row, n = acc[whole*size:], row+whole*lanes, n-whole
		}
	}
	for i := range n {
		if w.next = next; i+1 < n {
			w.next = m.address(row + lanes)
		}
		b.tileProduct(w, acc[i*size:(i+1)*size], m, in, row, min(lanes, m.rows-row))
		row += lanes
	}
}

// tileProduct writes the products of rows of a matrix and all rows of an input to acc, [input rows][lanes].
func (b *Backend) tileProduct(w *worker, acc []float32, m *matrix, in *input, row, rows int) {
	switch {
	case m.bf16:
		b.bf16Product(w, acc, m, in, row, rows)
		return
	case m.blocks == nil:
		b.floatProduct(w, acc, m, in, row, rows)
		return
	}
	clear(acc)
	lanes := b.k.lanes
	if in.rows == 1 && rows == lanes && !m.exact && b.k.fused != nil && b.k.fused(w, acc, m, in, row) {
		return
	}
	units := m.cols / unit
	for at := 0; at < units; at += spanUnits {
		n := min(spanUnits, units-at)
		b.k.unpack(w, m, row, rows, at, n)
		if m.exact {
			b.k.exact(acc, &w.tile, m.blocks, in, at)
			continue
		}
		panels := in.panels
		if n := in.rows / tileRows; n > 0 && b.k.together != nil {
			b.k.together(acc, &w.tile, panels[:n], at)
			panels = panels[n:]
		}
		for i := range panels {
			p := &panels[i]
			b.k.product(acc[p.first*lanes:(p.first+p.rows)*lanes], &w.tile, p, at)
		}
	}
}

// put writes a tile's results, of rows from row on of the file, to their places.
func (p *product) put(acc []float32, lanes, row, rows int) {
	o := p.m.rowOrder
	if o != nil && (row+rows > o.From) {
		p.putOrdered(acc, lanes, row, rows)
		return
	}
	for i := range p.in.rows {
		from, to := acc[i*lanes:i*lanes+rows], p.dst[i*p.width+row:][:rows]
		if !p.add {
			copy(to, from)
			continue
		}
		for j, v := range from {
			to[j] += v
		}
	}
}

func (p *product) putOrdered(acc []float32, lanes, row, rows int) {
	for j := range rows {
		at := target(p.m.rowOrder, row+j)
		for i := range p.in.rows {
			if to := &p.dst[i*p.width+at]; p.add {
				*to += acc[i*lanes+j]
			} else {
				*to = acc[i*lanes+j]
			}
		}
	}
}
