package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"splash/internal/chat"
	"splash/internal/chat/ojson"
	"splash/internal/engine"
	"splash/internal/grammar/output"
	"splash/oracle"
)

// A generation is what a request of any interface asks of the engine.
type generation struct {
	id       string // of the response
	model    string // as the response names it
	stream   bool
	usage    bool // a stream ends with the usage
	progress bool // a stream tells how far the prompt is

	policy    oracle.Policy
	seed      uint64
	stop      []string
	ignoreEOS bool
	maxTokens int    // 0: what the context leaves
	maxField  string // as the request spells it
	clamp     bool   // a limit beyond the context is lowered to it

	tools    *toolUse
	response *output.Response // the format of the answer; nil: text
	output   *output.Output   // what the answer is held to
	plain    bool             // text, without reasoning or calls
	thinking bool             // the answer begins inside a think block
	prompt   []int32
	images   []engine.Image // of the prompt
	counting bool           // the prompt's tokens are all that is asked for
	tail     int            // tokens of the prompt that ask for the answer
	clamped  bool
}

func newGeneration(prefix string) *generation {
	return &generation{id: prefix + randomHex(16), tools: &toolUse{choice: choiceAuto, parallel: true}}
}

// common reads the fields that every generation has.
func (x *exchange) common(f *fields, g *generation) {
	x.priority = f.priority()
	if d := f.timeout(); d > 0 {
		x.limit(d)
	}
	g.model = x.s.name()
}

// checkName refuses a model that is not served here.
func (s *Server) checkName(name string) error {
	if name == s.model.ID || slices.Contains(s.o.Aliases, name) {
		return nil
	}
	return &Error{Status: http.StatusNotFound, Code: codeNoModel, Message: fmt.Sprintf("model %s not found", shorten(name))}
}

// name is what responses call the model.
func (s *Server) name() string {
	if s.o.Announce && len(s.o.Aliases) > 0 {
		return s.o.Aliases[0]
	}
	return s.model.ID
}

// A conversation is what a template renders.
type conversation struct {
	messages []chat.Message
	tools    []any
	chat.Variables
}

// variables reads how the model is to reason.
func (s *Server) variables(f *fields) (v chat.Variables) {
	v.Effort = f.string("reasoning_effort", s.o.Effort)
	if v.Effort != "" && !chat.ValidEffort(v.Effort) {
		f.fault("reasoning_effort must be one of none, minimal, low, medium, high, xhigh and max")
	}
	switch kwargs := f.o.Value("chat_template_kwargs").(type) {
	case nil:
	case *ojson.Object:
		if err := chat.CheckKwargs(kwargs); err != nil && f.err == nil {
			f.err = err
		}
		v.Kwargs = kwargs
	default:
		f.fault("chat_template_kwargs must be an object")
	}
	if f.has("preserve_thinking") {
		preserve := f.bool("preserve_thinking", false)
		v.PreserveThinking = &preserve
	}
	return v
}

// prepared gives the request one of the places for making prompts.
func (x *exchange) prepared(work func() error) error {
	const patience = 30 * time.Second
	s := x.s
	began := time.Now()
	s.waiting.Add(1)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var err error
	select {
	case s.preparing <- struct{}{}:
	case <-timer.C:
		err = overloaded("frontend preparation capacity is exhausted")
	case <-x.ctx.Done():
		err = context.Cause(x.ctx)
	}
	s.waiting.Add(-1)
	if err != nil {
		return err
	}
	defer func() { <-s.preparing }()
	s.metrics.stage(stagePreparationQueue, began)
	began = time.Now()
	defer func() { s.metrics.stage(stagePreparation, began) }()
	return work()
}

// render makes the prompt of a conversation.
func (x *exchange) render(c conversation) (p chat.Prompt, err error) {
	req, template, err := x.request(c)
	if err != nil {
		return p, err
	}
	return x.renderPrompt(req, template)
}

func (x *exchange) renderPrompt(req chat.Request, template *chat.Template) (p chat.Prompt, err error) {
	began := time.Now()
	p, err = template.Prompt(x.ctx, req)
	x.s.metrics.stage(stageTemplate, began)
	return p, x.renderError(err)
}

// request is a conversation as its template takes it.
func (x *exchange) request(c conversation) (chat.Request, *chat.Template, error) {
	messages, err := chat.Prepare(x.ctx, c.messages, x.prepareMedia())
	if err != nil {
		return chat.Request{}, nil, err
	}
	return chat.Request{Messages: messages, Tools: c.tools, Variables: c.Variables}, x.s.model.Templates.Select(len(c.tools) > 0), nil
}

// renderError tells the console where a template failed, and the client what it may know.
func (x *exchange) renderError(err error) error {
	var template *chat.TemplateError
	switch {
	case err == nil:
		return nil
	case x.ctx.Err() != nil:
		return context.Cause(x.ctx)
	case errors.As(err, &template):
		x.s.o.Console.Errorf("Template error · %s · <template>:%d", template.Kind, template.Line)
	}
	return err
}

// encode makes the tokens of a prompt.
func (x *exchange) encode(text string) []int32 {
	began := time.Now()
	tokens := x.s.prompts.Encode(text)
	x.s.metrics.stage(stageTokenization, began)
	return tokens
}

// converse makes the tokens of a generation's conversation, and what its answer is held to.
func (x *exchange) converse(g *generation, c conversation) error {
	return x.prepared(func() error {
		if err := x.prompt(g, c); err != nil {
			return err
		}
		return x.constrain(g)
	})
}

// prompt makes the tokens of a generation's conversation.
func (x *exchange) prompt(g *generation, c conversation) error {
	c.tools = g.tools.list
	req, template, err := x.request(c)
	if err != nil {
		return err
	}
	images, err := x.images(req.Messages)
	if err == nil {
		err = x.fitImages(g, images)
	}
	if err != nil {
		return err
	}
	p, err := x.renderPrompt(req, template)
	if err != nil {
		return err
	}
	g.thinking = p.Thinking
	if len(images) > 0 {
		g.prompt, g.images = x.encodeImages(p, images)
	} else {
		g.prompt = x.encode(p.Text)
	}
	if tail := x.s.model.Tokenizer.Encode(p.Generation, true); hasSuffix(g.prompt, tail) {
		g.tail = len(tail)
	}
	return nil
}

func hasSuffix(tokens, tail []int32) bool {
	return len(tokens) >= len(tail) && slices.Equal(tokens[len(tokens)-len(tail):], tail)
}

// fit holds the prompt and the limit of the output to the context.
func (x *exchange) fit(g *generation) error {
	n, context := len(g.prompt), x.s.model.Context
	switch {
	case n >= context && x.dialect == anthropic:
		return tooLongf("prompt is too long: %d tokens > %d maximum input tokens", n, context-1)
	case n >= context:
		return tooLongf("prompt exceeds the context window")
	case g.maxTokens > context-n && g.clamp:
		g.maxTokens, g.clamped = context-n, true
	case g.maxTokens > context-n:
		return tooLongf("prompt and %s exceed the context window: %d + %d > %d tokens", g.maxField, n, g.maxTokens, context)
	}
	return nil
}

// submit hands the generation to the engine.
func (x *exchange) submit(g *generation) (*turn, error) {
	if err := x.fit(g); err != nil {
		return nil, err
	}
	if x.ctx.Err() != nil {
		return nil, context.Cause(x.ctx)
	}
	ctx, cancel := context.WithCancelCause(x.ctx)
	r := engine.Request{
		Prompt: g.prompt, Images: g.images, MaxTokens: g.maxTokens, Policy: g.policy, Seed: g.seed, Tail: g.tail, Priority: x.priority,
	}
	if !g.ignoreEOS {
		r.Stop = x.s.model.Stop
	}
	r.Constraint = x.constraint(g)
	stream, err := x.s.model.Engine.Submit(ctx, r)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return newTurn(x, g, stream, cancel), nil
}
