package bench

import (
	"context"
	"slices"
	"time"

	"splash/internal/model"
	"splash/planner"
)

// A memoryReader is a backend whose workers can read memory without computing on it.
type memoryReader interface {
	ReadMemory(x []float32) time.Duration
}

// A Passes is what a pass of one row and one of a cycle's rows take, beside how fast the machine reads memory.
type Passes struct {
	WeightBytes int64   `json:"weight_bytes_per_pass"`
	ReadPerSec  float64 `json:"read_bytes_per_second,omitempty"` // by the backend's workers together; 0: not measured
	OneMs       float64 `json:"one_row_ms"`
	EightMs     float64 `json:"eight_rows_ms"`
	Ratio       float64 `json:"eight_over_one"`
	Share       float64 `json:"share_of_read_bandwidth,omitempty"` // of a pass of one row: its weights alone
}

// memoryBytes is more than any cache holds.
const memoryBytes = 256 << 20

// MeasurePasses times passes of one lane after a short prompt, rounds of them, of which the medians count; ratios are those of each round.
// It must have the network to itself.
func MeasurePasses(ctx context.Context, n model.Network, p *planner.Plan, rounds int) (*Passes, error) {
	lane, err := n.Backend().NewLane()
	if err != nil {
		return nil, err
	}
	defer n.Backend().FreeLane(lane)
	reader, _ := n.Backend().(memoryReader)
	var memory []float32
	if reader != nil {
		memory = make([]float32, memoryBytes/4)
		for i := range memory { // so that the memory is there
			memory[i] = 1
		}
	}
	t := &passTimer{n: n, lane: lane, vocab: p.Layout.Vocab}
	if _, err := t.pass(32); err != nil {
		return nil, err
	}
	r := &Passes{WeightBytes: WeightBytes(p)}
	var reads, ones, eights, ratios, shares []float64
	for range rounds {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		one, eight, err := t.round()
		if err != nil {
			return nil, err
		}
		ones, eights, ratios = append(ones, ms(one)), append(eights, ms(eight)), append(ratios, eight.Seconds()/one.Seconds())
		if reader != nil {
			read := memoryBytes / reader.ReadMemory(memory).Seconds()
			reads, shares = append(reads, read), append(shares, float64(r.WeightBytes)/one.Seconds()/read)
		}
	}
	r.OneMs, r.EightMs, r.Ratio = median(ones), median(eights), median(ratios)
	if reader != nil {
		r.ReadPerSec, r.Share = median(reads), median(shares)
	}
	return r, nil
}

func median(x []float64) float64 {
	x = slices.Clone(x)
	slices.Sort(x)
	return quantile(x, 0.5)
}

// A passTimer runs passes of one lane.
type passTimer struct {
	n     model.Network
	lane  model.Lane
	vocab int
	next  int
}

// round times one row, four times, and a cycle's rows, which are then taken back.
func (t *passTimer) round() (one, eight time.Duration, err error) {
	for range 4 {
		took, err := t.pass(1)
		if err != nil {
			return 0, 0, err
		}
		one += took / 4
	}
	if eight, err = t.pass(model.RollbackRows); err != nil {
		return 0, 0, err
	}
	return one, eight, t.n.Backend().Rollback(t.lane, model.RollbackRows)
}

func (t *passTimer) pass(rows int) (time.Duration, error) {
	tokens := make([]int32, rows)
	for i := range tokens {
		t.next++
		tokens[i] = int32(t.next * 7919 % t.vocab)
	}
	began := time.Now()
	err := t.n.Forward(&model.Pass{Segments: []model.Segment{{Lane: t.lane, Tokens: tokens, Outputs: min(rows, model.RollbackRows)}}})
	return time.Since(began), err
}

// WeightBytes is what a pass of one row reads of a plan's weights as they are stored: every matrix once, of experts those that
// a row is routed to, of a token table nothing unless it is the head too.
func WeightBytes(p *planner.Plan) int64 {
	var sum int64
	tied := !slices.ContainsFunc(p.Tensors, func(t planner.Tensor) bool { return t.Name == "output.weight" })
	for i := range p.Tensors {
		t := &p.Tensors[i]
		if t.Role == planner.TokenTable && !(tied && t.Name == "token_embd.weight") {
			continue
		}
		n := storedBytes(t)
		if t.Experts > 0 {
			n *= int64(p.Layout.MoE.Taken)
		}
		sum += n
	}
	return sum
}
