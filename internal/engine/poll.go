package engine

// Poll appends the tokens that came since the last call to dst, without waiting. ended says that the stream has ended and
// everything was taken.
func (s *Stream) Poll(dst []int32) (tokens []int32, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dst = append(dst, s.tokens...)
	s.tokens = s.tokens[:0]
	return dst, s.reason != running
}

// Processed returns how many tokens of the prompt have been read.
func (s *Stream) Processed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processed
}

// progress tells that so many tokens of the prompt have been read.
func (s *Stream) progress(n int) {
	s.mu.Lock()
	s.processed = max(s.processed, n)
	s.mu.Unlock()
	s.signal()
}
