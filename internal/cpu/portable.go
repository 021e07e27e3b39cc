package cpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"splash/internal/model"
)

// A checkpoint leaves the backend as the bytes of its states in the order of their declaration, each value in the machine's
// own order: little-endian on every machine that this backend runs on.
var _ model.Portable = (*Backend)(nil)

// errForeign is the error of bytes that are no checkpoint of this network.
var errForeign = errors.New("cpu: the bytes are no checkpoint of this network")

// raw is the bytes of values.
func raw[T int8 | uint16 | int32 | float32](values []T) []byte {
	if len(values) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), len(values)*int(unsafe.Sizeof(values[0])))
}

// A ferry carries the parts of states to bytes, or from them.
type ferry struct {
	bytes []byte
	load  bool
	short bool // there were too few bytes
}

func (f *ferry) carry(part []byte) {
	if len(f.bytes) < len(part) {
		f.short = true
		return
	}
	if f.load {
		copy(part, f.bytes)
	} else {
		copy(f.bytes, part)
	}
	f.bytes = f.bytes[len(part):]
}

// number carries a small number.
func (f *ferry) number(n *int) {
	var b [8]byte
	if !f.load {
		binary.LittleEndian.PutUint64(b[:], uint64(*n))
	}
	f.carry(b[:])
	if f.load {
		*n = int(int64(binary.LittleEndian.Uint64(b[:])))
	}
}

// PortableShape returns the bytes of a page of every state that grows, and of all others; 0 where blocks of keys do not
// fit pages.
func (b *Backend) PortableShape() (page, state int) {
	h, err := b.NewLane()
	if err != nil {
		return 0, 0
	}
	defer b.FreeLane(h)
	for _, s := range b.lanes[h].states {
		switch s := s.(type) {
		case *kvState:
			page += int(b.pageBytes(s.shape)) * model.PortablePage / pageTokens
		case *window:
			state += 8 + 4*s.before*s.width
		case *ngramState:
			state += 16 + 4*s.before*s.width + 4*s.context
		case *recurrence:
			state += 4 * len(s.state)
		case *indexState:
			if model.PortablePage%s.block != 0 {
				return 0, 0
			}
			page += 4 * s.dim * (model.PortablePage / s.block)
			state += 8 + s.ring()*(4*s.dim+12)
		case *ring:
			state += 16 + s.circle()*4*pageTokens*s.shape.kvHeads*s.shape.dim
		}
	}
	return page, state
}

func (b *Backend) checkpoint(c model.Checkpoint) (*checkpoint, error) {
	if c < 0 || int(c) >= len(b.saved) || b.saved[c] == nil {
		return nil, fmt.Errorf("%w: %d", errNoCheckpoint, c)
	}
	return b.saved[c], nil
}

// ExportPage writes a page.
func (b *Backend) ExportPage(dst []byte, c model.Checkpoint, n int) error {
	return b.ferryPage(&ferry{bytes: dst}, c, n)
}

// ImportPage reads a page.
func (b *Backend) ImportPage(c model.Checkpoint, n int, src []byte) error {
	return b.ferryPage(&ferry{bytes: src, load: true}, c, n)
}

func (b *Backend) ferryPage(f *ferry, c model.Checkpoint, n int) error {
	saved, err := b.checkpoint(c)
	if err != nil {
		return err
	}
	if n < 0 || (n+1)*model.PortablePage > saved.length {
		return fmt.Errorf("cpu: page %d of a checkpoint of %d tokens", n, saved.length)
	}
	for _, s := range saved.states {
		switch s := s.(type) {
		case *kvState:
			s.ferryPage(f, n)
		case *indexState:
			size := s.dim * (model.PortablePage / s.block)
			f.carry(raw(s.pooled[n*size : (n+1)*size]))
		}
	}
	if f.short || f.load && len(f.bytes) > 0 {
		return errForeign
	}
	return nil
}

// ferryPage carries the tokens of a portable page: of each head whole blocks of keys, and values token after token.
func (s *kvState) ferryPage(f *ferry, n int) {
	first := n * model.PortablePage
	p, at := s.pages[first/pageTokens], first%pageTokens
	dim, heads := s.shape.dim, s.shape.kvHeads
	for h := range heads {
		from := (h*pageTokens + at) * dim
		to := from + model.PortablePage*dim
		scale := h*pageTokens + at
		switch s.b.kv {
		case KVInt8:
			f.carry(raw(p.keys8[from:to]))
			f.carry(raw(p.values8[from:to]))
			f.carry(raw(p.keyScales[scale : scale+model.PortablePage]))
			f.carry(raw(p.valueScales[scale : scale+model.PortablePage]))
		case KVFloat:
			f.carry(raw(p.keys32[from:to]))
			f.carry(raw(p.values32[from:to]))
		default:
			f.carry(raw(p.keys[from:to]))
			f.carry(raw(p.values[from:to]))
		}
	}
}

// ExportState writes the states that do not grow.
func (b *Backend) ExportState(dst []byte, c model.Checkpoint) (int, error) {
	saved, err := b.checkpoint(c)
	if err != nil {
		return 0, err
	}
	f := &ferry{bytes: dst}
	for _, s := range saved.states {
		f.state(s, saved.length)
	}
	if f.short {
		return 0, fmt.Errorf("cpu: the states of a checkpoint take more than %d bytes", len(dst))
	}
	return len(dst) - len(f.bytes), nil
}

// ImportState reads them.
func (b *Backend) ImportState(c model.Checkpoint, src []byte) error {
	saved, err := b.checkpoint(c)
	if err != nil {
		return err
	}
	f := &ferry{bytes: src, load: true}
	for _, s := range saved.states {
		f.state(s, saved.length)
	}
	if f.short || len(f.bytes) > 0 {
		return errForeign
	}
	return nil
}

// state carries a saved state after so many rows. Numbers that no export writes make the bytes too short.
func (f *ferry) state(s state, rows int) {
	is := func(n *int, want int) {
		if f.number(n); *n != want {
			f.short, *n = true, want
		}
	}
	switch s := s.(type) {
	case *savedWindow:
		is(&s.rows, rows)
		f.carry(raw(s.data))
	case *savedRecurrence:
		f.carry(raw(s.now))
	case *savedNGram:
		f.state(s.window, rows)
		count := len(s.tokens)
		is(&count, count)
		f.carry(raw(s.tokens))
	case *indexState:
		is(&s.rows, rows)
		f.carry(raw(s.raw))
		for i := range s.positions {
			p := &s.positions[i]
			at := []int32{p.T, p.H, p.W}
			f.carry(raw(at))
			p.T, p.H, p.W = at[0], at[1], at[2]
		}
	case *savedRing:
		is(&s.last, s.last)
		is(&s.first, s.first)
		for i := range s.pages {
			f.carry(raw(s.pages[i].keys))
			f.carry(raw(s.pages[i].values))
		}
	}
}

// Import makes a checkpoint whose parts are to be read.
func (b *Backend) Import(tokens int) (model.Checkpoint, int64, error) {
	if tokens <= 0 || tokens%model.PortablePage != 0 {
		return 0, 0, fmt.Errorf("cpu: a checkpoint of %d tokens; whole pages of %d are possible", tokens, model.PortablePage)
	}
	h, err := b.NewLane()
	if err != nil {
		return 0, 0, err
	}
	defer b.FreeLane(h)
	l := b.lanes[h]
	for _, s := range l.states {
		switch s := s.(type) {
		case *kvState:
			s.begin(tokens)
		case *window:
			s.rows = tokens
		case *ngramState:
			s.window.rows = tokens
			s.tokens = make([]int32, min(tokens, s.context))
		case *indexState:
			s.begin(0)
			s.rows, s.pooled = tokens, floats(tokens/s.block*s.dim)
		case *ring:
			s.reach(tokens - 1)
		}
	}
	l.length = tokens
	return b.Save(h)
}
