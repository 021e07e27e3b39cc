package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzResponses posts requests of the Responses interface and goes on from the responses that are kept. Whatever a request
// holds, it is refused with a status of its own or answered with JSON or a stream, and what is kept can be read and gone on
// from.
func FuzzResponses(f *testing.F) {
	for _, body := range []string{
		respBody(`"stream":true,"seed":3,"temperature":0.5,"stop":"a","return_progress":true`),
		respBody(`"reasoning":{"effort":"low"},"instructions":"x","metadata":{"a":[1.50]}`),
		respBody(addTool + `,"tool_choice":"required","parallel_tool_calls":false`),
		respBody(`"tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"},{"type":"custom"}]},{"type":"x"}]`),
		respBody(`"text":{"format":{"type":"json_schema","schema":{"type":"object"}}},"max_output_tokens":3`),
		`{"input":[{"type":"reasoning","summary":[{"type":"summary_text","text":"a"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":"},
			{"type":"function_call_output","call_id":"c","output":{"content":[{"type":"output_text","text":"b"}]}},{"role":"user","content":"c"}]}`,
		`{"input":[{"role":"user","content":[{"type":"input_image","image_url":{"url":"data:,"}},{"type":"input_file"}]}],"previous_response_id":"resp_0"}`,
		"[]", "{", `{"input":"\ud800"}`,
	} {
		f.Add([]byte(body))
	}
	s := fuzzServer(f)
	s.responses.budget = 1 << 16
	s.o.Timeout = time.Second // an answer that only a grammar leads may be long
	serve := func(method, path string, body []byte) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, bytes.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		w := serve(http.MethodPost, resp, body)
		stream := w.Header().Get("Content-Type") == "text/event-stream"
		switch {
		case w.Code >= 500 && w.Code != http.StatusServiceUnavailable && w.Code != http.StatusGatewayTimeout && !strings.Contains(w.Body.String(), codeOutput):
			t.Errorf("%q: status %d: %s", body, w.Code, w.Body)
		case !utf8.Valid(w.Body.Bytes()):
			t.Errorf("%q: the answer is not UTF-8", body)
		case !stream && !json.Valid(w.Body.Bytes()):
			t.Errorf("%q: not JSON: %s", body, w.Body)
		case stream:
			if _, _, err := parseEvents(w.Body); err != nil {
				t.Errorf("%q: %v", body, err)
			}
		}
		if len(s.preparing)+len(s.slots) > 0 || s.bodies.inUse() != 0 {
			t.Error("a place is left taken")
		}
		if _, n := s.responses.use(); n > s.responses.budget {
			t.Errorf("%d bytes are kept", n)
		}
		var r struct {
			ID    string
			Store bool
		}
		if stream || w.Code != http.StatusOK || json.Unmarshal(w.Body.Bytes(), &r) != nil || !r.Store {
			return
		}
		if got := serve(http.MethodGet, resp+"/"+r.ID, nil); got.Code != http.StatusOK || got.Body.String() != w.Body.String() {
			t.Errorf("%q: %s is kept as %s", body, w.Body, got.Body)
		}
		got := serve(http.MethodPost, resp, []byte(`{"input":"more","max_output_tokens":1,"previous_response_id":"`+r.ID+`"}`))
		if got.Code != http.StatusOK && got.Code != http.StatusGatewayTimeout && !strings.Contains(got.Body.String(), codeContext) {
			t.Errorf("%q is answered, but one that goes on is not: %s", body, got.Body)
		}
	})
}
