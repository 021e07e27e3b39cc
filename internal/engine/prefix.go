package engine

import (
	"cmp"
	"slices"
	"time"

	"splash/internal/model"
	"splash/internal/prefixstore"
)

// Reuse of prompts (serving.md 7.3). A checkpoint is a lane's states after the first tokens of a prompt; a later prompt that
// begins with the same tokens begins with it.
const (
	pageTokens    = 32   // checkpoints lie at whole pages
	rollingTokens = 4096 // a long prompt is kept every so often, so that others with the same beginning find it
	rollingMargin = 2048 // but not this close to where it resumed or to its replay point
)

// What is kept is written to a store that stays, where it is long enough to be worth it, so long after it was saved.
const (
	writtenTokens = 2048
	writtenAfter  = 10 * time.Second
	flushTime     = 6 * time.Second // at the end, for what is not written yet
)

// A prefix is a checkpoint and the tokens it is of.
type prefix struct {
	tokens []int32
	at     model.Checkpoint
	bytes  int64
	used   uint64
	saved  time.Time
	stored bool // it is in the store, or cannot be
}

// prefixes are the checkpoints of an engine. Those used longest ago go first when they take more than the limit.
type prefixes struct {
	backend model.Backend
	limit   int64 // bytes; 0: nothing is kept
	room    int64 // of them, that there is for the next one to be kept
	entries []*prefix
	bytes   int64
	tick    uint64

	store    *prefixstore.Store // nil: none
	portable model.Portable     // the backend, where there is a store
	lasting  bool               // the store stays
	CacheStats
}

// CacheStats are the figures of prompt reuse.
type CacheStats struct {
	Entries          int
	Bytes            int64
	Hits, Misses     int64 // prompts that began with a checkpoint, and that did not
	Tokens           int64 // tokens that were not read again
	DiskHits         int64 // of the hits, those that the store had
	DiskTokens       int64
	Saves, Evictions int64
}

// longest finds the checkpoint of the most tokens that the prompt begins with and goes on from.
func (c *prefixes) longest(prompt []int32) *prefix {
	var best *prefix
	for _, p := range c.entries {
		n := len(p.tokens)
		if n < len(prompt) && (best == nil || n > len(best.tokens)) && slices.Equal(p.tokens, prompt[:n]) {
			best = p
		}
	}
	return best
}

// kept is how many of the prompt's first tokens a lane could begin with, from memory or from the store.
func (c *prefixes) kept(prompt []int32) (n int) {
	if p := c.longest(prompt); p != nil {
		n = len(p.tokens)
	}
	if c.store != nil {
		n = max(n, c.store.Longest(prompt))
	}
	return n
}

// junction is the last whole page up to which the prompt is the same as one that is kept further.
func (c *prefixes) junction(prompt []int32) int {
	longest := 0
	for _, p := range c.entries {
		longest = max(longest, alike(p.tokens, prompt))
	}
	return longest / pageTokens * pageTokens
}

// resume gives a new lane what is kept of the prompt's beginning, in memory or in the store, and returns how many tokens
// that is.
func (c *prefixes) resume(lane model.Lane, prompt []int32) int {
	p := c.longest(prompt)
	if c.store != nil {
		if n := c.store.Longest(prompt); n > 0 && (p == nil || n > len(p.tokens)) {
			if r := c.restore(prompt[:n]); r != nil {
				p = r
				c.DiskHits++
				c.DiskTokens += int64(n)
			}
		}
	}
	if p == nil || c.backend.Resume(lane, p.at) != nil {
		c.Misses++
		return 0
	}
	c.Hits++
	c.Tokens += int64(len(p.tokens))
	c.touch(p)
	for c.bytes > c.room && c.evict() {
	}
	return len(p.tokens)
}

// restore reads a checkpoint from the store. It may be more than there is room for, until the lane has it.
func (c *prefixes) restore(tokens []int32) *prefix {
	at, bytes, err := c.portable.Import(len(tokens))
	if err != nil {
		return nil
	}
	if err := c.store.Get(tokens, importing{c.portable, at}); err != nil {
		c.backend.Drop(at)
		return nil
	}
	p := &prefix{tokens: slices.Clone(tokens), at: at, bytes: bytes + int64(4*len(tokens)), stored: true}
	c.entries = append(c.entries, p)
	c.bytes += p.bytes
	return p
}

// write puts a checkpoint into the store. What cannot be stored is not, and what goes wrong is the store's to tell.
func (c *prefixes) write(p *prefix) {
	if c.store != nil && !p.stored {
		c.store.Put(p.tokens, exporting{c.portable, p.at})
		p.stored = true
	}
}

// exporting and importing are checkpoints as a store writes and reads them.
type (
	exporting struct {
		model.Portable
		at model.Checkpoint
	}
	importing exporting
)

func (x exporting) Page(i int, data []byte) error        { return x.ExportPage(data, x.at, i) }
func (x exporting) State(data []byte) (n int, err error) { return x.ExportState(data, x.at) }

func (x importing) Page(i int, data []byte) error { return x.ImportPage(x.at, i, data) }
func (x importing) State(data []byte) (n int, err error) {
	return len(data), x.ImportState(x.at, data)
}

func (c *prefixes) touch(p *prefix) {
	c.tick++
	p.used = c.tick
}

// save keeps the states of a lane that has read the tokens. What cannot be kept is not.
func (c *prefixes) save(lane model.Lane, tokens []int32) *prefix {
	for _, p := range c.entries {
		if slices.Equal(p.tokens, tokens) {
			c.touch(p)
			return nil
		}
	}
	at, bytes, err := c.backend.Save(lane)
	if err != nil {
		return nil
	}
	bytes += int64(4 * len(tokens))
	p := &prefix{tokens: slices.Clone(tokens), at: at, bytes: bytes, saved: time.Now()}
	if bytes > c.room {
		c.write(p) // which may have the room that memory has not
		c.backend.Drop(at)
		return nil
	}
	c.touch(p)
	c.entries = append(c.entries, p)
	c.bytes += bytes
	c.Saves++
	for c.bytes > c.room && c.evict() {
	}
	return p
}

// evict drops the checkpoint that was used longest ago, into the store where there is one.
func (c *prefixes) evict() bool {
	if len(c.entries) == 0 {
		return false
	}
	p := slices.MinFunc(c.entries, func(a, b *prefix) int { return cmp.Compare(a.used, b.used) })
	c.write(p)
	c.drop(p)
	c.Evictions++
	return true
}

func (c *prefixes) drop(p *prefix) {
	i := slices.Index(c.entries, p)
	if i < 0 {
		return
	}
	c.entries = slices.Delete(c.entries, i, i+1)
	c.bytes -= p.bytes
	c.backend.Drop(p.at)
}

// clear lets go of everything.
func (c *prefixes) clear() {
	for len(c.entries) > 0 {
		c.drop(c.entries[0])
	}
}

// forget lets go of what a backend at fault kept.
func (c *prefixes) forget() { c.entries, c.bytes = nil, 0 }

// flush writes what is to last and is not written yet, the longest first, for as long as there is time.
func (c *prefixes) flush() {
	if !c.lasting {
		return
	}
	end := time.Now().Add(flushTime)
	list := slices.Clone(c.entries)
	slices.SortFunc(list, func(a, b *prefix) int { return len(b.tokens) - len(a.tokens) })
	for _, p := range list {
		if len(p.tokens) >= writtenTokens && time.Now().Before(end) {
			c.write(p)
		}
	}
}

// stash writes everything, before the backend that has it goes.
func (c *prefixes) stash() {
	for _, p := range c.entries {
		c.write(p)
	}
}

// next is the checkpoint that is to be written first, beside being kept, and when.
func (c *prefixes) next() (first *prefix, at time.Time) {
	if !c.lasting {
		return nil, at
	}
	for _, p := range c.entries {
		if !p.stored && len(p.tokens) >= writtenTokens && (first == nil || p.saved.Before(first.saved)) {
			first = p
		}
	}
	if first != nil {
		at = first.saved.Add(writtenAfter)
	}
	return first, at
}

// writeBehind writes a checkpoint whose time has come.
func (c *prefixes) writeBehind(now time.Time) {
	if p, at := c.next(); p != nil && !now.Before(at) {
		c.write(p)
	}
}

func (c *prefixes) stats() CacheStats {
	s := c.CacheStats
	s.Entries, s.Bytes = len(c.entries), c.bytes
	return s
}

// plan says where a prompt that resumes at from is kept: at its replay point, the last whole page before its generation
// prompt, so that the next turn, which renders that differently, finds it; where it departs from a prompt that is kept;
// and every so often on the way.
func (s *Stream) plan(c *prefixes, from int) {
	n := len(s.prompt)
	replay := s.keepable((n - max(s.request.Tail, 1)) / pageTokens * pageTokens)
	junction := s.keepable(c.junction(s.key))
	s.stops = s.stops[:0]
	for at := (from/rollingTokens + 1) * rollingTokens; at < replay; at += rollingTokens {
		if at-from >= rollingMargin && replay-at >= rollingMargin {
			s.stops = append(s.stops, s.keepable(at))
		}
	}
	for _, at := range []int{junction, replay} {
		if at > from && at < n {
			s.stops = append(s.stops, at)
		}
	}
	slices.Sort(s.stops)
	s.stops = slices.Compact(s.stops)
	s.keep = append(s.keep[:0], junction, replay)
}

// next is the next place where the prompt is kept, or its end.
func (s *Stream) next() int {
	for len(s.stops) > 0 && s.stops[0] <= s.at {
		s.stops = s.stops[1:]
	}
	if len(s.stops) > 0 {
		return s.stops[0]
	}
	return len(s.prompt)
}

// reach is the next place whose states a draft's context is needed for.
func (s *Stream) reach() int {
	for _, at := range s.stops {
		if at >= s.at {
			return at
		}
	}
	return len(s.prompt)
}

// checkpoint keeps the states of a stream whose prompt has been read up to one of its stops. Of those on the way only the
// last is kept.
func (e *Engine) checkpoint(s *Stream) {
	if !slices.Contains(s.stops, s.at) {
		return
	}
	defer e.publishCache()
	e.prefixes.room = e.memory.room(e.prefixes.limit)
	p := e.prefixes.save(s.lane, s.key[:s.at])
	if p == nil || slices.Contains(s.keep, s.at) {
		return
	}
	if s.rolling != nil {
		e.prefixes.drop(s.rolling)
	}
	s.rolling = p
}

// publishCache lets Stats see the figures of prompt reuse.
func (e *Engine) publishCache() {
	s := e.prefixes.stats()
	e.stats.cache.Store(&s)
}
