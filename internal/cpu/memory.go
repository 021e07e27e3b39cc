package cpu

import "splash/internal/model"

var (
	_ model.Sizer    = (*Backend)(nil)
	_ model.Unloader = (*Backend)(nil)
	_ model.Sharer   = (*Backend)(nil)
)

// LaneBytes returns the bytes of a lane's states, and what a token adds to them.
func (b *Backend) LaneBytes() (fixed, token int64) {
	h, err := b.NewLane() // which stays among the spare ones
	if err != nil {
		return 0, 0
	}
	defer b.FreeLane(h)
	for _, s := range b.lanes[h].states {
		switch s := s.(type) {
		case *kvState:
			token += b.pageBytes(s.shape) / pageTokens
		case *window:
			fixed += int64(4 * len(s.data))
		case *ngramState:
			fixed += int64(4 * len(s.data))
		case *recurrence:
			fixed += int64(4 * len(s.state))
			for _, u := range s.kept {
				fixed += int64(4 * (len(u.k) + len(u.delta) + len(u.decay)))
			}
		case *indexState:
			fixed += int64(s.ring() * (4*s.dim + 12))
			token += int64(4 * s.dim / s.block)
		case *ring:
			fixed += int64(s.circle() * 4 * pageTokens * s.shape.kvHeads * s.shape.dim)
		}
	}
	return fixed, token
}

// pageBytes is what a page of a shape takes.
func (b *Backend) pageBytes(shape pageShape) int64 {
	values := int64(2 * pageTokens * shape.kvHeads * shape.dim)
	switch b.kv {
	case KVInt8:
		return values + int64(8*pageTokens*shape.kvHeads)
	case KVFloat:
		return 4 * values
	}
	return 2 * values
}

// Unload forgets the network. Checkpoints keep their pages.
func (b *Backend) Unload() {
	b.matrices, b.experts, b.vectors, b.buffers = nil, nil, nil, nil
	b.states, b.lanes, b.spare = nil, nil, nil
	b.groups, b.overlaid = nil, 0
	b.ropes, b.tapsOf = nil, nil
}
