package engine

import (
	"fmt"
	"math"
)

// Scores returns the logits of Request.Score after the prompt, once the stream has ended with Stop.
func (s *Stream) Scores() []float32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scores
}

// score ends a request that asks for logits alone.
func (e *Engine) score(s *Stream, logits []float32) {
	scores := make([]float32, len(s.request.Score))
	for i, token := range s.request.Score {
		if int(token) >= len(logits) {
			e.finish(s, Failed, fmt.Errorf("engine: the logit of token %d of %d", token, len(logits)))
			return
		}
		x := logits[token]
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			e.finish(s, Failed, ErrNotFinite)
			return
		}
		scores[i] = x
	}
	s.mu.Lock()
	s.scores = scores
	s.timing.First = e.o.Now()
	s.mu.Unlock()
	e.finish(s, Stop, nil)
}
