package cpu

import (
	"math"

	"splash/internal/model"
)

// stripWidth is the number of values of a head that a step carries through all keys: the state of a head lies in strips
// of [keys][stripWidth], each of which stays in the nearest cache while a segment's rows pass.
const stripWidth = 16

// A recurrence is the state of every value head before the last rows of a segment, and the updates these make. Rows that
// are taken back are then only forgotten; the next pass makes the updates of those that stay as it reads the state.
type recurrence struct {
	heads, dk, dv int
	state         []float32  // [heads][dv/stripWidth][dk][stripWidth]
	kept          [2]updates // to be made, and room for the next segment's
	replay        func(dst, src []float32, u *gdnUpdate)
}

// updates are those of the last rows of a segment.
type updates struct {
	rows  int
	k     []float32 // [rows][heads][dk]
	delta []float32 // [rows][heads][dv]
	decay []float32 // [rows][heads]
}

func (b *Backend) newRecurrence(heads, dk, dv int) *recurrence {
	s := &recurrence{heads: heads, dk: dk, dv: dv, state: floats(heads * dk * dv), replay: b.k.gdnReplay}
	for i := range s.kept {
		n := model.RollbackRows * heads
		s.kept[i] = updates{0, floats(n * dk), floats(n * dv), floats(n)}
	}
	return s
}

func (s *recurrence) begin(int)  {}
func (s *recurrence) back(n int) { s.kept[0].rows -= n }

func (s *recurrence) reset() {
	clear(s.state)
	s.kept[0].rows = 0
}

// copyTo writes the state after the last row, [heads][strips][dk][stripWidth].
func (s *recurrence) copyTo(dst []float32) {
	copy(dst, s.state)
	size, strips := s.dk*stripWidth, s.dv/stripWidth
	for i := range s.heads * strips {
		strip := dst[i*size : (i+1)*size]
		for row := range s.kept[0].rows {
			u := s.kept[0].of(s, row, i/strips, i%strips*stripWidth)
			s.replay(strip, strip, &u)
		}
	}
}

// of is the update of a head in a kept row, for the strip of values from j on.
func (u *updates) of(s *recurrence, row, h, j int) gdnUpdate {
	at := row*s.heads + h
	return gdnUpdate{u.k[at*s.dk : (at+1)*s.dk], u.delta[at*s.dv+j:][:stripWidth], u.decay[at]}
}

// advance makes room for the updates of a segment. Those of its rows from the result on are kept, those before it made.
func (s *recurrence) advance(rows int) (from int) {
	s.kept[0], s.kept[1] = s.kept[1], s.kept[0]
	s.kept[0].rows = min(rows, model.RollbackRows)
	return rows - s.kept[0].rows
}

// GDN runs the gated delta rule, every strip of every head of every lane by itself.
func (b *Backend) GDN(dst, qkv, beta, alpha model.Buffer, g *model.GDN) {
	l, t := g.Layout, &b.ops.gdn
	for len(b.still) < l.HeadDim {
		b.still = append(b.still, float32(math.Copysign(0, -1)))
	}
	for i := range b.segments {
		seg := &b.segments[i]
		s := seg.lane.states[g.State].(*recurrence)
		*t = gdnTask{b: b, g: g, s: s, seg: seg, dst: dst, qkv: qkv, beta: beta, alpha: alpha, number: t.number + 1}
		t.from = s.advance(seg.n)
		strips := l.ValueHeads * (s.dv / stripWidth)
		b.pool.run(t, strips, max(1, min(8, 32/seg.n)))
	}
}

// l2Norm writes scale x / max(sqrt(sum x^2), eps).
func (b *Backend) l2Norm(dst, x []float32, scale float32) {
	norm := math.Sqrt(float64(b.k.sumSquares(x)))
	copy(dst, x)
	b.k.scale(dst, scale*float32(1/math.Max(norm, b.layout.Epsilon)))
}

func sigmoid(x float64) float64 {
	if x >= 0 {
		return 1 / (1 + math.Exp(-x))
	}
	e := math.Exp(x)
	return e / (1 + e)
}

func softplus(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// gdnTask steps strips of a segment.
type gdnTask struct {
	b                     *Backend
	g                     *model.GDN
	s                     *recurrence
	seg                   *segment
	dst, qkv, beta, alpha model.Buffer
	from                  int // the first row whose update is kept
	number                int // of the task, from 1 on
}

func (t *gdnTask) run(w, first, last int) {
	g, strips := &t.b.workers[w].gdn, t.s.dv/stripWidth
	for i := first; i < last; i++ {
		if h := i / strips; g.task != t.number || g.head != h {
			t.head(t.b.workers[w], h)
		}
		t.strip(g, i, i/strips, i%strips*stripWidth)
	}
}

// strip runs the values from j on of head h through the rows. Each makes the update of the one before: in place up to the
// first row whose update is kept, then in the worker's scratch.
func (t *gdnTask) strip(g *gdnScratch, i, h, j int) {
	s, k := t.s, t.b.k
	if j == 0 {
		t.keep(h, g.rows[t.from:])
	}
	size := s.dk * stripWidth
	state := s.state[i*size : (i+1)*size]
	g.before = gdnUpdate{t.b.still[:s.dk], g.zeros[:], 1}
	for row := range s.kept[1].rows {
		if row > 0 {
			k.gdnReplay(state, state, &g.before)
		}
		g.before = s.kept[1].of(s, row, h, j)
	}
	ahead := state
	if (i+2)*size <= len(s.state) {
		ahead = s.state[(i+1)*size:]
	}
	// A single row fetches the next strip as it goes; of several the first fetch a part each, which memory keeps up with.
	next, part := ahead, size/fetchRows
	spread := k.fetch != nil && t.seg.n >= fetchRows && part%(4*stripWidth) == 0
	to := state
	for u := range g.rows {
		if spread {
			ahead = to
			if u < fetchRows {
				k.fetch(next[u*part : (u+1)*part])
			}
		}
		if u == t.from+1 {
			g.strip = grown(g.strip, size)
			to = g.strip
		}
		g.cut(u, j)
		k.gdnStep(to, state, &g.before, &g.row, ahead)
		g.before = gdnUpdate{g.row.k, g.row.delta, g.row.decay}
		state, ahead = to, to
	}
}

// fetchRows is the number of rows that share the fetching of a strip.
const fetchRows = 8

// A gdnScratch is what a worker steps strips with.
type gdnScratch struct {
	task, head int       // what rows are of
	key        int       // what q, k and kq are of
	rows       []gdnRow  // of a head, with all of its values
	q, k       []float32 // [rows][dim]: normalized
	kq         []float32 // [rows]
	strip      []float32 // beyond the rows that are sure to stay
	row        gdnRow
	before     gdnUpdate
	delta      [2][stripWidth]float32 // of rows whose updates are not kept
	zeros      [stripWidth]float32
}

// head makes the rows of a worker those of head h.
func (t *gdnTask) head(w *worker, h int) {
	b, l, g := t.b, t.g.Layout, &w.gdn
	d, values, key := l.HeadDim, t.s.dv, h/(l.ValueHeads/l.KeyHeads)
	if g.task != t.number || g.key != key {
		t.keyHead(w, key)
	}
	g.task, g.head, g.key = t.number, h, key
	decay, bias := float64(b.vectors[t.g.Decay][h]), float64(b.vectors[t.g.Bias][h])
	g.rows = g.rows[:0]
	for n := range t.seg.n {
		row := t.seg.first + n
		r := gdnRow{
			q: g.q[n*d : (n+1)*d], k: g.k[n*d : (n+1)*d], kq: g.kq[n],
			v: b.row(t.qkv, row)[2*l.KeyHeads*d+h*values:][:values], o: b.row(t.dst, row)[h*values:][:values],
			beta:  float32(sigmoid(float64(b.row(t.beta, row)[h]))),
			decay: float32(math.Exp(decay * softplus(float64(b.row(t.alpha, row)[h])+bias))),
		}
		if kept := n - t.from; kept >= 0 {
			r.delta = t.s.kept[0].delta[(kept*t.s.heads+h)*values:][:values]
		}
		g.rows = append(g.rows, r)
	}
}

// keyHead normalizes a head's queries and keys and multiplies them.
func (t *gdnTask) keyHead(w *worker, h int) {
	b, g, n := t.b, &w.gdn, t.seg.n
	d, width := t.g.Layout.HeadDim, t.g.Layout.KeyHeads*t.g.Layout.HeadDim
	g.q, g.k, g.kq = grown(g.q, n*d), grown(g.k, n*d), grown(g.kq, n)
	for i := range n {
		in, q, k := b.row(t.qkv, t.seg.first+i), g.q[i*d:(i+1)*d], g.k[i*d:(i+1)*d]
		b.l2Norm(q, in[h*d:(h+1)*d], float32(1/math.Sqrt(float64(d))))
		b.l2Norm(k, in[width+h*d:width+(h+1)*d], 1)
		g.kq[i] = b.dotOne(w, k, q)
	}
}

// keep keeps what the updates of a head's rows have beside their deltas.
func (t *gdnTask) keep(h int, rows []gdnRow) {
	s, kept := t.s, &t.s.kept[0]
	for i := range rows {
		slot := i*s.heads + h
		copy(kept.k[slot*s.dk:(slot+1)*s.dk], rows[i].k)
		kept.decay[slot] = rows[i].decay
	}
}

// cut makes g.row the values from j on of row u.
func (g *gdnScratch) cut(u, j int) {
	g.row = g.rows[u]
	g.row.v, g.row.o = g.row.v[j:j+stripWidth], g.row.o[j:j+stripWidth]
	if g.row.delta == nil {
		g.row.delta = g.delta[u%2][:]
	} else {
		g.row.delta = g.row.delta[j : j+stripWidth]
	}
}

// headsWorthSharing is the number of heads of rows that are worth another worker's time.
const headsWorthSharing = 32

// GatedNorm normalizes each head and gates it.
func (b *Backend) GatedNorm(dst, x, z model.Buffer, w model.Vector, sigmoid bool, next []model.Matrix) {
	rows, t := b.rowsOf(x), &b.ops.gatedNorm
	if rows == 0 {
		return
	}
	*t = gatedNorm{b: b, x: x, z: z, w: b.vectors[w], sigmoid: sigmoid, rows: rowCount(rows), next: b.foresee(ofBlock, dst, next)}
	if len(t.w)%unit != 0 {
		t.next.none()
	}
	b.pool.run(t, b.buffers[x].width/len(t.w)*t.next.blocks(t.rows), max(1, headsWorthSharing/min(rows, blockRows)))
}

// gatedNorm takes blocks of rows, a head after another.
type gatedNorm struct {
	b       *Backend
	x, z    model.Buffer
	w       []float32
	sigmoid bool
	rows    rowCount
	next    *foreseen
}

func (t *gatedNorm) run(w, first, last int) {
	n := len(t.w)
	for i := first; i < last; i++ {
		h, block, row, end := t.next.part(i, t.rows)
		to := t.next.strip(t.b, t.b.workers[w], row, end, h*n, (h+1)*n)
		for ; row < end; row++ {
			t.head(to.row(row)[:n], row, h*n)
		}
		t.next.round(t.b, t.b.workers[w], block, h*n, n, &to)
	}
}

// head normalizes and gates the head of a row that begins at the column.
func (t *gatedNorm) head(out []float32, row, at int) {
	n := len(t.w)
	z := t.b.row(t.z, row)[at : at+n]
	t.b.rmsNorm(out, t.b.row(t.x, row)[at:at+n], t.w, t.b.layout.Epsilon)
	if t.sigmoid {
		t.b.k.gate(out, z)
	} else {
		t.b.k.swish(out, z, out)
	}
}
