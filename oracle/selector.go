package oracle

import "math"

// NoToken fills the candidates of a vocabulary that has fewer tokens than candidates. As an unsigned id it lies past
// every vocabulary; its proposal equals no token of the target.
const NoToken int32 = -1

// TopCandidates writes the len(tokens) tokens of the largest logits and those logits, the largest first, equal ones (0
// and -0 are equal) by rising id: a total order, so that every backend gives the same list. A NaN never enters. Where
// there are too few, the rest is NoToken at -Inf. Nothing is applied to the draft's logits before: no temperature, mask
// or penalty.
func TopCandidates(tokens []int32, unary, logits []float64) {
	n := 0
	for t, x := range logits {
		at := n
		for at > 0 && unary[at-1] < x {
			at--
		}
		if at == len(tokens) || x != x {
			continue
		}
		n = min(n+1, len(tokens))
		copy(tokens[at+1:n], tokens[at:n])
		copy(unary[at+1:n], unary[at:n])
		tokens[at], unary[at] = int32(t), x
	}
	for ; n < len(tokens); n++ {
		tokens[n], unary[n] = NoToken, math.Inf(-1)
	}
}

// A Selector scores a draft's candidates by the token before them.
type Selector struct {
	Predecessor, Successor Matrix // codebooks, [V, rank]
}

// Edges writes sum_d A[p][d] state[d] B[t][d] to edges ([predecessors][candidates]) for every predecessor p and candidate
// t of a position, A and B the codebooks of predecessors and successors, state ([rank]) the position's selector state. An
// id past the vocabulary is clamped to its last.
//
// Source: the candidate selector of DFlash2 (draft.md 5.2).
func (s *Selector) Edges(edges, state []float64, predecessors, candidates []int32) {
	a, b := make([]float64, len(state)), make([]float64, len(state))
	vocab, _ := s.Successor.Dims()
	for j, t := range candidates {
		s.Successor.Row(b, int(VerifyInput(t, vocab)))
		for i, p := range predecessors {
			s.Predecessor.Row(a, int(VerifyInput(p, vocab)))
			var sum float64
			for d, v := range state {
				sum += a[d] * v * b[d]
			}
			edges[i*len(candidates)+j] = sum
		}
	}
}

// VerifyInput is the token as an input of the target or a codebook: an id past the vocabulary, as NoToken is, becomes the
// last one.
func VerifyInput(token int32, vocab int) int32 {
	if uint64(uint32(token)) >= uint64(vocab) {
		return int32(vocab - 1)
	}
	return token
}

// A Lattice is everything a walk chooses from: K candidates for each of a block's proposals, and what each is worth after
// each candidate of the position before.
type Lattice struct {
	K      int
	Tokens []int32   // [position][K]
	Unary  []float64 // [position][K], the candidates' logits
	Edges  []float64 // [position][K][K], by predecessor, then candidate; at position 0 the anchor is predecessor 0
}

// NewLattice returns an empty lattice of so many positions and candidates.
func NewLattice(positions, k int) *Lattice {
	return &Lattice{
		K:      k,
		Tokens: make([]int32, positions*k),
		Unary:  make([]float64, positions*k),
		Edges:  make([]float64, positions*k*k),
	}
}

// Positions is the number of proposals.
func (l *Lattice) Positions() int { return len(l.Tokens) / l.K }

// Candidates returns the candidates of position j.
func (l *Lattice) Candidates(j int) []int32 { return l.Tokens[j*l.K : (j+1)*l.K] }

// Fill computes position j of the lattice, those before it being there, from the logits ([V]) and the selector state
// ([rank]) of the draft's row j+1.
func (l *Lattice) Fill(s *Selector, j int, anchor int32, logits, state []float64) {
	TopCandidates(l.Candidates(j), l.Unary[j*l.K:(j+1)*l.K], logits)
	predecessors := []int32{anchor}
	if j > 0 {
		predecessors = l.Candidates(j - 1)
	}
	s.Edges(l.Edges[j*l.K*l.K:], state, predecessors, l.Candidates(j))
}

// Scores writes unary + edge of the candidates of position j after predecessor p, an index of the position before (0 at
// position 0), to dst ([K]).
func (l *Lattice) Scores(dst []float64, j, p int) {
	for i := range dst {
		dst[i] = l.Unary[j*l.K+i] + l.Edges[(j*l.K+p)*l.K+i]
	}
}

// Confidence is the largest of the candidates' probabilities, 1 / sum_i exp(score_i - max): their softmax at temperature
// 1, whatever the lane's. Without a finite largest score, or with any NaN, it is NaN, which is no probability.
func Confidence(scores []float64) float64 {
	top := largest(scores)
	if math.IsInf(top, 0) {
		return math.NaN()
	}
	var sum float64
	for _, s := range scores {
		sum += math.Exp(s - top)
	}
	return 1 / sum
}

// largest is the largest number of x, -Inf without one.
func largest(x []float64) float64 {
	top := math.Inf(-1)
	for _, v := range x {
		if v > top {
			top = v
		}
	}
	return top
}

// A Walk is a path through a lattice.
type Walk struct {
	Choices    []int     // candidate chosen at each position
	Tokens     []int32   // the proposals
	Confidence []float64 // of each position, after the predecessor chosen before it
	Q          []float64 // [position][K], what a sampled walk drew from; nil for the others
}

// choose appends candidate i of position j.
func (w *Walk) choose(l *Lattice, j, i int, scores []float64) {
	w.Choices = append(w.Choices, i)
	w.Tokens = append(w.Tokens, l.Candidates(j)[i])
	w.Confidence = append(w.Confidence, Confidence(scores))
}

// walk goes through l, choose giving the candidate of position j from the scores after the one before.
func (l *Lattice) walk(choose func(w *Walk, j, before int, scores []float64) int) Walk {
	var w Walk
	scores, before := make([]float64, l.K), 0
	for j := range l.Positions() {
		l.Scores(scores, j, before)
		before = choose(&w, j, before, scores)
		w.choose(l, j, before, scores)
	}
	return w
}

// Greedy takes, at every position, the candidate of the largest score: the first of equals, never a NaN, and candidate 0
// where no score is above -Inf.
func (l *Lattice) Greedy() Walk {
	return l.walk(func(_ *Walk, _, _ int, scores []float64) int { return FirstLargest(scores) })
}

// FirstLargest is the index of the first of the largest scores, never a NaN's, and 0 where none is above -Inf.
func FirstLargest(scores []float64) int {
	best, top := 0, math.Inf(-1)
	for i, s := range scores {
		if s > top {
			best, top = i, s
		}
	}
	return best
}

// Sample draws every position from q(i) = softmax(score / temperature), which it keeps: the first candidate whose
// cumulative probability exceeds the position's uniform u[j], the last where none does.
func (l *Lattice) Sample(temperature float64, u []float64) Walk {
	return l.walk(func(w *Walk, j, _ int, scores []float64) int {
		q := softmaxAt(scores, temperature)
		w.Q = append(w.Q, q...)
		var sum float64
		for i, p := range q {
			if sum += p; sum > u[j] {
				return i
			}
		}
		return l.K - 1
	})
}

// softmaxAt is the softmax of scores / temperature. A score that is not finite may make every probability NaN.
func softmaxAt(scores []float64, temperature float64) []float64 {
	q, top := make([]float64, len(scores)), largest(scores)
	var sum float64
	for i, s := range scores {
		q[i] = math.Exp((s - top) / temperature)
		sum += q[i]
	}
	for i := range q {
		q[i] /= sum
	}
	return q
}

// LookAhead takes the path of the largest expected number of accepted proposals under the selector's own conditionals
// q_j(i | p) = softmax(score) at temperature 1, and returns that number: V_j(p) = max_i q_j(i | p) (1 + V_{j+1}(i)), V
// past the last position 0, the first i of equals. A predecessor after which no score is above -Inf is worth 0 and
// chooses candidate 0.
func (l *Lattice) LookAhead() (w Walk, expected float64) {
	n := l.Positions()
	best := make([]int, n*l.K) // [position][predecessor]
	value, next := make([]float64, l.K), make([]float64, l.K)
	scores := make([]float64, l.K)
	for j := n - 1; j >= 0; j-- {
		value, next = next, value
		for p := range l.K {
			l.Scores(scores, j, p)
			best[j*l.K+p], value[p] = bestStep(scores, next)
		}
	}
	w = l.walk(func(_ *Walk, j, before int, _ []float64) int { return best[j*l.K+before] })
	return w, value[0]
}

// bestStep is the candidate whose probability times one more than what follows it is largest, and that product.
func bestStep(scores, next []float64) (best int, value float64) {
	if math.IsInf(largest(scores), -1) {
		return 0, 0
	}
	for i, q := range softmaxAt(scores, 1) {
		if v := q * (1 + next[i]); v > value {
			best, value = i, v
		}
	}
	return best, value
}
