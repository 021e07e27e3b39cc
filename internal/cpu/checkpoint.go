package cpu

import (
	"errors"
	"fmt"
	"slices"

	"splash/internal/model"
)

// A checkpoint is a lane's states as they were. Pages of keys and values are shared with the lane, and copied by whoever
// writes to one first.
type checkpoint struct {
	length int
	states []state
}

// Save keeps the lane's states.
func (b *Backend) Save(h model.Lane) (model.Checkpoint, int64, error) {
	l, err := b.lane(h)
	if err != nil {
		return 0, 0, err
	}
	c := &checkpoint{length: l.length}
	var bytes int64
	for _, s := range l.states {
		kept, n := s.save()
		c.states = append(c.states, kept)
		bytes += n
	}
	for i, old := range b.saved {
		if old == nil {
			b.saved[i] = c
			return model.Checkpoint(i), bytes, nil
		}
	}
	b.saved = append(b.saved, c)
	return model.Checkpoint(len(b.saved) - 1), bytes, nil
}

var errNoCheckpoint = errors.New("cpu: no such checkpoint")

// Resume gives a lane the checkpoint's states.
func (b *Backend) Resume(h model.Lane, c model.Checkpoint) error {
	l, err := b.lane(h)
	if err != nil {
		return err
	}
	if c < 0 || int(c) >= len(b.saved) || b.saved[c] == nil {
		return fmt.Errorf("%w: %d", errNoCheckpoint, c)
	}
	if l.length != 0 {
		return fmt.Errorf("cpu: lane %d has %d rows and cannot resume", h, l.length)
	}
	for i, s := range l.states {
		s.resume(b.saved[c].states[i])
	}
	l.length, l.last = b.saved[c].length, 0
	return nil
}

// Drop lets go of a checkpoint.
func (b *Backend) Drop(c model.Checkpoint) {
	for _, s := range b.saved[c].states {
		if kv, ok := s.(*kvState); ok {
			for _, p := range kv.pages {
				p.kept--
			}
			kv.reset()
		}
	}
	b.saved[c] = nil
}

func (s *kvState) save() (state, int64) {
	c := &kvState{b: s.b, shape: s.shape, pages: slices.Clone(s.pages[:pagesOf(s.rows)]), rows: s.rows}
	var bytes int64
	for _, p := range c.pages {
		if p.refs++; p.kept == 0 {
			bytes += p.bytes()
		}
		p.kept++
	}
	return c, bytes
}

func (s *kvState) resume(from state) {
	c := from.(*kvState)
	s.reset()
	s.pages, s.rows = append(s.pages, c.pages...), c.rows
	for _, p := range s.pages {
		p.refs++
	}
}

// savedWindow is the rows that the next one of a window needs.
type savedWindow struct {
	state
	rows int
	data []float32
}

func (w *window) save() (state, int64) {
	c := &savedWindow{rows: w.rows, data: floats(w.before * w.width)}
	for i := range w.before {
		copy(c.data[i*w.width:(i+1)*w.width], w.row(w.rows-w.before+i))
	}
	return c, int64(4 * len(c.data))
}

func (w *window) resume(from state) {
	c := from.(*savedWindow)
	w.rows = c.rows
	for i := range w.before {
		copy(w.row(w.rows-w.before+i), c.data[i*w.width:(i+1)*w.width])
	}
}

// savedRecurrence is the state after the last row.
type savedRecurrence struct {
	state
	now []float32
}

func (s *recurrence) save() (state, int64) {
	c := &savedRecurrence{now: floats(len(s.state))}
	s.copyTo(c.now)
	return c, int64(4 * len(c.now))
}

func (s *recurrence) resume(from state) {
	copy(s.state, from.(*savedRecurrence).now)
	s.kept[0].rows = 0
}

func (s *indexState) save() (state, int64) {
	c := *s
	c.raw, c.positions, c.pooled = slices.Clone(s.raw), slices.Clone(s.positions), slices.Clone(s.pooled)
	return &c, int64(4*(len(c.raw)+len(c.pooled)) + 12*len(c.positions))
}

func (s *indexState) resume(from state) {
	c := from.(*indexState)
	s.begin(0)
	copy(s.raw, c.raw)
	copy(s.positions, c.positions)
	s.rows, s.pooled = c.rows, append(s.pooled[:0], c.pooled...)
}

// savedNGram is an n-gram layer's window and context.
type savedNGram struct {
	state
	window state
	tokens []int32
}

func (s *ngramState) save() (state, int64) {
	w, bytes := s.window.save()
	c := &savedNGram{window: w, tokens: slices.Clone(s.tokens[max(0, len(s.tokens)-s.context):])}
	return c, bytes + int64(4*len(c.tokens))
}

func (s *ngramState) resume(from state) {
	c := from.(*savedNGram)
	s.window.resume(c.window)
	s.tokens = append(s.tokens[:0], c.tokens...)
}

// savedRing is the pages that the next row's window touches.
type savedRing struct {
	state
	last, first int // the first page that is kept
	pages       []page
}

func (s *ring) save() (state, int64) {
	c := &savedRing{last: s.last, first: max(0, s.last-s.window+2) / pageTokens}
	var bytes int64
	for n := c.first; n < pagesOf(s.last+1); n++ {
		p := s.page(n)
		c.pages = append(c.pages, page{keys: slices.Clone(p.keys), values: slices.Clone(p.values)})
		bytes += p.bytes()
	}
	return c, bytes
}

func (s *ring) resume(from state) {
	c := from.(*savedRing)
	s.last = -1
	if c.last >= 0 {
		s.reach(c.last)
	}
	for i := range c.pages {
		s.page(c.first + i).copyFrom(&c.pages[i])
	}
}
