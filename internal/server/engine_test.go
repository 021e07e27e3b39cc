package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/internal/engine"
	"splash/internal/model"
)

// A workshop is a loader whose networks are the fixture's script. Loading waits for the gate.
type workshop struct {
	script *script
	gate   chan struct{}
}

func (w *workshop) Load(ctx context.Context, _ func()) (model.Network, engine.Proposer, error) {
	select {
	case <-w.gate:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	return w.script, nil, nil
}

func (w *workshop) Release() {}
func (w *workshop) Discard() {}

// TestRecovering: after a fault requests are told to come back, in every interface's words, /ready says so too, and then
// they are answered; when the engine gave up they are told that.
func TestRecovering(t *testing.T) {
	w := &workshop{gate: make(chan struct{})}
	f := serveModel(t, Options{}, func(m *Model, o *engine.Options) { o.Loader = w })
	w.script = f.script
	fault := func(on bool) {
		f.script.mu.Lock()
		defer f.script.mu.Unlock()
		f.script.fault = nil
		if on {
			f.script.fault = func() error { return errors.New("a device is lost") }
		}
	}
	run := func(all ...check) {
		t.Helper()
		for _, c := range all {
			c.run(f)
		}
	}
	fault(true)
	run(check{path: cc, body: chatBody(""), status: 500, hasNot: []string{"device"}})
	run(
		check{row: 2, path: "/ready", status: 503, has: []string{"Retry-After: 1", `"unavailable"`}},
		check{row: 2, path: "/health", status: 200},
		check{path: "/status", status: 200, has: []string{`"recovering":true`, `"ready":false`, `"state":"recovering"`}},
		check{path: "/metrics", status: 200, has: []string{"splash_ready 0\n", "splash_metal_healthy 0\n", "splash_metal_failures_total 1\n"}},
		check{row: 58, path: cc, body: chatBody(`"stream":true`), status: 503, has: []string{"Retry-After: 1", `"code":"engine_recovering"`, "Content-Type: application/json"}},
		check{path: msgs, body: "{" + mu + "}", status: 503, has: []string{`"type":"overloaded_error"`}},
		check{row: 110, path: "/v1/systemone", body: `{"model":"test/model","state":"s","questions":{"q":{"type":"noul"}}}`, status: 529, has: []string{"Retry-After: 1", `"code":"engine_recovering"`}},
	)
	fault(false)
	w.gate <- struct{}{}
	waitFor(t, "the engine", f.server.isReady)
	run(
		check{path: "/ready", status: 200},
		check{path: cc, body: chatBody(""), status: 200},
		check{path: "/status", status: 200, has: []string{`"restarts":1`, `"recovering":false`}},
	)
	fault(true)
	run(check{path: cc, body: chatBody(""), status: 500})
	run(check{path: "/ready", status: 503}) // for 5 s at least
	if log := f.out.String(); !strings.Contains(log, "a device is lost") {
		t.Errorf("the console does not say why:\n%s", log)
	}
}

// TestEngineErrors: the engine's errors have the statuses and codes of the interfaces.
func TestEngineErrors(t *testing.T) {
	got := map[error]string{}
	want := map[error]string{
		engine.ErrRecovering: "503 engine_recovering", engine.ErrGivenUp: "500 engine_failed", engine.ErrResource: "503 resource_timeout",
		engine.ErrCapacity: "400 capacity_exhausted", engine.ErrStopped: "503 runtime_unavailable",
		engine.ErrQueueFull: "503 frontend_overloaded", engine.ErrNotFinite: "500 model_result_invalid",
	}
	for err := range want {
		e, ok := asError(fmt.Errorf("%w (last failure: secret)", err))
		got[err] = fmt.Sprintf("%d %s", e.Status, e.Code)
		if !ok || strings.Contains(e.Message, "secret") {
			t.Errorf("%v is told as %q", err, e.Message)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestPriorityField: with one lane a request in the foreground overtakes those that wait, and the one that runs goes on
// after it; /status tells of all.
func TestPriorityField(t *testing.T) {
	f := serveModel(t, Options{Queue: 8}, func(m *Model, o *engine.Options) { o.Lanes = 1 })
	f.says(strings.Repeat("word ", 20))
	release := f.hold()
	var mu sync.Mutex
	var order []string
	var wg sync.WaitGroup
	start := func(priority string) {
		wg.Go(func() {
			if r := f.post(cc, chatBody(`"max_tokens":10,"priority":"`+priority+`"`)); r.status != http.StatusOK {
				t.Errorf("%s: %d %s", priority, r.status, r.body)
			}
			mu.Lock()
			order = append(order, priority)
			mu.Unlock()
		})
	}
	live := func(n int) func() bool {
		return func() bool { return len(f.server.model.Engine.Live()) == n }
	}
	for i, p := range []string{"background", "normal", "foreground"} {
		start(p)
		waitFor(t, "the request", live(i+1))
	}
	status := f.do(http.MethodGet, "/status", "", nil).body
	for i, p := range []string{"background", "normal", "foreground"} {
		r, _ := field(t, status, "active_requests", i).(map[string]any)
		if r["priority"] != p || r["max_new_tokens"] != 10.0 || r["prompt_tokens"] == 0.0 || r["phase"] == "" {
			t.Errorf("%s is told as %v", p, r)
		}
	}
	release()
	wg.Wait()
	// The answers of the two that were ready last may arrive in any order, but the background's comes last of the engine.
	if s := f.server.model.Engine.Stats(); s.PrioritySuspensions > 2 || len(order) != 3 || !slices.Contains(order, "background") {
		t.Errorf("%v, %+v", order, s.Figures)
	}
}

// TestEngineStatus: every section and metric of the engine is there.
func TestEngineStatus(t *testing.T) {
	f := serveModel(t, Options{}, func(m *Model, o *engine.Options) {
		m.Memory = &MemoryPlan{Limit: 1000, Weights: 600, Lane: 7, Token: 3, KV: "int8"}
	})
	f.post(cc, chatBody(""))
	status := f.do(http.MethodGet, "/status", "", nil).body
	for section, names := range map[string]string{
		"transport":       "ready recovering stopped pending pending_limit restarts last_crash_trace",
		"scheduler":       "queued waiting_resources waiting_prefix prefilling decoding waiting_mask prefill_batches prefill_rows decode_batches decode_batches_by_width",
		"admission":       "waiting waiting_memory waiting_concurrency held_behind_refusal restoring suspended draining oldest_wait_ms",
		"metrics":         "ttft_ms itl_ms prefill_input_tokens prefill_wall_ms prefill_tokens_per_second decode_output_tokens decode_wall_ms decode_cycle_ms decode_tokens_per_second drafted_tokens accepted_draft_tokens draft_acceptance_rate capacity_failures metal_failures",
		"cache":           "hits cold_misses reused_tokens priority_suspensions resource_suspensions resource_resumptions resource_replay_tokens",
		"weights":         "idle_release_seconds state released restores restore_failures",
		"memory_plan":     "valid maximum_context_tokens kv_format model passes lane token budget",
		"active_requests": "",
	} {
		if field(t, status, section) == nil {
			t.Errorf("no section %s", section)
		}
		o, _ := field(t, status, section).(map[string]any)
		for _, name := range strings.Fields(names) {
			if _, ok := o[name]; !ok {
				t.Errorf("section %s has no %s", section, name)
			}
		}
	}
	if b := field(t, status, "scheduler", "decode_batches_by_width", "b1"); b == 0.0 || b == nil {
		t.Errorf("%v passes of one lane", b)
	}
	metrics := f.do(http.MethodGet, "/metrics", "", nil).body
	for _, name := range strings.Fields("scheduler_prefill_batches_total scheduler_decode_b1_total admission_suspended admission_oldest_wait_milliseconds " +
		"cache_priority_suspensions_total prefill_wall_milliseconds_total decode_tokens_per_second metal_healthy") {
		if !strings.Contains(metrics, "\nsplash_"+name+" ") {
			t.Errorf("no metric %s", name)
		}
	}
}
