package bench

import (
	"context"
	"fmt"
	"math"
	"slices"

	"splash/internal/model"
	"splash/oracle"
)

// A KLOptions says how distributions are compared.
type KLOptions struct {
	Window  int     // tokens of the corpus that are read in one sequence
	Rows    int     // rows of a pass
	NearTie float64 // a gap between the reference's two best logits below this is a tie that another arithmetic may break

	Progress func(rows int) // called after each pass with its rows; nil: not
}

// A KLResult is how far a model's next-token distributions are from a reference's, over the positions of a corpus.
type KLResult struct {
	Positions int     `json:"positions"`
	Mean      float64 `json:"mean"` // of KL(reference || model), in nats
	Median    float64 `json:"median"`
	P99       float64 `json:"p99"`
	Max       float64 `json:"max"`

	Top1     float64 `json:"top1_agreement"`       // share of positions where both have the same best token
	NearTies int     `json:"near_ties"`            // positions where the reference's two best logits are closer than the limit
	Flips    int     `json:"flips"`                // positions where the best tokens differ
	TieFlips int     `json:"flips_at_near_tie"`    // flips at near ties
	Clear    float64 `json:"top1_agreement_clear"` // agreement where there is no near tie

	Perplexity          float64 `json:"perplexity"`
	ReferencePerplexity float64 `json:"reference_perplexity"`

	Interrupted bool `json:"interrupted"`

	Values []float64 `json:"-"` // KL of each position, in order
}

// KL runs the tokens of a corpus through both networks, in windows, and compares what they say comes next. Both must have
// the same vocabulary. When ctx ends, the result is that of the positions so far.
func KL(ctx context.Context, reference, m model.Network, tokens []int32, o KLOptions) (*KLResult, error) {
	if len(tokens) < 2 {
		return nil, fmt.Errorf("bench: %d tokens of text leave nothing to predict", len(tokens))
	}
	c := &comparison{o: o, reference: reference, model: m}
	for at := 0; at+1 < len(tokens) && ctx.Err() == nil; at += o.Window {
		if err := c.window(ctx, tokens[at:min(at+o.Window+1, len(tokens))]); err != nil {
			return nil, err
		}
	}
	if len(c.values) == 0 {
		return nil, context.Cause(ctx)
	}
	return c.result(ctx.Err() != nil), nil
}

type comparison struct {
	o                KLOptions
	reference, model model.Network
	values           []float64
	agree            int
	ties, tieFlips   int
	nll, nllRef      float64
	p, q             []float64
}

// window reads one sequence; the last token is only predicted.
func (c *comparison) window(ctx context.Context, tokens []int32) error {
	lanes := [2]model.Lane{}
	networks := [2]model.Network{c.reference, c.model}
	for i, n := range networks {
		lane, err := n.Backend().NewLane()
		if err != nil {
			return err
		}
		defer n.Backend().FreeLane(lane)
		lanes[i] = lane
	}
	inputs := tokens[:len(tokens)-1]
	for at := 0; at < len(inputs) && ctx.Err() == nil; at += c.o.Rows {
		rows := inputs[at:min(at+c.o.Rows, len(inputs))]
		for i, n := range networks {
			p := &model.Pass{Segments: []model.Segment{{Lane: lanes[i], Tokens: rows, Outputs: len(rows)}}}
			if err := n.Forward(p); err != nil {
				return err
			}
		}
		for i := range rows {
			if err := c.position(c.reference.Logits(i), c.model.Logits(i), tokens[at+i+1]); err != nil {
				return err
			}
		}
		if c.o.Progress != nil {
			c.o.Progress(len(rows))
		}
	}
	return nil
}

// position compares the logits of one position; next is the token that follows in the text.
func (c *comparison) position(reference, logits []float32, next int32) error {
	if len(reference) != len(logits) {
		return fmt.Errorf("bench: vocabularies of %d and %d tokens cannot be compared", len(reference), len(logits))
	}
	c.p, c.q = logSoftmax(c.p, reference), logSoftmax(c.q, logits)
	var kl float64
	for i, p := range c.p {
		if w := math.Exp(p); w > 0 {
			kl += w * (p - c.q[i])
		}
	}
	if math.IsNaN(kl) {
		return fmt.Errorf("bench: the logits at position %d are not finite", len(c.values))
	}
	c.values = append(c.values, max(kl, 0)) // rounding may leave a hair below zero
	c.nllRef -= c.p[next]
	c.nll -= c.q[next]
	best := oracle.Argmax(reference)
	same := best == oracle.Argmax(logits)
	if same {
		c.agree++
	}
	if gap(reference, best) < c.o.NearTie {
		c.ties++
		if !same {
			c.tieFlips++
		}
	}
	return nil
}

// gap is the distance from the best logit to the next.
func gap(x []float32, best int) float64 {
	second := math.Inf(-1)
	for i, v := range x {
		if i != best {
			second = max(second, float64(v))
		}
	}
	return float64(x[best]) - second
}

func logSoftmax(dst []float64, x []float32) []float64 {
	dst = slices.Grow(dst[:0], len(x))[:len(x)]
	top := float64(x[oracle.Argmax(x)])
	var sum float64
	for i, v := range x {
		dst[i] = float64(v) - top
		sum += math.Exp(dst[i])
	}
	log := math.Log(sum)
	for i := range dst {
		dst[i] -= log
	}
	return dst
}

func (c *comparison) result(interrupted bool) *KLResult {
	n := float64(len(c.values))
	sorted := slices.Sorted(slices.Values(c.values))
	var sum float64
	for _, v := range sorted {
		sum += v
	}
	flips := len(c.values) - c.agree
	r := &KLResult{
		Positions: len(c.values), Mean: sum / n, Median: quantile(sorted, 0.5), P99: quantile(sorted, 0.99), Max: sorted[len(sorted)-1],
		Top1: float64(c.agree) / n, NearTies: c.ties, Flips: flips, TieFlips: c.tieFlips,
		Perplexity: math.Exp(c.nll / n), ReferencePerplexity: math.Exp(c.nllRef / n),
		Interrupted: interrupted, Values: c.values,
	}
	if clear := len(c.values) - c.ties; clear > 0 {
		r.Clear = 1 - float64(flips-c.tieFlips)/float64(clear)
	}
	return r
}

// quantile is the value below which a share q of the sorted values lies, between neighbours linearly.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
