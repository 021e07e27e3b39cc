package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

const (
	answerFormat  = `{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"]}}}`
	answerJSON    = `{"answer": "yes"}`
	strictTools   = `"tools":[{"type":"function","function":{"name":"add","strict":true,"parameters":{"type":"object","properties":{"a":{"type":"integer"},"b":{"enum":["x","y"]}},"required":["a","b"]}}}]`
	strictCall    = "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx\n</parameter>\n</function>\n</tool_call>"
	messageFormat = `{"type":"json_schema","schema":{"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"]}}`
	messageTools  = `"tools":[{"name":"add","input_schema":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}}}}]`
)

func format(schema string) string {
	return `"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":` + schema + `}}`
}

// TestConstraintChecks are the rows on what answers are held to, and what cannot be.
func TestConstraintChecks(t *testing.T) {
	f := serve(t, Options{})
	named := `,"tool_choice":{"type":"function","function":{"name":"add"}}`
	deep := strings.Repeat(`{"items":`, 65) + `{}` + strings.Repeat(`}`, 65)
	for _, c := range []check{
		{row: 70, path: cc, body: chatBody(`"tool_choice":"required"`), status: 400, has: []string{"tool_choice"}},
		{row: 70, path: cc, body: chatBody(tools + `,"tool_choice":"required"`), says: oneCall, status: 200, has: []string{`"finish_reason":"tool_calls"`, `"name":"add"`}},
		{row: 70, path: msgs, body: "{" + mu + `,"tool_choice":{"type":"any"}}`, status: 400, has: []string{"tool_choice any needs tools"}},
		{row: 71, path: cc, body: chatBody(tools + `,"tool_choice":{"type":"function","function":{"name":"sub"}}`), status: 400, has: []string{"invalid named tool_choice"}},
		{row: 71, path: cc, body: chatBody(tools + named), says: oneCall + "\n" + oneCall, status: 200, has: []string{`_0"`, `"finish_reason":"tool_calls"`}, hasNot: []string{`_1"`}},
		{row: 72, path: cc, body: chatBody(`"stop":"x","response_format":` + answerFormat), status: 400, has: []string{"stop cannot be combined with a response format"}},
		{row: 72, path: msgs, body: "{" + mu + `,"stop_sequences":["x"],"output_format":` + messageFormat + `}`, status: 400, has: []string{"stop_sequences cannot be combined with a response format"}},
		{row: 74, path: cc, body: chatBody(`"response_format":` + answerFormat), says: answerJSON, status: 200, has: []string{`"content":"{\"answer\": \"yes\"}"`, `"finish_reason":"stop"`}},
		{row: 74, path: cc, body: chatBody(`"response_format":{"type":"json_object"}`), says: `{"a": [1, 2.5, null]}`, status: 200, has: []string{`"content":"{\"a\": [1, 2.5, null]}"`}},
		{row: 74, path: cc, body: chatBody(`"response_format":{"type":"text"}`), status: 200, has: []string{`"content":"answer"`}},
		{row: 74, path: cc, body: chatBody(format("true")), says: "3", status: 200, has: []string{`"content":"3"`}},
		{row: 75, path: cc, body: chatBody(format(`{"type":"array","items":{"type":"integer"},"uniqueItems":true}`)), says: "[1, 2, 1]", status: 500, has: []string{
			`"code":"invalid_model_output"`, `"type":"server_error"`, "model returned invalid structured output: the value: items at 0 and 2 are equal"}},
		{row: 75, path: cc, body: chatBody(format(`{"type":"string","pattern":"^(?=(a+)+$)(a+)+b"}`)), says: `"` + strings.Repeat("a", 60) + `"`, status: 500, has: []string{`"code":"output_validation_failed"`}},
		{row: 76, path: cc, body: chatBody(format(deep)), status: 400, has: []string{badRequest, "more than 64 levels of arrays and objects"}},
		{row: 76, path: cc, body: chatBody(format(`{"$ref":"https://x.example/y"}`)), status: 400, has: []string{badRequest, "remote schema reference is not allowed: https://x.example/y"}},
		{row: 76, path: cc, body: chatBody(`"tools":[{"type":"function","function":{"name":"a","parameters":{"$ref":"https://x.example/y"}}}]`), status: 400, has: []string{
			badRequest, "remote tool schema reference is not allowed: https://x.example/y"}},
		{row: 76, path: cc, body: chatBody(format(`{"type":"strange"}`)), status: 400, has: []string{badRequest, "unsupported output schema: "}},
		{row: 76, path: cc, body: chatBody(format(`{"properties":{"a":{"minimum":1,"maximum":0,"type":"integer"}},"required":["a"],"type":"object"}`)), status: 400, has: []string{
			badRequest, "unsupported output schema: no value is valid"}},
		{row: 76, path: cc, body: chatBody(format(`{"unevaluatedProperties":false,"patternProperties":{"a":{}}}`)), status: 400, has: []string{badRequest, "unevaluatedProperties with patternProperties"}},
		{row: 77, path: cc, body: chatBody(tools + `,"ignore_eos":true,"tool_choice":"required"`), status: 400, has: []string{"ignore_eos cannot be combined with constrained output"}},
		{row: 77, path: cc, body: chatBody(`"ignore_eos":true,"response_format":` + answerFormat), status: 400, has: []string{"ignore_eos"}},
		{row: 77, path: cc, body: chatBody(tools + `,"ignore_eos":true,"max_tokens":3`), status: 200},

		{path: cc, body: chatBody(`"response_format":"json"`), status: 400, has: []string{"response_format must be an object"}},
		{path: cc, body: chatBody(`"response_format":{"type":"yaml"}`), status: 400, has: []string{"response_format.type must be text, json_object or json_schema"}},
		{path: cc, body: chatBody(`"response_format":{"type":"json_schema"}`), status: 400, has: []string{"response_format.json_schema must be an object"}},
		{path: cc, body: chatBody(`"response_format":{"type":"json_schema","json_schema":{"name":"a"}}`), status: 400, has: []string{"response_format.json_schema.schema must be a JSON Schema"}},
		{path: msgs, body: "{" + mu + `,"thread":{"type":"create"}}`, status: 400, has: []string{`"details":{"error_code":"thread_unsupported_request"}`, "thread is not supported"}},
		{path: msgs, body: "{" + mu + `,"thread":null}`, status: 200},
		{path: msgs, body: "{" + mu + `,"output_format":{"type":"text"}}`, status: 400, has: []string{"output_format.type must be json_schema"}},
		{path: msgs, body: "{" + mu + `,"output_config":{"format":{"type":"json_schema"}}}`, status: 400, has: []string{"output_config.format.schema must be a JSON Schema"}},
		{path: msgs, body: "{" + mu + `,"output_config":{"format":` + messageFormat + `},"output_format":` + messageFormat + `}`, status: 400, has: []string{"cannot be combined"}},
		{path: msgs, body: "{" + mu + `,"output_config":{"format":` + messageFormat + `}}`, says: answerJSON, status: 200, has: []string{`"text":"{\"answer\": \"yes\"}"`, `"stop_reason":"end_turn"`}},
		{path: msgs, body: "{" + mu + `,"output_format":` + messageFormat + `}`, says: answerJSON, status: 200, has: []string{`"text":"{\"answer\": \"yes\"}"`}},
		{path: msgs, body: "{" + mu + "," + messageTools + `,"tool_choice":{"type":"any"}}`, says: oneCall, status: 200, has: []string{`"stop_reason":"tool_use"`, `"name":"add"`}},
		{path: msgs, body: "{" + mu + "," + messageTools + `,"tool_choice":{"type":"tool","name":"add"}}`, says: oneCall, status: 200, has: []string{`"input":{"a":1,"b":"x \"y\""}`}},
		{path: msgs, body: "{" + mu + `,"output_format":{"type":"json_schema","schema":{"type":"array","uniqueItems":true}}}`, says: "[1,1]", status: 500, has: []string{`"type":"api_error"`, "model returned invalid structured output"}},

		{path: cc, body: chatBody(tools + `,"tool_choice":"none"`), says: "no " + strings.ReplaceAll(oneCall, "<tool_call>", ""), status: 200, has: []string{`"finish_reason":"stop"`, `"content":"no \n`}, hasNot: []string{`"tool_calls"`}},
		{path: cc, body: chatBody(tools + `,"tool_choice":"none","response_format":` + answerFormat), says: answerJSON, status: 200, has: []string{`"content":"{\"answer\": \"yes\"}"`}},
		{path: cc, body: chatBody(tools + `,"response_format":` + answerFormat), says: answerJSON, status: 200, has: []string{`"content":"{\"answer\": \"yes\"}"`}},
		{path: cc, body: chatBody(tools + `,"response_format":` + answerFormat), says: oneCall, status: 200, has: []string{`"finish_reason":"tool_calls"`, `"content":null`}},
		{path: cc, body: chatBody(tools + `,"parallel_tool_calls":false`), says: oneCall + "\n" + oneCall, status: 200, has: []string{`_0"`}, hasNot: []string{`_1"`}},
		{path: cc, body: chatBody(tools + `,"parallel_tool_calls":false`), says: "answer", status: 200, has: []string{`"content":"answer"`}},
		{path: cc, body: chatBody(strictTools), says: strictCall, status: 200, has: []string{`"arguments":"{\"a\":1,\"b\":\"x\"}"`}},
		{path: cc, body: chatBody(strictTools), says: "answer", status: 200, has: []string{`"content":"answer"`}},
		// What the model says otherwise is not what comes.
		{path: cc, body: chatBody(strictTools), says: strings.Replace(strictCall, "1", "one", 1), status: 200, has: []string{`"arguments":"{\"a\":`}, hasNot: []string{`\"a\":one`, `\"a\":\"`}},
		{path: cc, body: chatBody(`"tools":[{"type":"function","function":{"name":"now","strict":true}}],"tool_choice":"required"`), says: "<tool_call>\n<function=now>\n</function>\n</tool_call>", status: 200, has: []string{`"arguments":"{}"`}},
		{path: cc, body: chatBody(`"tools":[{"type":"function","function":{"name":"a","strict":true,"parameters":{"properties":{"x":{"enum":["\n</parameter>\n"]}},"type":"object"}}}]`), status: 400, has: []string{"tool parameter enum contains XML framing"}},
		{path: cc, body: chatBody(`"tools":[{"type":"function","function":{"name":"a","strict":true,"parameters":{"properties":{"<":{}},"type":"object"}}}]`), status: 400, has: []string{"invalid tool parameter name"}},
		// An answer that was cut is not validated.
		{path: cc, body: chatBody(`"max_tokens":3,"response_format":` + answerFormat), says: answerJSON, status: 200, has: []string{`"finish_reason":"length"`}},
	} {
		c.run(f)
	}
	if log := f.out.String(); strings.Contains(log, "panic") || strings.Contains(log, "internal_server_error") {
		t.Error(log)
	}
}

// TestUnmasked: what a model says that does not keep to the grammar is held to the response format all the same.
func TestUnmasked(t *testing.T) {
	f := serve(t, Options{unmasked: true})
	c := check{row: 75, path: cc, body: chatBody(`"response_format":` + answerFormat), says: "no", status: 500, has: []string{
		`"code":"invalid_model_output"`, "model returned invalid structured output: "}}
	c.run(f)
	c.says, c.status, c.has = answerJSON, 200, nil
	c.run(f)
	// A stream may have begun, or not.
	f.says("no")
	r := f.post(cc, chatBody(`"stream":true,"response_format":`+answerFormat))
	if !strings.Contains(r.body, `"code":"invalid_model_output"}}`) || r.status != 500 && !strings.HasSuffix(r.body, "\n\ndata: [DONE]\n\n") {
		t.Errorf("row 75: %d %s", r.status, r.body)
	}
	r = f.post(msgs, "{"+mu+`,"stream":true,"output_format":`+messageFormat+`}`)
	if !strings.Contains(r.body, `"error":{"type":"api_error"`) || r.status != 500 && !strings.Contains(r.body, "\n\nevent: error\ndata: ") {
		t.Errorf("row 75: %d %s", r.status, r.body)
	}
	if !strings.Contains(f.out.String(), "Failed · chatcmpl-") {
		t.Errorf("the console does not say that it failed:\n%s", f.out)
	}
	// Blocks around the answer only frame it, and a call is none of the format's.
	c = check{row: 75, path: cc, body: chatBody(tools + `,"response_format":` + answerFormat), says: " \n" + answerJSON + "\n", status: 200}
	c.run(f)
	c.says, c.has = oneCall, []string{`"finish_reason":"tool_calls"`}
	c.run(f)
}

// TestReasoningIsFree is case 42: a response format or a tool choice binds what follows the reasoning, not the reasoning.
func TestReasoningIsFree(t *testing.T) {
	f := serve(t, Options{Effort: "high"})
	const why = `I think {"x": <b>`
	for _, effort := range []string{`"reasoning_effort":"low",`, `"reasoning_effort":"none",`, ""} {
		reason := why
		if strings.Contains(effort, "none") {
			reason = ""
		}
		say := func(answer string) {
			if f.says(answer); reason != "" {
				f.says(reason + "</think>\n\n" + answer)
			}
		}
		for name, test := range map[string]struct{ fields, answer, content, finish string }{
			"format": {`"response_format":` + answerFormat, answerJSON, answerJSON, "stop"},
			"tools":  {tools + `,"tool_choice":"required"`, oneCall, "", "tool_calls"},
		} {
			say(test.answer)
			r := f.post(cc, chatBody(effort+test.fields))
			content, _ := field(t, r.body, "choices", 0, "message", "content").(string)
			reasoning, _ := field(t, r.body, "choices", 0, "message", "reasoning_content").(string)
			if r.status != 200 || content != test.content || reasoning != reason || field(t, r.body, "choices", 0, "finish_reason") != test.finish {
				t.Errorf("case 42, %s with %s: %d %s", name, effort, r.status, r.body)
			}
			say(test.answer)
			events := f.stream(cc, chatBody(`"stream":true,`+effort+test.fields))
			if got := joined(t, events, "choices", 0, "delta", "reasoning_content"); got != reason {
				t.Errorf("case 42, %s with %s: streams the reasoning %q", name, effort, got)
			}
			if got := joined(t, events, "choices", 0, "delta", "content"); got != test.content {
				t.Errorf("case 42, %s with %s: streams %q", name, effort, got)
			}
		}
	}
	for _, stream := range []string{"", `,"stream":true`} {
		f.says(why + "</think>\n\n" + answerJSON)
		body := "{" + mu + `,"thinking":{"type":"enabled"},"output_config":{"format":` + messageFormat + `}` + stream + `}`
		r := f.post(msgs, body)
		if stream != "" { // in pieces
			events, _, err := parseEvents(strings.NewReader(r.body))
			if err != nil || joined(t, events, "delta", "thinking") != why || joined(t, events, "delta", "text") != answerJSON {
				t.Errorf("case 42: %v %s", err, r.body)
			}
		} else if !strings.Contains(r.body, `I think {\"x\": <b>`) {
			t.Errorf("case 42: %s", r.body)
		}
		if r.status != 200 || !strings.Contains(r.body, `"end_turn"`) {
			t.Errorf("case 42: %d %s", r.status, r.body)
		}
	}
	// The limit ends the reasoning, and nothing is to be valid.
	f.says(why + " and so on")
	limit := len(f.tok.Encode(why, true))
	c := check{path: cc, body: chatBody(fmt.Sprintf(`"max_tokens":%d,"response_format":%s`, limit, answerFormat)), status: 200,
		says: why + " and so on", has: []string{`"content":null`, `"finish_reason":"length"`, `"reasoning_content":"I think`}}
	c.run(f)
}

// TestGrammarFigures: grammars are kept, and /status and /metrics tell of them and of masks.
func TestGrammarFigures(t *testing.T) {
	f := serve(t, Options{})
	for range 3 {
		f.says(answerJSON)
		f.post(cc, chatBody(`"response_format":`+answerFormat))
	}
	r := f.do("GET", "/status", "", nil)
	for name, want := range map[string]float64{"entries": 1, "capacity": 32, "source_budget_bytes": 8 << 20, "hits": 2, "misses": 1} {
		if got := field(t, r.body, "grammar_cache", name); got != want {
			t.Errorf("grammar_cache.%s is %v, want %v", name, got, want)
		}
	}
	rows := float64(3 * (len(f.tok.Encode(answerJSON, true)) + 1))
	if got := field(t, r.body, "constraint_masks", "rows"); got != rows {
		t.Errorf("%v masks, want %v", got, rows)
	}
	m := f.do("GET", "/metrics", "", nil).body
	for _, want := range []string{fmt.Sprintf("splash_constraint_mask_rows_total %v\n", rows), "splash_constraint_mask_failures_total 0\n", "splash_grammar_seconds_count 3\n"} {
		if !strings.Contains(m, want) {
			t.Errorf("no %q in /metrics", want)
		}
	}
}

// TestHostileSchemas: schemas that are costly by design are refused, or their answers are, where the grammar left a pattern
// to validation; and other requests are answered meanwhile.
func TestHostileSchemas(t *testing.T) {
	f := serve(t, Options{Queue: 16})
	for name, s := range hostileSchemas() {
		began := time.Now()
		done := make(chan reply, 1)
		go func() { done <- f.post(cc, chatBody(`"max_tokens":40,`+format(s))) }()
		if r := f.post(cc, chatBody("")); r.status != 200 {
			t.Errorf("%s: another request gets %d %s", name, r.status, r.body)
		}
		r := <-done
		if r.status != 200 && r.status != 400 && !strings.Contains(r.body, `"code":"invalid_model_output"`) {
			t.Errorf("%s: %d %.300s", name, r.status, r.body)
		}
		t.Logf("%s: %d in %s", name, r.status, time.Since(began))
	}
}

// TestCostlyMasks: an answer whose masks would keep the others waiting ends, and the engine goes on.
func TestCostlyMasks(t *testing.T) {
	f := serve(t, Options{})
	var list []string
	for i := range 4000 {
		list = append(list, fmt.Sprintf(`{"type":"string","minLength":%d,"maxLength":%d}`, i, 2*i+1))
	}
	c := check{path: cc, body: chatBody(format(`{"anyOf":[` + strings.Join(list, ",") + `]}`)), says: `"` + strings.Repeat("aX", 1000) + `"`, status: 503, has: []string{
		`"code":"mask_timeout"`, "Retry-After: 1"}}
	c.run(f)
	c = check{path: cc, body: chatBody(`"response_format":` + answerFormat), says: answerJSON, status: 200}
	c.run(f)
	r := f.do("GET", "/status", "", nil)
	if got := field(t, r.body, "constraint_masks", "failures"); got != 1.0 {
		t.Errorf("%v masks failed, want 1", got)
	}
}

// TestHangUpWhileCompiling: a client that goes leaves no work behind.
func TestHangUpWhileCompiling(t *testing.T) {
	f := serve(t, Options{})
	schema := hostileSchemas()["many optional properties"]
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+cc, strings.NewReader(chatBody(format(schema))))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		done := make(chan struct{})
		go func() {
			defer close(done)
			if res, err := http.DefaultClient.Do(r); err == nil {
				res.Body.Close() // the machine was faster
			}
		}()
		waitFor(t, "compilation", func() bool {
			select {
			case <-done:
				return true
			default:
				return len(f.server.preparing) > 0
			}
		})
		cancel()
		<-done
		waitFor(t, "the place for making prompts", func() bool { return len(f.server.preparing) == 0 })
	}
	c := check{path: cc, body: chatBody(`"response_format":` + answerFormat), says: answerJSON, status: 200}
	c.run(f)
}

// hostileSchemas are schemas whose size, number of cases or ambiguity a naive compiler multiplies out.
func hostileSchemas() map[string]string {
	list := func(n int, item func(i int) string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = item(i)
		}
		return strings.Join(items, ",")
	}
	alternatives := func(i int) string {
		return fmt.Sprintf(`{"anyOf":[{"properties":{"a%d":{"const":1}}},{"properties":{"b%d":{"const":2}}},{"properties":{"c%d":{"const":3}}}]}`, i, i, i)
	}
	return map[string]string{
		"alternatives of alternatives": `{"type":"object","allOf":[` + list(40, alternatives) + `]}`,
		"many optional properties":     `{"type":"object","properties":{` + list(4000, func(i int) string { return fmt.Sprintf(`"p%d":{"type":"integer"}`, i) }) + `}}`,
		"many schemas":                 `{"anyOf":[` + list(6000, func(i int) string { return fmt.Sprintf(`{"const":%d}`, i) }) + `]}`,
		"many constants":               `{"enum":[` + list(60_000, func(i int) string { return fmt.Sprintf(`"value %d"`, i) }) + `]}`,
		"a long pattern":               `{"type":"string","pattern":"^(a?){2000}(a|b|[a-z]{1,900}){900}$"}`,
		"an ambiguous pattern":         `{"type":"string","pattern":"^((a|aa|aaa|[ab]+)*(b|bb|[ab]*))*c$"}`,
		"repetition of repetition":     `{"type":"string","pattern":"^((((a{1,50}){1,50}){1,50}){1,50}){1,50}$"}`,
		"long strings":                 `{"type":"array","items":{"type":"string","minLength":100000,"maxLength":2000000}}`,
		"recursive alternatives": `{"$defs":{"x":{"anyOf":[{"type":"array","items":{"$ref":"#/$defs/x"}},{"type":"array","prefixItems":[{"$ref":"#/$defs/x"}],"items":{"$ref":"#/$defs/x"}},
			{"type":"object","additionalProperties":{"$ref":"#/$defs/x"}},{"type":"string"}]}},"$ref":"#/$defs/x"}`,
		"a reference to itself": `{"$defs":{"x":{"$ref":"#/$defs/y"},"y":{"$ref":"#/$defs/x"}},"$ref":"#/$defs/x"}`,
		"narrow numbers":        `{"type":"number","minimum":-1e300,"maximum":1e300,"multipleOf":0.0001}`,
		"deep allOf":            strings.Repeat(`{"allOf":[{"minimum":1},`, 30) + `{}` + strings.Repeat(`]}`, 30),
		"overlapping names": `{"type":"object","patternProperties":{` + list(60, func(i int) string { return fmt.Sprintf(`"a{%d}b*":{"type":"integer"}`, i) }) +
			`},"additionalProperties":false}`,
		"cyclic strings": `{"type":"array","items":{"anyOf":[` + list(200, func(i int) string { return fmt.Sprintf(`{"type":"string","pattern":"^a{%d}"}`, i) }) + `]}}`,
	}
}
