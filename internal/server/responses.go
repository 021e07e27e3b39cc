package server

import (
	"net/http"
	"strings"

	"splash/internal/chat"
	"splash/internal/chat/ojson"
)

// response answers POST /v1/responses. A request is one of Chat Completions in another shape; what is read here is what
// that interface does not have.
func (x *exchange) response(body *ojson.Object) error {
	f := &fields{o: body}
	q := f.responseRequest()
	if f.err != nil {
		return f.err
	}
	if len(q.warnings) > 0 {
		x.s.skippedTools.Do(func() {
			x.s.o.Console.Printf("Skipped · tools that are not functions are not offered to the model")
		})
	}
	release, err := x.recall(q)
	if err != nil {
		return err
	}
	defer release()
	messages, err := responseMessages(f.string("instructions", ""), q.items)
	if err != nil {
		return err
	}
	q.chat.Set("messages", messages)
	g, c, err := x.chatRequest(q.chat)
	if err != nil {
		return err
	}
	g.id = "resp_" + randomHex(16)
	g.maxField, g.maxTokens = maxOutput, f.positive(maxOutput)
	if err := x.converse(g, c); err != nil {
		return err
	}
	return x.generate(g, &responseWriter{writer: newWriter(x, g), q: q})
}

const maxOutput = "max_output_tokens"

// A responseRequest is what a request of the Responses interface says beside what Chat Completions knows.
type responseRequest struct {
	chat       *ojson.Object // the request in the shape of Chat Completions, its messages apart
	items      []any         // of the input, after those of the response before
	store      bool
	previous   any           // the ID of the response before, or nil
	format     *ojson.Object // of the text, as the response tells it
	metadata   *ojson.Object // nil: none
	namespaces map[string]namespaced
	skipped    map[string]bool // types of tools that are not offered
	warnings   []any
}

// sharedFields are those that mean the same in Chat Completions.
func sharedFields() []string {
	return []string{
		"model", "stream", "return_progress", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
		"repetition_penalty", "seed", "stop", "timeout", "priority", "logit_bias", "parallel_tool_calls",
	}
}

// responseRequest reads all but the history.
func (f *fields) responseRequest() *responseRequest {
	q := &responseRequest{chat: &ojson.Object{}, store: f.bool("store", true), namespaces: map[string]namespaced{}, skipped: map[string]bool{}}
	for _, name := range sharedFields() {
		if v := f.o.Value(name); v != nil {
			q.chat.Set(name, v)
		}
	}
	f.responseOnly()
	f.positive(maxOutput)
	f.string("instructions", "")
	f.responseInput(q)
	f.responseReasoning(q)
	f.responseText(q)
	f.responseTools(q)
	if v := f.o.Value("metadata"); v != nil {
		var ok bool
		if q.metadata, ok = v.(*ojson.Object); !ok {
			f.fault("metadata must be an object")
		}
	}
	return q
}

// responseOnly refuses what the interface has and this server does not do.
func (f *fields) responseOnly() {
	if f.has("conversation") {
		f.fault("conversation is not supported")
	}
	if f.bool("background", false) {
		f.fault("background is not supported")
	}
	if v := f.o.Value("truncation"); v != nil && v != "disabled" {
		f.fault("truncation must be disabled")
	}
	if v := f.o.Value("context_management"); v != nil {
		if edits, ok := v.([]any); !ok || len(edits) > 0 {
			f.fault("context_management is not supported")
		}
	}
}

// responseInput reads the input and what it goes on from.
func (f *fields) responseInput(q *responseRequest) {
	switch v := f.o.Value("input").(type) {
	case string:
		q.items = []any{ojson.NewObject("type", "message", "role", chat.RoleUser, "content", v)}
	case []any:
		q.items = v
	}
	if len(q.items) == 0 {
		f.fault("input must be a string or a non-empty array")
	}
	if f.has("previous_response_id") {
		q.previous = f.string("previous_response_id", "")
	}
}

// responseReasoning reads how the model is to reason.
func (f *fields) responseReasoning(q *responseRequest) {
	v := f.o.Value("reasoning")
	if v == nil {
		return
	}
	o, ok := v.(*ojson.Object)
	if !ok {
		f.fault("reasoning must be an object")
		return
	}
	if v := o.Value("effort"); v != nil {
		effort, _ := v.(string)
		if !chat.ValidEffort(effort) {
			f.fault("reasoning.effort must be one of %s", strings.Join(chat.Efforts, ", "))
		}
		q.chat.Set("reasoning_effort", effort)
	}
}

// responseText reads the format of the text.
func (f *fields) responseText(q *responseRequest) {
	q.format = ojson.NewObject("type", "text")
	v := f.o.Value("text")
	if v == nil {
		return
	}
	o, ok := v.(*ojson.Object)
	if !ok {
		f.fault("text must be an object")
		return
	}
	if v = o.Value("format"); v == nil {
		return
	}
	format, ok := v.(*ojson.Object)
	if !ok {
		f.fault("text.format must be an object")
		return
	}
	q.format = format
	switch format.Value("type") {
	case "text":
	case "json_object":
		q.chat.Set("response_format", format)
	case "json_schema":
		switch format.Value("schema").(type) {
		case bool, *ojson.Object:
		default:
			f.fault("text.format.schema must be a JSON Schema: an object or a boolean")
		}
		q.chat.Set("response_format", ojson.NewObject("type", "json_schema", "json_schema", format))
	default:
		f.fault("text.format.type must be text, json_object or json_schema")
	}
}

// recall puts the items of the response before in front of the request's. Their bytes are charged before they are decoded,
// until release is called.
func (x *exchange) recall(q *responseRequest) (release func(), err error) {
	id, ok := q.previous.(string)
	if !ok {
		return func() {}, nil
	}
	r := x.s.responses.get(id)
	if r == nil {
		return nil, &Error{Status: http.StatusNotFound, Code: codeNoPrevious, Message: "previous response not found"}
	}
	n := int64(len(r.history))
	if !x.s.bodies.take(n) {
		return nil, overloaded("retained input capacity is exhausted; retry shortly")
	}
	v, err := ojson.Decode(string(r.history), ojson.Options{})
	before, ok := v.([]any)
	if err != nil || !ok {
		x.s.bodies.give(n)
		return nil, err
	}
	q.items = append(before, q.items...)
	return func() { x.s.bodies.give(n) }, nil
}

// Codes of responses that are not there.
const (
	codeNoPrevious = "previous_response_not_found"
	codeNoResponse = "not_found_error"
)

// responsePath is what the paths of stored responses begin with.
const responsePath = "/v1/responses/"

// responseID is the ID in the path of a response.
func responseID(path string) (string, bool) {
	id, ok := strings.CutPrefix(path, responsePath)
	name, prefixed := strings.CutPrefix(id, "resp_")
	if !ok || !prefixed || name == "" {
		return "", false
	}
	other := strings.IndexFunc(name, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_')
	})
	return id, other < 0
}

func responseNotFound() *Error {
	return &Error{Status: http.StatusNotFound, Code: codeNoResponse, Message: "response not found"}
}

// getResponse answers GET /v1/responses/{id} with the response as it was sent.
func (x *exchange) getResponse(id string) error {
	r := x.s.responses.get(id)
	if r == nil {
		return responseNotFound()
	}
	x.send(http.StatusOK, "application/json", r.response)
	return nil
}

// deleteResponse answers DELETE /v1/responses/{id}.
func (x *exchange) deleteResponse(id string) error {
	if !x.s.responses.remove(id) {
		return responseNotFound()
	}
	x.json(http.StatusOK, ojson.NewObject("id", id, "object", "response", "deleted", true))
	return nil
}
