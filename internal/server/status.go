package server

import (
	"net/http"
	"os"
	"time"

	"splash/internal/chat/ojson"
	"splash/internal/engine"
	"splash/oracle"
)

// health answers GET /health: the process lives.
func (x *exchange) health() error {
	x.json(http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

// isReady reports whether requests are answered.
func (s *Server) isReady() bool { return !s.stopping() && s.model.Engine.Running() }

// ready answers GET /ready.
func (x *exchange) ready() error {
	if x.s.isReady() {
		x.json(http.StatusOK, map[string]string{"status": "ready"})
		return nil
	}
	x.w.Header().Set("Retry-After", "1")
	x.json(http.StatusServiceUnavailable, map[string]string{"status": "unavailable"})
	return nil
}

// status answers GET /status.
func (x *exchange) status() error {
	s := x.s
	m := &s.model
	stats := m.Engine.Stats()
	spec := m.Engine.Speculation()
	cache := s.prompts.Stats()
	speed := ojson.NewObject(
		"ttft_ms", s.metrics.latency(&s.metrics.first), "itl_ms", s.metrics.latency(&s.metrics.interval),
		"prefill_input_tokens", stats.PromptTokens, "decode_output_tokens", stats.OutputTokens,
		"drafted_tokens", spec.Counts.Drafted, "accepted_draft_tokens", spec.Counts.Accepted,
		"draft_acceptance_rate", spec.Counts.AcceptanceRate())
	speedStatus(speed, &stats)
	reuse := cacheStatus(stats.Cache)
	suspensionStatus(reuse, &stats)
	o := ojson.NewObject(
		"schema_version", 6,
		"ready", s.isReady(),
		"maximum_context_tokens", m.Context,
		"verify_rows", m.Rows,
		"instance", s.instanceStatus(),
		"http", s.httpStatus(),
		"frontend", ojson.NewObject(
			"preparation_capacity", cap(s.preparing), "active", len(s.preparing), "waiting", s.waiting.Load()),
		"requests", ojson.NewObject(
			"submitted", stats.Requests, "completed", s.metrics.outcome(outcomeDone),
			"cancelled", s.metrics.outcome(outcomeGone, outcomeEnded), "failed", s.metrics.outcome(outcomeFailed)),
		"metrics", speed,
		"cache", reuse,
		"state", ojson.NewObject(
			"entries", stats.Cache.Entries, "bytes", stats.Cache.Bytes, "publications", stats.Cache.Saves, "evictions", stats.Cache.Evictions),
		"draft", s.draftStatus(),
		"chat_template", m.Templates.Status(),
		"grammar_cache", s.grammarStatus(),
		"constraint_masks", s.metrics.masked().status(),
		"response_store", s.responses.status(),
		"tokenizer_cache", ojson.NewObject(
			"enabled", cache.Enabled, "entries", cache.Entries, "bytes", cache.Bytes, "budget_bytes", cache.BudgetBytes,
			"capacity", cache.Capacity, "hits", cache.Hits, "reused_tokens", cache.ReusedTokens),
		"backend", m.backendStatus(),
	)
	s.visionStatus(o)
	s.engineStatus(o, &stats)
	x.json(http.StatusOK, o)
	return nil
}

// backendStatus says what computes.
func (m *Model) backendStatus() *ojson.Object {
	o := ojson.NewObject("name", m.Backend)
	if m.Device != "" {
		features := make([]any, len(m.Features))
		for i, f := range m.Features {
			features[i] = f
		}
		o.Set("device", m.Device)
		o.Set("features", features)
	}
	return o
}

// cacheStatus is the section on the reuse of prompts.
func cacheStatus(c engine.CacheStats) *ojson.Object {
	o := ojson.NewObject("hits", c.Hits, "cold_misses", c.Misses, "reused_tokens", c.Tokens)
	if n := c.Hits + c.Misses; n > 0 {
		o.Set("hit_rate", float64(c.Hits)/float64(n))
	}
	return o
}

func (s *Server) instanceStatus() *ojson.Object {
	o := ojson.NewObject("id", s.instance, "pid", os.Getpid(), "model", s.model.ID)
	if a := s.address.Load(); a != nil {
		o.Set("host", a.IP.String())
		o.Set("port", a.Port)
	}
	o.Set("started_at", s.started.UTC().Format(time.RFC3339))
	return o
}

func (s *Server) httpStatus() *ojson.Object {
	use := func(active, capacity int64) *ojson.Object {
		return ojson.NewObject("active", active, "capacity", capacity)
	}
	connections, most := 0, s.o.Queue+64
	if l := s.listener.Load(); l != nil {
		connections = l.connections()
	}
	return ojson.NewObject(
		"requests", use(int64(len(s.slots)), int64(cap(s.slots))),
		"token_counts", use(int64(len(s.countSlots)), int64(cap(s.countSlots))),
		"connections", use(int64(connections), int64(most)),
		"request_body_bytes", use(s.bodies.inUse(), s.bodies.limit),
		"max_request_bytes", s.o.MaxBody,
	)
}

// draftStatus says whether tokens are drafted, and whether that is of use.
func (s *Server) draftStatus() *ojson.Object {
	if !s.model.Drafted {
		return ojson.NewObject("enabled", false)
	}
	spec := s.model.Engine.Speculation()
	health := "good"
	if spec.Poor() {
		health = "poor"
	}
	histogram := make([]any, oracle.CycleRows)
	for i, n := range spec.Histogram {
		histogram[i] = n
	}
	return ojson.NewObject("enabled", true, "health", health, "cycles", spec.Cycles,
		"tokens_per_cycle", spec.Counts.TokensPerCycle(), "accepted_histogram", histogram)
}
