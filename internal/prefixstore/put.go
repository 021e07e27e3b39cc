package prefixstore

import (
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// Errors of Put, after which requests go on without what was to be stored.
var (
	ErrTooLarge = errors.New("prefix store: the tokens take more than the quota")
	ErrStopped  = errors.New("prefix store: nothing is written any more")
	ErrPaused   = errors.New("prefix store: enough was written in this hour")
)

// Put stores tokens, which are whole pages. States that were used longest ago make room. What is stored already is not
// written again. A write that fails is the last one.
func (s *Store) Put(tokens []int32, e Entry) error {
	defer s.publish()
	n := s.o.PageTokens
	if len(tokens) == 0 || len(tokens)%n != 0 {
		return fmt.Errorf("prefix store: %d tokens are not whole pages of %d", len(tokens), n)
	}
	if s.Has(tokens) {
		return nil
	}
	if s.pages.failed || s.states.failed {
		return ErrStopped
	}
	if int64(len(tokens)/n)*s.pages.size+s.states.size > s.o.Quota {
		return ErrTooLarge
	}
	if s.paused() {
		return ErrPaused
	}
	last := s.walk(tokens, nil)
	if last != nil {
		last.refs++ // what makes room is not what this needs
	}
	have := 0
	if last != nil {
		have = last.tokens / n
	}
	err := s.makeRoom(len(tokens)/n - have)
	for i := have; err == nil && i < len(tokens)/n; i++ {
		var p *page
		if p, err = s.putPage(last, tokens[i*n:(i+1)*n], i, e); err == nil {
			last = p
		}
	}
	if err == nil {
		err = s.putState(last, e)
	}
	if last != nil {
		s.unref(last)
	}
	if err != nil && (s.pages.failed || s.states.failed) {
		s.o.Log(fmt.Sprintf("Prefix cache · no more is written: %v", err))
	}
	return err
}

// putPage stores a page after last. It takes over the reference that is held to last, and holds one to the new page.
func (s *Store) putPage(last *page, tokens []int32, i int, e Entry) (*page, error) {
	data := s.buffer[:s.o.Page]
	clear(data)
	if err := e.Page(i, data); err != nil {
		return nil, err
	}
	p := &page{parent: last, tokens: (i + 1) * s.o.PageTokens, refs: 1, crc: crc32.Checksum(data, castagnoli)}
	var parent digest
	if last != nil {
		parent = last.key
	}
	p.key = next(parent, tokens)
	p.slot = s.pages.take()
	r := record{kind: kindPage, key: p.key, parent: parent, tokens: p.tokens, length: len(data), crc: p.crc}
	if err := s.write(&s.pages, p.slot, data, &r); err != nil {
		s.pages.give(p.slot)
		return nil, err
	}
	s.index[p.key] = p
	return p, nil
}

func (s *Store) putState(at *page, e Entry) error {
	data := s.buffer[:s.o.State]
	length, err := e.State(data)
	if err != nil {
		return err
	}
	data = data[:length]
	st := &state{at: at, length: length, crc: crc32.Checksum(data, castagnoli)}
	s.touch(st)
	st.slot = s.states.take()
	r := record{kind: kindState, key: at.key, tokens: at.tokens, length: length, crc: st.crc, order: st.used}
	if err := s.write(&s.states, st.slot, data, &r); err != nil {
		s.states.give(st.slot)
		return err
	}
	at.state = st
	at.refs++
	return nil
}

func (s *Store) write(to *slots, slot int, data []byte, r *record) error {
	s.since += int64(len(data))
	return to.store(slot, data, r)
}

// paused reports whether the files that stay have been written to enough.
func (s *Store) paused() bool {
	if now := s.o.Now(); now.Sub(s.hour) >= time.Hour {
		s.hour, s.since = now, 0
	}
	return s.stats.Persistent && s.since >= hourlyBytes
}

// makeRoom sees to room for so many pages and a state within the quota.
func (s *Store) makeRoom(pages int) error {
	for {
		more := s.pages.more(pages) + s.states.more(1)
		if s.pages.bytes()+s.states.bytes()+more <= s.o.Quota {
			return nil
		}
		oldest := s.oldest()
		if oldest == nil {
			return ErrTooLarge
		}
		s.drop(oldest)
		s.count(func(t *Stats) { t.Evicted++ })
		s.pages.shrink()
		s.states.shrink()
	}
}

func (s *Store) oldest() (st *state) {
	for _, p := range s.index {
		if p.state != nil && (st == nil || p.state.used < st.used) {
			st = p.state
		}
	}
	return st
}
