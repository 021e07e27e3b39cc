package engine

import (
	"errors"
	"math"
	"slices"

	"splash/internal/scan"
	"splash/oracle"
)

// ErrNotFinite is the error of a request whose logits hold no number to choose by.
var ErrNotFinite = errors.New("engine: the model's logits are not finite")

// A sampler chooses tokens as package oracle's Policy does, on F32 logits and without allocating: its room is used again.
type sampler struct {
	logits  []float32
	kept    []oracle.Weighted
	rest    []oracle.Weighted
	allowed []uint64
}

// verify chooses the stream's token by row j of a cycle. agreed says that it is the row's proposal and the next row is to
// be looked at; the last row's is the target's own.
func (p *sampler) verify(s *Stream, logits []float32, j int, last bool) (token int32, agreed bool, err error) {
	policy := &s.request.Policy
	if s.places != nil {
		logits = p.penalize(s, logits)
	}
	if s.request.Constraint != nil {
		if logits, err = p.restrict(s, logits); err != nil {
			return 0, false, err
		}
	}
	best := scan.Argmax(logits)
	if top := float64(logits[best]); math.IsNaN(top) || math.IsInf(top, 0) {
		return 0, false, ErrNotFinite
	}
	if policy.Temperature == 0 {
		return int32(best), !last && s.walk.Tokens[j] == int32(best), nil
	}
	weights := p.target(policy, logits, best)
	if last {
		return oracle.Draw(weights, s.uniforms[oracle.DrawCorrection]), false, nil
	}
	proposal := s.proposal(j)
	if proposal.Accepts(weights, s.uniforms[oracle.DrawAccept+j]) {
		return proposal.Token, true, nil
	}
	p.rest = proposal.Residual(p.rest[:0], weights)
	return oracle.Draw(p.rest, s.uniforms[oracle.DrawCorrection]), false, nil
}

// penalize is Policy.Penalize on a copy of the logits, with the counts that the stream keeps.
func (p *sampler) penalize(s *Stream, logits []float32) []float32 {
	p.logits = append(p.logits[:0], logits...)
	policy := &s.request.Policy
	for _, o := range s.seen {
		x := float64(p.logits[o.Token])
		if r := policy.Repetition; r != 0 && r != 1 {
			if x > 0 {
				x /= r
			} else {
				x *= r
			}
		}
		if o.Count > 0 {
			x -= policy.Presence + policy.Frequency*float64(o.Count)
		}
		p.logits[o.Token] = float32(x)
	}
	return p.logits
}

// target is Policy.Target: the tokens kept, with their weights.
func (p *sampler) target(policy *oracle.Policy, logits []float32, best int) []oracle.Weighted {
	top := float64(logits[best])
	floor := math.Inf(-1)
	if policy.MinP > 0 {
		floor = math.Min(top+policy.Temperature*math.Log(policy.MinP), top)
	}
	switch k := policy.TopK; {
	case k > 0 && k < len(logits):
		p.largest(logits, k, floor)
		p.weigh(top, policy.Temperature)
		if policy.TopP > 0 && policy.TopP < 1 {
			p.nucleus(policy.TopP * mass(p.kept))
		}
	case policy.TopP > 0 && policy.TopP < 1:
		p.share(policy, logits, top, floor)
	default:
		p.all(logits, floor)
		p.weigh(top, policy.Temperature)
	}
	return p.kept
}

// all keeps the tokens of at least floor, in order of their ids.
func (p *sampler) all(logits []float32, floor float64) {
	p.kept = p.kept[:0]
	for t, x := range logits {
		if x := float64(x); x >= floor && !math.IsInf(x, -1) {
			p.kept = append(p.kept, oracle.Weighted{Token: int32(t), Weight: x})
		}
	}
}

// weigh makes weights of the kept logits.
func (p *sampler) weigh(top, temperature float64) {
	for i := range p.kept {
		p.kept[i].Weight = math.Exp((p.kept[i].Weight - top) / temperature)
	}
}

func mass(tokens []oracle.Weighted) (sum float64) {
	for _, w := range tokens {
		sum += w.Weight
	}
	return sum
}

// likeliest is how many tokens are first looked at for a share of all: a few make up most of it, as a rule.
const likeliest = 64

// share keeps the likeliest tokens up to the one whose cumulative weight exceeds top-p of all.
func (p *sampler) share(policy *oracle.Policy, logits []float32, top, floor float64) {
	p.all(logits, floor)
	p.weigh(top, policy.Temperature)
	limit := policy.TopP * mass(p.kept)
	for n := likeliest; n < len(logits); n *= 8 {
		p.largest(logits, n, floor)
		p.weigh(top, policy.Temperature)
		if p.nucleus(limit) {
			return
		}
	}
	p.all(logits, floor)
	slices.SortFunc(p.kept, likelier)
	p.weigh(top, policy.Temperature)
	p.nucleus(limit)
}

// nucleus keeps the first tokens up to the one whose cumulative weight exceeds limit, and reports whether one's does.
func (p *sampler) nucleus(limit float64) bool {
	var sum float64
	for i, w := range p.kept {
		if sum += w.Weight; sum > limit {
			p.kept = p.kept[:i+1]
			return true
		}
	}
	return false
}

// likelier orders by falling logit (which Weight still holds), then by id.
func likelier(a, b oracle.Weighted) int {
	switch {
	case a.Weight > b.Weight:
		return -1
	case a.Weight < b.Weight:
		return 1
	}
	return int(a.Token - b.Token)
}

// largest keeps the k likeliest tokens of at least floor, in order: a heap whose root is the unlikeliest one kept.
func (p *sampler) largest(logits []float32, k int, floor float64) {
	p.kept = p.kept[:0]
	t := 0
	for ; t < len(logits) && len(p.kept) < k; t++ {
		if x := float64(logits[t]); x >= floor && !math.IsInf(x, -1) {
			p.kept = append(p.kept, oracle.Weighted{Token: int32(t), Weight: x})
			p.up(len(p.kept) - 1)
		}
	}
	// Of equal ones the first are kept, so only a larger one takes the root's place.
	for t < len(logits) {
		if t = scan.Next(logits, t, float32(p.kept[0].Weight)); t < len(logits) {
			p.kept[0] = oracle.Weighted{Token: int32(t), Weight: float64(logits[t])}
			p.down(0)
			t++
		}
	}
	slices.SortFunc(p.kept, likelier)
}

func (p *sampler) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if likelier(p.kept[i], p.kept[parent]) <= 0 {
			return
		}
		p.kept[i], p.kept[parent] = p.kept[parent], p.kept[i]
		i = parent
	}
}

func (p *sampler) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(p.kept) {
			return
		}
		if r := child + 1; r < len(p.kept) && likelier(p.kept[r], p.kept[child]) > 0 {
			child = r
		}
		if likelier(p.kept[child], p.kept[i]) <= 0 {
			return
		}
		p.kept[i], p.kept[child] = p.kept[child], p.kept[i]
		i = child
	}
}
