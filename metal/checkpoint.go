//go:build cgo

package metal

import (
	"fmt"
	"slices"

	"splash/internal/model"
)

// A checkpoint is a lane as it was: its full pages, which it shares with lanes and other checkpoints, a copy of the page that was
// not full, and copies of its other states, their buffers' parts one after another.
type checkpoint struct {
	lane   lane
	states [][]byte
}

// parts calls f with the lane's part of every buffer of a state that is not in pages.
func (b *Backend) parts(s *state, slot int, f func(part []byte)) {
	for i, size := range s.bytes {
		if size == 0 || s.paged {
			continue
		}
		part := s.buffers[i].bytes[slot*size : (slot+1)*size]
		if s.ring > 0 {
			part = part[:size/s.ring*min(s.ring, b.lanes[slot].length)]
		}
		f(part)
	}
}

// Save keeps a lane's states.
func (b *Backend) Save(h model.Lane) (model.Checkpoint, int64, error) {
	l, err := b.lane(h)
	if err != nil {
		return 0, 0, err
	}
	c := &checkpoint{lane: lane{length: l.length, kept: l.kept, slot: l.slot, tokens: slices.Clone(l.tokens)}}
	bytes, err := b.keepPages(c, l)
	if err != nil {
		return 0, 0, err
	}
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

// keepPages gives a checkpoint the pages of a lane, and says what those take that no checkpoint had.
func (b *Backend) keepPages(c *checkpoint, l *lane) (bytes int64, err error) {
	p := &b.pages
	full := l.length / pageTokens
	c.lane.pages = slices.Clone(l.pages[:full])
	for _, page := range c.lane.pages {
		p.holders[page]++
	}
	if l.length%pageTokens != 0 {
		page, err := p.copy(b, l.pages[full])
		if err != nil {
			p.release(c.lane.pages)
			return 0, err
		}
		c.lane.pages = append(c.lane.pages, page)
	}
	for _, page := range c.lane.pages {
		if p.kept[page]++; p.kept[page] == 1 {
			bytes += b.pageBytes()
		}
	}
	return bytes, nil
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
	b.pages.release(l.pages) // of a lane that took everything back
	*l = c.lane
	l.pages, l.tokens = slices.Clone(c.lane.pages), slices.Clone(c.lane.tokens)
	for i, page := range l.pages {
		b.pages.holders[page]++
		b.pages.place(l, int(h), i)
	}
	for i := range b.states {
		rest := c.states[i]
		b.parts(&b.states[i], int(h), func(part []byte) { rest = rest[copy(part, rest):] })
	}
	return nil
}

// Drop lets go of a checkpoint.
func (b *Backend) Drop(n model.Checkpoint) {
	c := b.saved[n]
	b.saved[n] = nil
	for _, page := range c.lane.pages {
		b.pages.kept[page]--
	}
	b.pages.release(c.lane.pages)
}
