package oracle

import (
	"math"
	"slices"
)

// Sizes of a decode cycle.
const (
	CycleRows = 8             // rows a lane drafts: the anchor and its proposals
	Proposals = CycleRows - 1 // proposal j is of row j+1
)

// A sampled lane's uniforms of one cycle by use; proposal j takes those at DrawProposal+j and DrawAccept+j.
const (
	DrawFirst      = 0  // the first token after a prompt, drawn once
	DrawProposal   = 1  // the sampled walk
	DrawAccept     = 8  // whether a proposal is accepted
	DrawCorrection = 15 // the token after the accepted ones
	Draws          = 16
)

// FirstUniform is the uniform that a sampled request takes the first token after its prompt with.
func FirstUniform(seed uint64) float64 { return Uniform(seed, 1) }

// CycleUniforms draws the uniforms of cycle n (from 0) of a sampled request: draws 2+15n .. 16+15n, in the order of their
// index, all of them whatever the cycle verifies. u[DrawFirst] is 0, as no cycle uses it.
func CycleUniforms(u *[Draws]float64, seed, n uint64) {
	u[DrawFirst] = 0
	for i := uint64(1); i < Draws; i++ {
		u[i] = Uniform(seed, 1+(Draws-1)*n+i)
	}
}

// AcceptGreedy is the number of proposals a greedy lane accepts: the leading ones, of the verify-1 that were verified,
// that equal the target's own choices. The cycle's tokens are choices[:accepted+1].
func AcceptGreedy(proposals, choices []int32, verify int) int {
	for j := range verify - 1 {
		if proposals[j] != choices[j] {
			return j
		}
	}
	return verify - 1
}

// A Proposal is a token a sampled walk drew, and the distribution it was drawn from.
type Proposal struct {
	Token      int32
	Candidates []int32
	Q          []float64 // of the candidates
}

// q is the probability that the walk draws token: that of the first candidate slot that holds it, 0 without one.
func (p *Proposal) q(token int32) float64 {
	if i := slices.Index(p.Candidates, token); i >= 0 {
		return p.Q[i]
	}
	return 0
}

// Accepts reports whether the target, whose distribution at the proposal's row is target ([Policy.Target]), accepts the
// proposal: u q(token) < p(token), p = weight / sum of weights. NoToken, which has no p, and a proposal whose q is NaN
// are refused.
func (p *Proposal) Accepts(target []Weighted, u float64) bool {
	var weight float64
	for _, t := range target {
		if t.Token == p.Token {
			weight = t.Weight
		}
	}
	return u*p.q(p.Token) < weight/mass(target)
}

// Residual appends to dst what a refused proposal leaves of the target's distribution: max(weight(t) - q(t) W, 0), W the
// sum of the weights. Where nothing is left it is target itself.
func (p *Proposal) Residual(dst, target []Weighted) []Weighted {
	total, n := mass(target), len(dst)
	for _, t := range target {
		dst = append(dst, Weighted{t.Token, math.Max(t.Weight-p.q(t.Token)*total, 0)})
	}
	if mass(dst[n:]) > 0 {
		return dst
	}
	return append(dst[:n], target...)
}

// AcceptSampled is exact speculative sampling. It returns how many of the verify-1 verified proposals a sampled lane
// accepts and the target's token after them; target(r) is the distribution at row r, after penalties, masks and
// truncation. Proposals are accepted one after another, the first refusal is replaced by a draw from the residual, and
// without a refusal one more token is drawn from the whole distribution of row verify-1. That row counts as undrafted:
// nobody tested its proposal. The tokens of the cycle are distributed as the target's, whatever the proposals are.
//
// Source: Leviathan et al., Fast Inference from Transformers via Speculative Decoding, 2023; Chen et al., 2023.
func AcceptSampled(proposals []Proposal, target func(row int) []Weighted, verify int, u *[Draws]float64) (int, int32) {
	for j := range verify - 1 {
		weights := target(j)
		if !proposals[j].Accepts(weights, u[DrawAccept+j]) {
			return j, Draw(proposals[j].Residual(nil, weights), u[DrawCorrection])
		}
	}
	return verify - 1, Draw(slices.Clone(target(verify-1)), u[DrawCorrection])
}

// Retain is the number of a cycle's rows that are kept: tokens holds the accepted proposals and the target's token after
// them, left tokens may still be put out, and the first of tokens that stops ends what is kept. The cycle's output is its
// anchor and tokens[:retained-1]; tokens[retained-1] is the new anchor.
func Retain(tokens []int32, left int, stops func(int32) bool) int {
	retained := min(len(tokens), left)
	if i := slices.IndexFunc(tokens[:retained], stops); i >= 0 {
		return i + 1
	}
	return retained
}

// Finish says what becomes of an anchor, of which stop says whether it stops, when left tokens may still be put out: emit
// it at once, without a row of its own, and whether the request ends. A cycle starts with an anchor that is not emitted
// and a request that does not end, so at least two tokens are left to it.
func Finish(stop bool, left int) (emit, end bool) {
	switch {
	case left <= 0:
		return false, true
	case stop || left == 1:
		return true, true
	}
	return false, false
}

// SpeculationCounts are what lanes' cycles came to.
type SpeculationCounts struct {
	LaneCycles int
	Drafted    int // proposals that were verified
	Accepted   int // proposals that were accepted and kept
	Tokens     int // rows retained; neither a prompt's first token nor an anchor that ends its request
}

// Add counts one lane's cycle.
func (c *SpeculationCounts) Add(verify, accepted, retained int) {
	c.LaneCycles++
	c.Drafted += verify - 1
	c.Accepted += min(accepted, retained-1)
	c.Tokens += retained
}

// TokensPerCycle is the tokens of a lane's cycle; 0 before any.
func (c *SpeculationCounts) TokensPerCycle() float64 { return ratio(c.Tokens, c.LaneCycles) }

// AcceptanceRate is accepted over drafted proposals; 0 before any.
func (c *SpeculationCounts) AcceptanceRate() float64 { return ratio(c.Accepted, c.Drafted) }

func ratio(a, b int) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
