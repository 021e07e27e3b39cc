package prefixstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// A file is what slots are kept in.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Size() (int64, error)
}

// slots are places of one size in a file, beside a file of records.
type slots struct {
	kind    kind
	name    string
	size    int64
	count   int   // that the files have
	free    []int // of them, the first one last
	data    file
	records file

	read, written int64
	failed        bool // a write failed
}

func (s *slots) bytes() int64 { return int64(s.count) * s.size }
func (s *slots) used() int64  { return int64(s.count-len(s.free)) * s.size }

// more is how many bytes the file grows by when n slots are taken.
func (s *slots) more(n int) int64 { return int64(max(0, n-len(s.free))) * s.size }

// take is a slot that is free, or a new one.
func (s *slots) take() int {
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		return slot
	}
	s.count++
	return s.count - 1
}

// give makes a slot free.
func (s *slots) give(slot int) {
	at, _ := slices.BinarySearchFunc(s.free, slot, func(a, b int) int { return b - a })
	s.free = slices.Insert(s.free, at, slot)
}

// shrink cuts the slots at the end that are free.
func (s *slots) shrink() {
	n := s.count
	for len(s.free) > 0 && s.free[0] == n-1 {
		s.free, n = s.free[1:], n-1
	}
	if n == s.count {
		return
	}
	s.count = n
	if errors.Join(s.records.Truncate(int64(n)*recordSize), s.data.Truncate(int64(n)*s.size)) != nil {
		s.failed = true
	}
}

// store writes a slot: its record is cleared before and written after.
func (s *slots) store(slot int, data []byte, r *record) error {
	var none [recordSize]byte
	at := int64(slot) * recordSize
	_, err := s.records.WriteAt(none[:], at)
	if err == nil {
		_, err = s.data.WriteAt(data, int64(slot)*s.size)
	}
	if err == nil {
		record := r.encode()
		_, err = s.records.WriteAt(record[:], at)
	}
	if err != nil {
		s.failed = true
		return fmt.Errorf("prefix store: write slot %d of %s: %w", slot, s.name, err)
	}
	s.written += int64(len(data))
	return nil
}

// load reads a slot that must verify.
func (s *slots) load(slot int, data []byte, crc uint32) error {
	if _, err := s.data.ReadAt(data, int64(slot)*s.size); err != nil {
		return err
	}
	s.read += int64(len(data))
	if got := crc32.Checksum(data, castagnoli); got != crc {
		return fmt.Errorf("the data's CRC-32C is %08x, its record's %08x", got, crc)
	}
	return nil
}

func (s *slots) close() error {
	var errs []error
	for _, f := range []file{s.data, s.records} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// A kind says what a record is of.
type kind uint32

const (
	kindPage kind = iota + 1
	kindState
)

// A record says what a slot holds. Its form, little-endian:
//
//	0   "SPFX", then the kind
//	8   the digest of the tokens up to its end, and that of the page before, zero for the first
//	72  tokens up to its end, bytes of data, their CRC-32C, 4 bytes of zero
//	88  the order among states by use
//	96  zeros, and at 124 the CRC-32C of all before
type record struct {
	kind           kind
	key, parent    digest
	tokens, length int
	crc            uint32
	order          uint64
}

const (
	recordSize  = 128
	recordMagic = "SPFX"
)

func (r *record) encode() (b [recordSize]byte) {
	le := binary.LittleEndian
	copy(b[:], recordMagic)
	le.PutUint32(b[4:], uint32(r.kind))
	copy(b[8:], r.key[:])
	copy(b[40:], r.parent[:])
	le.PutUint32(b[72:], uint32(r.tokens))
	le.PutUint32(b[76:], uint32(r.length))
	le.PutUint32(b[80:], r.crc)
	le.PutUint64(b[88:], r.order)
	le.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
	return b
}

// decodeRecord reads a record; ok is false for bytes that are none.
func decodeRecord(b []byte) (r record, ok bool) {
	le := binary.LittleEndian
	if len(b) != recordSize || string(b[:4]) != recordMagic || le.Uint32(b[124:]) != crc32.Checksum(b[:124], castagnoli) {
		return r, false
	}
	r.kind = kind(le.Uint32(b[4:]))
	copy(r.key[:], b[8:])
	copy(r.parent[:], b[40:])
	r.tokens, r.length, r.crc, r.order = int(int32(le.Uint32(b[72:]))), int(int32(le.Uint32(b[76:]))), le.Uint32(b[80:]), le.Uint64(b[88:])
	return r, r.tokens > 0 && r.length >= 0
}
