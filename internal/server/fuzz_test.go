package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"splash/internal/chat"
	"splash/internal/engine"
	"splash/internal/grammar/schema"
	"splash/internal/model"
	"splash/internal/tokenizer"
)

// FuzzBodies posts bodies to every route that takes one. Whatever they hold, the answer is JSON or a stream, a request is
// refused with a status of its own or answered, and never with one that says the server is at fault, unless the answer is not
// what was asked for.
func FuzzBodies(f *testing.F) {
	routes := []string{cc, msgs, msgs + "/count_tokens", "/v1/completions", "/tokenize", "/apply-template"}
	for i, body := range []string{
		chatBody(`"stream":true,"stream_options":{"include_usage":true},"seed":3,"temperature":0.5,"top_p":0.9,"stop":["a"]`),
		"{" + mu + `,"system":[{"type":"text","text":"x"}],"thinking":{"type":"enabled"},"tools":[{"name":"a","input_schema":{}}]}`,
		`{"model":"test/model","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":[{"type":"text","text":"y"}]}]}]}`,
		`{"prompt":[1,2,3],"max_tokens":3,"ignore_eos":true,"presence_penalty":1.5}`,
		`{"content":"hello <|im_end|>"}`,
		history(`"{\"a\": 1}"`),
		chatBody(tools + `,"tool_choice":"none","parallel_tool_calls":false,"reasoning_effort":"low","chat_template_kwargs":{"x":[1]}`),
		`{"messages":[{"role":"system","content":"a"},{"role":"user","content":"b"},{"role":"developer","content":"c"},{"role":"user","content":[{"type":"text","text":"d"}]}]}`,
		chatBody(tools + `,"tool_choice":"required"`),
		"{" + mu + `,"tools":[{"name":"a","strict":true,"input_schema":{"properties":{"x":{"enum":["y",2]}}}}],"tool_choice":{"type":"tool","name":"a","disable_parallel_tool_use":true}}`,
		chatBody(`"max_tokens":20,"response_format":` + answerFormat),
		"{" + mu + `,"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"$defs":{"a":{"items":{"$ref":"#/$defs/a"}}},"anyOf":[{"$ref":"#/$defs/a"},{"not":{"const":1},"multipleOf":0.5}]}}}}`,
		chatBody(format(`{"allOf":[{"patternProperties":{"^a+$":{"pattern":"(?=a)b{2,3}"}}},{"required":["a"],"unevaluatedProperties":false}],"uniqueItems":true}`) + `,"max_tokens":9`),
		"\xff\xfe{\x00}\x00", "[]", "{", `{"messages":[{"role":"user","content":"\ud800"}]}`,
	} {
		f.Add(uint8(i), []byte(body))
	}
	s := fuzzServer(f)
	s.o.Timeout = time.Second // an answer that only a grammar leads may be long
	f.Fuzz(func(t *testing.T, route uint8, body []byte) {
		path := routes[int(route)%len(routes)]
		r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		stream := w.Header().Get("Content-Type") == "text/event-stream"
		switch {
		case w.Code >= 500 && w.Code != http.StatusServiceUnavailable && w.Code != http.StatusGatewayTimeout && !answerAtFault(w.Body.String()):
			t.Errorf("%s %q: status %d: %s", path, body, w.Code, w.Body)
		case !utf8.Valid(w.Body.Bytes()):
			t.Errorf("%s %q: the answer is not UTF-8", path, body)
		case stream && !strings.HasSuffix(w.Body.String(), "\n\n"):
			t.Errorf("%s %q: the stream ends with %q", path, body, w.Body)
		case !stream && !json.Valid(w.Body.Bytes()):
			t.Errorf("%s %q: not JSON: %s", path, body, w.Body)
		}
		if len(s.preparing)+len(s.slots)+len(s.countSlots) > 0 {
			t.Error("a place is left taken")
		}
	})
}

// answerAtFault reports the error of an answer that does not keep to the request's schema.
func answerAtFault(body string) bool {
	return strings.Contains(body, "model returned invalid structured output") || strings.Contains(body, schema.ErrNotEvaluated.Error())
}

func fuzzServer(f *testing.F) *Server {
	v, err := vocabulary()
	if err != nil {
		f.Fatal(err)
	}
	tok, err := tokenizer.New(v)
	if err != nil {
		f.Fatal(err)
	}
	templates, err := chat.NewTemplates(context.Background(), v.Templates, chat.TemplateOptions{Format: chat.QWEN})
	if err != nil {
		f.Fatal(err)
	}
	answer := tok.Encode("why</think>\n\nanswer "+oneCall, true)
	n := &script{lanes: map[model.Lane]*scriptLane{}, say: func([]int32) []int32 { return answer }}
	e := engine.New(n, engine.Options{Context: fakeContext})
	f.Cleanup(e.Close)
	s, err := New(Model{
		ID: fakeID, Engine: e, Tokenizer: tok, Format: chat.QWEN, Templates: templates, Stop: []int32{fakeEOS}, Context: fakeContext, Lanes: 4,
	}, Options{Console: &Console{Out: &logBuffer{}, Err: &logBuffer{}}})
	if err != nil {
		f.Fatal(err)
	}
	return s
}

// FuzzHeads reads heads in pieces of every size: a head is refused or has its end, and the pieces do not matter.
func FuzzHeads(f *testing.F) {
	for _, head := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.0\n\n", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
		"GARBAGE\r\n\r\n", "GET / HTTP/2.5\r\n\r\n", "\r\n\r\n", "GET /%zz HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n",
	} {
		f.Add([]byte(head), uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		whole, refusal := readHead(bytes.NewReader(data))
		pieces, refusal2 := readHead(&slowReader{data, int(size)%7 + 1})
		if (refusal == nil) != (refusal2 == nil) {
			t.Fatalf("%q: %v whole, %v in pieces", data, refusal, refusal2)
		}
		if refusal == nil && (!bytes.HasPrefix(data, whole) || !bytes.HasPrefix(whole, pieces)) {
			t.Fatalf("%q reads as %q and %q", data, whole, pieces)
		}
		if refusal != nil && refusal.err != nil && refusal.err.Status < 400 {
			t.Fatalf("%q: %+v", data, refusal.err)
		}
	})
}

type slowReader struct {
	data []byte
	size int
}

func (r *slowReader) Read(p []byte) (int, error) {
	n := copy(p[:min(len(p), r.size)], r.data)
	r.data = r.data[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
