// Package jinja parses and runs the Jinja that chat templates are written in, as Transformers runs it: a sandbox with
// trim_blocks and lstrip_blocks, no autoescape, loop controls, a generation block, and tojson, raise_exception and
// strftime_now of Transformers' own. Values are those of package ojson.
//
// A template comes out of a model's file, so it is not trusted. Everything it does is counted: evaluation steps, bytes
// of text and lists it builds, bytes it writes, and the depth of its calls; and a context is asked along the way. A
// template cannot change the values it is given, nor reach anything but them.
//
// The engine is github.com/ardanlabs/jinja, which runs whole templates without looking up, so templates do not reach it
// as they are. They are parsed here, with the lexer's white space rules and the lines that errors name, and compiled to
// a template of the engine that holds the statements alone: what it writes, tests, loops over and assigns are calls
// back into this package, by number. The engine runs the control flow, the scopes and the macros; this package does the
// operations, counts each, and gives values Python's semantics, where the engine's differ (see compile).
//
// Left out, because no chat template of the served models uses them: includes and inheritance, call and filter blocks,
// recursive loops, unpacking of arguments, and string formatting.
package jinja

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// A Template is a parsed template. It may be rendered by several goroutines at once.
type Template struct {
	Source string // with LF line ends and without the last of them; the spans of Body count from its start
	Body   []Stmt
	prog   *program
}

// Limits bound one rendering. A zero field is the default.
type Limits struct {
	Steps  int // evaluations, and 32 bytes of text each that operations read or build; default 50 million
	Output int // bytes written; default 64 MiB
	Memory int // bytes of text and lists built, all in all, whether still in use or not; default 256 MiB
}

// DefaultLimits are the limits of a zero Limits.
var DefaultLimits = Limits{Steps: 50_000_000, Output: 64 << 20, Memory: 256 << 20}

// Options are what a rendering needs beside its variables.
type Options struct {
	Limits Limits
	Now    func() time.Time // what strftime_now formats; nil is time.Now
}

// Kinds of errors, named as Jinja and Python name theirs.
const (
	KindSyntax    = "TemplateSyntaxError"
	KindRuntime   = "TemplateRuntimeError" // an unknown filter or test
	KindRaised    = "TemplateError"        // raise_exception
	KindUndefined = "UndefinedError"
	KindSecurity  = "SecurityError" // what the sandbox refuses
	KindType      = "TypeError"
	KindValue     = "ValueError"
	KindLimit     = "LimitError" // the rendering exceeded its limits
	KindCanceled  = "CanceledError"
)

// An Error is a template's failure. Its message may quote what the template was given; Kind and Line do not.
type Error struct {
	Line int // of the template's source, from 1
	Kind string
	Msg  string
	err  error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (template line %d)", e.Kind, e.Msg, e.Line)
}

// Unwrap returns the context's error of a rendering that was given up.
func (e *Error) Unwrap() error { return e.err }

// IsLimit reports whether err says that a rendering was too expensive or given up, which another set of variables may
// not change.
func IsLimit(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Kind == KindLimit || e.Kind == KindCanceled)
}

// Render runs the template on the variables. It stops early when ctx ends. An error is an *Error.
func (t *Template) Render(ctx context.Context, vars map[string]any, opt Options) (out string, err error) {
	r := newRenderer(ctx, opt)
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *Error:
			out, err = "", e
		case runtime.Error:
			// Of the engine: nothing here indexes or converts what it did not check.
			out, err = "", &Error{Line: r.line, Kind: KindRuntime, Msg: "the template engine failed: " + e.Error()}
		default:
			panic(e)
		}
	}()
	return t.prog.run(r, vars), nil
}
