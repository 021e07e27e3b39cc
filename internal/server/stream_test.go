package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// chunkKinds tells the chunks of a chat stream apart.
func chunkKinds(t *testing.T, events []event) []string {
	t.Helper()
	var kinds []string
	for _, e := range events {
		if e.name != "" {
			t.Errorf("an event of Chat Completions has the name %s", e.name)
		}
		kind := "?"
		switch {
		case e.data == "[DONE]":
			kind = "done"
		case field(t, e.data, "error") != nil:
			kind = "error"
		case field(t, e.data, "prompt_progress") != nil:
			kind = "progress"
		case field(t, e.data, "usage") != nil:
			kind = "usage"
		case field(t, e.data, "choices", 0, "finish_reason") != nil:
			kind = fmt.Sprint(field(t, e.data, "choices", 0, "finish_reason"))
		case field(t, e.data, "choices", 0, "delta", "role") != nil:
			kind = "role"
		case field(t, e.data, "choices", 0, "delta", "reasoning_content") != nil:
			kind = "reasoning"
		case field(t, e.data, "choices", 0, "delta", "content") != nil:
			kind = "content"
		case field(t, e.data, "choices", 0, "delta", "tool_calls") != nil:
			kind = "call"
		case len(field(t, e.data, "choices", 0, "delta").(map[string]any)) == 0:
			kind = "idle"
		}
		if n := len(kinds); n == 0 || kinds[n-1] != kind {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// joined is the text of a stream's deltas.
func joined(t *testing.T, events []event, keys ...any) string {
	t.Helper()
	var text strings.Builder
	for _, e := range events {
		if e.data == "[DONE]" {
			continue
		}
		if s, ok := field(t, e.data, keys...).(string); ok {
			text.WriteString(s)
		}
	}
	return text.String()
}

func TestChatStream(t *testing.T) {
	f := serve(t, Options{})
	for _, c := range []struct {
		row          int
		body, says   string
		kinds        string
		text, reason string
	}{
		{52, chatBody(`"stream":true`), "answer", "role content stop done", "answer", ""},
		{53, chatBody(`"stream":true,"stream_options":{"include_usage":true}`), "answer", "role content stop usage done", "answer", ""},
		{53, chatBody(`"stream":true,"stream_options":{"include_usage":false}`), "answer", "role content stop done", "answer", ""},
		{56, chatBody(`"stream":true,"return_progress":true`), "answer", "role progress content stop done", "answer", ""},
		{60, chatBody(`"stream":true,"reasoning_effort":"low"`), "why</think>\n\nanswer", "role reasoning content stop done", "answer", "why"},
		{65, chatBody(`"stream":true,` + tools), oneCall, "role call tool_calls done", "", ""},
		{67, chatBody(`"stream":true,` + tools), "one " + oneCall + " two", "role content call content tool_calls done", "one  two", ""},
		{73, chatBody(`"stream":true,"stop":"wer"`), "answer", "role content stop done", "ans", ""},
		{52, chatBody(`"stream":true`), "", "role stop done", "", ""},
	} {
		f.says(c.says)
		events := f.stream(cc, c.body)
		if got := strings.Join(chunkKinds(t, events), " "); got != c.kinds {
			t.Errorf("row %d: %s, want %s", c.row, got, c.kinds)
		}
		if got := joined(t, events, "choices", 0, "delta", "content"); got != c.text {
			t.Errorf("row %d: content %q, want %q", c.row, got, c.text)
		}
		if got := joined(t, events, "choices", 0, "delta", "reasoning_content"); got != c.reason {
			t.Errorf("row %d: reasoning %q, want %q", c.row, got, c.reason)
		}
		last := events[len(events)-2].data
		if strings.Contains(c.kinds, "usage") {
			if field(t, last, "usage", "total_tokens") == nil || field(t, last, "metrics") == nil || len(field(t, last, "choices").([]any)) != 0 {
				t.Errorf("row 53: %s", last)
			}
		} else if field(t, last, "timings", "predicted_n") == nil || field(t, last, "usage") != nil {
			t.Errorf("row %d: %s", c.row, last)
		}
	}
}

// TestStreamedCall: the pieces of a call joined are the whole call's arguments, whatever the tokens.
func TestStreamedCall(t *testing.T) {
	f := serve(t, Options{})
	f.says(oneCall)
	whole := f.post(cc, chatBody(tools))
	want := field(t, whole.body, "choices", 0, "message", "tool_calls", 0, "function", "arguments")
	var bytes []int32 // a token a byte
	for _, id := range f.tok.Encode(oneCall, true) {
		if f.tok.Bytes(id)[0] == '<' && len(f.tok.Bytes(id)) > 1 {
			bytes = append(bytes, id) // a tag
			continue
		}
		for _, b := range f.tok.Bytes(id) {
			one, ok := f.tok.ID(string([]byte{b}))
			if !ok {
				t.Fatalf("no token of the byte %d", b)
			}
			bytes = append(bytes, one)
		}
	}
	f.saysTokens(bytes)
	events := f.stream(cc, chatBody(`"stream":true,`+tools))
	call := []any{"choices", 0, "delta", "tool_calls", 0}
	if got := joined(t, events, append(call, "function", "arguments")...); got != want {
		t.Errorf("row 65: %s, want %s", got, want)
	}
	first := events[1].data
	id, _ := field(t, first, append(call, "id")...).(string)
	if field(t, first, append(call, "function", "name")...) != "add" || field(t, first, append(call, "type")...) != "function" ||
		!strings.HasPrefix(id, "call_") || !strings.HasSuffix(id, "_0") || field(t, first, append(call, "index")...) != 0.0 {
		t.Errorf("row 65: the header is %s", first)
	}
}

// TestProgress: a long prompt in several passes.
func TestProgress(t *testing.T) {
	f := serve(t, Options{})
	long := strings.Repeat("one two three ", 200)
	events := f.stream(cc, `{"messages":[{"role":"user","content":"`+long+`"}],"stream":true,"return_progress":true}`)
	var last float64
	n := 0
	for _, e := range events {
		if e.data == "[DONE]" || field(t, e.data, "prompt_progress") == nil {
			continue
		}
		total, done := field(t, e.data, "prompt_progress", "total").(float64), field(t, e.data, "prompt_progress", "processed").(float64)
		if done < last || done > total || len(field(t, e.data, "choices", 0, "delta").(map[string]any)) != 0 {
			t.Errorf("row 56: %s after %g", e.data, last)
		}
		last = done
		n++
	}
	if n == 0 || last != float64(len(f.prompt)) {
		t.Errorf("row 56: %d signs of progress, the last of %g of %d tokens", n, last, len(f.prompt))
	}
}

// TestKeepAlive: a stream that has nothing to say says so.
func TestKeepAlive(t *testing.T) {
	f := serveModel(t, Options{silence: 20 * time.Millisecond, Queue: 8}, nil)
	release := f.hold()
	busy := make(chan reply, 1)
	go func() { busy <- f.post(cc, chatBody("")) }() // while its pass lasts, no other request starts
	waitFor(t, "the lane", func() bool { return f.script.open() == 1 })
	r := f.postUntil(cc, chatBody(`"stream":true`), 2, ": splash-keepalive\n\n", release)
	events, comments, err := parseEvents(strings.NewReader(r.body))
	if err != nil || comments < 2 || strings.Count(r.body, ": splash-keepalive\n\n") != comments {
		t.Errorf("row 57: %d comments, %v\n%s", comments, err, r.body)
	}
	said := func(r reply) []string { // idle chunks may come anywhere on a slow machine
		events, _, err := parseEvents(strings.NewReader(r.body))
		if err != nil {
			t.Fatalf("%v\n%s", err, r.body)
		}
		return slices.Compact(slices.DeleteFunc(chunkKinds(t, events), func(kind string) bool { return kind == "idle" }))
	}
	want := []string{"role", "content", "stop", "done"}
	if d := cmp.Diff(want, said(r)); d != "" {
		t.Errorf("row 57: %s", d)
	}
	<-busy
	r = f.postUntil(cc, chatBody(`"stream":true`), 1, `"delta":{},"finish_reason":null`, f.hold())
	if d := cmp.Diff(want, said(r)); d != "" {
		t.Errorf("row 57: %s", d)
	}
	r = f.postUntil(msgs, "{"+mu+`,"stream":true}`, 1, "event: ping", f.hold())
	events, _, err = parseEvents(strings.NewReader(r.body))
	if err != nil || events[0].name != "message_start" || events[1].name != "ping" || events[1].data != `{"type":"ping"}` {
		t.Errorf("row 57: %v %v", events, err)
	}
}

func TestMessageStream(t *testing.T) {
	f := serve(t, Options{})
	request := "{" + mu + `,"stream":true,"thinking":{"type":"enabled"},"tools":[{"name":"add","input_schema":{"type":"object","properties":{"a":{"type":"integer"}}}}]}`
	f.says("why</think>\n\ntext " + oneCall)
	events := f.stream(msgs, request)
	var names []string
	for _, e := range events {
		if field(t, e.data, "type") != e.name {
			t.Errorf("event %s has the data %s", e.name, e.data)
		}
		if n := len(names); n == 0 || names[n-1] != e.name || e.name != "content_block_delta" {
			names = append(names, e.name)
		}
	}
	block := []string{"content_block_start", "content_block_delta", "content_block_stop"}
	want := []string{"message_start"}
	for range 3 {
		want = append(want, block...)
	}
	want = append(want, "message_delta", "message_stop")
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("row 95: %s", d)
	}
	if got := joined(t, events, "delta", "thinking"); got != "why" {
		t.Errorf("thinking %q", got)
	}
	if got := joined(t, events, "delta", "text"); got != "text " {
		t.Errorf("text %q", got)
	}
	var input map[string]any
	if err := json.Unmarshal([]byte(joined(t, events, "delta", "partial_json")), &input); err != nil || input["a"] != 1.0 {
		t.Errorf("input %v %v", input, err)
	}
	if got := field(t, events[len(events)-2].data, "delta", "stop_reason"); got != "tool_use" {
		t.Errorf("stop reason %v", got)
	}
	f.says("answer")
	whole := f.post(msgs, "{"+mu+"}")
	events = f.stream(msgs, "{"+mu+`,"stream":true}`)
	if got, want := joined(t, events, "delta", "text"), field(t, whole.body, "content", 0, "text"); got != want {
		t.Errorf("row 95: %q, whole %q", got, want)
	}
	f.says("")
	events = f.stream(msgs, "{"+mu+`,"stream":true}`)
	if len(events) != 5 || events[1].name != "content_block_start" {
		t.Errorf("an empty answer: %v", events)
	}
}

func TestTextStream(t *testing.T) {
	f := serve(t, Options{})
	f.says("answer </think> more")
	events := f.stream("/v1/completions", `{"prompt":"x","stream":true,"stream_options":{"include_usage":true}}`)
	if got := joined(t, events, "choices", 0, "text"); got != "answer </think> more" {
		t.Errorf("text %q", got)
	}
	n := len(events)
	if events[n-1].data != "[DONE]" || field(t, events[n-2].data, "usage", "prompt_tokens") != 1.0 || field(t, events[n-3].data, "choices", 0, "finish_reason") != "stop" {
		t.Errorf("the end is %v", events[n-3:])
	}
}

// TestContext fills the context, and goes beyond it.
func TestContext(t *testing.T) {
	f := serve(t, Options{})
	at := func(n int) string {
		ids := make([]string, n)
		for i := range ids {
			ids[i] = "65"
		}
		return "[" + strings.Join(ids, ",") + "]"
	}
	c := check{row: 47, path: "/v1/completions", body: `{"prompt":` + at(4096) + `}`, status: 400, has: []string{`"code":"context_length_exceeded"`, "prompt exceeds the context window"}}
	c.run(f)
	c = check{row: 47, path: "/v1/completions", body: `{"prompt":` + at(4090) + `}`, says: strings.Repeat("a b c ", 40), status: 200, has: []string{`"completion_tokens":6`, `"finish_reason":"length"`}}
	c.run(f)
	// A message of as many tokens as make the prompt fill the context.
	empty := f.post(msgs+"/count_tokens", `{"model":"test/model","messages":[{"role":"user","content":"a"}]}`)
	more := int(field(t, empty.body, "input_tokens").(float64)) - 1
	body := `{"model":"test/model","max_tokens":10,"messages":[{"role":"user","content":"` + strings.Repeat("<|mask|>", 4096-more) + `"}]}`
	c = check{row: 48, path: msgs, body: body, status: 400, has: []string{"prompt is too long: 4096 tokens > 4095 maximum input tokens"}}
	c.run(f)
	body = strings.Replace(body, "<|mask|>", "", 3)
	c = check{row: 49, path: msgs, body: body, says: "a b c d e f g h", status: 200, has: []string{`"stop_reason":"model_context_window_exceeded"`}}
	c.run(f)
}

// TestMessageHistory: what a client of the Messages interface sends back is in the prompt.
func TestMessageHistory(t *testing.T) {
	f := serve(t, Options{})
	r := f.post(msgs, `{"model":"test/model","max_tokens":5,"system":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":"Be kind.","cache_control":{"type":"ephemeral"}}],
		"metadata":{"user_id":"x"},"tools":[{"name":"add","description":"Adds.","input_schema":{"type":"object","propertyNames":{"pattern":"a"}},"cache_control":{"type":"ephemeral"}}],
		"messages":[{"role":"user","content":"one"},
		{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"foreign"},{"type":"text","text":"two"},{"type":"tool_use","id":"t1","name":"add","input":{"a":1}}]},
		{"role":"user","content":[{"type":"text","text":"four"},{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":[{"type":"text","text":"three"}]}]},
		{"role":"system","content":"Plan mode is on."},
		{"role":"user","content":"five"}]}`)
	if r.status != 200 {
		t.Fatalf("rows 97, 98: %d %s", r.status, r.body)
	}
	prompt := f.tok.Decode(f.prompt)
	at := 0
	for _, want := range []string{"Be kind.", "one", "two", "<function=add>", "<parameter=a>\n1", "Tool execution failed:\nthree", "four", "Plan mode is on.", "five"} {
		i := strings.Index(prompt[at:], want)
		if i < 0 {
			t.Fatalf("no %q after %q", want, prompt[:at])
		}
		at += i
	}
	if strings.Contains(prompt, "billing") {
		t.Error("the billing header is in the prompt")
	}
}
