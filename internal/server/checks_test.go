package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

const (
	cc   = "/v1/chat/completions"
	msgs = "/v1/messages"
	u    = `"messages":[{"role":"user","content":"hi"}]`
	mu   = `"model":"test/model","max_tokens":64,` + u
)

// A check is a row of the serving specification's table of behaviour.
type check struct {
	row          int
	method, path string // POST unless the body is empty
	body         string
	header       map[string]string
	says         string // what the model says; "answer" unless set
	status       int
	has, hasNot  []string // in "Header: value" lines and the body
}

func (c *check) run(f *fixture) {
	f.Helper()
	method := c.method
	if method == "" {
		method = http.MethodGet
		if c.body != "" {
			method = http.MethodPost
		}
	}
	f.says("answer")
	if c.says != "" {
		f.says(c.says)
	}
	r := f.do(method, c.path, c.body, c.header)
	var text strings.Builder
	for name, values := range r.header {
		for _, v := range values {
			fmt.Fprintf(&text, "%s: %s\n", name, v)
		}
	}
	text.WriteString(r.body)
	if r.status != c.status {
		f.Errorf("row %d: %s %s %.200s: status %d, want %d: %.500s", c.row, method, c.path, c.body, r.status, c.status, r.body)
		return
	}
	if r.header.Get("Server") != "Splash" {
		f.Errorf("row %d: Server %q", c.row, r.header.Get("Server"))
	}
	for _, s := range c.has {
		if !strings.Contains(text.String(), s) {
			f.Errorf("row %d: %s %s %.200s: no %q in\n%s", c.row, method, c.path, c.body, s, text.String())
		}
	}
	for _, s := range c.hasNot {
		if strings.Contains(text.String(), s) {
			f.Errorf("row %d: %s %s %.200s: %q in\n%s", c.row, method, c.path, c.body, s, text.String())
		}
	}
}

func header(pairs ...string) map[string]string {
	h := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		h[pairs[i]] = pairs[i+1]
	}
	return h
}

func chatBody(fields string) string {
	if fields != "" {
		fields = "," + fields
	}
	return "{" + u + fields + "}"
}

const (
	badRequest = `"type":"invalid_request_error","code":"invalid_request_error"`
	tools      = `"tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}}}}}]`
	oneCall    = "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx \"y\"\n</parameter>\n</function>\n</tool_call>"
)

func TestChecks(t *testing.T) {
	f := serve(t, Options{})
	var checks []check
	add := func(c ...check) { checks = append(checks, c...) }
	add(
		check{row: 1, path: "/health", status: 200, has: []string{`{"status":"ok"}`}},
		check{row: 2, path: "/ready", status: 200, has: []string{`{"status":"ready"}`}},
		check{row: 3, method: "HEAD", path: "/health", status: 200, has: []string{"Content-Length: 15"}, hasNot: []string{"status"}},
		check{row: 4, method: "OPTIONS", path: msgs, status: 204, has: []string{"Allow: GET, HEAD, POST, DELETE, OPTIONS"}},
		check{row: 5, path: "/nope", status: 404, has: []string{`"code":"not_found"`, `"type":"invalid_request_error"`}},
		check{row: 5, path: cc, status: 404, has: []string{`"code":"not_found"`}},
		check{row: 6, path: "/v1/messages/nope", status: 404, has: []string{`"type":"error"`, `"type":"not_found_error"`}},
		check{row: 7, method: "PATCH", path: cc, status: 501, has: []string{`"code":"not_implemented"`, `"type":"server_error"`}},
		check{row: 18, path: "/health", header: header("Host", "evil.example"), status: 403, has: []string{`"code":"forbidden"`, "--allowed-host evil.example"}},
		check{row: 20, path: cc, body: chatBody(""), header: header("Origin", f.url), status: 200, hasNot: []string{"Access-Control"}},
		check{row: 21, path: cc, body: chatBody(""), header: header("Origin", "https://other.example"), status: 403,
			has: []string{"--allowed-origin https://other.example"}, hasNot: []string{"Access-Control"}},
		check{row: 21, method: "OPTIONS", path: cc, header: header("Origin", "https://other.example"), status: 403, hasNot: []string{"Access-Control"}},
		check{row: 25, path: cc, body: chatBody(""), header: header("Content-Type", "text/plain"), status: 415, has: []string{"Content-Type must be application/json"}},
		check{row: 26, path: cc, body: chatBody(""), header: header("Content-Type", "application/vnd.x+json; charset=utf-8"), status: 200},
		check{row: 27, path: cc, body: chatBody(""), header: header("Content-Encoding", "gzip"), status: 415},
		check{row: 34, path: cc, body: "{", status: 400, has: []string{"invalid JSON request body"}},
		check{row: 34, path: cc, body: "\xff", status: 400, has: []string{"invalid JSON request body"}},
		check{row: 34, path: cc, body: strings.Repeat("[", 10000), status: 400, has: []string{"invalid JSON request body"}},
		check{row: 34, path: cc, body: `{"temperature":NaN}`, status: 400, has: []string{"invalid JSON request body"}},
		check{row: 35, path: cc, body: "[]", status: 400, has: []string{"request body must be an object"}},
		check{row: 36, path: cc, body: chatBody(""), status: 200, has: []string{
			`"model":"test/model"`, `"content":"answer"`, `"finish_reason":"stop"`, `"timings":{`, `"object":"chat.completion"`}},
		check{row: 36, path: cc, body: "\xef\xbb\xbf" + chatBody(""), status: 200},
		check{row: 37, path: cc, body: chatBody(`"model":"other"`), status: 404, has: []string{`"code":"model_not_found"`, "model other not found"}},
		check{row: 38, path: msgs, body: `{"model":"other","max_tokens":5,` + u + `}`, status: 404, has: []string{`"type":"not_found_error"`}},
		check{row: 39, path: cc, body: `{"messages":[]}`, status: 400, has: []string{badRequest}},
		check{row: 39, path: cc, body: `{}`, status: 400, has: []string{badRequest}},
		check{row: 39, path: cc, body: `{"messages":[{"role":"system","content":"x"}]}`, status: 400, has: []string{"messages must include a user message"}},
		check{row: 40, path: cc, body: `{"messages":[{"role":"robot","content":"x"}]}`, status: 400, has: []string{"unsupported message role: robot"}},
	)
	for _, bad := range []string{
		`"temperature":5`, `"top_p":0`, `"top_k":-2`, `"min_p":2`, `"presence_penalty":3`, `"repetition_penalty":0`, `"seed":-1`,
		`"priority":"urgent"`, `"timeout":0`, `"temperature":true`, `"seed":1.5`, `"top_k":1.5`, `"frequency_penalty":"1"`,
		`"stream":1`, `"reasoning_effort":"bogus"`, `"ignore_eos":0`, `"seed":18446744073709551616`,
	} {
		name := strings.Split(bad, `"`)[1]
		add(check{row: 41, path: cc, body: chatBody(bad), status: 400, has: []string{badRequest, name}})
	}
	for _, null := range []string{"temperature", "stream", "n", "max_tokens", "stop", "tools", "tool_choice", "response_format", "seed", "top_k"} {
		add(check{row: 42, path: cc, body: chatBody(`"` + null + `":null`), status: 200, has: []string{`"content":"answer"`}})
	}
	for _, bad := range []string{`"max_tokens":0`, `"max_tokens":1.5`, `"max_tokens":true`, `"max_completion_tokens":-1`, `"max_tokens":"5"`} {
		add(check{row: 45, path: cc, body: chatBody(bad), status: 400, has: []string{strings.Split(bad, `"`)[1] + " must be a positive integer"}})
	}
	add(
		check{row: 43, path: cc, body: chatBody(`"n":2`), status: 400, has: []string{"n and logprobs are not currently supported"}},
		check{row: 43, path: cc, body: chatBody(`"logprobs":true`), status: 400, has: []string{"n and logprobs are not currently supported"}},
		check{row: 43, path: cc, body: chatBody(`"n":1,"logprobs":false`), status: 200},
		check{row: 44, path: cc, body: chatBody(`"logit_bias":{}`), status: 200},
		check{row: 44, path: cc, body: chatBody(`"logit_bias":{"1":1}`), status: 400, has: []string{"logit_bias is not supported"}},
		check{row: 46, path: cc, body: chatBody(`"max_completion_tokens":5000`), status: 400, has: []string{
			`"code":"context_length_exceeded"`, "prompt and max_completion_tokens exceed the context window: ", " + 5000 > 4096 tokens"}},
		check{row: 49, path: msgs, body: `{"model":"test/model","max_tokens":100000,` + u + `}`, status: 200, has: []string{`"stop_reason":"end_turn"`}},
		check{row: 50, path: msgs, body: `{"model":"test/model",` + u + `}`, status: 400, has: []string{"max_tokens"}},
		check{row: 50, path: msgs, body: `{"model":"test/model","max_tokens":0,` + u + `}`, status: 400, has: []string{"max_tokens"}},
		check{row: 51, path: msgs, body: `{"model":"test/model","max_tokens":5,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`, status: 400, has: []string{"prefill"}},
		check{row: 51, path: msgs + "/count_tokens", body: `{"model":"test/model","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`, status: 200, has: []string{`"input_tokens":`}},
		check{row: 54, path: cc, body: chatBody(`"stream":true,"stream_options":{"include_usage":1}`), status: 400, has: []string{"invalid streaming options"}},
		check{row: 55, path: cc, body: chatBody(`"return_progress":true`), status: 400, has: []string{"return_progress requires stream: true and must be a boolean"}},
		check{row: 60, path: cc, body: chatBody(`"reasoning_effort":"low"`), says: "why</think>\n\nanswer", status: 200, has: []string{
			`"reasoning_content":"why"`, `"content":"answer"`, fmt.Sprintf(`"reasoning_tokens":%d`, len(f.tok.Encode("why", true)))}},
		check{row: 61, path: cc, body: chatBody(`"reasoning_effort":"none"`), says: "why", status: 200, has: []string{`"content":"why"`}, hasNot: []string{"reasoning_content"}},
		check{row: 61, path: cc, body: chatBody(fmt.Sprintf(`"reasoning_effort":"low","max_tokens":%d`, len(f.tok.Encode("why", true)))), says: "why not", status: 200, has: []string{
			`"reasoning_content":"why"`, `"content":null`, `"finish_reason":"length"`}},
		check{row: 62, path: cc, body: chatBody(`"chat_template_kwargs":{"tools":[]}`), status: 400, has: []string{"cannot set tools"}},
		check{row: 63, path: cc, body: chatBody(`"chat_template_kwargs":{"enable_thinking":"x"}`), status: 400, has: []string{"must be a boolean"}},
		check{row: 64, path: cc, body: chatBody(tools), says: oneCall, status: 200, has: []string{
			`"content":null`, `"name":"add","arguments":"{\"a\":1,\"b\":\"x \\\"y\\\"\"}"`, `"finish_reason":"tool_calls"`, `"id":"call_`}},
		check{row: 66, path: cc, body: chatBody(tools + `,"max_tokens":20`), says: oneCall, status: 200, has: []string{`"finish_reason":"length"`, `"arguments":"{`}},
		check{row: 67, path: cc, body: chatBody(tools), says: "one \n" + oneCall + "\ntwo", status: 200, has: []string{`"content":"one \n\ntwo"`, `"finish_reason":"tool_calls"`}},
		check{row: 68, path: cc, body: chatBody(tools), says: "write <tool_call> first", status: 200, has: []string{`"content":"write <tool_call> first"`}},
		check{row: 69, path: cc, body: chatBody(`"tools":[{"type":"function","function":{"name":"a b"}}]`), status: 400, has: []string{badRequest}},
		check{row: 69, path: cc, body: chatBody(`"tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a"}}]`), status: 400, has: []string{"offered twice"}},
		check{row: 69, path: cc, body: chatBody(`"tools":[{"type":"function","function":{"name":"a","parameters":3}}]`), status: 400, has: []string{"parameters"}},
		check{row: 70, path: cc, body: chatBody(`"tool_choice":"required"`), status: 400, has: []string{"tool_choice"}},
		check{row: 71, path: cc, body: chatBody(tools + `,"tool_choice":{"type":"function","function":{"name":"sub"}}`), status: 400, has: []string{"invalid named tool_choice"}},
		check{row: 72, path: cc, body: chatBody(tools + `,"stop":["x"]`), status: 400, has: []string{"stop"}},
		check{row: 72, path: cc, body: chatBody(`"stop":["a","b","c","d","e"]`), status: 400, has: []string{"stop must be a string or up to four strings"}},
		check{row: 72, path: cc, body: chatBody(`"stop":""`), status: 400, has: []string{"stop must be a string or up to four strings"}},
		check{row: 73, path: cc, body: chatBody(`"stop":["wer"]`), status: 200, has: []string{`"content":"ans"`, `"finish_reason":"stop"`}},
		check{row: 73, path: msgs, body: `{` + mu + `,"stop_sequences":["wer"]}`, status: 200, has: []string{`"text":"ans"`, `"stop_reason":"stop_sequence"`, `"stop_sequence":"wer"`}},
		check{row: 79, path: cc, body: `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]}`, status: 400, has: []string{"image input is not supported"}},
		check{row: 82, path: cc, body: history(`""`), status: 200},
		check{row: 82, path: cc, body: history(`"{\"a\":"`), status: 200},
		check{row: 82, path: cc, body: history(`"{bad}"`), status: 400, has: []string{"tool call arguments must be valid JSON"}},
		check{row: 83, path: "/v1/completions", body: `{"prompt":"x"}`, status: 200, has: []string{`"object":"text_completion"`, `"logprobs":null`, `"text":"answer"`, `"id":"cmpl-`}},
		check{row: 83, path: "/v1/completions", body: `{"prompt":"x"}`, says: strings.Repeat("a b ", 40), status: 200, has: []string{`"completion_tokens":16`, `"finish_reason":"length"`}},
		check{row: 84, path: "/v1/completions", body: `{"prompt":["a","b"]}`, status: 400, has: []string{"prompt must be one string or one array of token ids"}},
		check{row: 84, path: "/v1/completions", body: `{"prompt":[]}`, status: 400, has: []string{"prompt must not be empty"}},
		check{row: 84, path: "/v1/completions", body: `{"prompt":""}`, status: 400, has: []string{"prompt must not be empty"}},
		check{row: 84, path: "/v1/completions", body: `{"prompt":[1000000000]}`, status: 400, has: []string{"prompt must be one string or one array of token ids"}},
		check{row: 84, path: "/v1/completions", body: `{"prompt":[1,2,3]}`, status: 200, has: []string{`"prompt_tokens":3`}},
		check{row: 85, path: "/v1/completions", body: `{"prompt":"x","echo":true}`, status: 400, has: []string{"echo is not supported"}},
		check{row: 85, path: "/v1/completions", body: `{"prompt":"x","suffix":"s"}`, status: 400, has: []string{"suffix is not supported"}},
		check{row: 85, path: "/v1/completions", body: `{"prompt":"x","best_of":2}`, status: 400, has: []string{"best_of must be 1"}},
		check{row: 94, path: msgs, body: `{"model":"test/model","max_tokens":16,` + u + `}`, status: 200, has: []string{
			`"type":"message"`, `{"type":"text","text":"answer"}`, `"stop_reason":"end_turn"`, `"input_tokens":`}, hasNot: []string{"total"}},
		check{row: 99, path: msgs, body: `{` + mu + `,"tools":[{"type":"computer_20250124","name":"computer"}]}`, status: 400, has: []string{"only custom function tools"}},
		check{row: 101, path: "/tokenize", body: `{"content":"hello"}`, status: 200, has: []string{`{"tokens":[`}},
		check{row: 101, path: "/tokenize", body: `{"content":3}`, status: 400},
		check{row: 101, path: "/tokenize", body: `{"content":"hello","with_pieces":true}`, status: 400, has: []string{"only parse_special=true is supported"}},
		check{row: 102, path: "/apply-template", body: chatBody(""), status: 200, has: []string{`hi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"`}},
		check{row: 102, path: "/apply-template", body: chatBody(`"add_generation_prompt":false`), status: 200, has: []string{`hi<|im_end|>\n"`}, hasNot: []string{"assistant"}},
		check{row: 104, path: "/v1/models/test/model", status: 200, has: []string{`"id":"test/model"`, `"context_length":4096`, `"input_modalities":["text"]`}},
		check{row: 104, path: "/v1/models/x", status: 404, has: []string{`"code":"model_not_found"`}},
		check{row: 116, path: "/status", status: 200, has: []string{`"instance":{`, `"requests":{"active":0,"capacity":4}`, `"transport":{`, `"chat_template":{`}},
		check{row: 117, path: "/metrics", status: 200, has: []string{"Content-Type: text/plain; version=0.0.4; charset=utf-8", "\nsplash_ready 1\n"}, hasNot: []string{"_ms ", "_ms{"}},
		// A prompt that names a path of another dialect stays in its own.
		check{row: 6, path: "/v1/x/../messages", body: `{`, status: 400, has: []string{`"type":"error"`}},
		check{row: 13, path: "/./ready", status: 200},
	)
	for i := range checks {
		checks[i].run(f)
	}
	if log := f.out.String(); strings.Contains(log, "panic") || strings.Contains(log, "internal_server_error") {
		t.Error(log)
	}
}

func history(arguments string) string {
	return `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"type":"function","id":"c","function":{"name":"add","arguments":` +
		arguments + `}}]},{"role":"tool","tool_call_id":"c","content":"3"}]}`
}

func TestKeyChecks(t *testing.T) {
	f := serve(t, Options{Access: Access{
		Key: "secret", Hosts: []string{"splash.local"}, Origins: []string{"tauri://localhost"},
	}})
	right := header("Authorization", "Bearer secret")
	cors := []string{"Access-Control-Allow-Origin: tauri://localhost", "Vary: Origin", "Access-Control-Expose-Headers: Retry-After, WWW-Authenticate"}
	for _, c := range []check{
		{row: 12, path: "/v1/../status", status: 401, has: []string{"Www-Authenticate: Bearer", `"code":"authentication_error"`}},
		{row: 13, path: "/./ready", status: 200},
		{row: 13, path: "/health", status: 200},
		{row: 14, path: "/v1/models", header: right, status: 200},
		{row: 14, path: "/v1/models", header: header("Authorization", "bearer secret"), status: 200},
		{row: 14, path: "/v1/models", header: header("x-api-key", "secret"), status: 200},
		{row: 15, path: "/v1/models", header: header("Authorization", "Bearer secret", "x-api-key", "no"), status: 401},
		{row: 15, path: "/v1/models", header: header("Authorization", "Bearer no", "x-api-key", "secret"), status: 401},
		{row: 15, path: "/v1/models", header: header("Authorization", "Basic secret"), status: 401},
		{row: 17, path: msgs + "?beta=true", body: `{`, header: header("x-api-key", "wrong"), status: 401, has: []string{`"type":"authentication_error"`}},
		{row: 19, path: "/health", header: header("Host", "splash.local:80"), status: 200},
		{row: 22, method: "OPTIONS", path: cc, header: header("Origin", "tauri://localhost", "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "x-api-key, content-type"), status: 204, has: append(cors,
			"Access-Control-Allow-Methods: GET, HEAD, POST, DELETE, OPTIONS", "Access-Control-Allow-Headers: x-api-key, content-type", "Access-Control-Max-Age: 600")},
		{row: 23, path: cc, body: chatBody(""), header: header("Origin", "tauri://localhost"), status: 401, has: cors},
		{row: 23, path: cc, body: chatBody(""), header: header("Origin", "tauri://localhost", "x-api-key", "secret"), status: 200, has: cors},
		{row: 5, path: "/nope", status: 401},
		{row: 5, path: "/nope", header: right, status: 404},
	} {
		c.run(f)
	}
	got := f.raw("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\nAuthorization: Bearer secret\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 401") {
		t.Errorf("row 16: %s", got)
	}
	if log := f.out.String(); strings.Contains(log, "secret") {
		t.Errorf("the key is on the console:\n%s", log)
	}
}

func TestEveryOrigin(t *testing.T) {
	f := serve(t, Options{Access: Access{Origins: []string{"*"}}})
	c := check{row: 24, path: "/v1/models", header: header("Origin", "null"), status: 200, has: []string{"Access-Control-Allow-Origin: *"}, hasNot: []string{"Vary"}}
	c.run(f)
}

func TestAliases(t *testing.T) {
	for _, announce := range []bool{false, true} {
		f := serve(t, Options{Aliases: []string{"gpt-x"}, Announce: announce})
		first, other := fakeID, "gpt-x"
		if announce {
			first, other = other, first
		}
		r := f.do("GET", "/v1/models", "", nil)
		if field(t, r.body, "data", 0, "id") != first || field(t, r.body, "data", 0, "root") != nil ||
			field(t, r.body, "data", 1, "id") != other || field(t, r.body, "data", 1, "root") != first {
			t.Errorf("row 103: %s", r.body)
		}
		if r := f.post(cc, chatBody(`"model":"gpt-x"`)); field(t, r.body, "model") != first {
			t.Errorf("row 105: %s", r.body)
		}
	}
}

func TestPage(t *testing.T) {
	f := serve(t, Options{Access: Access{Key: "secret"}})
	for _, c := range []check{
		{row: 118, path: "/", status: 200, has: []string{"Content-Type: text/html", "<html"}, hasNot: []string{"secret"}},
		{row: 118, path: "/./index.html", status: 200, has: []string{"<html"}},
		{row: 118, method: "HEAD", path: "/", status: 200, hasNot: []string{"<html"}},
		{row: 118, path: "/favicon.ico", status: 200, has: []string{"Content-Type: image/svg+xml"}},
		{row: 119, path: "/chat-assets/../server.go", status: 401},
		{row: 119, path: "/chat-assets/../server.go", header: header("x-api-key", "secret"), status: 404},
	} {
		c.run(f)
	}
	f = serve(t, Options{NoPage: true})
	for _, path := range []string{"/", "/index.html", "/favicon.ico"} {
		c := check{row: 118, path: path, status: 404, has: []string{`"code":"not_found"`}}
		c.run(f)
	}
}
