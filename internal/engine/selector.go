package engine

import (
	"math"
	"slices"

	"splash/internal/scan"
	"splash/oracle"
)

// A selector walks a block's candidates as oracle.Lattice does, bit for bit, with less work: a walk looks at the edges of
// the one predecessor it has come by, so no others are computed, and its room is used again.
type selector struct {
	oracle.Selector
	k int // candidates a position

	tokens    []int32     // of the position, and of the one before
	before    []int32     //
	unary     []float64   // of the position
	scores    []float64   //
	weighted  []float64   // the predecessor's codes times the selector's state
	successor [][]float64 // the codes of the candidates
	q         []float64
}

func newSelector(s oracle.Selector, k int) *selector {
	_, rank := s.Predecessor.Dims()
	c := &selector{
		Selector: s, k: k,
		tokens: make([]int32, k), before: make([]int32, k),
		unary: make([]float64, k), scores: make([]float64, k), weighted: make([]float64, rank), q: make([]float64, k),
	}
	for range k {
		c.successor = append(c.successor, make([]float64, rank))
	}
	return c
}

// draftRows are the rows of a lane's block that propose.
type draftRows interface {
	Logits(row int) []float32
	State(row int) []float32
}

// walk fills the lane's walk from the rows that begin at first: greedy, or, at a temperature, drawn, whose candidates it
// keeps too.
func (c *selector) walk(l *DraftLane, rows draftRows, first int) {
	w := l.Walk
	w.Choices, w.Tokens, w.Confidence, w.Q = w.Choices[:0], w.Tokens[:0], w.Confidence[:0], w.Q[:0]
	sampled := l.Temperature > 0
	if sampled {
		*l.Candidates = (*l.Candidates)[:0]
	}
	previous := l.Anchor
	for j := range oracle.Proposals {
		c.top(rows.Logits(first + j))
		c.score(previous, rows.State(first+j))
		choice := oracle.FirstLargest(c.scores)
		if sampled {
			choice = c.draw(c.scores[choice], l.Temperature, l.Uniforms[oracle.DrawProposal+j])
			w.Q = append(w.Q, c.q...)
			*l.Candidates = append(*l.Candidates, c.tokens...)
		}
		previous = c.tokens[choice]
		w.Choices = append(w.Choices, choice)
		w.Tokens = append(w.Tokens, previous)
		w.Confidence = append(w.Confidence, oracle.Confidence(c.scores))
	}
}

// top is oracle.TopCandidates on F32 logits.
func (c *selector) top(logits []float32) {
	n, least := 0, float32(math.Inf(-1))
	for t := 0; t < len(logits); t++ {
		if n == c.k {
			if t = scan.Next(logits, t, least); t == len(logits) {
				break
			}
		}
		x := logits[t]
		if x != x {
			continue
		}
		v, at := float64(x), n
		for at > 0 && c.unary[at-1] < v {
			at--
		}
		if at == c.k {
			continue
		}
		n = min(n+1, c.k)
		copy(c.tokens[at+1:n], c.tokens[at:n])
		copy(c.unary[at+1:n], c.unary[at:n])
		c.tokens[at], c.unary[at] = int32(t), v
		if n == c.k {
			least = float32(c.unary[n-1])
		}
	}
	for ; n < c.k; n++ {
		c.tokens[n], c.unary[n] = oracle.NoToken, math.Inf(-1)
	}
}

// score is the candidates' unary and their edge after the predecessor, the sums in the order of oracle.Selector's.
func (c *selector) score(predecessor int32, state []float32) {
	vocab, _ := c.Successor.Dims()
	c.Predecessor.Row(c.weighted, int(oracle.VerifyInput(predecessor, vocab)))
	for d, v := range state {
		c.weighted[d] *= float64(v)
	}
	for i, t := range c.tokens {
		c.Successor.Row(c.successor[i], int(oracle.VerifyInput(t, vocab)))
	}
	i := 0
	for ; i+4 <= c.k; i += 4 {
		dot4(c.scores[i:i+4], c.weighted, c.successor[i:i+4])
	}
	for ; i < c.k; i++ {
		var sum float64
		for d, v := range c.weighted {
			sum += v * c.successor[i][d]
		}
		c.scores[i] = sum
	}
	for i := range c.scores {
		c.scores[i] = c.unary[i] + c.scores[i]
	}
}

// dot4 is four dot products side by side: one alone waits for each of its additions.
func dot4(dst, a []float64, b [][]float64) {
	b0, b1, b2, b3 := b[0][:len(a)], b[1][:len(a)], b[2][:len(a)], b[3][:len(a)]
	var s0, s1, s2, s3 float64
	for d, v := range a {
		s0 += v * b0[d]
		s1 += v * b1[d]
		s2 += v * b2[d]
		s3 += v * b3[d]
	}
	dst[0], dst[1], dst[2], dst[3] = s0, s1, s2, s3
}

// draw takes the first candidate whose cumulative probability at the temperature exceeds u, the last where none does, and
// leaves the probabilities in c.q. top is the largest score.
func (c *selector) draw(top, temperature, u float64) int {
	if math.IsNaN(top) {
		top = math.Inf(-1)
	}
	var sum float64
	for i, s := range c.scores {
		c.q[i] = math.Exp((s - top) / temperature)
		sum += c.q[i]
	}
	for i := range c.q {
		c.q[i] /= sum
	}
	sum = 0
	i := slices.IndexFunc(c.q, func(p float64) bool { sum += p; return sum > u })
	if i < 0 {
		return c.k - 1
	}
	return i
}
