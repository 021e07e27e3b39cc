//go:build cgo

package metal

import (
	"fmt"

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
	if err := b.inherit(&s); err != nil && b.err == nil {
		b.err = err
	}
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

// grow gives a state room for n lanes, or pages, and keeps what it holds of them.
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
			b.moved()
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
		if len(b.pages.free) > b.pages.capacity/pageSlack {
			b.pages.compact(b) // lanes are large
		}
		n := b.capacity + 1
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
	b.pages.release(b.lanes[h].pages)
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
