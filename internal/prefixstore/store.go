// Package prefixstore keeps what was computed of prompts on a disk: the keys and values of their pages of tokens, and the
// states after some of them, so that prompts that begin alike need not be read again.
//
// Pages and states lie in slots of two files, each beside a file of records that say what a slot holds, with a CRC-32C of
// it. A page is named by the digest of all tokens up to its end, so that prompts which begin alike share pages. A record is
// cleared before its slot is written, and written after it: whatever ends the process or the machine in between, a slot
// either verifies or is none.
package prefixstore

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"time"
)

// Options say what is stored and where.
type Options struct {
	PageTokens  int   // tokens of a page
	Page, State int   // bytes of a page, and of a state at most
	Quota       int64 // bytes of all slots

	// Dir is where the files stay, for this model alone; empty: they are in the system's directory for temporary files and
	// have no names.
	Dir  string
	Wait time.Duration     // for another process that uses Dir; 20 s
	Log  func(line string) // of what goes wrong
	Now  func() time.Time  // time.Now

	create func(name string) (file, error) // a test's files
}

// An Entry is what is stored of a prompt: its pages, in order, and the state after them.
type Entry interface {
	Page(i int, data []byte) error
	// State fills or reads the state. What Put calls returns how much of data it wrote; Get gives it as much.
	State(data []byte) (n int, err error)
}

// Stats are the figures of a store.
type Stats struct {
	Capacity, Used, File   int64 // bytes: the quota, of slots in use, of slots that the files have
	Read, Written          int64 // bytes
	Pages, States          int
	Hits, Corrupt, Evicted int64 // states read back, slots that did not verify, states that made room
	TakenBack              int64 // states found at the start
	Persistent, Failed     bool  // Failed: a write failed, and there is none any more
}

// A Store keeps prompts. Its methods are for one goroutine but for Stats.
type Store struct {
	o             Options
	pages, states slots
	index         map[digest]*page
	order         uint64 // of states, by use
	buffer        []byte
	release       func() // the directory's lock
	closed        bool

	hour  time.Time // of the writes counted in recent
	since int64

	mu    sync.Mutex
	stats Stats
}

// digest names the tokens up to the end of a page.
type digest [sha256.Size]byte

// A page is one in its slot. It stays as long as a state, or a page after it, needs it.
type page struct {
	key    digest
	parent *page // nil: the first page
	tokens int   // up to its end
	slot   int
	crc    uint32
	refs   int
	state  *state
}

// A state is one in its slot.
type state struct {
	at     *page
	slot   int
	length int
	crc    uint32
	used   uint64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hourlyBytes is the most that is written to files that stay in an hour, to spare the disk.
const hourlyBytes = 128 << 30

// Open opens a store, and takes back what an earlier one left in Dir. A directory that another process uses for longer
// than Wait is left to it.
func Open(o Options) (*Store, error) {
	if o.PageTokens <= 0 || o.Page <= 0 || o.State < 0 || o.Quota <= 0 {
		return nil, fmt.Errorf("prefix store: pages of %d tokens in %d bytes, states of %d, a quota of %d", o.PageTokens, o.Page, o.State, o.Quota)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
	if o.Wait == 0 {
		o.Wait = 20 * time.Second
	}
	s := &Store{o: o, index: map[digest]*page{}, release: func() {}}
	s.pages = slots{kind: kindPage, name: "kv", size: slotSize(o.Page)}
	s.states = slots{kind: kindState, name: "state", size: slotSize(o.State)}
	s.buffer = make([]byte, max(o.Page, o.State))
	if err := s.openFiles(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if s.stats.Persistent {
		if err := s.takeBack(); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	s.publish()
	return s, nil
}

// slotAlign is what slots begin at a multiple of.
const slotAlign = 4096

func slotSize(n int) int64 { return (int64(n) + slotAlign - 1) / slotAlign * slotAlign }

// Close gives the files back. Those without names are gone.
func (s *Store) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	err := errors.Join(s.pages.close(), s.states.close())
	s.release()
	return err
}

// Stats returns the store's figures.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

func (s *Store) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Capacity = s.o.Quota
	s.stats.Used = s.pages.used() + s.states.used()
	s.stats.File = s.pages.bytes() + s.states.bytes()
	s.stats.Read = s.pages.read + s.states.read
	s.stats.Written = s.pages.written + s.states.written
	s.stats.Pages, s.stats.States = s.pages.count-len(s.pages.free), s.states.count-len(s.states.free)
	s.stats.Failed = s.pages.failed || s.states.failed
}

// next is the digest of the tokens of one more page after those that parent names.
func next(parent digest, tokens []int32) digest {
	h := sha256.New()
	h.Write(parent[:])
	var b [4]byte
	for _, t := range tokens {
		binary.LittleEndian.PutUint32(b[:], uint32(t))
		h.Write(b[:])
	}
	return digest(h.Sum(nil))
}

// Longest is the most tokens of a prompt, but not all, whose pages and state are stored; 0 for none.
func (s *Store) Longest(prompt []int32) int {
	best := 0
	s.walk(prompt, func(p *page) {
		if p.state != nil && p.tokens < len(prompt) {
			best = p.tokens
		}
	})
	return best
}

// walk calls visit with the stored pages that a prompt begins with, and returns the last one.
func (s *Store) walk(prompt []int32, visit func(p *page)) (last *page) {
	var key digest
	n := s.o.PageTokens
	for at := 0; at+n <= len(prompt); at += n {
		key = next(key, prompt[at:at+n])
		p := s.index[key]
		if p == nil {
			return last
		}
		if last = p; visit != nil {
			visit(p)
		}
	}
	return last
}

// find is the page at the end of tokens, which are whole pages; nil where it is not stored.
func (s *Store) find(tokens []int32) *page {
	if p := s.walk(tokens, nil); p != nil && p.tokens == len(tokens) {
		return p
	}
	return nil
}

// Has reports whether the state after tokens is stored. One that is counts as used.
func (s *Store) Has(tokens []int32) bool {
	p := s.find(tokens)
	if p == nil || p.state == nil {
		return false
	}
	s.touch(p.state)
	return true
}

func (s *Store) touch(st *state) {
	s.order++
	st.used = s.order
}

// ErrNotStored is the error of tokens that are not stored, or no more.
var ErrNotStored = errors.New("prefix store: the tokens are not stored")

// Get reads what is stored of tokens. Where a slot does not verify, or cannot be read, it and what needs it is forgotten, and
// the error is ErrNotStored; so is an entry's own.
func (s *Store) Get(tokens []int32, e Entry) error {
	defer s.publish()
	p := s.find(tokens)
	if p == nil || p.state == nil {
		return ErrNotStored
	}
	chain := make([]*page, 0, p.tokens/s.o.PageTokens)
	for at := p; at != nil; at = at.parent {
		chain = append(chain, at)
	}
	slices.Reverse(chain)
	for i, at := range chain {
		data := s.buffer[:s.o.Page]
		if err := s.pages.load(at.slot, data, at.crc); err != nil {
			s.corrupt(at, err)
			return ErrNotStored
		}
		if err := e.Page(i, data); err != nil {
			return fmt.Errorf("%w: %w", ErrNotStored, err)
		}
	}
	st := p.state
	data := s.buffer[:st.length]
	if err := s.states.load(st.slot, data, st.crc); err != nil {
		s.corruptState(st, err)
		return ErrNotStored
	}
	if _, err := e.State(data); err != nil {
		return fmt.Errorf("%w: %w", ErrNotStored, err)
	}
	s.touch(st)
	s.count(func(t *Stats) { t.Hits++ })
	return nil
}

func (s *Store) count(change func(t *Stats)) {
	s.mu.Lock()
	change(&s.stats)
	s.mu.Unlock()
}

// corrupt forgets every state that needs a page, and so the page.
func (s *Store) corrupt(bad *page, err error) {
	s.o.Log(fmt.Sprintf("Prefix cache · slot %d of %s: %v", bad.slot, s.pages.name, err))
	s.count(func(t *Stats) { t.Corrupt++ })
	for _, st := range s.all() {
		for p := st.at; p != nil; p = p.parent {
			if p == bad {
				s.drop(st)
				break
			}
		}
	}
}

func (s *Store) corruptState(st *state, err error) {
	s.o.Log(fmt.Sprintf("Prefix cache · slot %d of %s: %v", st.slot, s.states.name, err))
	s.count(func(t *Stats) { t.Corrupt++ })
	s.drop(st)
}

// all lists the states.
func (s *Store) all() (list []*state) {
	for _, p := range s.index {
		if p.state != nil {
			list = append(list, p.state)
		}
	}
	return list
}

// drop forgets a state, and the pages that only it needed.
func (s *Store) drop(st *state) {
	p := st.at
	p.state = nil
	s.states.give(st.slot)
	s.unref(p)
}

// unref lets go of a page, and of those before it that nothing else needs.
func (s *Store) unref(p *page) {
	for p != nil {
		if p.refs--; p.refs > 0 {
			return
		}
		delete(s.index, p.key)
		s.pages.give(p.slot)
		p = p.parent
	}
}
