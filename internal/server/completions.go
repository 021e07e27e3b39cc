package server

import (
	"encoding/json"
	"strconv"

	"splash/internal/chat"
	"splash/internal/chat/ojson"
)

// textCompletion answers POST /v1/completions.
func (x *exchange) textCompletion(body *ojson.Object) error {
	g := newGeneration("cmpl-")
	g.plain = true
	f := &fields{o: body}
	if f.has("model") {
		if err := x.s.checkName(f.string("model", "")); err != nil && f.err == nil {
			return err
		}
	}
	x.common(f, g)
	f.streaming(g)
	f.completionOnly()
	g.policy, g.seed = f.sampling(true)
	g.stop = f.stop("stop")
	g.ignoreEOS = f.bool("ignore_eos", false)
	const absent = 16
	g.maxField = "max_tokens"
	if g.maxTokens = f.positive(g.maxField); g.maxTokens == 0 {
		g.maxTokens, g.clamp = absent, true
	}
	text, tokens := x.completionPrompt(f)
	if f.err != nil {
		return f.err
	}
	err := x.prepared(func() error {
		if g.prompt = tokens; tokens == nil {
			g.prompt = x.encode(text)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return x.generate(g, &textWriter{newWriter(x, g)})
}

// completionOnly refuses what the old interface had and this one has not.
func (f *fields) completionOnly() {
	if v := f.o.Value("suffix"); v != nil {
		f.fault("suffix is not supported")
	}
	if v := f.o.Value("echo"); v != nil && v != false {
		f.fault("echo is not supported")
	}
	if v := f.o.Value("logprobs"); v != nil {
		f.fault("logprobs is not supported")
	}
	for _, name := range []string{"best_of", "n"} {
		if v := f.o.Value(name); v != nil && v != json.Number("1") {
			f.fault("%s must be 1", name)
		}
	}
	f.unsupported()
}

// completionPrompt reads the prompt: a text, or tokens.
func (x *exchange) completionPrompt(f *fields) (text string, tokens []int32) {
	const rule = "prompt must be one string or one array of token ids"
	switch v := f.o.Value("prompt").(type) {
	case string:
		if v == "" {
			f.fault("prompt must not be empty")
		}
		return v, nil
	case []any:
		if len(v) == 0 {
			f.fault("prompt must not be empty")
		}
		for _, id := range v {
			n, _ := id.(json.Number)
			i, err := strconv.ParseInt(n.String(), 10, 32)
			if err != nil || i < 0 || i >= int64(x.s.model.Tokenizer.Size()) {
				f.fault(rule)
				return "", nil
			}
			tokens = append(tokens, int32(i))
		}
		return "", tokens
	}
	f.fault(rule)
	return "", nil
}

// A textWriter writes text completions.
type textWriter struct{ writer }

type textResponse struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Created int64           `json:"created"`
	Model   string          `json:"model"`
	Choices []textChoice    `json:"choices"`
	Usage   *usage          `json:"usage,omitempty"`
	Metrics *requestMetrics `json:"metrics,omitempty"`
	Timings *timings        `json:"timings,omitempty"`

	Progress *progress `json:"prompt_progress,omitempty"`
}

type textChoice struct {
	Index    int       `json:"index"`
	Text     string    `json:"text"`
	Logprobs *struct{} `json:"logprobs"`
	Finish   *string   `json:"finish_reason"`
}

func (w *textWriter) response(text string) *textResponse {
	return &textResponse{
		ID: w.g.id, Object: "text_completion", Created: w.created, Model: w.g.model, Choices: []textChoice{{Text: text}},
	}
}

func (w *textWriter) whole(t *turn, m *message) any {
	r := w.response(m.content)
	finish := t.finishReason()
	r.Choices[0].Finish = &finish
	r.Usage, r.Metrics, r.Timings = t.usage(), t.metrics(), t.timings()
	return r
}

func (w *textWriter) begin(*turn) error { return nil }
func (w *textWriter) idle() error       { return w.out.data(w.response("")) }

func (w *textWriter) progress(p *progress) error {
	r := w.response("")
	r.Progress = p
	return w.out.data(r)
}

func (w *textWriter) event(e chat.Event) error { return w.out.data(w.response(e.Text)) }

func (w *textWriter) end(t *turn) error {
	last := w.response("")
	finish := t.finishReason()
	last.Choices[0].Finish, last.Timings = &finish, t.timings()
	if err := w.out.data(last); err != nil {
		return err
	}
	if w.g.usage {
		total := w.response("")
		total.Choices, total.Usage, total.Metrics = []textChoice{}, t.usage(), t.metrics()
		if err := w.out.data(total); err != nil {
			return err
		}
	}
	return w.out.text("[DONE]")
}
