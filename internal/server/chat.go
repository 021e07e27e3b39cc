package server

import (
	"splash/internal/chat"
	"splash/internal/chat/ojson"
	"splash/internal/grammar/output"
)

// chatCompletion answers POST /v1/chat/completions.
func (x *exchange) chatCompletion(body *ojson.Object) error {
	g, c, err := x.chatRequest(body)
	if err != nil {
		return err
	}
	if err := x.converse(g, c); err != nil {
		return err
	}
	return x.generate(g, &chatWriter{writer: newWriter(x, g)})
}

// chatRequest reads the fields of a Chat Completions request.
func (x *exchange) chatRequest(body *ojson.Object) (*generation, conversation, error) {
	g := newGeneration("chatcmpl-")
	f := &fields{o: body}
	if f.has("model") {
		if err := x.s.checkName(f.string("model", "")); err != nil && f.err == nil {
			return nil, conversation{}, err
		}
	}
	x.common(f, g)
	f.streaming(g)
	f.unsupported()
	g.policy, g.seed = f.sampling(true)
	g.stop = f.stop("stop")
	g.ignoreEOS = f.bool("ignore_eos", false)
	g.maxField = "max_completion_tokens"
	if g.maxTokens = f.positive(g.maxField); g.maxTokens == 0 {
		g.maxField = "max_tokens"
		g.maxTokens = f.positive(g.maxField)
	}
	g.tools = f.chatTools()
	g.response = f.responseFormat()
	f.checkConstraint(g, "stop")
	c := conversation{Variables: x.s.variables(f)}
	if f.err != nil {
		return nil, c, f.err
	}
	var err error
	c.messages, err = chat.ParseMessages(body.Value("messages"))
	return g, c, err
}

// responseFormat reads the format of the answer; nil is text.
func (f *fields) responseFormat() *output.Response {
	v := f.o.Value("response_format")
	if v == nil {
		return nil
	}
	o, ok := v.(*ojson.Object)
	if !ok {
		f.fault("response_format must be an object")
		return nil
	}
	switch o.Value("type") {
	case "text":
	case "json_object":
		return &output.Response{AnyObject: true}
	case "json_schema":
		inner, ok := o.Value("json_schema").(*ojson.Object)
		if !ok {
			f.fault("response_format.json_schema must be an object")
			return nil
		}
		return f.jsonSchema("response_format.json_schema", inner)
	default:
		f.fault("response_format.type must be text, json_object or json_schema")
	}
	return nil
}

// A chatWriter writes Chat Completions.
type chatWriter struct{ writer }

type chatResponse struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Created int64           `json:"created"`
	Model   string          `json:"model"`
	Choices []chatChoice    `json:"choices"`
	Usage   *usage          `json:"usage,omitempty"`
	Metrics *requestMetrics `json:"metrics,omitempty"`
	Timings *timings        `json:"timings,omitempty"`

	Progress *progress `json:"prompt_progress,omitempty"`
}

type chatChoice struct {
	Index   int          `json:"index"`
	Message *chatMessage `json:"message,omitempty"`
	Delta   *chatDelta   `json:"delta,omitempty"`
	Finish  *string      `json:"finish_reason"`
}

type chatMessage struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Calls     []chatCall `json:"tool_calls,omitempty"`
}

type chatDelta struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Calls     []chatCall `json:"tool_calls,omitempty"`
}

type chatCall struct {
	Index    *int         `json:"index,omitempty"`
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name      string  `json:"name,omitempty"`
	Arguments *string `json:"arguments,omitempty"`
}

func (w *chatWriter) whole(t *turn, m *message) any {
	out := &chatMessage{Role: "assistant", Reasoning: m.reasoning}
	if m.content != "" {
		out.Content = &m.content
	}
	for i, c := range m.calls {
		out.Calls = append(out.Calls, chatCall{ID: w.g.callID(i), Type: "function", Function: chatFunction{c.name, &c.arguments}})
	}
	finish := t.finishReason()
	return &chatResponse{
		ID: w.g.id, Object: "chat.completion", Created: w.created, Model: w.g.model,
		Choices: []chatChoice{{Message: out, Finish: &finish}},
		Usage:   t.usage(), Metrics: t.metrics(), Timings: t.timings(),
	}
}

func (w *chatWriter) chunk(d *chatDelta) *chatResponse {
	return &chatResponse{
		ID: w.g.id, Object: "chat.completion.chunk", Created: w.created, Model: w.g.model, Choices: []chatChoice{{Delta: d}},
	}
}

func (w *chatWriter) begin(*turn) error {
	empty := ""
	return w.out.data(w.chunk(&chatDelta{Role: "assistant", Content: &empty}))
}

func (w *chatWriter) idle() error { return w.out.data(w.chunk(&chatDelta{})) }

func (w *chatWriter) progress(p *progress) error {
	c := w.chunk(&chatDelta{})
	c.Progress = p
	return w.out.data(c)
}

func (w *chatWriter) event(e chat.Event) error {
	d := &chatDelta{}
	switch e.Kind {
	case chat.ReasoningDelta:
		d.Reasoning = e.Text
	case chat.ContentDelta:
		d.Content = &e.Text
	case chat.CallStart:
		d.Calls = []chatCall{{Index: &e.Call, ID: w.g.callID(e.Call), Type: "function", Function: chatFunction{Name: e.Text}}}
	case chat.ArgumentsDelta:
		d.Calls = []chatCall{{Index: &e.Call, Function: chatFunction{Arguments: &e.Text}}}
	default:
		return nil
	}
	return w.out.data(w.chunk(d))
}

func (w *chatWriter) end(t *turn) error {
	last := w.chunk(&chatDelta{})
	finish := t.finishReason()
	last.Choices[0].Finish = &finish
	last.Timings = t.timings()
	if err := w.out.data(last); err != nil {
		return err
	}
	if w.g.usage {
		total := w.chunk(nil)
		total.Choices, total.Usage, total.Metrics = []chatChoice{}, t.usage(), t.metrics()
		if err := w.out.data(total); err != nil {
			return err
		}
	}
	return w.out.text("[DONE]")
}
