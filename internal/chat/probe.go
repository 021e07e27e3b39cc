package chat

import (
	"context"
	"strings"

	"splash/internal/chat/jinja"
	"splash/internal/chat/ojson"
)

// Behavior is what an unmodified template does with a system message that comes after the first message.
type Behavior string

// The behaviors.
const (
	Renders   Behavior = "renders"   // where it stands
	Rejects   Behavior = "rejects"   // by raising an error
	Drops     Behavior = "drops"     // without a trace
	Misplaces Behavior = "misplaces" // somewhere else, or more than once
)

// LaterSystem is what is done with such a message.
type LaterSystem string

// The outcomes of the probe.
const (
	Native      LaterSystem = "native"      // the template is used unchanged
	Patched     LaterSystem = "patched"     // the template is changed to render it in place
	Unsupported LaterSystem = "unsupported" // a request that has one is refused
)

// canary texts, which no template writes of itself.
const (
	canarySystem   = "canary-first-instructions"
	canaryQuestion = "canary-first-question"
	canaryAnswer   = "canary-first-answer"
	canaryMarker   = "canary-later-instructions"
	canaryNext     = "canary-next-question"
)

// probeLimits bound the rendering of a canary, which is short: a template that needs more is not served.
var probeLimits = jinja.Limits{Steps: 2_000_000, Output: 4 << 20, Memory: 32 << 20}

// A canary is a conversation with a later system message.
type canary []Message

func canaries() []canary {
	rest := canary{
		{Role: RoleUser, Text: canaryQuestion},
		{Role: RoleAssistant, Text: canaryAnswer},
		{Role: RoleSystem, Text: canaryMarker},
		{Role: RoleUser, Text: canaryNext},
	}
	return []canary{append(canary{{Role: RoleSystem, Text: canarySystem}}, rest...), rest}
}

// ordinary is the canary without its later system message.
func (c canary) ordinary() []Message {
	n := len(c)
	return append(append([]Message{}, c[:n-2]...), c[n-1])
}

// inPlace reports whether the marker is rendered once, between the answer before it and the question after it.
func inPlace(text string) bool {
	at := strings.Index(text, canaryMarker)
	return strings.Count(text, canaryMarker) == 1 &&
		strings.Contains(text[:at], canaryAnswer) && strings.Contains(text[at:], canaryNext)
}

// probe finds out what the template does with a later system message, and patches it where it has to. The error is the
// context's.
func (t *Template) probe(ctx context.Context) error {
	t.Original = t.behavior(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	source, form := t.Source, t.main
	switch t.Original {
	case Renders:
		t.LaterSystem = Native
	case Rejects, Drops:
		patched, ok := t.patch(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		if ok {
			t.LaterSystem = Patched
			source, form = patched.Source+"\n", patched
		}
	}
	return t.use(source, form)
}

func (t *Template) behavior(ctx context.Context) Behavior {
	in, absent := 0, 0
	all := canaries()
	for _, c := range all {
		text, err := t.render(ctx, t.main, Request{Messages: c, AddGenerationPrompt: true, limits: probeLimits})
		if err != nil {
			return Rejects
		}
		if inPlace(text) {
			in++
		}
		if !strings.Contains(text, canaryMarker) {
			absent++
		}
	}
	switch len(all) {
	case in:
		return Renders
	case absent:
		return Drops
	}
	return Misplaces
}

func (t *Template) describe() string {
	text := ""
	switch t.LaterSystem {
	case Native:
		text = "renders later system messages in place"
	case Patched:
		text = "patched to render later system messages in place (the original template " + string(t.Original) + " them)"
	default:
		text = "requests with later system messages are rejected (the original template " + string(t.Original) + " them)"
	}
	return text + ", " + t.describePrompts()
}

// verify reports whether a patched template renders every ordinary conversation as the original does, under every
// combination of tools, effort and preserved thinking, and later system messages in place wherever the original renders
// the conversation without them.
func (t *Template) verify(ctx context.Context, patched *jinja.Template) bool {
	tool := ojson.NewObject("type", "function", "function", ojson.NewObject(
		"name", "lookup", "description", "Looks a word up.", "parameters", ojson.NewObject(
			"type", "object", "properties", ojson.NewObject("word", ojson.NewObject("type", "string")))))
	yes, no := true, false
	for _, tools := range [][]any{nil, {tool}} {
		for _, effort := range append([]string{""}, Efforts...) {
			for _, preserve := range []*bool{nil, &yes, &no} {
				v := Variables{Effort: effort, PreserveThinking: preserve}
				if !t.same(ctx, patched, Request{Tools: tools, AddGenerationPrompt: true, Variables: v}) {
					return false
				}
			}
		}
	}
	return t.same(ctx, patched, Request{})
}

// same does verify's work for one combination.
func (t *Template) same(ctx context.Context, patched *jinja.Template, req Request) bool {
	for _, messages := range ordinaryConversations() {
		req.Messages = messages
		req.limits = probeLimits
		want, err := t.render(ctx, t.main, req)
		got, err2 := t.render(ctx, patched, req)
		if want != got || (err == nil) != (err2 == nil) || err != nil && !sameFailure(err, err2) {
			return false
		}
	}
	for _, c := range canaries() {
		req.Messages = c.ordinary()
		if _, err := t.render(ctx, t.main, req); err != nil {
			continue
		}
		req.Messages = c
		if text, err := t.render(ctx, patched, req); err != nil || !inPlace(text) {
			return false
		}
	}
	return true
}

// sameFailure compares what two errors say; a patch may move their lines.
func sameFailure(a, b error) bool {
	e, ok := a.(*TemplateError)
	f, ok2 := b.(*TemplateError)
	return ok && ok2 && e.Kind == f.Kind && !jinja.IsLimit(a)
}

func ordinaryConversations() [][]Message {
	reasoning := "The word is short."
	system := Message{Role: RoleSystem, Text: "Answer briefly."}
	question := Message{Role: RoleUser, Text: "What does it mean?"}
	next := Message{Role: RoleUser, Text: "And in French?"}
	answer := Message{Role: RoleAssistant, Text: "A word.", Reasoning: &reasoning}
	call, _ := NewCall("lookup", ojson.NewObject("word", "it"))
	calling := Message{Role: RoleAssistant, Reasoning: &reasoning, Calls: []Call{call}}
	result := Message{Role: RoleTool, Text: "a pronoun"}
	image := Message{Role: RoleUser, Parts: []Part{
		{Kind: TextPart, Text: "What is this?"}, {Kind: ImagePart, URL: "data:image/png;base64,"},
	}}
	return [][]Message{
		{question},
		{system, question},
		{system, question, answer, next},
		{system, question, calling, result},
		{system, question, calling, result, answer, next},
		{system, image},
	}
}
