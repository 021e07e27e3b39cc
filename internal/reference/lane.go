package reference

import (
	"fmt"
	"slices"

	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// A lane is what a request carries from row to row.
type lane struct {
	length  int // rows kept
	pending int // rows of the pass under way
	last    int // rows of the last segment, as far as they can be taken back

	firstRow, firstIndex int // of the last segment: its place in the pass and in the lane

	states []state
}

// A state is a lane's for one layer. begin announces the rows of a segment; back forgets the last n of the last segment;
// clone is a copy that shares nothing that changes, and size its bytes.
type state interface {
	begin(rows int)
	back(n int)
	clone() state
	size() int
}

func (l *lane) begin(rows int) {
	l.pending = rows
	for _, s := range l.states {
		s.begin(rows)
	}
}

func (l *lane) end() {
	l.length += l.pending
	l.last = min(l.pending, model.RollbackRows)
	l.pending = 0
}

func (b *Backend) declare(make func() state) model.State {
	b.states = append(b.states, make)
	return model.State(len(b.states) - 1)
}

// KVState declares the keys and values of an attention layer.
func (b *Backend) KVState(kvHeads, dim int) model.State {
	return b.declare(func() state { return &kvState{Cache: oracle.Cache{KVHeads: kvHeads, Dim: dim}} })
}

// ConvState declares the inputs of a convolution.
func (b *Backend) ConvState(channels, taps int) model.State {
	return b.declare(func() state { return newWindow(channels, taps-1) })
}

// GDNState declares the recurrent state of a gated delta net layer.
func (b *Backend) GDNState(heads, keyDim, valueDim int) model.State {
	return b.declare(func() state { return newRecurrence(heads, keyDim, valueDim) })
}

// IndexState declares the raw keys of a sparse attention layer.
func (b *Backend) IndexState(dim int) model.State {
	return b.declare(func() state { return &keys{dim: dim} })
}

// NGramState declares the inputs of an n-gram layer's convolution, and its tokens.
func (b *Backend) NGramState(p *planner.PLELayout, width int) model.State {
	return b.declare(func() state { return newNGramState(p, width) })
}

// DraftState declares the ring of a draft layer.
func (b *Backend) DraftState(window, kvHeads, dim int) model.State {
	return b.declare(func() state { return newRing(window, kvHeads*dim) })
}

// NewLane returns a lane with cleared states.
func (b *Backend) NewLane() (model.Lane, error) {
	l := &lane{}
	for _, make := range b.states {
		l.states = append(l.states, make())
	}
	for i, old := range b.lanes {
		if old == nil {
			b.lanes[i] = l
			return model.Lane(i), nil
		}
	}
	b.lanes = append(b.lanes, l)
	return model.Lane(len(b.lanes) - 1), nil
}

// FreeLane gives a lane back.
func (b *Backend) FreeLane(h model.Lane) { b.lanes[h] = nil }

// Rollback forgets the last n rows of a lane.
func (b *Backend) Rollback(h model.Lane, n int) error {
	l, err := b.lane(h)
	if err != nil {
		return err
	}
	if n < 0 || n > l.last {
		return fmt.Errorf("reference: %d rows of lane %d cannot be taken back, the last %d can", n, h, l.last)
	}
	if n == 0 {
		return nil
	}
	for _, s := range l.states {
		s.back(n)
	}
	l.length -= n
	l.last -= n
	return nil
}

func (b *Backend) lane(h model.Lane) (*lane, error) {
	if h < 0 || int(h) >= len(b.lanes) || b.lanes[h] == nil {
		return nil, fmt.Errorf("%w: %d", errNoLane, h)
	}
	return b.lanes[h], nil
}

// kvState is a cache of keys and values.
type kvState struct {
	oracle.Cache
	positions []oracle.Position
}

func (s *kvState) begin(int) {}

func (s *kvState) clone() state {
	c := *s
	c.Keys, c.Values, c.positions = slices.Clone(s.Keys), slices.Clone(s.Values), slices.Clone(s.positions)
	return &c
}

func (s *kvState) size() int { return 8*(len(s.Keys)+len(s.Values)) + 12*len(s.positions) }

func (s *kvState) back(n int) {
	s.Truncate(s.Len() - n)
	s.positions = s.positions[:len(s.positions)-n]
}

// keys are the raw keys of an indexer, one a token.
type keys struct {
	dim int
	raw []float64
}

func (s *keys) begin(int)    {}
func (s *keys) clone() state { return &keys{s.dim, slices.Clone(s.raw)} }
func (s *keys) size() int    { return 8 * len(s.raw) }
func (s *keys) back(n int)   { s.raw = s.raw[:len(s.raw)-n*s.dim] }

// A window keeps the last rows of a convolution's input: those the next row needs, and those that back can uncover.
type window struct {
	width, before int
	data          []float64 // rows, oldest first, at least before of them
}

func newWindow(width, before int) *window {
	return &window{width: width, before: before, data: make([]float64, before*width)}
}

func (w *window) begin(int) {
	if keep := (w.before + model.RollbackRows) * w.width; len(w.data) > 8*keep {
		w.data = w.data[:copy(w.data, w.data[len(w.data)-keep:])]
	}
}

func (w *window) clone() state {
	return &window{w.width, w.before, slices.Clone(w.data[max(0, len(w.data)-w.before*w.width):])}
}

func (w *window) size() int { return 8 * w.before * w.width }

func (w *window) back(n int) { w.data = w.data[:len(w.data)-n*w.width] }

// history is the rows before the next one, oldest first.
func (w *window) history() []float64 { return w.data[len(w.data)-w.before*w.width:] }

func (w *window) push(x []float64) { w.data = append(w.data, x...) }

// recurrence is the state of every value head, with what it takes to go back over the last rows: the state before them
// and their keys, updates and decays.
type recurrence struct {
	heads, dk, dv int
	now, before   []float64 // [heads][dk][dv]

	rows    int // of the last segment, less those taken back
	from    int // the first row of it whose update is kept: before is the state before that row
	k, d, g []float64
}

func newRecurrence(heads, dk, dv int) *recurrence {
	n := model.RollbackRows
	return &recurrence{
		heads: heads, dk: dk, dv: dv,
		now: make([]float64, heads*dk*dv), before: make([]float64, heads*dk*dv),
		k: make([]float64, n*heads*dk), d: make([]float64, n*heads*dv), g: make([]float64, n*heads),
	}
}

func (s *recurrence) begin(rows int) { s.rows, s.from = rows, max(0, rows-model.RollbackRows) }

func (s *recurrence) back(n int) {
	s.rows -= n
	copy(s.now, s.before)
	for r := range s.rows - s.from {
		for h := range s.heads {
			k, d, g := s.update(r, h)
			oracle.GDNReplay(s.head(s.now, h), k, d, *g)
		}
	}
}

func (s *recurrence) clone() state {
	c := newRecurrence(s.heads, s.dk, s.dv)
	copy(c.now, s.now)
	return c
}

func (s *recurrence) size() int { return 8 * len(s.now) }

// update is where the key, the update and the decay of a kept row are.
func (s *recurrence) update(r, h int) (k, d []float64, g *float64) {
	at := r*s.heads + h
	return s.k[at*s.dk : (at+1)*s.dk], s.d[at*s.dv : (at+1)*s.dv], &s.g[at]
}

func (s *recurrence) head(state []float64, h int) []float64 {
	return state[h*s.dk*s.dv : (h+1)*s.dk*s.dv]
}
