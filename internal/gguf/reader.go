package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// chunk is the most that is read at once, and so the most that is read beyond what a header needs.
const chunk = 1 << 20

// A reader reads the fields of a header in order through a window on the file. The first failure stays in err; after it
// nothing is read, and every field is zero.
type reader struct {
	src     io.ReaderAt
	name    string
	size    int64
	subject subject
	err     error

	buf    []byte // of the window
	window []byte // the part of buf that is filled
	at     int    // first unread byte of the window
	start  int64  // place of the window in the file
}

// A subject is what is being read, for errors.
type subject struct {
	kind  string // "key" or "tensor", or the whole of it when index is negative
	index int
	name  string // once it is known
}

func (s subject) String() string {
	switch {
	case s.index < 0:
		return s.kind
	case s.name != "":
		return s.kind + " " + quote(s.name)
	}
	return fmt.Sprintf("%s %d", s.kind, s.index)
}

// quote quotes a name from a file, on one line and of bounded length.
func quote(s string) string {
	const most = 100
	if len(s) > most {
		return fmt.Sprintf("%q...", s[:most])
	}
	return fmt.Sprintf("%q", s)
}

// plain is a name from a file as it stands, quoted only where it would not read as one.
func plain(s string) string {
	if len(s) > 100 || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return quote(s)
	}
	return s
}

func newReader(src io.ReaderAt, size int64, name string, window int) reader {
	return reader{src: src, name: name, size: size, buf: make([]byte, max(0, min(int64(window), size)))}
}

// pos is the place of the next unread byte.
func (r *reader) pos() int64 { return r.start + int64(r.at) }

// failf refuses what is being read for what stands at pos.
func (r *reader) failf(pos int64, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %s at byte %d %s", r.name, r.subject, pos, fmt.Sprintf(format, args...))
	}
}

// need checks that count elements of width bytes can follow, and fails otherwise.
func (r *reader) need(count, width uint64) bool {
	if r.err != nil {
		return false
	}
	remain := uint64(r.size - r.pos())
	switch {
	case width == 0 || count <= remain/width:
	case width == 1:
		r.err = fmt.Errorf("%s: truncated at byte %d: %s needs %d bytes, %d remain", r.name, r.pos(), r.subject, count, remain)
		return false
	default:
		r.err = fmt.Errorf("%s: truncated at byte %d: %s needs %d elements of at least %d bytes, %d bytes remain",
			r.name, r.pos(), r.subject, count, width, remain)
		return false
	}
	if count*width > uint64(maxHeader-r.pos()) {
		r.failf(r.pos(), "reaches beyond the first %d bytes; a header may not be longer", maxHeader)
		return false
	}
	return true
}

// fill brings the next n bytes into the window, which must be able to hold them.
func (r *reader) fill(n int) bool {
	unread := len(r.window) - r.at
	if r.err != nil || !r.need(uint64(n), 1) {
		return false
	}
	if unread >= n {
		return true
	}
	copy(r.buf, r.window[r.at:])
	r.start, r.at = r.pos(), 0
	end := min(int64(len(r.buf)), r.size-r.start)
	got, err := r.src.ReadAt(r.buf[unread:end], r.start+int64(unread))
	r.window = r.buf[:unread+got]
	if len(r.window) >= n {
		return true // an error that matters meets the next read
	}
	if err == nil || errors.Is(err, io.EOF) {
		r.err = fmt.Errorf("%s: ends at byte %d although its size is %d bytes: it was cut while being read",
			r.name, r.start+int64(len(r.window)), r.size)
	} else {
		r.err = fmt.Errorf("%s: reading %s at byte %d: %w", r.name, r.subject, r.start+int64(len(r.window)), err)
	}
	return false
}

// skip passes n bytes without reading those beyond the window.
func (r *reader) skip(n uint64) {
	if !r.need(n, 1) {
		return
	}
	if unread := uint64(len(r.window) - r.at); n > unread {
		r.start, r.at, r.window = r.pos()+int64(n), 0, nil
		return
	}
	r.at += int(n)
}

func (r *reader) uint32() uint32 {
	if !r.fill(4) {
		return 0
	}
	v := binary.LittleEndian.Uint32(r.window[r.at:])
	r.at += 4
	return v
}

func (r *reader) uint64() uint64 {
	if !r.fill(8) {
		return 0
	}
	v := binary.LittleEndian.Uint64(r.window[r.at:])
	r.at += 8
	return v
}

// append appends the next n bytes to dst, a window at a time, so that dst grows only by bytes that are there.
func (r *reader) append(dst []byte, n uint64) []byte {
	if !r.need(n, 1) {
		return dst
	}
	for n > 0 {
		piece := int(min(n, uint64(len(r.buf))))
		if !r.fill(piece) {
			return dst
		}
		if cap(dst)-len(dst) < piece {
			dst = slices.Grow(dst, int(min(n, uint64(max(piece, len(dst))))))
		}
		dst = append(dst, r.window[r.at:r.at+piece]...)
		r.at += piece
		n -= uint64(piece)
	}
	return dst
}

// length reads the length of a string.
func (r *reader) length() uint64 {
	pos := r.pos()
	n := r.uint64()
	if r.need(n, 1) && n > maxString {
		r.failf(pos, "is a string of %d bytes; at most %d are accepted", n, maxString)
	}
	if r.err != nil {
		return 0
	}
	return n
}

// text reads a string.
func (r *reader) text() string {
	n := r.length()
	if n <= uint64(len(r.buf)) {
		if !r.fill(int(n)) {
			return ""
		}
		s := string(r.window[r.at : r.at+int(n)])
		r.at += int(n)
		return s
	}
	return string(r.append(nil, n))
}

// A slab gathers many short strings in few allocations.
type slab struct {
	bytes []byte
	ends  []int
	out   []string
}

const slabBytes = 64 << 10

// add takes the string that ends the slab's bytes, begun at from. More is how many are expected after it.
func (s *slab) add(more int) {
	s.ends = append(s.ends, len(s.bytes))
	if len(s.bytes) >= slabBytes || len(s.ends) >= slabBytes/8 || more == 0 {
		s.flush(more)
	}
}

func (s *slab) flush(more int) {
	if spare := cap(s.out) - len(s.out); spare < len(s.ends) {
		grown := make([]string, len(s.out), min(2*len(s.out), len(s.out)+more)+len(s.ends))
		copy(grown, s.out)
		s.out = grown
	}
	all, from := string(s.bytes), 0
	for _, end := range s.ends {
		s.out = append(s.out, all[from:end])
		from = end
	}
	s.bytes, s.ends = s.bytes[:0], s.ends[:0]
}
