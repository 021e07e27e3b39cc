package server

import (
	"container/list"
	"sync"

	"splash/internal/chat/ojson"
)

// A storedResponse is a response that requests may go on from. It does not change.
type storedResponse struct {
	id       string
	response []byte // as it was sent
	history  []byte // the items of its input and output, an array of JSON
}

func (r *storedResponse) size() int64 { return int64(len(r.response) + len(r.history)) }

// mostStored bounds the bytes of the responses that are kept.
const mostStored = 64 << 20

// A responseStore keeps the responses that were used last. Its zero value is empty, and takes mostStored bytes.
type responseStore struct {
	mu     sync.Mutex
	budget int64 // 0: mostStored
	bytes  int64
	byID   map[string]*list.Element
	recent list.List // of *storedResponse, the one used last first

	hits, misses, evictions int64
}

func (s *responseStore) limit() int64 {
	if s.budget == 0 {
		return mostStored
	}
	return s.budget
}

// fits reports whether a response can be kept at all.
func (s *responseStore) fits(r *storedResponse) bool { return r.size() <= s.limit() }

// put keeps a response that fits, in the place of those that were not used for longest.
func (s *responseStore) put(r *storedResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = map[string]*list.Element{}
	}
	for s.bytes+r.size() > s.limit() {
		s.drop(s.recent.Back())
		s.evictions++
	}
	s.byID[r.id] = s.recent.PushFront(r)
	s.bytes += r.size()
}

func (s *responseStore) drop(e *list.Element) {
	r := s.recent.Remove(e).(*storedResponse)
	delete(s.byID, r.id)
	s.bytes -= r.size()
}

// get returns a response; nil is none.
func (s *responseStore) get(id string) *storedResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.byID[id]
	if !ok {
		s.misses++
		return nil
	}
	s.hits++
	s.recent.MoveToFront(e)
	return e.Value.(*storedResponse)
}

// remove reports whether there was such a response.
func (s *responseStore) remove(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.byID[id]
	if ok {
		s.drop(e)
	}
	return ok
}

// use is how much is kept.
func (s *responseStore) use() (entries int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byID), s.bytes
}

// status is the store's section of /status.
func (s *responseStore) status() *ojson.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ojson.NewObject("entries", len(s.byID), "bytes", s.bytes, "budget_bytes", s.limit(),
		"evictions", s.evictions, "hits", s.hits, "misses", s.misses)
}
