package cpu

import (
	"math"

	"splash/internal/model"
)

// stripWidth is the number of values of a head that a step carries through all keys: the state of a head lies in strips
// of [keys][stripWidth], each of which stays in the nearest cache while a segment's rows pass.
const stripWidth = 16

// A recurrence is the state of every value head, with what it takes to go back over the last rows: the state before them
// and their keys, updates and decays. A pass reads the one state and leaves its own in the other, so that nothing is
// copied. Rows taken back are not undone at once: the next pass begins at the state before and repeats those that stay.
type recurrence struct {
	heads, dk, dv int
	now, before   []float32 // [heads][dv/stripWidth][dk][stripWidth]

	rows   int // of the last segment, less those taken back
	from   int // the first row of it whose update is kept: before is the state before that row
	behind bool
	kept   [2]updates // of the last segment, and room for the next one's
	replay func(dst, src, k, delta []float32, decay float32)
}

// updates are the last rows of a segment.
type updates struct {
	k     []float32 // [rows][heads][dk]
	delta []float32 // [rows][heads][dv]
	decay []float32 // [rows][heads]
}

func (b *Backend) newRecurrence(heads, dk, dv int) *recurrence {
	s := &recurrence{heads: heads, dk: dk, dv: dv, now: floats(heads * dk * dv), before: floats(heads * dk * dv), replay: b.k.gdnReplay}
	for i := range s.kept {
		n := model.RollbackRows * heads
		s.kept[i] = updates{floats(n * dk), floats(n * dv), floats(n)}
	}
	return s
}

func (s *recurrence) begin(int) {}

func (s *recurrence) back(n int) {
	s.rows -= n
	s.behind = true
}

func (s *recurrence) reset() {
	clear(s.now)
	s.rows, s.from, s.behind = 0, 0, false
}

// copyTo writes the state after the last row, [heads][strips][dk][stripWidth].
func (s *recurrence) copyTo(dst []float32) {
	if !s.behind {
		copy(dst, s.now)
		return
	}
	copy(dst, s.before)
	size, strips := s.dk*stripWidth, s.dv/stripWidth
	for i := range s.heads * strips {
		for u := range s.rows - s.from {
			k, delta, decay := s.kept[0].of(s, u, i/strips)
			s.replay(dst[i*size:(i+1)*size], dst[i*size:(i+1)*size], k, delta[i%strips*stripWidth:][:stripWidth], decay)
		}
	}
}

// of is the key, the update and the decay of a head in a kept row.
func (u *updates) of(s *recurrence, row, h int) (k, delta []float32, decay float32) {
	at := row*s.heads + h
	return u.k[at*s.dk : (at+1)*s.dk], u.delta[at*s.dv : (at+1)*s.dv], u.decay[at]
}

// advance makes the state ready for a segment: it returns the state to start from, the updates to repeat on it, and the
// state to leave the result in.
func (s *recurrence) advance(rows int) (start []float32, repeat int, result []float32) {
	start, result = s.now, s.before
	if s.behind {
		start, result = s.before, s.now
		repeat = s.rows - s.from
	}
	s.now, s.before = result, start
	s.kept[0], s.kept[1] = s.kept[1], s.kept[0]
	s.rows, s.from, s.behind = rows, max(0, rows-model.RollbackRows), false
	return start, repeat, result
}

// recurrences is what a GDN layer works with.
type recurrences struct {
	q, k        []float32 // [rows][key heads][dim], normalized
	beta, decay []float32 // [rows][value heads]
}

// GDN runs the gated delta rule, every strip of every head of every lane by itself.
func (b *Backend) GDN(dst, qkv, beta, alpha model.Buffer, g *model.GDN) {
	l, rows := g.Layout, len(b.rows)
	r := &b.recur
	r.q, r.k = grown(r.q, rows*l.KeyHeads*l.HeadDim), grown(r.k, rows*l.KeyHeads*l.HeadDim)
	r.beta, r.decay = grown(r.beta, rows*l.ValueHeads), grown(r.decay, rows*l.ValueHeads)
	b.ops.gdnInputs = gdnInputs{b, g, qkv, beta, alpha}
	b.pool.run(&b.ops.gdnInputs, rows, 4)
	t := &b.ops.gdn
	for i := range b.segments {
		seg := &b.segments[i]
		s := seg.lane.states[g.State].(*recurrence)
		*t = gdnTask{b: b, g: g, s: s, seg: seg, dst: dst, qkv: qkv}
		t.start, t.repeat, t.result = s.advance(seg.n)
		strips := l.ValueHeads * (s.dv / stripWidth)
		b.pool.run(t, strips, max(1, min(8, 32/seg.n)))
	}
}

// gdnInputs normalizes the queries and keys of each row and makes its gates.
type gdnInputs struct {
	b                *Backend
	g                *model.GDN
	qkv, beta, alpha model.Buffer
}

func (t *gdnInputs) run(_, first, last int) {
	b, l := t.b, t.g.Layout
	d, width := l.HeadDim, l.KeyHeads*l.HeadDim
	scale := float32(1 / math.Sqrt(float64(d)))
	for i := first; i < last; i++ {
		in := b.row(t.qkv, i)
		for h := range l.KeyHeads {
			at := i*width + h*d
			b.l2Norm(b.recur.q[at:at+d], in[h*d:(h+1)*d], scale)
			b.l2Norm(b.recur.k[at:at+d], in[width+h*d:width+(h+1)*d], 1)
		}
		beta, alpha := b.row(t.beta, i), b.row(t.alpha, i)
		decay, bias := b.vectors[t.g.Decay], b.vectors[t.g.Bias]
		for h := range l.ValueHeads {
			b.recur.beta[i*l.ValueHeads+h] = float32(sigmoid(float64(beta[h])))
			b.recur.decay[i*l.ValueHeads+h] =
				float32(math.Exp(float64(decay[h]) * softplus(float64(alpha[h])+float64(bias[h]))))
		}
	}
}

// l2Norm writes scale x / max(sqrt(sum x^2), eps).
func (b *Backend) l2Norm(dst, x []float32, scale float32) {
	norm := math.Sqrt(float64(b.k.sumSquares(x)))
	inverse := scale * float32(1/math.Max(norm, b.layout.Epsilon))
	for j, v := range x {
		dst[j] = v * inverse
	}
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
	b             *Backend
	g             *model.GDN
	s             *recurrence
	seg           *segment
	dst, qkv      model.Buffer
	start, result []float32
	repeat        int
}

func (t *gdnTask) run(w, first, last int) {
	strips := t.s.dv / stripWidth
	for i := first; i < last; i++ {
		t.strip(t.b.workers[w], i, i/strips, i%strips*stripWidth)
	}
}

// strip runs the values from j on of head h through the rows: on the state to start from, up to the first row whose
// update is kept, then on the result.
func (t *gdnTask) strip(w *worker, i, h, j int) {
	s, l, r, k := t.s, t.g.Layout, &t.b.recur, t.b.k
	size := s.dk * stripWidth
	state, result := t.start[i*size:(i+1)*size], t.result[i*size:(i+1)*size]
	old, kept := &s.kept[1], &s.kept[0]
	for u := range t.repeat {
		key, delta, decay := old.of(s, u, h)
		k.gdnReplay(state, state, key, delta[j:j+stripWidth], decay)
	}
	d, keyHead := l.HeadDim, h/(l.ValueHeads/l.KeyHeads)
	values := 2*l.KeyHeads*d + h*d + j
	for u := range t.seg.n {
		row := t.seg.first + u
		at, gate := (row*l.KeyHeads+keyHead)*d, row*l.ValueHeads+h
		delta, to := w.delta[:], state
		if u >= s.from {
			slot := (u-s.from)*s.heads + h
			delta, to = kept.delta[slot*s.dv+j:][:stripWidth], result
			if j == 0 {
				copy(kept.k[slot*s.dk:(slot+1)*s.dk], r.k[at:at+d])
				kept.decay[slot] = r.decay[gate]
			}
		}
		step := k.gdnStep
		if t.seg.n == 1 {
			step = k.gdnLast
		}
		step(to, state, r.k[at:at+d], r.q[at:at+d], t.b.row(t.qkv, row)[values:][:stripWidth],
			t.b.row(t.dst, row)[h*d+j:][:stripWidth], delta, r.beta[gate], r.decay[gate])
		state = to
	}
}

// GatedNorm normalizes each head and gates it.
func (b *Backend) GatedNorm(dst, x, z model.Buffer, w model.Vector, sigmoid bool) {
	b.ops.gatedNorm = gatedNorm{b, dst, x, z, b.vectors[w], sigmoid}
	b.pool.run(&b.ops.gatedNorm, b.rowsOf(x), 4)
}

type gatedNorm struct {
	b         *Backend
	dst, x, z model.Buffer
	w         []float32
	sigmoid   bool
}

func (t *gatedNorm) run(_, first, last int) {
	k, n := t.b.k, len(t.w)
	for i := first; i < last; i++ {
		out, in, z := t.b.row(t.dst, i), t.b.row(t.x, i), t.b.row(t.z, i)
		for at := 0; at < len(in); at += n {
			head := out[at : at+n]
			t.b.rmsNorm(head, in[at:at+n], t.w, t.b.layout.Epsilon)
			if t.sigmoid {
				k.gate(head, z[at:at+n])
			} else {
				k.swish(head, z[at:at+n], head)
			}
		}
	}
}
