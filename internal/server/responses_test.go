package server

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/internal/chat/ojson"
)

const (
	resp    = "/v1/responses"
	addTool = `"tools":[{"type":"function","name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}}},"strict":false}]`
)

func respBody(fields string) string {
	if fields != "" {
		fields = "," + fields
	}
	return `{"input":"hi"` + fields + "}"
}

func TestResponseChecks(t *testing.T) {
	f := serve(t, Options{})
	whyTokens := len(f.tok.Encode("why", true))
	var checks []check
	add := func(c ...check) { checks = append(checks, c...) }
	add(
		check{row: 86, path: resp, body: respBody(""), status: 200, has: []string{
			`"id":"resp_`, `"object":"response"`, `"status":"completed"`, `"incomplete_details":null,"error":null,"model":"test/model"`,
			`"type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"answer","annotations":[]}]`,
			`"parallel_tool_calls":true,"store":true,"previous_response_id":null,"text":{"format":{"type":"text"}}`,
			`"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":`, `"output_tokens_details":{"reasoning_tokens":0}`, `"total_tokens":`,
			`"end_turn":true}`}, hasNot: []string{"metadata", "warnings"}},
		check{row: 86, path: resp, body: `{"input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]}],"metadata":{"a":"b"},"text":{"verbosity":"low"}}`,
			status: 200, has: []string{`"metadata":{"a":"b"}`, `"text":"answer"`}},
		check{row: 86, path: resp, body: respBody(`"reasoning":{"effort":"low","summary":"auto"}`), says: "why</think>\n\nanswer", status: 200, has: []string{
			`"type":"reasoning","status":"completed","summary":[{"type":"summary_text","text":"why"}],"content":[{"type":"reasoning_text","text":"why"}],"encrypted_content":null`,
			`_1","type":"message"`, fmt.Sprintf(`"reasoning_tokens":%d`, whyTokens)}},
		check{row: 86, path: resp, body: respBody(addTool), says: oneCall, status: 200, has: []string{
			`"type":"function_call","status":"completed","call_id":"call_`, `_0","name":"add","arguments":"{\"a\":1,\"b\":\"x \\\"y\\\"\"}"`, `"end_turn":false`},
			hasNot: []string{`"type":"message"`, "namespace"}},
		check{row: 86, path: resp, body: respBody(""), says: "", status: 200, has: []string{`"type":"message"`}},
		check{row: 37, path: resp, body: respBody(`"model":"other"`), status: 404, has: []string{`"code":"model_not_found"`}},
		check{row: 89, path: resp, body: respBody(`"previous_response_id":"resp_0"`), status: 404, has: []string{`"code":"previous_response_not_found"`}},
		check{row: 90, path: resp, body: respBody(`"store":false`), status: 200, has: []string{`"store":false`}},
		check{row: 91, path: resp + "/resp_0", status: 404, has: []string{`"code":"not_found_error"`, "response not found"}},
		check{row: 91, method: "DELETE", path: resp + "/resp_0", status: 404, has: []string{`"code":"not_found_error"`}},
		check{row: 91, path: resp + "/resp_a-b", status: 404, has: []string{`"code":"not_found"`}},
		check{row: 91, path: resp + "/resp_", status: 404, has: []string{`"code":"not_found"`}},
		check{row: 91, path: resp + "/resp_0", body: "{}", status: 404, has: []string{`"code":"not_found"`}},
		check{row: 91, path: resp, status: 404, has: []string{`"code":"not_found"`}},
		// What runs elsewhere is skipped; only a choice of it is refused.
		check{row: 92, path: resp, body: respBody(`"tools":[{"type":"web_search"},{"type":"web_search"}]`), status: 200,
			has: []string{`"warnings":["tools of type web_search are not run here`}, hasNot: []string{`here","tools`}},
		check{row: 92, path: resp, body: respBody(`"tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"}`), status: 400,
			has: []string{badRequest, "only function tools are supported, not web_search in tool_choice", "Codex"}},
		check{row: 92, path: resp, body: respBody(`"tools":[{"type":"custom","name":"apply_patch"}],"tool_choice":{"type":"custom","name":"apply_patch"}`),
			status: 400, has: []string{"not custom in tool_choice"}},
		check{row: 92, path: resp, body: respBody(`"tools":[{"type":"custom","name":"x"}],"tool_choice":"required"`), status: 400, has: []string{"tool_choice required needs tools"}},
		check{row: 92, path: resp, body: respBody(`"background":true`), status: 400, has: []string{badRequest, "background is not supported"}},
		check{row: 92, path: resp, body: respBody(`"conversation":"conv_1"`), status: 400, has: []string{"conversation is not supported"}},
		check{row: 92, path: resp, body: respBody(`"background":false,"conversation":null,"truncation":"disabled","context_management":[]`), status: 200},
		check{row: 92, path: resp, body: respBody(`"truncation":"auto"`), status: 400, has: []string{"truncation"}},
		check{row: 92, path: resp, body: respBody(`"context_management":[{"type":"compaction"}]`), status: 400, has: []string{"context_management"}},
		check{row: 93, path: resp, body: respBody(`"max_output_tokens":1`), says: "one two three four", status: 200, has: []string{
			`"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}`, `"type":"message","status":"incomplete"`, `"end_turn":false`}},
		check{row: 93, path: resp, body: respBody(fmt.Sprintf(`"reasoning":{"effort":"low"},"max_output_tokens":%d`, whyTokens)), says: "why not", status: 200, has: []string{
			`"type":"reasoning","status":"incomplete","summary":[{"type":"summary_text","text":"why"}]`, `"type":"message","status":"incomplete"`}},
		check{row: 93, path: resp, body: respBody(addTool + `,"max_output_tokens":20`), says: oneCall, status: 200, has: []string{
			`"type":"function_call","status":"incomplete"`, `"arguments":"{`, `"status":"incomplete","incomplete_details"`}},
		check{row: 46, path: resp, body: respBody(`"max_output_tokens":5000`), status: 400, has: []string{
			`"code":"context_length_exceeded"`, "prompt and max_output_tokens exceed the context window: ", " + 5000 > 4096 tokens"}},
		check{row: 74, path: resp, body: respBody(`"text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}}`),
			says: `{"a":1}`, status: 200, has: []string{`"text":"{\"a\":1}"`, `"text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":{`}},
		check{row: 74, path: resp, body: respBody(`"text":{"format":{"type":"json_object"}}`), says: `{"a":1}`, status: 200, has: []string{`"text":"{\"a\":1}"`}},
		check{row: 70, path: resp, body: respBody(addTool + `,"tool_choice":"required"`), says: oneCall, status: 200, has: []string{`"type":"function_call"`}},
		check{row: 70, path: resp, body: respBody(addTool + `,"tool_choice":{"type":"function","name":"add"}`), says: oneCall, status: 200, has: []string{`"type":"function_call"`}},
		check{row: 71, path: resp, body: respBody(addTool + `,"tool_choice":{"type":"function","name":"sub"}`), status: 400, has: []string{"invalid named tool_choice"}},
		check{row: 71, path: resp, body: respBody(addTool + `,"tool_choice":{"type":"function","name":"add","namespace":"x"}`), status: 400, has: []string{"invalid named tool_choice"}},
		check{row: 73, path: resp, body: respBody(`"stop":["wer"]`), status: 200, has: []string{`"text":"ans"`, `"status":"completed"`}},
		check{row: 42, path: resp, body: respBody(`"stream":null,"temperature":null,"tools":null,"tool_choice":null,"text":null,"reasoning":null,"metadata":null,"instructions":null,
			"max_output_tokens":null,"store":null,"previous_response_id":null`), status: 200, has: []string{`"store":true`}},
		check{row: 40, path: resp, body: `{"input":[{"role":"robot","content":"x"}]}`, status: 400, has: []string{"unsupported message role: robot"}},
		check{row: 39, path: resp, body: `{"input":[{"role":"developer","content":"x"}]}`, status: 400, has: []string{"messages must include a user message"}},
		check{row: 79, path: resp, body: `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AA=="}]}]}`, status: 400,
			has: []string{"image input is not supported"}},
		check{row: 79, path: resp, body: `{"input":[{"role":"user","content":[{"type":"input_file","file_data":"AA=="}]}]}`, status: 400, has: []string{"PDF input is not supported"}},
	)
	for _, bad := range []string{
		`"temperature":5`, `"top_p":0`, `"seed":-1`, `"priority":"urgent"`, `"timeout":0`, `"stream":1`, `"store":1`, `"max_output_tokens":0`,
		`"max_output_tokens":true`, `"reasoning":3`, `"reasoning":{"effort":"bogus"}`, `"reasoning":{"effort":3}`, `"instructions":3`, `"metadata":[]`,
		`"text":3`, `"text":{"format":3}`, `"text":{"format":{"type":"x"}}`, `"text":{"format":{"type":"json_schema"}}`, `"tools":3`, `"tools":[3]`,
		`"tools":[{}]`, `"tools":[{"type":"function","name":"a b"}]`, `"tools":[{"type":"namespace","name":"n"}]`, `"tools":[{"type":"namespace","name":"n","tools":[3]}]`,
		`"tools":[{"type":"namespace","name":"n","tools":[{}]}]`, `"tool_choice":3`, `"tool_choice":"any"`, `"previous_response_id":3`, `"background":3`,
		`"conversation":{}`, `"logit_bias":{"1":1}`, `"return_progress":true`, `"context_management":{}`,
	} {
		add(check{row: 41, path: resp, body: respBody(bad), status: 400, has: []string{badRequest, strings.TrimSuffix(strings.Split(bad, `"`)[1], "s")}})
	}
	for _, bad := range []string{
		`{}`, `{"input":[]}`, `{"input":3}`, `{"input":[3]}`, `{"input":[{"type":"item_reference","id":"x"}]}`, `{"input":[{"type":3}]}`,
		`{"input":[{"role":"user","content":3}]}`, `{"input":[{"role":"user","content":[3]}]}`, `{"input":[{"role":"user","content":[{"type":"input_audio"}]}]}`,
		`{"input":[{"role":"system","content":[{"type":"input_image","image_url":"data:,"}]}]}`, `{"input":[{"type":"function_call","name":"x","arguments":"{}"}]}`,
		`{"input":[{"type":"function_call","call_id":"c","name":"x","arguments":{}}]}`, `{"input":[{"type":"function_call","call_id":"c","name":"x","arguments":"{bad}"}]}`,
		`{"input":[{"type":"function_call","call_id":"c","name":"x","namespace":"a b","arguments":"{}"}]}`, `{"input":[{"type":"function_call_output","output":"x"}]}`,
		`{"input":[{"type":"reasoning","content":[{"type":"reasoning_text","text":3}]}]}`, `{"input":[{"role":"user","content":[{"type":"input_text","text":3}]}]}`,
	} {
		add(check{row: 39, path: resp, body: bad, status: 400, has: []string{badRequest}})
	}
	for i := range checks {
		checks[i].run(f)
	}
	log := f.out.String()
	if strings.Contains(log, "panic") || strings.Contains(log, "internal_server_error") {
		t.Error(log)
	}
	if n := strings.Count(log, "Skipped · "); n != 1 {
		t.Errorf("%d lines of skipped tools", n)
	}
}

// TestResponseKeptAndContinued: a stored response is what was sent, and the next request has its turns in the prompt.
func TestResponseKeptAndContinued(t *testing.T) {
	f := serve(t, Options{})
	f.says("why</think>\n\ntext " + oneCall)
	first := f.post(resp, `{"input":"first question","instructions":"Be kind.","reasoning":{"effort":"low"},`+addTool+"}")
	id, _ := field(t, first.body, "id").(string)
	got := f.do("GET", resp+"/"+id, "", nil)
	if d := cmp.Diff(first.body, got.body); got.status != 200 || d != "" {
		t.Errorf("row 91: %d %s", got.status, d)
	}
	call, _ := field(t, first.body, "output", 2, "call_id").(string)
	f.says("answer")
	second := f.post(resp, `{"previous_response_id":"`+id+`","instructions":"Be brief.","reasoning":{"effort":"low"},`+addTool+`,
		"input":[{"type":"function_call_output","call_id":"`+call+`","output":[{"type":"output_text","text":"three"}]}]}`)
	if second.status != 200 || field(t, second.body, "previous_response_id") != id {
		t.Fatalf("row 88: %s", second.body)
	}
	prompt := f.tok.Decode(f.prompt)
	inOrder(t, prompt, "Be brief.", "first question", "why", "text", "<function=add>", "<parameter=a>\n1", "three")
	if strings.Contains(prompt, "Be kind.") {
		t.Error("row 88: the instructions of the turn before are in the prompt")
	}
	// The third turn has all of them, whatever became of the first.
	if r := f.do("DELETE", resp+"/"+id, "", nil); r.status != 200 || r.body != `{"id":"`+id+`","object":"response","deleted":true}` {
		t.Errorf("row 91: %d %s", r.status, r.body)
	}
	for _, r := range []reply{f.do("GET", resp+"/"+id, "", nil), f.do("DELETE", resp+"/"+id, "", nil)} {
		if r.status != 404 || field(t, r.body, "error", "code") != "not_found_error" {
			t.Errorf("row 91: %d %s", r.status, r.body)
		}
	}
	next, _ := field(t, second.body, "id").(string)
	events := f.stream(resp, `{"previous_response_id":"`+next+`","input":"second question","stream":true}`)
	inOrder(t, f.tok.Decode(f.prompt), "first question", "text", "three", "answer", "second question")
	sent, _ := ojson.Decode(events[len(events)-1].data, ojson.Options{})
	text, err := ojson.String(sent.(*ojson.Object).Value("response"), ojson.Compact)
	last, _ := field(t, text, "id").(string)
	if got := f.do("GET", resp+"/"+last, "", nil); err != nil || got.body != text {
		t.Errorf("row 91: %v\n%s\n%s", err, got.body, text)
	}
	// Without store it is used, and not kept.
	r := f.post(resp, `{"previous_response_id":"`+last+`","input":"x","store":false}`)
	id, _ = field(t, r.body, "id").(string)
	inOrder(t, f.tok.Decode(f.prompt), "first question", "second question")
	if got := f.do("GET", resp+"/"+id, "", nil); r.status != 200 || got.status != 404 {
		t.Errorf("row 90: %d, then %d", r.status, got.status)
	}
	status := f.do("GET", "/status", "", nil)
	if n := field(t, status.body, "response_store", "entries"); n != 2.0 {
		t.Errorf("%v responses kept", n)
	}
	if text := f.do("GET", "/metrics", "", nil).body; !strings.Contains(text, "\nsplash_response_store_entries 2\n") {
		t.Error("the metrics do not tell how many responses are kept")
	}
}

func inOrder(t *testing.T, text string, want ...string) {
	t.Helper()
	at := 0
	for _, s := range want {
		i := strings.Index(text[at:], s)
		if i < 0 {
			t.Errorf("no %q after %q", s, text[:at])
			return
		}
		at += i
	}
}

// TestResponseStoreBounds: the store never holds more bytes than its budget, and keeps what was used last.
func TestResponseStoreBounds(t *testing.T) {
	f := serve(t, Options{})
	store := &f.server.responses
	store.budget = 9 << 10
	long := strings.Repeat("x", 2000)
	var ids []string
	for range 6 {
		r := f.post(resp, `{"input":"`+long+`"}`)
		id, _ := field(t, r.body, "id").(string)
		ids = append(ids, id)
		f.do("GET", resp+"/"+ids[0], "", nil) // so that it stays
		if _, n := store.use(); n > store.budget {
			t.Errorf("%d bytes kept of %d", n, store.budget)
		}
	}
	for i, want := range []int{200, 404, 404, 404, 200, 200} {
		if r := f.do("GET", resp+"/"+ids[i], "", nil); r.status != want {
			t.Errorf("response %d: %d, want %d", i, r.status, want)
		}
	}
	for _, stream := range []string{"false", "true"} {
		r := f.post(resp, `{"input":"`+strings.Repeat("the ", 2500)+`","stream":`+stream+`}`)
		if !strings.Contains(r.body, `"status":"completed"`) || !strings.Contains(r.body, `"store":false`) {
			t.Errorf("one that cannot be kept: %.3000s", r.body)
		}
	}
	section := field(t, f.do("GET", "/status", "", nil).body, "response_store").(map[string]any)
	if section["entries"] != 3.0 || section["budget_bytes"] != 9216.0 || section["evictions"] != 3.0 || section["hits"] != 9.0 || section["misses"] != 3.0 {
		t.Errorf("%v", section)
	}
	// History is charged to the bodies' budget.
	f.server.bodies.limit = 2000
	r := f.post(resp, `{"input":"hi","previous_response_id":"`+ids[5]+`"}`)
	if r.status != 503 || !strings.Contains(r.body, "retained input capacity is exhausted") || r.header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", r.status, r.body)
	}
	if n := f.server.bodies.inUse(); n != 0 {
		t.Errorf("%d bytes left charged", n)
	}
}

// responseEvents reads a stream of Responses: names that are the types, and numbers without gaps.
func responseEvents(t *testing.T, events []event) (names []string) {
	t.Helper()
	for i, e := range events {
		if field(t, e.data, "type") != e.name || field(t, e.data, "sequence_number") != float64(i) {
			t.Errorf("row 87: event %d is %s %s", i, e.name, e.data)
		}
		if n := len(names); n == 0 || names[n-1] != e.name || !strings.HasSuffix(e.name, ".delta") {
			names = append(names, e.name)
		}
	}
	return names
}

var (
	reasoningEvents = []string{
		"response.output_item.added", "response.reasoning_summary_part.added", "response.reasoning_summary_text.delta",
		"response.reasoning_summary_text.done", "response.reasoning_summary_part.done", "response.output_item.done"}
	messageEvents = []string{
		"response.output_item.added", "response.content_part.added", "response.output_text.delta", "response.output_text.done",
		"response.content_part.done", "response.output_item.done"}
	callEvents = []string{
		"response.output_item.added", "response.function_call_arguments.delta", "response.function_call_arguments.done", "response.output_item.done"}
)

func TestResponseStream(t *testing.T) {
	f := serve(t, Options{})
	start := []string{"response.created", "response.in_progress"}
	for _, c := range []struct {
		row        int
		body, says string
		items      [][]string
		last       string
	}{
		{87, respBody(`"stream":true`), "answer", [][]string{messageEvents}, "response.completed"},
		{87, respBody(`"stream":true,"reasoning":{"effort":"low"},` + addTool), "why</think>\n\none " + oneCall + " two " + oneCall,
			[][]string{reasoningEvents, messageEvents, callEvents, messageEvents, callEvents}, "response.completed"},
		{87, respBody(`"stream":true,"reasoning":{"effort":"low"}`), "why</think>", [][]string{reasoningEvents, without(messageEvents, 2)}, "response.completed"},
		{87, respBody(`"stream":true`), "", [][]string{without(messageEvents, 2)}, "response.completed"},
		{93, respBody(`"stream":true,"max_output_tokens":2`), "one two three four", [][]string{messageEvents}, "response.incomplete"},
		{93, respBody(`"stream":true,"max_output_tokens":2,"reasoning":{"effort":"low"}`), "one two three four",
			[][]string{reasoningEvents, without(messageEvents, 2)}, "response.incomplete"},
		{93, respBody(`"stream":true,"max_output_tokens":20,` + addTool), oneCall, [][]string{callEvents}, "response.incomplete"},
	} {
		f.says(c.says)
		events := f.stream(resp, c.body)
		want := append([]string{}, start...)
		for _, names := range c.items {
			want = append(want, names...)
		}
		if d := cmp.Diff(append(want, c.last), responseEvents(t, events)); d != "" {
			t.Errorf("row %d: %s: %s", c.row, c.body, d)
		}
		checkResponseStream(t, events)
		// The same request in one piece has the same output.
		whole := f.post(resp, strings.Replace(c.body, `"stream":true`, `"stream":false`, 1))
		last := events[len(events)-1].data
		if d := cmp.Diff(withoutIDs(field(t, last, "response", "output")), withoutIDs(field(t, whole.body, "output"))); d != "" {
			t.Errorf("row %d: %s: %s", c.row, c.body, d)
		}
	}
}

func without(list []string, i int) []string {
	return append(append([]string{}, list[:i]...), list[i+1:]...)
}

// withoutIDs is an output without what differs from response to response.
func withoutIDs(output any) any {
	for _, v := range output.([]any) {
		item := v.(map[string]any)
		delete(item, "id")
		delete(item, "call_id")
	}
	return output
}

// checkResponseStream holds the events of items to what they add up to.
func checkResponseStream(t *testing.T, events []event) {
	t.Helper()
	text := map[any]string{} // by output index
	done := []any{}
	for _, e := range events {
		index := field(t, e.data, "output_index")
		switch {
		case strings.HasSuffix(e.name, ".delta"):
			text[index] += field(t, e.data, "delta").(string)
		case e.name == "response.output_text.done", e.name == "response.reasoning_summary_text.done":
			if got := field(t, e.data, "text"); got != text[index] {
				t.Errorf("%s has the deltas %q", e.data, text[index])
			}
		case e.name == "response.function_call_arguments.done":
			if got := field(t, e.data, "arguments"); got != text[index] || field(t, e.data, "name") != "add" {
				t.Errorf("%s has the deltas %q", e.data, text[index])
			}
		case e.name == "response.output_item.added":
			if field(t, e.data, "item", "status") != "in_progress" || index != float64(len(done)) {
				t.Errorf("%s after %d items", e.data, len(done))
			}
		case e.name == "response.output_item.done":
			done = append(done, field(t, e.data, "item"))
		}
	}
	if d := cmp.Diff(any(done), field(t, events[len(events)-1].data, "response", "output")); d != "" {
		t.Errorf("the items are not the output: %s", d)
	}
}

// TestResponseCallStream is the turn of the specification's example: a thinking model that calls add with a = 1.
func TestResponseCallStream(t *testing.T) {
	f := serve(t, Options{})
	f.says("sum it</think>\n\n<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>")
	events := f.stream(resp, respBody(`"stream":true,"reasoning":{"effort":"low"},`+addTool))
	id := strings.TrimPrefix(field(t, events[0].data, "response", "id").(string), "resp_")
	var deltas []string
	for _, e := range events {
		var want string
		switch index := field(t, e.data, "output_index"); {
		case e.name == "response.output_item.added" && index == 0.0:
			want = `"item":{"id":"rs_` + id + `_0","type":"reasoning","status":"in_progress","summary":[],"content":[],"encrypted_content":null}`
		case e.name == "response.output_item.added":
			want = `"item":{"id":"fc_` + id + `_1","type":"function_call","status":"in_progress","call_id":"call_` + id + `_0","name":"add","arguments":""}`
		case e.name == "response.function_call_arguments.delta":
			deltas = append(deltas, field(t, e.data, "delta").(string))
		case e.name == "response.reasoning_summary_text.delta":
			want = `"item_id":"rs_` + id + `_0","output_index":0,"summary_index":0,"delta":"`
		case e.name == "response.created":
			want = `"status":"in_progress","incomplete_details":null,"error":null,"model":"test/model","output":[]`
		case e.name == "response.completed":
			want = `"end_turn":false`
		}
		if !strings.Contains(e.data, want) {
			t.Errorf("%s: no %s in %s", e.name, want, e.data)
		}
	}
	if d := cmp.Diff([]string{"{", `"a":1`, "}"}, deltas); d != "" {
		t.Error(d)
	}
}

// TestResponseSilence: before there is output a stream lives by events, afterwards by comments.
func TestResponseSilence(t *testing.T) {
	f := serveModel(t, Options{silence: 20 * time.Millisecond, Queue: 8}, nil)
	release := f.hold()
	busy := make(chan reply, 1)
	go func() { busy <- f.post(cc, chatBody("")) }() // while its pass lasts, no other request starts
	waitFor(t, "the lane", func() bool { return f.script.open() == 1 })
	text := f.postUntil(resp, respBody(`"stream":true,"return_progress":true`), 3, "event: response.in_progress\n", release).body
	<-busy
	events, _, err := parseEvents(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	names := responseEvents(t, events)
	if names[0] != "response.created" || names[1] != "response.in_progress" || names[2] != "response.in_progress" || names[len(names)-1] != "response.completed" {
		t.Errorf("row 57: %v", names)
	}
	told := 0
	for _, e := range events {
		if total := field(t, e.data, "prompt_progress", "total"); total != nil {
			told++
			if e.name != "response.in_progress" || total != float64(len(f.prompt)) {
				t.Errorf("row 56: %s", e.data)
			}
		}
	}
	if told == 0 {
		t.Error("row 56: no progress")
	}
	// A pause within the output: passes happen until there is some of it, and then not until there is a comment.
	f.says("one two three four five six seven eight nine ten")
	gate := make(chan struct{})
	f.script.mu.Lock()
	f.script.gate = gate
	f.script.mu.Unlock()
	go func() {
		for range 6 {
			gate <- struct{}{}
		}
	}()
	text = f.postUntil(resp, respBody(`"stream":true`), 1, ": splash-keepalive\n\n", func() {
		f.script.mu.Lock()
		f.script.gate = nil
		f.script.mu.Unlock()
		close(gate)
	}).body
	if events, _, err = parseEvents(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	responseEvents(t, events)
	checkResponseStream(t, events)
	if i := strings.Index(text, ": splash-keepalive"); !strings.Contains(text[:i], "response.output_text.delta") {
		t.Errorf("row 57: a comment before there is output: %s", text)
	}
}

// TestResponseFaults: a stream that has begun ends with response.failed, and nothing of it is kept.
func TestResponseFaults(t *testing.T) {
	f := serve(t, Options{})
	set := func(fault func() error) {
		f.script.mu.Lock()
		f.script.fault = fault
		f.script.mu.Unlock()
	}
	lost := func() error { return fmt.Errorf("a device is lost") }
	f.says(strings.Repeat("word ", 2000))
	release := slowly(f)
	text := f.postUntil(resp, respBody(`"stream":true`), 1, "response.output_text.delta", func() { set(lost) }).body
	release()
	events, _, err := parseEvents(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	responseEvents(t, events)
	last := events[len(events)-1]
	if last.name != "response.failed" || field(t, last.data, "response", "status") != "failed" || field(t, last.data, "response", "error", "code") != codeInternal ||
		field(t, last.data, "response", "error", "type") != "server_error" || strings.Contains(last.data, "device") {
		t.Errorf("row 59: %s", last.data)
	}
	if n, _ := f.server.responses.use(); n != 0 {
		t.Errorf("%d failed responses kept", n)
	}
	c := check{row: 59, path: resp, body: respBody(""), status: 500, has: []string{`"code":"internal_server_error"`, "Content-Type: application/json"}, hasNot: []string{"device"}}
	c.run(f)
	set(nil)
	c = check{path: resp, body: respBody(""), status: 200}
	c.run(f)
}

// TestResponseInvalidOutput: what the response format does not allow is an error in a stream too.
func TestResponseInvalidOutput(t *testing.T) {
	f := serve(t, Options{unmasked: true})
	const format = `"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}}`
	c := check{row: 75, path: resp, body: respBody(format), says: "no", status: 500, has: []string{`"code":"invalid_model_output"`}}
	c.run(f)
	f.says("no")
	r := f.post(resp, respBody(format+`,"stream":true`))
	if !strings.Contains(r.body, `"code":"invalid_model_output"`) || strings.Contains(r.body, "response.completed") {
		t.Errorf("row 75: %d %s", r.status, r.body)
	}
	if n, _ := f.server.responses.use(); n != 0 {
		t.Errorf("%d invalid responses kept", n)
	}
}

// TestResponseGone: a client that goes frees its lane, and nothing is kept.
func TestResponseGone(t *testing.T) {
	f := serve(t, Options{})
	f.says(strings.Repeat("word ", 2000))
	c, err := net.Dial("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	body := respBody(`"stream":true`)
	release := slowly(f)
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", resp, len(body), body)
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	waitFor(t, "the console", func() bool { return strings.Contains(f.out.String(), "Gone · ") })
	release()
	if n := f.script.open(); n != 0 {
		t.Errorf("row 113: %d lanes open", n)
	}
	if n, _ := f.server.responses.use(); n != 0 {
		t.Errorf("%d responses kept", n)
	}
	f.says("answer")
	ok := check{row: 113, path: resp, body: respBody(""), status: 200}
	ok.run(f)
}

func TestResponseShutdown(t *testing.T) {
	f := serve(t, Options{})
	f.says(strings.Repeat("word ", 1000))
	release := slowly(f)
	defer release()
	streamed := make(chan reply, 1)
	go func() { streamed <- f.post(resp, respBody(`"stream":true`)) }()
	waitFor(t, "the stream", func() bool { return f.script.open() == 1 })
	f.stop()
	if r := <-streamed; !strings.Contains(r.body, `"code":"server_shutdown"`) {
		t.Errorf("row 115: %d %.1000s", r.status, r.body)
	}
}

func TestResponseKey(t *testing.T) {
	f := serve(t, Options{Access: Access{Key: "secret"}})
	for _, c := range []check{
		{row: 17, path: resp, body: `{`, status: 401, has: []string{`"code":"authentication_error"`}},
		{row: 91, path: resp + "/resp_0", status: 401},
		{row: 91, method: "DELETE", path: resp + "/resp_0", status: 401},
		{row: 91, path: resp + "/resp_0", header: header("Authorization", "Bearer secret"), status: 404},
	} {
		c.run(f)
	}
}

// codexRequest is a request as Codex makes it (github.com/openai/codex, codex-rs/core and codex-rs/tools): a conversation
// that has run a command, tools of all types it knows, and fields that only OpenAI's own service reads.
func codexRequest(t *testing.T, stream bool) string {
	t.Helper()
	function := func(name string) map[string]any {
		return map[string]any{"type": "function", "name": name, "description": "Runs it.", "strict": false, "parameters": map[string]any{
			"type": "object", "properties": map[string]any{"cmd": map[string]any{"type": "string"}}, "required": []string{"cmd"}, "additionalProperties": false}}
	}
	input := func(role, text string) map[string]any {
		return map[string]any{"type": "message", "role": role, "content": []any{map[string]any{"type": "input_text", "text": text}}}
	}
	body, err := json.Marshal(map[string]any{
		"model": fakeID, "instructions": "You are a coding agent.", "tool_choice": "auto", "parallel_tool_calls": true,
		"reasoning": map[string]any{"effort": "medium", "summary": "auto"}, "store": false, "stream": stream,
		"include": []string{"reasoning.encrypted_content"}, "prompt_cache_key": "7b1f5d1e-0000-7000-8000-000000000000",
		"text": map[string]any{"verbosity": "medium"}, "client_metadata": map[string]any{"x-codex-installation-id": "0"}, "service_tier": "priority",
		"input": []any{
			input("developer", "<permissions>Read only.</permissions>"),
			input("user", "<environment_context><cwd>/src</cwd></environment_context>"),
			input("user", "list the files"),
			map[string]any{"type": "reasoning", "summary": []any{map[string]any{"type": "summary_text", "text": "I need ls."}}, "encrypted_content": nil},
			map[string]any{"type": "message", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": "Listing."}}, "phase": "commentary"},
			map[string]any{"type": "function_call", "name": "exec_command", "arguments": `{"cmd":"ls"}`, "call_id": "call_1"},
			map[string]any{"type": "function_call", "name": "open", "namespace": "mcp__files", "arguments": `{"cmd":"."}`, "call_id": "call_2"},
			map[string]any{"type": "function_call_output", "call_id": "call_1", "output": "README.md\n"},
			map[string]any{"type": "function_call_output", "call_id": "call_2", "output": []any{map[string]any{"type": "input_text", "text": "opened"}}},
			input("developer", "<mode>Plan mode is on.</mode>"),
			input("user", "open it"),
		},
		"tools": []any{
			function("exec_command"), map[string]any{"type": "local_shell"}, map[string]any{"type": "web_search", "external_web_access": true},
			map[string]any{"type": "custom", "name": "apply_patch", "description": "Patches.", "format": map[string]any{
				"type": "grammar", "syntax": "lark", "definition": "start: \"x\""}},
			map[string]any{"type": "namespace", "name": "mcp__files", "description": "Files.", "tools": []any{function("open"), function("close")}},
			map[string]any{"type": "tool_search", "execution": "sync", "description": "Finds tools.", "parameters": map[string]any{"type": "object"}},
			map[string]any{"type": "image_generation", "output_format": "png"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestCodexRequest(t *testing.T) {
	f := serve(t, Options{})
	f.says("hm</think>\n\n<tool_call>\n<function=mcp__files__open>\n<parameter=cmd>\nREADME.md\n</parameter>\n</function>\n</tool_call>")
	events := f.stream(resp, codexRequest(t, true))
	responseEvents(t, events)
	prompt := f.tok.Decode(f.prompt)
	inOrder(t, prompt, `"exec_command"`, `"mcp__files__open"`, `"mcp__files__close"`, "You are a coding agent.\n\n<permissions>", "<environment_context>", "list the files",
		"Listing.", "<function=exec_command>", "<function=mcp__files__open>", "README.md", "opened", "Plan mode is on.", "open it")
	for _, s := range []string{"apply_patch", "local_shell", "web_search", "tool_search", "image_generation"} {
		if strings.Contains(prompt, s) {
			t.Errorf("%s is in the prompt", s)
		}
	}
	last := events[len(events)-1].data
	if field(t, last, "response", "output", 1, "name") != "open" || field(t, last, "response", "output", 1, "namespace") != "mcp__files" ||
		field(t, last, "response", "output", 1, "arguments") != `{"cmd":"README.md"}` {
		t.Errorf("%s", last)
	}
	warnings, _ := field(t, last, "response", "warnings").([]any)
	if len(warnings) != 5 {
		t.Errorf("%v", warnings)
	}
	for _, e := range events {
		if e.name == "response.function_call_arguments.done" && field(t, e.data, "name") != "open" {
			t.Errorf("%s", e.data)
		}
	}
	if r := f.post(resp, codexRequest(t, false)); r.status != http.StatusOK || field(t, r.body, "store") != false {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestToolAlias(t *testing.T) {
	long := strings.Repeat("n", 40)
	for _, c := range []struct {
		space, name, want string
		ok                bool
	}{
		{"mcp__x", "open", "mcp__x__open", true},
		{strings.Repeat("s", 31), strings.Repeat("n", 31), strings.Repeat("s", 31) + "__" + strings.Repeat("n", 31), true},
		// printf 'mcp__space-of-many-letters\0nnnn...' | sha256sum
		{"mcp__space-of-many-letters", long, "mcp__space-of-many-l__" + long[:24] + "__a89c177f9e47ab8b", true},
		{"", "x", "", false},
		{"a b", "x", "", false},
		{"a", strings.Repeat("x", 65), "", false},
	} {
		if got, ok := toolAlias(c.space, c.name); ok != c.ok || got != c.want {
			t.Errorf("%s, %s: %q %v, want %q", c.space, c.name, got, ok, c.want)
		}
	}
}
