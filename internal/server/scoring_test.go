package server

import (
	"math"
	"strings"
	"testing"
)

const judgmentBody = `{"id":"j1","state":{"b":1,"a":"é"},"question":"Is it so?","options":[{"id":"yes","description":"It is."},{"id":"no","description":"It is not."}]`

func TestJudgments(t *testing.T) {
	f := serve(t, Options{})
	f.says("B")
	r := f.post("/v1/judgments", judgmentBody+"}")
	if r.status != 200 {
		t.Fatalf("row 107: %d %s", r.status, r.body)
	}
	p0, p1 := field(t, r.body, "probabilities", 0).(float64), field(t, r.body, "probabilities", 1).(float64)
	if math.Abs(p0+p1-1) > 1e-12 || p1 < 0.99 || field(t, r.body, "usage", "completion_tokens") != 0.0 || field(t, r.body, "option_ids", 1) != "no" ||
		field(t, r.body, "prompt_version") != promptVersion || len(field(t, r.body, "prompt_sha256").(string)) != 64 || field(t, r.body, "model", "id") != fakeID {
		t.Errorf("row 107: %s", r.body)
	}
	if token := field(t, r.body, "answer_token_ids", 1).(float64); f.tok.Decode([]int32{int32(token)}) != "B" {
		t.Errorf("row 107: the token of B is %v", token)
	}
	prompt := f.tok.Decode(f.prompt)
	want := `{"evidence": {"b": 1, "a": "é"}, "criterion": "Is it so?", "options": [{"letter": "A", "description": "It is."}, {"letter": "B", "description": "It is not."}]}`
	if !strings.Contains(prompt, want) || !strings.Contains(prompt, scoringInstruction) {
		t.Errorf("the prompt is %s", prompt)
	}
	for _, c := range []check{
		{row: 106, path: "/v1/judgments", body: judgmentBody + `,"temperature":1}`, status: 400, has: []string{"unsupported fields: temperature"}},
		{path: "/v1/judgments", body: judgmentBody + `,"model":"other"}`, status: 404, has: []string{"model_not_found"}},
		{path: "/v1/judgments", body: judgmentBody + `,"timeout":0}`, status: 400, has: []string{"timeout"}},
		{path: "/v1/judgments", body: `{"id":"","state":"s","question":"q","options":[]}`, status: 400, has: []string{"non-empty"}},
		{path: "/v1/judgments", body: `{"id":"a","state":"","question":"q","options":[]}`, status: 400, has: []string{"state"}},
		{path: "/v1/judgments", body: `{"id":"a","state":"s","question":"q","options":[{"id":"a","description":"x"}]}`, status: 400, has: []string{"options must be 2 to 16"}},
		{path: "/v1/judgments", body: `{"id":"a","state":"s","question":"q","options":[{"id":"a","description":"x"},{"id":"a","description":"y"}]}`, status: 400, has: []string{"an id of its own"}},
	} {
		c.run(f)
	}
}

func TestSystemOne(t *testing.T) {
	f := serve(t, Options{})
	request := func(questions string) string {
		return `{"model":"test/model","state":"the sky is blue","questions":` + questions + `}`
	}
	for _, c := range []check{
		{row: 108, path: "/v1/systemone", body: `{"model":"test/model","questions":{"a":{"type":"noul"}}}`, status: 422, has: []string{`{"detail":[{"loc":["body","state"],"msg":"Field required","type":"missing"}]}`}},
		{row: 108, path: "/v1/systemone", body: request(`{"a":3}`), status: 422, has: []string{`"loc":["body","questions","a"]`, `"type":"model_type"`}},
		{row: 108, path: "/v1/systemone", body: request(`{"a":{"type":"what"}}`), status: 422, has: []string{`["body","questions","a","type"]`}},
		{row: 108, path: "/v1/systemone", body: request(`{"a":{"type":"score","criteria":[]}}`), status: 422, has: []string{`["body","questions","a","criteria"]`}},
		{row: 108, path: "/v1/systemone", body: request(`{}`), status: 422},
		{row: 109, path: "/v1/systemone", body: request(`{"a":{"type":"choice","criteria":{"only":null}}}`), status: 200, has: []string{
			`"choice":"only","probabilities":{"only":1.0},"confidence":1.0`, `"usage":{"input_tokens":0,"output_tokens":0}`, "X-Typesafe-Request-Id: req_"}},
		{path: "/v1/systemone", body: request(`{"q":{"type":"noul","instructions":"Is the sky blue?"}}`), says: "A", status: 200, has: []string{`"answers":{"q":{"type":"noul","noul":1.0}}`}},
		{path: "/v1/systemone", body: request(`{"q":{"type":"choice","criteria":{"red":"like fire","blue":null,"green":["x"]}}}`), says: "B", status: 200, has: []string{`"choice":"blue"`, `"confidence":`}},
		{path: "/v1/systemone", body: request(`{"q":{"type":"score","criteria":["bad","fair","good"]}}`), says: "C", status: 200, has: []string{`"score":2.0`, `"legend":{"0":"bad","1":"fair","2":"good"}`}},
		{path: "/v1/systemone", body: `{"model":"x","state":"s","questions":{"a":{"type":"noul"}}}`, status: 404, has: []string{`"code":"model_not_found"`}},
		{path: "/v1/systemone", body: `{`, status: 400, has: []string{`"code":"invalid_request_error"`}},
	} {
		c.run(f)
	}
	prompt := f.tok.Decode(f.prompt)
	if want := `{"evidence": "the sky is blue", "options": [{"slot": "A", "label": "0", "description": "bad"}, `; !strings.Contains(prompt, want) {
		t.Errorf("the prompt is %s", prompt)
	}
	f.server.bodies.take(f.server.bodies.limit)
	c := check{row: 110, path: "/v1/systemone", body: request(`{}`), status: 529, has: []string{"Retry-After: 1", `"code":"frontend_overloaded"`}}
	c.run(f)
	f.server.bodies.give(f.server.bodies.limit)
}

func TestSlots(t *testing.T) {
	f := serve(t, Options{})
	slots := f.server.findSlots()
	if len(slots) < 26 || len(slots) > mostSlots || slots[0] != "A" || slots[25] != "Z" {
		t.Errorf("slots %v", slots)
	}
	for i := 1; i < len(slots); i++ {
		if a, b := slots[i-1], slots[i]; len(a) > len(b) || len(a) == len(b) && a >= b {
			t.Errorf("%s comes before %s", a, b)
		}
	}
}
