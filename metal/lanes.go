//go:build cgo

package metal

import (
	"errors"
	"fmt"
	"slices"

	"splash/internal/model"
)

// A lane is what a request carries from row to row, beside its place in the states.
type lane struct {
	length int // rows kept
	last   int // rows of the last segment, as far as they can be taken back
	kept   int // rows whose updates the recurrent states do not hold yet
	slot   int // where those updates are
	pages  []uint32
	tokens []int32 // the last ones, where n-grams are hashed of them

	// The last segment of a target's pass: its first row in the pass and in the lane. A draft's context is made of them.
	firstRow, firstIndex int
}

// advance makes rows of a segment part of the lane.
func (l *lane) advance(rows int) {
	l.length += rows
	l.last = min(rows, model.RollbackRows)
	l.kept, l.slot = l.last, 1-l.slot
}

// A state is a layer's part of every lane: one or two buffers of so many bytes a lane, or a page.
type state struct {
	paged   bool
	ring    int    // slots that a lane's parts are made of, filled from the first on; 0: it is no ring
	bytes   [2]int // of a lane, or of a page; 0: no buffer
	buffers [2]*Buffer
}

func (b *Backend) declare(s state) model.State {
	b.states = append(b.states, s)
	return model.State(len(b.states) - 1)
}

// KVState declares keys and values, in pages.
func (b *Backend) KVState(kvHeads, dim int) model.State {
	page := kvHeads * pageTokens * b.headBytes(dim)
	return b.declare(state{paged: true, bytes: [2]int{page, page}})
}

// headBytes are those of a head of a token's keys, or values.
func (b *Backend) headBytes(dim int) int {
	if b.kvBytes == 1 {
		return dim + scaleBytes
	}
	return b.kvBytes * dim
}

// ConvState declares the last inputs of a convolution.
func (b *Backend) ConvState(channels, taps int) model.State {
	return b.declare(state{bytes: [2]int{4 * convKept * channels}})
}

// GDNState declares a recurrent state, and the updates of its last rows.
func (b *Backend) GDNState(heads, keyDim, valueDim int) model.State {
	return b.declare(state{bytes: [2]int{4 * heads * keyDim * valueDim, 4 * 2 * gdnKept * heads * gdnUpdate}})
}

// grow gives a state room for n lanes, or pages, and keeps what it holds.
func (b *Backend) grow(s *state, n int) error {
	for i, size := range s.bytes {
		if size == 0 {
			continue
		}
		if b.device.isDry() {
			s.buffers[i] = &Buffer{device: b.device} // nobody looks at it
			continue
		}
		larger, err := b.device.NewBuffer(n * size)
		if err != nil {
			return err
		}
		if old := s.buffers[i]; old != nil {
			copy(larger.bytes, old.bytes)
			old.Free()
		}
		s.buffers[i] = larger
	}
	return nil
}

// NewLane returns a lane without rows.
func (b *Backend) NewLane() (model.Lane, error) {
	if b.err != nil {
		return 0, b.err
	}
	slot := 0
	for slot < len(b.lanes) && b.lanes[slot] != nil {
		slot++
	}
	if slot >= b.capacity {
		n := max(2, 2*b.capacity)
		for i := range b.states {
			if s := &b.states[i]; !s.paged {
				if err := b.grow(s, n); err != nil {
					return 0, err
				}
			}
		}
		if err := b.pages.growTable(b, n); err != nil {
			return 0, err
		}
		b.capacity = n
	}
	if slot == len(b.lanes) {
		b.lanes = append(b.lanes, nil)
	}
	b.lanes[slot] = new(lane)
	return model.Lane(slot), nil
}

// FreeLane gives a lane and its pages back.
func (b *Backend) FreeLane(h model.Lane) {
	b.pages.free = append(b.pages.free, b.lanes[h].pages...)
	b.lanes[h] = nil
}

func (b *Backend) lane(h model.Lane) (*lane, error) {
	if h < 0 || int(h) >= len(b.lanes) || b.lanes[h] == nil {
		return nil, fmt.Errorf("metal: no such lane: %d", h)
	}
	return b.lanes[h], nil
}

// Rollback forgets the last n rows of a lane. Nothing is moved: keys and inputs of convolutions past the length are written
// anew, and the recurrent states are brought over the updates that are left by the next pass.
func (b *Backend) Rollback(h model.Lane, n int) error {
	l, err := b.lane(h)
	if err != nil {
		return err
	}
	if n < 0 || n > l.last {
		return fmt.Errorf("metal: %d rows of lane %d cannot be taken back, the last %d can", n, h, l.last)
	}
	l.length, l.last, l.kept = l.length-n, l.last-n, l.kept-n
	l.tokens = l.tokens[:max(0, len(l.tokens)-n)]
	return nil
}

// A pagePool hands out pages of keys and values. A page's number is the same in every layer.
type pagePool struct {
	table    *Buffer // [lanes][width]
	width    int
	capacity int
	free     []uint32
}

func (p *pagePool) open(b *Backend) error {
	p.width = (b.layout.Context + model.RollbackRows + pageTokens - 1) / pageTokens
	return nil
}

func (p *pagePool) growTable(b *Backend, lanes int) error {
	larger, err := b.device.NewBuffer(4 * lanes * p.width)
	if err != nil {
		return err
	}
	if p.table != nil {
		copy(larger.bytes, p.table.bytes)
		p.table.Free()
	}
	p.table = larger
	return nil
}

// reserve gives a lane the pages for so many tokens.
func (p *pagePool) reserve(b *Backend, slot, tokens int) error {
	l := b.lanes[slot]
	need := (tokens + pageTokens - 1) / pageTokens
	if need > p.width {
		return fmt.Errorf("metal: %d tokens in lane %d; the context is %d", tokens, slot, b.layout.Context)
	}
	for len(l.pages) < need {
		if len(p.free) == 0 {
			if err := p.grow(b); err != nil {
				return err
			}
		}
		page := p.free[len(p.free)-1]
		p.free = p.free[:len(p.free)-1]
		view[uint32](p.table)[slot*p.width+len(l.pages)] = page
		l.pages = append(l.pages, page)
	}
	return nil
}

// grow doubles the pages of every attention layer.
func (p *pagePool) grow(b *Backend) error {
	n := max(4, 2*p.capacity)
	for i := range b.states {
		if s := &b.states[i]; s.paged {
			if err := b.grow(s, n); err != nil {
				return err
			}
		}
	}
	for page := n - 1; page >= p.capacity; page-- {
		p.free = append(p.free, uint32(page))
	}
	p.capacity = n
	return nil
}

// A checkpoint is a copy of a lane and its states: of every state, its buffers' parts one after another.
type checkpoint struct {
	lane   lane
	states [][]byte
}

// parts calls f with the lane's part of every buffer of a state.
func (b *Backend) parts(s *state, slot int, f func(part []byte)) {
	for i, size := range s.bytes {
		if size == 0 {
			continue
		}
		if !s.paged {
			part := s.buffers[i].bytes[slot*size : (slot+1)*size]
			if s.ring > 0 {
				part = part[:size/s.ring*min(s.ring, b.lanes[slot].length)]
			}
			f(part)
			continue
		}
		for _, page := range b.lanes[slot].pages {
			f(s.buffers[i].bytes[int(page)*size : (int(page)+1)*size])
		}
	}
}

// Save keeps a copy of a lane's states.
func (b *Backend) Save(h model.Lane) (model.Checkpoint, int64, error) {
	l, err := b.lane(h)
	if err != nil {
		return 0, 0, err
	}
	c := &checkpoint{lane: lane{length: l.length, kept: l.kept, slot: l.slot, tokens: slices.Clone(l.tokens)}}
	var bytes int64
	for i := range b.states {
		var all []byte
		b.parts(&b.states[i], int(h), func(part []byte) { all = append(all, part...) })
		c.states = append(c.states, all)
		bytes += int64(len(all))
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

// Resume gives a new lane the states of a checkpoint.
func (b *Backend) Resume(h model.Lane, n model.Checkpoint) error {
	l, err := b.lane(h)
	if err != nil {
		return err
	}
	if n < 0 || int(n) >= len(b.saved) || b.saved[n] == nil {
		return fmt.Errorf("metal: no such checkpoint: %d", n)
	}
	if l.length != 0 {
		return fmt.Errorf("metal: lane %d has %d rows and cannot resume", h, l.length)
	}
	c := b.saved[n]
	// A lane that took everything back may have pages; those of the checkpoint's rows are enough.
	if err := b.pages.reserve(b, int(h), c.lane.length); err != nil {
		return err
	}
	pages := l.pages
	if need := (c.lane.length + pageTokens - 1) / pageTokens; len(pages) > need {
		b.pages.free = append(b.pages.free, pages[need:]...)
		pages = pages[:need]
	}
	*l = c.lane
	l.pages, l.tokens = pages, slices.Clone(c.lane.tokens)
	for i := range b.states {
		rest := c.states[i]
		b.parts(&b.states[i], int(h), func(part []byte) { rest = rest[copy(part, rest):] })
		if len(rest) > 0 {
			return errors.New("metal: a checkpoint of other pages")
		}
	}
	return nil
}

// Drop lets go of a checkpoint.
func (b *Backend) Drop(c model.Checkpoint) { b.saved[c] = nil }
