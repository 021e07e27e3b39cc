package webui_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"splash/internal/webui"
)

// A fake is a server with the page and a scripted model.
type fake struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	model    map[string]any
	ready    func(w http.ResponseWriter) // nil: ready
	key      string
	script   []http.HandlerFunc // answers, in turn
	requests []request
}

// A request is what the page asked for.
type request struct {
	header http.Header
	raw    string
	body   struct {
		Model    *string
		Messages []struct {
			Role      string
			Content   any
			Reasoning string `json:"reasoning_content"`
			CallID    string `json:"tool_call_id"`
			Calls     []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		Stream        bool
		StreamOptions struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
		Temperature, TopP *float64
		MaxTokens         *int    `json:"max_tokens"`
		Effort            *string `json:"reasoning_effort"`
		Tools             []any
	}
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, model: map[string]any{
		"id": "incoai/Pebble-1M", "object": "model", "context_length": 32768, "input_modalities": []string{"text"},
	}}
	mux := http.NewServeMux()
	mux.Handle("/", webui.Handler())
	mux.HandleFunc("GET /ready", f.serveReady)
	mux.HandleFunc("GET /v1/models", f.guarded(f.serveModels))
	mux.HandleFunc("POST /v1/chat/completions", f.guarded(f.serveCompletion))
	f.Server = httptest.NewUnstartedServer(mux)
	f.Config.SetKeepAlivesEnabled(false) // as the real one
	f.Start()
	t.Cleanup(f.Close)
	return f
}

// open opens the page of a new fake and waits until it is ready.
func open(t *testing.T, v view) (*fake, *tab) {
	t.Helper()
	b := chromium(t)
	f := newFake(t)
	p := b.open(t, f.URL+"/", v)
	p.wait(`server.model !== null`)
	return f, p
}

func (f *fake) serveReady(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	ready := f.ready
	f.mu.Unlock()
	if ready != nil {
		ready(w)
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

func (f *fake) setReady(ready func(w http.ResponseWriter)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ready = ready
}

func (f *fake) guarded(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if f.key != "" && r.Header.Get("Authorization") != "Bearer "+f.key {
			writeJSON(w, http.StatusUnauthorized, apiError("authentication_error", "the API key is missing or wrong"))
			return
		}
		h(w, r)
	}
}

func (f *fake) serveModels(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{f.model}})
}

func (f *fake) serveCompletion(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	q := request{header: r.Header, raw: string(data)}
	if err == nil {
		err = json.Unmarshal(data, &q.body)
	}
	if err != nil {
		f.t.Errorf("request: %v", err)
	}
	f.mu.Lock()
	f.requests = append(f.requests, q)
	answer := text("No more is scripted.")
	if len(f.script) > 0 {
		answer, f.script = f.script[0], f.script[1:]
	}
	f.mu.Unlock()
	answer(w, r)
}

// answers scripts the next answers.
func (f *fake) answers(script ...http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script = append(f.script, script...)
}

// request returns the i-th request for an answer.
func (f *fake) request(i int) request {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if i >= len(f.requests) {
		f.t.Fatalf("%d requests came, not %d", len(f.requests), i+1)
	}
	return f.requests[i]
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

func apiError(code, message string) any {
	return map[string]any{"error": map[string]string{"message": message, "type": "server_error", "code": code}}
}

// sse is a server-sent event with v, or with a string as it is.
func sse(v any) string {
	if s, ok := v.(string); ok {
		return "data: " + s + "\n\n"
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return "data: " + b.String() + "\n"
}

type delta map[string]any

// chunk is an event with a piece of the answer.
func chunk(d delta) string {
	return sse(map[string]any{
		"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": []any{map[string]any{"index": 0, "delta": d, "finish_reason": nil}},
	})
}

func content(s string) string   { return chunk(delta{"content": s}) }
func reasoning(s string) string { return chunk(delta{"reasoning_content": s}) }

func call(index int, id, name, arguments string) string {
	function := map[string]any{"arguments": arguments}
	piece := map[string]any{"index": index, "function": function}
	if id != "" {
		piece["id"], piece["type"], function["name"] = id, "function", name
	}
	return chunk(delta{"tool_calls": []any{piece}})
}

const role = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"

// finish ends an answer: its reason, its usage, and the mark of the stream's end.
func finish(reason string) string {
	return sse(map[string]any{
		"choices": []any{map[string]any{"index": 0, "delta": delta{}, "finish_reason": reason}},
		"timings": map[string]any{"prompt_n": 1200, "predicted_n": 345, "predicted_per_second": 42.34, "cache_n": 1184},
	}) + sse(map[string]any{
		"choices": []any{},
		"usage": map[string]any{
			"prompt_tokens": 1200, "completion_tokens": 345, "total_tokens": 1545, "prompt_tokens_details": map[string]any{"cached_tokens": 1184},
		},
	}) + sse("[DONE]")
}

// stream answers with events, each piece in a write of its own.
func stream(pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, piece := range pieces {
			io.WriteString(w, piece)
			w.(http.Flusher).Flush()
		}
	}
}

// text answers with a text in one chunk.
func text(s string) http.HandlerFunc { return stream(role, content(s), finish("stop")) }

// refuse answers with an error.
func refuse(status int, code, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { writeJSON(w, status, apiError(code, message)) }
}

// A live answer is written by the test while the page shows it.
type live struct {
	pieces chan string
	gone   chan struct{} // closed when the page hangs up
}

func newLive() *live { return &live{make(chan string), make(chan struct{})} }

func (l *live) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.(http.Flusher).Flush()
	for {
		select {
		case piece, ok := <-l.pieces:
			if !ok {
				return
			}
			io.WriteString(w, piece)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			close(l.gone)
			return
		}
	}
}

func (l *live) send(pieces ...string) {
	for _, piece := range pieces {
		l.pieces <- piece
	}
}

func (l *live) end() { close(l.pieces) }

func lines(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}
