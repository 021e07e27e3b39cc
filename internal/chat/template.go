package chat

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"splash/internal/chat/jinja"
	"splash/internal/chat/ojson"
)

// TemplateOptions are what templates need to know of the model.
type TemplateOptions struct {
	Format  *Format
	Special map[string]string                  // special tokens by name: bos_token, eos_token, pad_token, ...
	Count   func(text string) (n int, ok bool) // tokens of a text, for Describe; nil counts none
	Now     func() time.Time                   // nil is time.Now
	Limits  jinja.Limits                       // of one rendering; zero is jinja.DefaultLimits
}

// Templates are a tokenizer's chat templates, each probed.
type Templates struct {
	list []*Template // the default first, then by name
}

// defaultName and toolName are the names of the templates that requests choose between.
const (
	defaultName = "default"
	toolName    = "tool_use"
)

// NewTemplates parses and probes a tokenizer's chat templates by name; a single one is named "default".
func NewTemplates(ctx context.Context, sources map[string]string, opt TemplateOptions) (*Templates, error) {
	names := slices.Sorted(maps.Keys(sources))
	names = slices.DeleteFunc(names, func(name string) bool { return sources[name] == "" })
	if len(names) == 0 {
		return nil, errors.New("the tokenizer defines no chat template")
	}
	i := slices.Index(names, defaultName)
	if i < 0 {
		return nil, errors.New("the tokenizer's named chat templates have no default")
	}
	names = append([]string{defaultName}, slices.Delete(names, i, i+1)...)
	ts := &Templates{}
	for _, name := range names {
		t, err := newTemplate(ctx, name, sources[name], opt)
		if err != nil {
			return nil, err
		}
		ts.list = append(ts.list, t)
	}
	return ts, nil
}

// Select returns the template for a request: "tool_use" where there is one and the request has tools.
func (ts *Templates) Select(tools bool) *Template {
	if tools {
		for _, t := range ts.list {
			if t.Name == toolName {
				return t
			}
		}
	}
	return ts.list[0]
}

// Describe returns the line that startup logs of the templates.
func (ts *Templates) Describe() string {
	if len(ts.list) == 1 {
		return ts.list[0].describe()
	}
	parts := make([]string, len(ts.list))
	for i, t := range ts.list {
		parts[i] = t.Name + " " + t.describe()
	}
	return strings.Join(parts, " · ")
}

// Status returns the chat_template object of /status.
func (ts *Templates) Status() *ojson.Object {
	if len(ts.list) == 1 {
		return ojson.NewObject("later_system", string(ts.list[0].LaterSystem))
	}
	by := &ojson.Object{}
	for _, t := range ts.list {
		by.Set(t.Name, string(t.LaterSystem))
	}
	return ojson.NewObject("later_system", by)
}

// A Template is a chat template as requests use it. It is safe for concurrent use.
type Template struct {
	Name        string
	Source      string      // what is rendered: the template's own source, or the patched one
	Original    Behavior    // what the template itself does with a later system message
	LaterSystem LaterSystem // what is done about it
	Err         error       // why the template cannot be parsed; every request fails then

	opt     TemplateOptions
	main    *jinja.Template
	images  *jinja.Template // main with marker in place of the image pad; nil where it writes none
	marker  string
	prompts generationPrompts
}

func newTemplate(ctx context.Context, name, source string, opt TemplateOptions) (*Template, error) {
	t := &Template{Name: name, Source: source, Original: Rejects, LaterSystem: Unsupported, opt: opt}
	t.main, t.Err = jinja.Parse(source)
	if t.Err != nil {
		return t, nil
	}
	if err := t.probe(ctx); err != nil {
		return nil, err
	}
	return t, t.probePrompts(ctx)
}

// use renders with another template from now on.
func (t *Template) use(source string, main *jinja.Template) error {
	t.Source, t.main = source, main
	pad := t.opt.Format.ImagePad
	if pad == "" || !strings.Contains(main.Source, pad) {
		return nil
	}
	t.marker = "image." + rand.Text()
	var err error
	t.images, err = reparse(strings.ReplaceAll(main.Source, pad, t.marker))
	return err
}

// reparse parses a changed normalized source, which has lost the line end that Parse takes away.
func reparse(normalized string) (*jinja.Template, error) { return jinja.Parse(normalized + "\n") }

// A Request is what a template renders.
type Request struct {
	Messages            []Message // as Prepare returns them
	Tools               []any     // the tools as the client wrote them, decoded by ojson
	AddGenerationPrompt bool
	Variables

	limits jinja.Limits // those of the template's options where zero
}

// A TemplateError says that a template could not render a request's messages. Its text holds nothing of them; a server
// logs it and answers 400 "messages could not be rendered".
type TemplateError struct {
	Kind string // what kind of error, as Jinja and Python name them
	Line int    // of the template's source
	err  error
}

func (e *TemplateError) Error() string {
	return fmt.Sprintf("template error · %s · <template>:%d", e.Kind, e.Line)
}

// Unwrap returns the template's own error, which may quote the messages, or the context's.
func (e *TemplateError) Unwrap() error { return e.err }

func templateError(err error) error {
	var e *jinja.Error
	if errors.As(err, &e) {
		return &TemplateError{Kind: e.Kind, Line: e.Line, err: err}
	}
	return err
}

// Render renders a request. Errors are *RequestError and *TemplateError.
func (t *Template) Render(ctx context.Context, req Request) (string, error) {
	if err := t.refuseLaterSystem(req.Messages); err != nil {
		return "", err
	}
	if t.Err != nil {
		return "", templateError(t.Err)
	}
	return t.render(ctx, t.main, req)
}

func (t *Template) refuseLaterSystem(messages []Message) error {
	if t.LaterSystem != Unsupported {
		return nil
	}
	for i, m := range messages {
		if i > 0 && m.Role == RoleSystem {
			return requestErrorf("this model's chat template does not accept system messages after the first message")
		}
	}
	return nil
}

// render renders a request with one of the template's forms, and with the fallback for its effort if that fails.
func (t *Template) render(ctx context.Context, form *jinja.Template, req Request) (string, error) {
	vars := map[string]any{"add_generation_prompt": req.AddGenerationPrompt}
	for name, token := range t.opt.Special {
		vars[name] = token
	}
	messages := make([]any, len(req.Messages))
	for i := range req.Messages {
		messages[i] = req.Messages[i].value()
	}
	vars["messages"] = messages
	if len(req.Tools) > 0 {
		vars["tools"] = req.Tools
	}
	opt := jinja.Options{Limits: t.opt.Limits, Now: t.opt.Now}
	if req.limits != (jinja.Limits{}) {
		opt.Limits = req.limits
	}
	values := req.values()
	text, err := renderWith(ctx, form, vars, values, opt)
	if err == nil || jinja.IsLimit(err) {
		return text, templateError(err)
	}
	if other, ok := req.fallback(values); ok {
		if text, err2 := renderWith(ctx, form, vars, other, opt); err2 == nil {
			return text, nil
		}
	}
	return "", templateError(err)
}

// renderWith renders with the variables of the conversation and those that the request sets.
func renderWith(
	ctx context.Context, form *jinja.Template, vars map[string]any, values *ojson.Object, opt jinja.Options,
) (string, error) {
	all := maps.Clone(vars)
	for name, v := range values.All() {
		all[name] = v
	}
	return form.Render(ctx, all, opt)
}

// A Prompt is a rendered request that the model is to answer.
type Prompt struct {
	Text       string
	Generation string // the end of Text that asks for the answer
	Thinking   bool   // the answer begins inside a think block that Generation opens
	Images     []int  // byte offsets in Text of the image pads that the template wrote, one an image
}

// Prompt renders a request for the model to answer, whatever req.AddGenerationPrompt says. Errors are *RequestError
// and *TemplateError.
func (t *Template) Prompt(ctx context.Context, req Request) (Prompt, error) {
	req.AddGenerationPrompt = true
	if err := t.refuseLaterSystem(req.Messages); err != nil {
		return Prompt{}, err
	}
	if t.Err != nil {
		return Prompt{}, templateError(t.Err)
	}
	var p Prompt
	var err error
	if n := images(req.Messages); n > 0 {
		p.Text, p.Images, err = t.renderImages(ctx, req, n)
	} else {
		p.Text, err = t.render(ctx, t.main, req)
	}
	if err != nil {
		return Prompt{}, err
	}
	var ok bool
	p.Generation, ok, err = t.generationPrompt(ctx, req.Variables)
	if err != nil {
		return Prompt{}, err
	}
	if !ok || !strings.HasSuffix(p.Text, p.Generation) {
		return Prompt{}, requestErrorf("chat template must end with an assistant generation prefix")
	}
	p.Thinking = t.opt.Format.startsThinking(p.Generation)
	want, asked := req.values().Value("enable_thinking").(bool)
	if asked && t.opt.Format.PromptOpensThinking && want != p.Thinking {
		return Prompt{}, requestErrorf("chat template does not support the requested thinking mode")
	}
	return p, nil
}

// renderImages renders a request of n images, and tells the pads that the template wrote for them from the same text in
// the messages.
func (t *Template) renderImages(ctx context.Context, req Request, n int) (string, []int, error) {
	mismatch := requestErrorf("image count does not match the rendered template")
	if t.images == nil {
		return "", nil, mismatch
	}
	text, err := t.render(ctx, t.images, req)
	if err != nil {
		return "", nil, err
	}
	parts := strings.Split(text, t.marker)
	if len(parts) != n+1 {
		return "", nil, mismatch
	}
	offsets := make([]int, n)
	at := 0
	for i := range offsets {
		at += len(parts[i])
		offsets[i] = at
		at += len(t.opt.Format.ImagePad)
	}
	return strings.Join(parts, t.opt.Format.ImagePad), offsets, nil
}
