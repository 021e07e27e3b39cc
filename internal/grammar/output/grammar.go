package output

import (
	"context"
	"strings"

	"splash/internal/grammar"
	"splash/internal/grammar/schema"
)

// compile makes the grammar.
func (p *plan) compile(ctx context.Context) (*compiled, error) {
	w := &writer{plan: p, rules: &grammar.Rules{}}
	w.builder = schema.NewBuilder(ctx, w.rules)
	answer, err := w.answer()
	if err != nil {
		return nil, err
	}
	root := w.rules.Add("answer", grammar.Seq(w.think(), answer))
	g, err := grammar.Compile(ctx, p.vocabulary, w.rules, root, grammar.Limits{Memory: maxMemory})
	if err != nil {
		return nil, err
	}
	return &compiled{g, w.builder.Unenforced()}, nil
}

// A writer writes a request's rules.
type writer struct {
	*plan
	rules   *grammar.Rules
	builder *schema.Builder
}

func (w *writer) calls() bool { return len(w.request.Tools) > 0 && w.request.Choice != None }

// think is the reasoning before the answer. Where tags are read as text, what a parser takes for the end of reasoning must
// not occur in it, be it written by other tokens than the tag's own.
func (w *writer) think() *grammar.Expr {
	f := w.format
	if f.ModelThinks {
		return grammar.Optional(grammar.Seq(grammar.Token(f.ThinkOpen), w.reasoning(), grammar.Token(f.ThinkClose)))
	}
	if !w.request.Thinking {
		return grammar.Seq()
	}
	return grammar.Seq(w.reasoning(), grammar.Token(f.ThinkClose))
}

func (w *writer) reasoning() *grammar.Expr {
	marks := []string{w.thinkClose}
	switch {
	case w.format.Syntax == GLMArgs:
		return anyText()
	case w.calls():
		marks = append(marks, w.callOpen+"\n<function=")
	}
	return grammar.Avoid(marks...)
}

// anyText is text of any characters; tags are tokens, and no text.
func anyText() *grammar.Expr {
	return grammar.Repeat(grammar.Class(grammar.AnyChar...), 0, grammar.Unbounded)
}

// text is content without calls.
func (w *writer) text() *grammar.Expr {
	if w.format.Syntax == GLMArgs {
		return anyText()
	}
	return grammar.Avoid(w.callOpen, w.thinkClose)
}

// answer is what follows reasoning.
func (w *writer) answer() (*grammar.Expr, error) {
	space := w.builder.Space()
	if !w.calls() {
		if w.request.Response == nil {
			return w.text(), nil
		}
		json, err := w.json()
		return grammar.Seq(space, json, space), err
	}
	call, err := w.call()
	if err != nil {
		return nil, err
	}
	call = grammar.Ref(w.rules.Add("call", call))
	// Calls of one kind after another, with text around them.
	more := grammar.Seq(grammar.Repeat(grammar.Seq(w.text(), call), 0, grammar.Unbounded), w.text())
	serial := w.request.Serial || w.request.Choice == Named
	first := grammar.Seq(space, call, more)
	if serial {
		first = grammar.Seq(space, call, space)
	}
	switch {
	case w.request.Choice != Auto:
		return first, nil
	case w.request.Response != nil:
		json, err := w.json()
		return grammar.Alt(first, grammar.Seq(space, json, space)), err
	case serial:
		return grammar.Seq(w.text(), grammar.Optional(grammar.Seq(call, space))), nil
	}
	return more, nil
}

// json is the answer under the response format.
func (w *writer) json() (*grammar.Expr, error) {
	if w.response == nil {
		return w.builder.Object(), nil
	}
	return w.builder.Value(w.response)
}

// call is a call of one of the offered tools.
func (w *writer) call() (*grammar.Expr, error) {
	frame := w.frame()
	var alts []*grammar.Expr
	var free *grammar.Expr
	for _, i := range w.offered() {
		tool := w.request.Tools[i]
		var arguments *grammar.Expr
		if s := w.tools[i]; tool.Strict && s != nil {
			e, err := w.builder.Arguments(s, tool.Name, frame)
			if err != nil {
				return nil, err
			}
			arguments = e
		} else {
			if free == nil {
				free = grammar.Ref(w.rules.Add("arguments", w.builder.FreeArguments(frame)))
			}
			arguments = free
		}
		alts = append(alts, grammar.Seq(grammar.Text(tool.Name), frame.name(), arguments))
	}
	return frame.call(grammar.Alt(alts...)), nil
}

// A frame lays out calls.
type frame interface {
	schema.Frame
	// call is a call whose name and arguments are inside.
	call(inside *grammar.Expr) *grammar.Expr
	// name is what stands between a call's name and its arguments.
	name() *grammar.Expr
}

func (w *writer) frame() frame {
	f := w.format
	if f.Syntax == GLMArgs {
		return &glmFrame{f, grammar.Ref(w.rules.Add("value", anyText()))}
	}
	return &qwenFrame{f, grammar.Ref(w.rules.Add("value", grammar.Through("\n", valueClose)))}
}

// valueClose ends a value of QwenXML, whose text holds no other.
const valueClose = "\n</parameter>\n"

type qwenFrame struct {
	Format
	text *grammar.Expr // any value after its first line break, through its end
}

func (f *qwenFrame) call(inside *grammar.Expr) *grammar.Expr {
	return grammar.Seq(
		grammar.Token(f.CallOpen), grammar.Text("\n<function="), inside,
		grammar.Text("</function>\n"), grammar.Token(f.CallClose),
	)
}

func (f *qwenFrame) name() *grammar.Expr { return grammar.Text(">\n") }

func (f *qwenFrame) Raw(name *grammar.Expr) *grammar.Expr {
	return grammar.Seq(grammar.Text("<parameter="), name, grammar.Text(">\n"), f.text)
}

func (f *qwenFrame) Value(name, value *grammar.Expr) *grammar.Expr {
	return grammar.Seq(grammar.Text("<parameter="), name, grammar.Text(">\n"), value, grammar.Text(valueClose))
}

func (f *qwenFrame) Holds(text string) bool { return !strings.Contains(text, valueClose) }

type glmFrame struct {
	Format
	text *grammar.Expr
}

func (f *glmFrame) call(inside *grammar.Expr) *grammar.Expr {
	return grammar.Seq(grammar.Token(f.CallOpen), inside, grammar.Token(f.CallClose))
}

func (f *glmFrame) name() *grammar.Expr { return grammar.Seq() }

func (f *glmFrame) Raw(name *grammar.Expr) *grammar.Expr { return f.Value(name, f.text) }

func (f *glmFrame) Value(name, value *grammar.Expr) *grammar.Expr {
	return grammar.Seq(
		grammar.Token(f.KeyOpen), name, grammar.Token(f.KeyClose),
		grammar.Token(f.ValueOpen), value, grammar.Token(f.ValueClose),
	)
}

func (f *glmFrame) Holds(string) bool { return true }
