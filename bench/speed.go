package bench

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"splash/internal/engine"
)

// SpeedOptions say what is timed.
type SpeedOptions struct {
	Prompt int   // tokens of each prompt
	Tokens int   // tokens decoded of each
	Lanes  []int // requests at once, one run after another
	Runs   int   // of each, of which the median counts
	Vocab  int
	Base   []int32 // tokens the prompts are drawn from, in order; nil: at random
	Seed   uint64  // of what is random

	Progress func(done, total int) // called after each run; nil: not
}

// A SpeedRow is the speed at a number of lanes.
type SpeedRow struct {
	Lanes           int     `json:"lanes"`
	PrefillPerSec   float64 `json:"prefill_tokens_per_second"` // all lanes together
	DecodePerSec    float64 `json:"decode_tokens_per_second"`  // all lanes together
	DecodePerLane   float64 `json:"decode_tokens_per_second_per_lane"`
	FirstTokenMs    float64 `json:"first_token_ms"`       // of a prompt never seen, the mean of the lanes
	FirstAgainMs    float64 `json:"first_token_again_ms"` // of the same prompt sent again
	FirstTokenRatio float64 `json:"first_token_ratio"`
}

// A SpeedResult is the speed of an engine.
type SpeedResult struct {
	Prompt      int        `json:"prompt_tokens"`
	Tokens      int        `json:"decode_tokens"`
	Rows        []SpeedRow `json:"rows"`
	Interrupted bool       `json:"interrupted"`
}

// Speed times the engine. When ctx ends, the result is that of the runs so far.
func Speed(ctx context.Context, e *engine.Engine, o SpeedOptions) (*SpeedResult, error) {
	r := &SpeedResult{Prompt: o.Prompt, Tokens: o.Tokens}
	random := rand.New(rand.NewPCG(1, o.Seed))
	done := 0
	for _, lanes := range o.Lanes {
		var runs []SpeedRow
		for range o.Runs {
			if ctx.Err() != nil {
				r.Interrupted = true
				break
			}
			row, err := speedRun(ctx, e, lanes, o, random)
			if err != nil {
				if ctx.Err() != nil {
					r.Interrupted = true
					break
				}
				return nil, err
			}
			runs = append(runs, row)
			done++
			if o.Progress != nil {
				o.Progress(done, len(o.Lanes)*o.Runs)
			}
		}
		if len(runs) > 0 {
			r.Rows = append(r.Rows, medianRow(runs))
		}
	}
	return r, nil
}

func speedRun(ctx context.Context, e *engine.Engine, lanes int, o SpeedOptions, random *rand.Rand) (SpeedRow, error) {
	prompts := make([][]int32, lanes)
	for i := range prompts {
		prompts[i] = o.prompt(random)
	}
	cold, err := timed(ctx, e, prompts, o.Tokens)
	if err != nil {
		return SpeedRow{}, err
	}
	again, err := timed(ctx, e, prompts, 1)
	if err != nil {
		return SpeedRow{}, err
	}
	row := SpeedRow{
		Lanes: lanes, PrefillPerSec: float64(o.Prompt*lanes) / cold.prefill.Seconds(),
		DecodePerSec: float64(cold.tokens) / cold.decode.Seconds(), FirstTokenMs: ms(cold.first), FirstAgainMs: ms(again.first),
	}
	row.DecodePerLane = row.DecodePerSec / float64(lanes)
	row.FirstTokenRatio = row.FirstTokenMs / row.FirstAgainMs
	return row, nil
}

// prompt is a prompt that nothing has seen: it begins with a random token.
func (o *SpeedOptions) prompt(random *rand.Rand) []int32 {
	p := make([]int32, o.Prompt)
	from := random.IntN(max(len(o.Base), 1))
	for i := range p {
		if i < 8 || len(o.Base) == 0 {
			p[i] = random.Int32N(int32(o.Vocab))
		} else {
			p[i] = o.Base[(from+i)%len(o.Base)]
		}
	}
	return p
}

// A timing is what the requests of a run took.
type timing struct {
	first   time.Duration // from hand-in to the first token, the mean
	prefill time.Duration // from the first start to the last first token
	decode  time.Duration // from the first first token to the last end
	tokens  int           // after the first of each
}

func timed(ctx context.Context, e *engine.Engine, prompts [][]int32, tokens int) (timing, error) {
	streams := make([]*engine.Stream, len(prompts))
	for i, p := range prompts {
		s, err := e.Submit(ctx, engine.Request{Prompt: p, MaxTokens: tokens})
		if err != nil {
			return timing{}, err
		}
		streams[i] = s
	}
	counts := make([]int, len(streams))
	var wg sync.WaitGroup
	for i, s := range streams {
		wg.Go(func() {
			var buf []int32
			for more := true; more; {
				buf, more = s.Next(buf[:0])
				counts[i] += len(buf)
			}
		})
	}
	wg.Wait()
	var t timing
	var started, first, last, ended time.Time
	for i, s := range streams {
		if _, err := s.End(); err != nil {
			return t, err
		}
		m := s.Timing()
		t.first += m.First.Sub(m.Submitted) / time.Duration(len(streams))
		t.tokens += counts[i] - 1
		if i == 0 || m.Started.Before(started) {
			started = m.Started
		}
		if i == 0 || m.First.Before(first) {
			first = m.First
		}
		if m.First.After(last) {
			last = m.First
		}
		if m.Ended.After(ended) {
			ended = m.Ended
		}
	}
	t.prefill, t.decode = last.Sub(started), ended.Sub(first)
	return t, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// medianRow takes the median of each figure by itself.
func medianRow(rows []SpeedRow) SpeedRow {
	median := func(f func(r *SpeedRow) float64) float64 {
		var v []float64
		for i := range rows {
			v = append(v, f(&rows[i]))
		}
		slices.Sort(v)
		return quantile(v, 0.5)
	}
	return SpeedRow{
		Lanes:           rows[0].Lanes,
		PrefillPerSec:   median(func(r *SpeedRow) float64 { return r.PrefillPerSec }),
		DecodePerSec:    median(func(r *SpeedRow) float64 { return r.DecodePerSec }),
		DecodePerLane:   median(func(r *SpeedRow) float64 { return r.DecodePerLane }),
		FirstTokenMs:    median(func(r *SpeedRow) float64 { return r.FirstTokenMs }),
		FirstAgainMs:    median(func(r *SpeedRow) float64 { return r.FirstAgainMs }),
		FirstTokenRatio: median(func(r *SpeedRow) float64 { return r.FirstTokenRatio }),
	}
}
