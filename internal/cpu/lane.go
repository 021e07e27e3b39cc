package cpu

import (
	"errors"
	"fmt"

	"splash/internal/model"
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
// reset makes it that of a new lane. save keeps what resume continues from, and says how many bytes it does not share with
// what was kept before.
type state interface {
	begin(rows int)
	back(n int)
	reset()
	save() (state, int64)
	resume(from state)
}

func (l *lane) begin(first, rows int) {
	l.firstRow, l.firstIndex, l.pending = first, l.length, rows
	for _, s := range l.states {
		s.begin(rows)
	}
}

func (l *lane) end() {
	l.length += l.pending
	l.last = min(l.pending, model.RollbackRows)
	l.pending = 0
}

func (b *Backend) declare(fresh func() state) model.State {
	b.states = append(b.states, fresh)
	return model.State(len(b.states) - 1)
}

// KVState declares the keys and values of an attention layer.
func (b *Backend) KVState(kvHeads, dim int) model.State {
	return b.declare(func() state { return &kvState{b: b, shape: pageShape{kvHeads, dim}} })
}

// ConvState declares the inputs of a convolution.
func (b *Backend) ConvState(channels, taps int) model.State {
	return b.declare(func() state { return newWindow(channels, taps-1) })
}

// GDNState declares the recurrent state of a gated delta net layer.
func (b *Backend) GDNState(heads, keyDim, valueDim int) model.State {
	return b.declare(func() state { return b.newRecurrence(heads, keyDim, valueDim) })
}

// IndexState declares the keys of a sparse attention layer.
func (b *Backend) IndexState(dim int) model.State {
	return b.declare(func() state { return &indexState{dim: dim, block: max(1, b.layout.QSA.Block)} })
}

// NGramState declares the inputs of an n-gram layer's convolution, and its tokens.
func (b *Backend) NGramState(p *planner.PLELayout, width int) model.State {
	return b.declare(func() state { return newNGramState(p, width) })
}

// DraftState declares the ring of a draft layer.
func (b *Backend) DraftState(window, kvHeads, dim int) model.State {
	return b.declare(func() state { return &ring{window: window, shape: pageShape{kvHeads, dim}, last: -1} })
}

// NewLane returns a lane with cleared states. It takes one that was given back, where there is one.
func (b *Backend) NewLane() (model.Lane, error) {
	free := -1
	for i, l := range b.lanes {
		if l == nil {
			free = i
			break
		}
	}
	l := b.spareLane()
	if free >= 0 {
		b.lanes[free] = l
		return model.Lane(free), nil
	}
	b.lanes = append(b.lanes, l)
	return model.Lane(len(b.lanes) - 1), nil
}

func (b *Backend) spareLane() *lane {
	if n := len(b.spare); n > 0 && len(b.spare[n-1].states) == len(b.states) {
		l := b.spare[n-1]
		b.spare = b.spare[:n-1]
		for _, s := range l.states {
			s.reset()
		}
		*l = lane{states: l.states}
		return l
	}
	l := &lane{}
	for _, fresh := range b.states {
		l.states = append(l.states, fresh())
	}
	return l
}

// FreeLane gives a lane back. Its pages are free at once.
func (b *Backend) FreeLane(h model.Lane) {
	l, err := b.lane(h)
	if err != nil {
		return
	}
	for _, s := range l.states {
		if kv, ok := s.(*kvState); ok {
			kv.reset()
		}
	}
	b.lanes[h] = nil
	b.spare = append(b.spare, l)
}

// Rollback forgets the last n rows of a lane.
func (b *Backend) Rollback(h model.Lane, n int) error {
	l, err := b.lane(h)
	if err != nil {
		return err
	}
	if n < 0 || n > l.last {
		return fmt.Errorf("cpu: %d rows of lane %d cannot be taken back, the last %d can", n, h, l.last)
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

var errNoLane = errors.New("cpu: no such lane")

func (b *Backend) lane(h model.Lane) (*lane, error) {
	if h < 0 || int(h) >= len(b.lanes) || b.lanes[h] == nil {
		return nil, fmt.Errorf("%w: %d", errNoLane, h)
	}
	return b.lanes[h], nil
}

// A window keeps the last rows of a convolution's input, those the next row needs and those that back can uncover, each
// in the slot of its index modulo a power of two. Rows before the first are zero.
type window struct {
	width, before int
	rows          int // so far
	slots         int
	data          []float32
}

func newWindow(width, before int) *window {
	w := &window{width: width, before: before, slots: 1}
	for w.slots < before+model.RollbackRows+1 {
		w.slots *= 2
	}
	w.data = floats(w.slots * width)
	return w
}

func (w *window) begin(int)  {}
func (w *window) back(n int) { w.rows -= n }
func (w *window) reset()     { w.rows = 0; clear(w.data) }

// row is the row of that index, which may be one of the before rows below 0.
func (w *window) row(i int) []float32 {
	at := i & (w.slots - 1) * w.width
	return w.data[at : at+w.width : at+w.width]
}

// oldest is the first of n new rows that the window has to keep.
func (w *window) oldest(n int) int { return max(0, n-w.before-model.RollbackRows) }
