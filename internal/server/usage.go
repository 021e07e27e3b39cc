package server

import (
	"fmt"
	"math"
	"time"
)

// usage is what a request cost, as OpenAI's interfaces tell it.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`

	PromptDetails struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

func (t *turn) usage() *usage {
	u := &usage{Prompt: len(t.g.prompt), Completion: t.reader.Tokens(), Total: len(t.g.prompt) + t.reader.Tokens()}
	u.PromptDetails.Cached = t.stream.Cached()
	u.CompletionDetails.Reasoning = t.reader.ReasoningTokens()
	return u
}

// timings are a request's speeds, under the names of llama.cpp's server.
type timings struct {
	PromptN            int     `json:"prompt_n"`
	PromptMS           float64 `json:"prompt_ms"`
	PromptPerSecond    float64 `json:"prompt_per_second"`
	PredictedN         int     `json:"predicted_n"`
	PredictedMS        float64 `json:"predicted_ms"`
	PredictedPerSecond float64 `json:"predicted_per_second"`
	CacheN             int     `json:"cache_n"`
}

func (t *turn) timings() *timings {
	m := t.stream.Timing()
	prompt, predicted := span(m.Started, m.First), span(m.First, m.Ended)
	read := t.uncached()
	return &timings{
		PromptN: read, PromptMS: prompt, PromptPerSecond: rate(read, prompt), CacheN: t.stream.Cached(),
		PredictedN: t.reader.Tokens(), PredictedMS: predicted, PredictedPerSecond: rate(t.reader.Tokens()-1, predicted),
	}
}

// uncached is how many tokens of the prompt were read.
func (t *turn) uncached() int { return len(t.g.prompt) - t.stream.Cached() }

// span is the milliseconds between two moments; 0 where one was not reached.
func span(from, to time.Time) float64 {
	if from.IsZero() || to.IsZero() {
		return 0
	}
	return float64(to.Sub(from)) / float64(time.Millisecond)
}

// rate is n a second; 0 where there is none.
func rate(n int, ms float64) float64 {
	r := float64(n) * 1000 / ms
	if n <= 0 || math.IsNaN(r) || math.IsInf(r, 0) {
		return 0
	}
	return r
}

// requestMetrics are what a request's phases took.
type requestMetrics struct {
	Prefill tokenCount     `json:"prefill"`
	Decode  tokenCount     `json:"decode"`
	Latency requestLatency `json:"request_latency"`
	Cache   struct {
		Status  string `json:"status"`
		Matched int    `json:"matched_tokens"`
		Lane    *int   `json:"lane"`
	} `json:"cache"`
}

type tokenCount struct {
	Tokens int `json:"tokens"`
}

type requestLatency struct {
	QueueToStart    *float64 `json:"queue_to_start_ms,omitempty"`
	StartToFirst    *float64 `json:"start_to_first_token_ms,omitempty"`
	FirstToDone     *float64 `json:"first_token_to_done_ms,omitempty"`
	TTFT            *float64 `json:"ttft_ms,omitempty"`
	Wall            *float64 `json:"wall_ms,omitempty"`
	TokensPerSecond *float64 `json:"stream_tokens_per_second,omitempty"`
}

func (t *turn) metrics() *requestMetrics {
	m := &requestMetrics{Prefill: tokenCount{t.uncached()}, Decode: tokenCount{t.reader.Tokens()}}
	m.Cache.Status = "miss"
	if m.Cache.Matched = t.stream.Cached(); m.Cache.Matched > 0 {
		m.Cache.Status = "hit"
	}
	at := t.stream.Timing()
	wall := span(t.x.began, time.Now())
	m.Latency = requestLatency{
		QueueToStart: elapsed(at.Submitted, at.Started), StartToFirst: elapsed(at.Started, at.First),
		FirstToDone: elapsed(at.First, at.Ended), TTFT: elapsed(t.x.began, at.First), Wall: &wall,
	}
	if r := rate(t.reader.Tokens()-1, span(at.First, at.Ended)); r > 0 {
		m.Latency.TokensPerSecond = &r
	}
	return m
}

func elapsed(from, to time.Time) *float64 {
	if from.IsZero() || to.IsZero() {
		return nil
	}
	ms := span(from, to)
	return &ms
}

// progress is how far a prompt has been read.
type progress struct {
	Total     int     `json:"total"`
	Cache     int     `json:"cache"`
	Processed int     `json:"processed"`
	MS        float64 `json:"time_ms"`
}

// promptProgress returns the progress since the last call, nil without one.
func (t *turn) promptProgress() *progress {
	n := t.stream.Processed()
	if t.reader.Tokens() > 0 {
		n = len(t.g.prompt)
	}
	if !t.g.progress || n == t.told {
		return nil
	}
	t.told = n
	return &progress{Total: len(t.g.prompt), Cache: t.stream.Cached(), Processed: n, MS: span(t.stream.Timing().Started, time.Now())}
}

// report tells the console how a request went, in numbers alone.
func (t *turn) report(outcome string) {
	m := t.stream.Timing()
	tools := t.g.tools.print()
	if tools != "" {
		tools = " · " + tools
	}
	t.x.s.metrics.finished(t, outcome)
	t.x.s.o.Console.Printf("%s · %s · %d prompt, %d cached, %d output tokens · queued %s, first token %s, %s · %.1f tokens/s%s",
		outcome, t.g.id, len(t.g.prompt), t.stream.Cached(), t.reader.Tokens(), seconds(m.Submitted, m.Started), seconds(t.x.began, m.First),
		seconds(t.x.began, time.Now()), rate(t.reader.Tokens()-1, span(m.First, m.Ended)), tools)
}

func seconds(from, to time.Time) string {
	if from.IsZero() || to.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%.2f s", to.Sub(from).Seconds())
}
