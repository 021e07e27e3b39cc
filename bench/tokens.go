package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"splash/internal/engine"
	"splash/oracle"
)

// A TokenPrompt is a prompt in tokens.
type TokenPrompt struct {
	Name   string
	Tokens []int32
}

// TokensOptions say how prompts are answered.
type TokensOptions struct {
	MaxTokens int
	Policy    oracle.Policy
	Seed      uint64
	Stop      []int32
	Lanes     int // prompts answered at once

	Progress func(done, total int) // called after each prompt; nil: not
}

// An Answer is what a prompt was answered with.
type Answer struct {
	Name   string  `json:"name"`
	Tokens []int32 `json:"tokens"`
	Reason string  `json:"reason"`
}

// A TokensResult is what a draft was worth over the prompts.
type TokensResult struct {
	Prompts        int     `json:"prompts"`
	Tokens         int     `json:"tokens"` // after the first of each prompt
	LaneCycles     int     `json:"lane_cycles"`
	TokensPerCycle float64 `json:"tokens_per_cycle"`
	Drafted        int     `json:"drafted"`
	Accepted       int     `json:"accepted"`
	AcceptanceRate float64 `json:"acceptance_rate"`

	Positions []PositionAcceptance `json:"positions"`
	Histogram []int                `json:"histogram"` // lane cycles that accepted 0, 1, .. 7 proposals
	Lines     []CostLine           `json:"cost_lines"`
	Slope     float64              `json:"slope"`
	Intercept []float64            `json:"intercepts"`

	Interrupted bool     `json:"interrupted"`
	Answers     []Answer `json:"answers"`
}

// A PositionAcceptance is how often the proposal at a position was accepted where those before it were.
type PositionAcceptance struct {
	Position int     `json:"position"` // from 1
	Verified int     `json:"verified"`
	Accepted int     `json:"accepted"`
	Rate     float64 `json:"rate"`
	Survival float64 `json:"survival"` // product of the rates up to it
}

// A CostLine is what a cycle of so many lanes costs by the rows it verifies.
type CostLine struct {
	Lanes       int     `json:"lanes"`
	Constrained bool    `json:"constrained"`
	Cycles      int     `json:"cycles"`
	BaseMs      float64 `json:"base_ms"`
	RowMs       float64 `json:"row_ms"`
}

// Tokens answers the prompts on the engine and says what its draft was worth. When ctx ends, the result is that of the
// answers so far.
func Tokens(ctx context.Context, e *engine.Engine, prompts []TokenPrompt, o TokensOptions) (*TokensResult, error) {
	answers := make([]*Answer, len(prompts))
	var mu sync.Mutex
	var failure error
	done := 0
	var wg sync.WaitGroup
	room := make(chan struct{}, max(o.Lanes, 1))
	for i, p := range prompts {
		room <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-room }()
			a, err := answer(ctx, e, p, o)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				if !errors.Is(err, context.Canceled) && failure == nil {
					failure = fmt.Errorf("%s: %w", p.Name, err)
				}
				return
			}
			answers[i] = a
			done++
			if o.Progress != nil {
				o.Progress(done, len(prompts))
			}
		})
	}
	wg.Wait()
	if failure != nil {
		return nil, failure
	}
	r := tokensResult(e.Speculation())
	r.Interrupted = ctx.Err() != nil
	for _, a := range answers {
		if a != nil {
			r.Answers = append(r.Answers, *a)
		}
	}
	r.Prompts = len(r.Answers)
	return r, nil
}

func answer(ctx context.Context, e *engine.Engine, p TokenPrompt, o TokensOptions) (*Answer, error) {
	s, err := e.Submit(ctx, engine.Request{Prompt: p.Tokens, MaxTokens: o.MaxTokens, Policy: o.Policy, Seed: o.Seed, Stop: o.Stop})
	if err != nil {
		return nil, err
	}
	a := &Answer{Name: p.Name}
	for more := true; more; {
		a.Tokens, more = s.Next(a.Tokens)
	}
	why, err := s.End()
	a.Reason = why.String()
	return a, err
}

func tokensResult(s engine.Speculation) *TokensResult {
	c := s.Counts
	r := &TokensResult{
		Tokens: c.Tokens, LaneCycles: c.LaneCycles, TokensPerCycle: c.TokensPerCycle(),
		Drafted: c.Drafted, Accepted: c.Accepted, AcceptanceRate: c.AcceptanceRate(),
		Histogram: s.Histogram[:], Slope: s.Model.Slope, Intercept: s.Model.Intercept[:],
	}
	survival := 1.0
	for j := range oracle.Proposals {
		p := PositionAcceptance{Position: j + 1, Accepted: s.Accepted[j], Verified: s.Accepted[j] + s.Rejected[j]}
		if p.Verified > 0 {
			p.Rate = float64(p.Accepted) / float64(p.Verified)
		}
		survival *= p.Rate
		p.Survival = survival
		r.Positions = append(r.Positions, p)
	}
	for _, l := range s.Lines {
		r.Lines = append(r.Lines, CostLine{Lanes: l.Lanes, Constrained: l.Constrained, Cycles: l.Cycles, BaseMs: l.Base, RowMs: l.Row})
	}
	return r
}

// DifferentAnswers names the prompts that two results of the same prompts answer differently.
func DifferentAnswers(a, b *TokensResult) []string {
	different := []string{}
	for i := range min(len(a.Answers), len(b.Answers)) {
		if x, y := a.Answers[i], b.Answers[i]; x.Name != y.Name || !slices.Equal(x.Tokens, y.Tokens) {
			different = append(different, x.Name)
		}
	}
	return different
}
