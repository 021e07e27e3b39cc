package schema

import (
	"unicode"

	"splash/internal/grammar"
)

// maxName is the most characters of the name of an argument.
const maxName = 256

// A Frame writes an argument of a call as a chat format does. Name is a fixed text, or any that is not declared.
type Frame interface {
	// Raw is an argument whose value is any text.
	Raw(name *grammar.Expr) *grammar.Expr
	// Value is an argument whose value is text that value matches.
	Value(name, value *grammar.Expr) *grammar.Expr
	// Holds reports whether a fixed text may be a value.
	Holds(text string) bool
}

// FreeArguments matches any arguments, of any names.
func (b *Builder) FreeArguments(f Frame) *grammar.Expr {
	return grammar.Repeat(f.Raw(nameExpr(nil)), 0, grammar.Unbounded)
}

// nameChars are the characters of names: neither white space, nor control characters, nor < and >.
var nameChars = func() []grammar.Range {
	var ranges []grammar.Range
	at := rune('!')
	for r := rune('!'); r <= 0x3000; r++ {
		if unicode.IsSpace(r) || r == '<' || r == '>' || r == 0x7F {
			ranges = append(ranges, grammar.Range{Lo: at, Hi: r - 1})
			at = r + 1
		}
	}
	return append(ranges, grammar.Range{Lo: at, Hi: lastRune})
}()

// nameExpr is any name but the given ones.
func nameExpr(names []string) *grammar.Expr {
	if len(names) == 0 {
		return grammar.Repeat(class(nameChars), 1, maxName)
	}
	longest := 0
	for _, n := range names {
		longest = max(longest, len([]rune(n)))
	}
	rest := grammar.Repeat(class(nameChars), 0, max(0, maxName-longest-1))
	return except(names, nameChars, class, rest, false)
}

// Arguments matches a call's arguments under a strict tool's schema: declared ones in order, those that are required
// among them all, then others where the schema allows. An argument that may be any string is raw text, one of listed
// values is one of these, strings raw; others are JSON. Tool is for errors, which are *Error or the context's.
func (b *Builder) Arguments(s *Schema, tool string, f Frame) (*grammar.Expr, error) {
	shapes, err := b.expand(group{s.root})
	if err != nil {
		return nil, err
	}
	var objects []*shape
	for _, shape := range shapes {
		if shape.types&object != 0 && !shape.listed {
			objects = append(objects, shape)
		}
	}
	if len(objects) == 0 {
		return nil, errorf("tool %q takes no arguments that its schema allows", tool)
	}
	a := &arguments{b, f, tool, len(objects) == 1}
	var alts []*grammar.Expr
	for _, shape := range objects {
		e, err := a.of(shape)
		if err != nil {
			return nil, err
		}
		alts = append(alts, e)
	}
	return grammar.Alt(alts...), b.finish()
}

type arguments struct {
	*Builder
	frame Frame
	tool  string
	only  bool // the tool's arguments have one shape
}

func (a *arguments) of(s *shape) (*grammar.Expr, error) {
	a.noteShape(s)
	var seq []*grammar.Expr
	var names []string
	for _, m := range s.members(a.matchers) {
		if !validName(m.name) {
			return nil, errorf("invalid tool parameter name %.100q", m.name)
		}
		a.part(1 + len(m.name))
		names = append(names, m.name)
		e, err := a.argument(grammar.Text(m.name), m.values)
		if err != nil {
			return nil, err
		}
		if m.required && a.only {
			a.rules.Need(a.rules.Add(m.name, e), errorf("required parameter %.100q of tool %q can have no value", m.name, a.tool))
		}
		if !m.required {
			e = grammar.Optional(e)
		}
		seq = append(seq, e)
	}
	patterns, all := s.patternNames(a.matchers)
	g, open := s.others(nil, a.matchers)
	if len(patterns) > 0 || !all {
		a.noteAll(s, "patternProperties")
		g, open = nil, true
	}
	if open {
		e, err := a.argument(nameExpr(names), g)
		if err != nil {
			return nil, err
		}
		seq = append(seq, grammar.Repeat(e, 0, grammar.Unbounded))
	}
	return grammar.Seq(seq...), nil
}

// validName reports whether an argument may be called so: parsers of calls take no other names.
func validName(name string) bool {
	n := 0
	for _, r := range name {
		if r == '<' || r == '>' || unicode.IsSpace(r) {
			return false
		}
		n++
	}
	return n > 0 && n <= maxName
}

// argument is an argument whose value satisfies a group.
func (a *arguments) argument(name *grammar.Expr, g group) (*grammar.Expr, error) {
	if g, _ = a.key(g); len(g) == 0 {
		return a.frame.Raw(name), nil
	}
	shapes, err := a.expand(g)
	if err != nil {
		return nil, err
	}
	var texts []string
	var alts []*grammar.Expr
	for _, s := range shapes {
		switch {
		case s.listed:
			for _, v := range s.values {
				text, isText := v.(string)
				if !isText {
					alts = append(alts, a.constantExpr(v))
					continue
				}
				if !a.frame.Holds(text) {
					return nil, errorf("tool parameter enum contains XML framing")
				}
				a.part(1 + len(text))
				texts = append(texts, text)
			}
		case s.types&str != 0:
			a.noteRaw(s)
			return a.frame.Raw(name), nil
		default:
			alts = append(alts, a.shapeExpr(s))
		}
	}
	if len(texts) > 0 {
		alts = append(alts, oneOf(texts))
	}
	return a.frame.Value(name, grammar.Alt(alts...)), nil
}

// noteRaw reports what raw text is not held to.
func (a *arguments) noteRaw(s *shape) {
	for _, keyword := range []string{"pattern", "format", "minLength", "maxLength"} {
		a.noteAll(s, keyword)
	}
}
