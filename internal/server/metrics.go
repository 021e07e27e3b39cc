package server

import (
	"bytes"
	"errors"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"splash/internal/chat/ojson"
	"splash/internal/engine"
)

// A stage is a part of a request's way whose time is measured.
type stage int

const (
	stageRequest stage = iota
	stageUpload
	stagePreparationQueue
	stagePreparation
	stageTemplate
	stageTokenization
	stageGrammar
	stageImages
	stageQueue
	stageFirstToken
	stageInterval
	stages
)

var stageNames = [stages]string{
	"http_request", "upload", "preparation_queue", "preparation", "template", "tokenization", "grammar", "images", "native_queue",
	"http_ttft", "output_interval",
}

// stageBounds are the buckets of the histograms, in seconds.
func stageBounds() []float64 {
	return []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 1800}
}

// The outcomes of turns.
const (
	outcomeDone   = "Done"
	outcomeGone   = "Gone"   // the client went
	outcomeEnded  = "Ended"  // at its deadline, or with the server
	outcomeFailed = "Failed" // the engine's fault
)

// metrics are the server's figures. Those of the engine are the engine's own, and read when they are asked for.
type metrics struct {
	s        *Server
	registry *prometheus.Registry
	stages   [stages]prometheus.Histogram

	mu       sync.Mutex
	outcomes map[string]int64
	errors   map[int]int64 // by status
	first    samples       // times to the first token, in milliseconds
	interval samples       // between tokens
	masks    maskFigures
}

func newMetrics(s *Server) *metrics {
	m := &metrics{s: s, registry: prometheus.NewRegistry(), outcomes: map[string]int64{}, errors: map[int]int64{}}
	for i := range m.stages {
		m.stages[i] = prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "splash_" + stageNames[i] + "_seconds", Help: "Time of the stage " + stageNames[i] + ".", Buckets: stageBounds(),
		})
		m.registry.MustRegister(m.stages[i])
	}
	m.registry.MustRegister(m)
	return m
}

// stage measures a stage that began then and ends now.
func (m *metrics) stage(s stage, began time.Time) {
	took := time.Since(began)
	m.stages[s].Observe(took.Seconds())
	if s == stageFirstToken || s == stageInterval {
		m.mu.Lock()
		defer m.mu.Unlock()
		ring := &m.first
		if s == stageInterval {
			ring = &m.interval
		}
		ring.add(float64(took) / float64(time.Millisecond))
	}
}

// failed counts an error.
func (m *metrics) failed(e *Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errors[e.Status]++
}

// finished counts a turn.
func (m *metrics) finished(t *turn, outcome string) {
	at := t.stream.Timing()
	if !at.Started.IsZero() {
		m.stages[stageQueue].Observe(at.Started.Sub(at.Submitted).Seconds())
	}
	m.stages[stageRequest].Observe(time.Since(t.x.began).Seconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outcomes[outcome]++
}

func (m *metrics) outcome(names ...string) (n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		n += m.outcomes[name]
	}
	return n
}

// samples keeps the newest values.
type samples struct {
	values [1024]float64
	n      int
}

func (s *samples) add(x float64) {
	s.values[s.n%len(s.values)] = x
	s.n++
}

// quantile is the q-th quantile of the values kept, NaN of none.
func (s *samples) quantile(q float64) float64 {
	kept := slices.Clone(s.values[:min(s.n, len(s.values))])
	if len(kept) == 0 {
		return math.NaN()
	}
	slices.Sort(kept)
	return kept[int(q*float64(len(kept)-1)+0.5)]
}

// latency is the section of /status on a series of samples.
func (m *metrics) latency(s *samples) *ojson.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := ojson.NewObject()
	if s.n > 0 {
		o.Set("p50", s.quantile(0.5))
		o.Set("p95", s.quantile(0.95))
	}
	o.Set("samples", min(s.n, len(s.values)))
	return o
}

// Describe is empty: what is collected depends on what there is.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect reads the figures that are not histograms. Those without a value are left out.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	s := m.s
	put := func(name string, kind prometheus.ValueType, v float64, labels ...string) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return
		}
		var keys, values []string
		for i := 0; i < len(labels); i += 2 {
			keys, values = append(keys, labels[i]), append(values, labels[i+1])
		}
		desc := prometheus.NewDesc("splash_"+name, "See docs/serving.md.", keys, nil)
		out <- prometheus.MustNewConstMetric(desc, kind, v, values...)
	}
	gauge := func(name string, v float64, labels ...string) { put(name, prometheus.GaugeValue, v, labels...) }
	counter := func(name string, v int64) { put(name, prometheus.CounterValue, float64(v)) }

	stats, spec := s.model.Engine.Stats(), s.model.Engine.Speculation()
	gauge("info", 1, "runtime", "native")
	gauge("ready", truth(s.isReady()))
	gauge("transport_pending", float64(stats.Waiting+stats.Active))
	gauge("frontend_active", float64(len(s.preparing)))
	gauge("frontend_waiting", float64(s.waiting.Load()))
	counter("requests_submitted_total", stats.Requests)
	counter("requests_completed_total", m.outcome(outcomeDone))
	counter("requests_cancelled_total", m.outcome(outcomeGone, outcomeEnded))
	counter("requests_failed_total", m.outcome(outcomeFailed))
	gauge("scheduler_queued", float64(stats.Waiting))
	counter("prefill_input_tokens_total", stats.PromptTokens)
	counter("decode_output_tokens_total", stats.OutputTokens)
	counter("drafted_tokens_total", int64(spec.Counts.Drafted))
	counter("accepted_draft_tokens_total", int64(spec.Counts.Accepted))
	counter("cache_hits_total", stats.Cache.Hits)
	counter("cache_cold_misses_total", stats.Cache.Misses)
	counter("cache_reused_tokens_total", stats.Cache.Tokens)
	gauge("state_entries", float64(stats.Cache.Entries))
	gauge("state_bytes", float64(stats.Cache.Bytes))
	counter("state_publications_total", stats.Cache.Saves)
	counter("state_evictions_total", stats.Cache.Evictions)
	stored, storedBytes := s.responses.use()
	gauge("response_store_entries", float64(stored))
	gauge("response_store_bytes", float64(storedBytes))
	masks := m.masked()
	counter("constraint_mask_rows_total", masks.rows)
	counter("constraint_mask_failures_total", masks.failures)
	put("constraint_mask_milliseconds_total", prometheus.CounterValue, milliseconds(masks.took))
	gauge("constraint_mask_longest_milliseconds", milliseconds(masks.longest))
	if spec.Counts.Drafted > 0 {
		gauge("draft_acceptance_ratio", spec.Counts.AcceptanceRate())
	}
	s.collectImages(gauge, counter)
	s.collectEngine(&stats, gauge, counter)
	m.latencies(gauge)
}

func (m *metrics) latencies(gauge func(name string, v float64, labels ...string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gauge("ttft_p50_milliseconds", m.first.quantile(0.5))
	gauge("ttft_p95_milliseconds", m.first.quantile(0.95))
	gauge("itl_p50_milliseconds", m.interval.quantile(0.5))
	gauge("itl_p95_milliseconds", m.interval.quantile(0.95))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// metrics answers GET /metrics.
func (x *exchange) metrics() error {
	families, err := x.s.metrics.registry.Gather()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			return err
		}
	}
	x.send(http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", text.Bytes())
	return nil
}

// outcome is how a turn ended.
func (t *turn) outcome(err error) string {
	why, _ := t.stream.End()
	var e *Error
	switch {
	case err == nil:
		return outcomeDone
	case err == errGone:
		return outcomeGone
	case why == engine.Failed, errors.As(err, &e) && e.isOutput():
		return outcomeFailed
	}
	return outcomeEnded
}
