package jinja

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// maxNesting bounds how deeply statements, and brackets of one expression, nest.
const maxNesting = 100

// Parse parses a template. Line ends may be CRLF or CR. An error is an *Error of kind KindSyntax.
func Parse(source string) (*Template, error) {
	src := normalize(source)
	toks, err := lex(src)
	if err != nil {
		return nil, err
	}
	p := &parser{toks: toks}
	body, err := p.template()
	if err != nil {
		return nil, err
	}
	prog, err := compile(body)
	if err != nil {
		return nil, err
	}
	return &Template{Source: src, Body: body, prog: prog}, nil
}

type parser struct {
	toks  []token
	i     int
	depth int
	loops int // loops around the statement being parsed, for break and continue
}

// syntax is how the parser's methods give up; template recovers it.
type syntax struct{ err *Error }

func (p *parser) template() (body []Stmt, err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case syntax:
			err = e.err
		default:
			panic(e)
		}
	}()
	body, end := p.statements()
	if end != "" {
		p.fail("unknown tag %q", end)
	}
	return body, nil
}

func (p *parser) fail(format string, args ...any) {
	panic(syntax{&Error{Line: p.cur().line, Kind: KindSyntax, Msg: fmt.Sprintf(format, args...)}})
}

func (p *parser) cur() token { return p.toks[p.i] }

func (p *parser) pos() Pos { return Pos(p.toks[p.i].line) }

func (p *parser) next() token {
	t := p.toks[p.i]
	if t.kind != tokEOF {
		p.i++
	}
	return t
}

func (p *parser) is(kind tokKind, text string) bool {
	t := p.toks[p.i]
	return t.kind == kind && t.text == text
}

func (p *parser) isOp(text string) bool { return p.is(tokOp, text) }

func (p *parser) isName(text string) bool { return p.is(tokName, text) }

func (p *parser) accept(kind tokKind, text string) bool {
	if p.is(kind, text) {
		p.i++
		return true
	}
	return false
}

func (p *parser) expectOp(text string) {
	if !p.accept(tokOp, text) {
		p.fail("expected %q, got %s", text, p.cur().describe())
	}
}

func (p *parser) expectName(text string) {
	if !p.accept(tokName, text) {
		p.fail("expected %q, got %s", text, p.cur().describe())
	}
}

func (p *parser) name() string {
	if p.cur().kind != tokName {
		p.fail("expected a name, got %s", p.cur().describe())
	}
	return p.next().text
}

func (t token) describe() string {
	switch t.kind {
	case tokEOF:
		return "the end of the template"
	case tokBlockEnd, tokVarEnd:
		return "the end of the tag"
	case tokString:
		return "a string"
	}
	return strconv.Quote(t.text)
}

func (p *parser) enter() {
	if p.depth++; p.depth > maxNesting {
		p.fail("more than %d levels of nesting", maxNesting)
	}
}

func (p *parser) leave() { p.depth-- }

// endTags are the words that end a body. They belong to the statement around it.
var endTags = []string{"elif", "else", "endif", "endfor", "endset", "endmacro", "endgeneration"}

// statements parses up to an end tag, whose name it returns with the tag's begin and name consumed, or to the end of
// the template.
func (p *parser) statements() (body []Stmt, end string) {
	p.enter()
	defer p.leave()
	for {
		switch t := p.cur(); t.kind {
		case tokEOF:
			return body, ""
		case tokData:
			p.i++
			body = append(body, &Text{Pos(t.line), t.text})
		case tokVarBegin:
			p.i++
			e := p.tuple(true)
			tag := p.end(tokVarEnd, t)
			body = append(body, &Output{Pos(t.line), tag, e})
		default:
			p.i++
			name := p.name()
			if slices.Contains(endTags, name) {
				return body, name
			}
			body = append(body, p.statement(name, t))
		}
	}
}

// end consumes the end of the tag that begins at begin.
func (p *parser) end(kind tokKind, begin token) Span {
	if p.cur().kind != kind {
		p.fail("expected the end of the tag, got %s", p.cur().describe())
	}
	return Span{begin.pos, p.next().end}
}

func (p *parser) endBlock(begin token) Span { return p.end(tokBlockEnd, begin) }

// body parses the body of the tag named name up to one of the ends.
func (p *parser) body(name string, ends ...string) ([]Stmt, string) {
	body, end := p.statements()
	if !slices.Contains(ends, end) {
		if end == "" {
			p.fail("unexpected end of the template in %q", name)
		}
		p.fail("unexpected %q in %q", end, name)
	}
	return body, end
}

func (p *parser) statement(name string, begin token) Stmt {
	switch name {
	case "if":
		return p.ifStmt(begin)
	case "for":
		return p.forStmt(begin)
	case "set":
		return p.setStmt(begin)
	case "macro":
		return p.macro(begin)
	case "generation":
		p.endBlock(begin)
		body, _ := p.body("generation", "endgeneration")
		p.endBlock(begin)
		return &Block{Pos(begin.line), body}
	case "break", "continue":
		if p.loops == 0 {
			p.fail("%q outside a loop", name)
		}
		p.endBlock(begin)
		return &Jump{Pos(begin.line), name == "break"}
	}
	p.fail("unknown tag %q", name)
	return nil
}

func (p *parser) ifStmt(begin token) Stmt {
	s := &If{Pos: Pos(begin.line)}
	for name := "if"; ; {
		b := Branch{}
		if name != "else" {
			b.Test = p.tuple(false)
		}
		b.Tag = p.endBlock(begin)
		var end string
		if name == "else" {
			b.Body, end = p.body("if", "endif")
		} else {
			b.Body, end = p.body("if", "elif", "else", "endif")
		}
		s.Branches = append(s.Branches, b)
		begin = p.toks[p.i-2]
		if end == "endif" {
			p.endBlock(begin)
			return s
		}
		name = end
	}
}

func (p *parser) forStmt(begin token) Stmt {
	s := &For{Pos: Pos(begin.line), Target: p.target(false)}
	p.expectName("in")
	s.Iter = p.tuple(false)
	if p.accept(tokName, "if") {
		s.Filter = p.expr()
	}
	if p.isName("recursive") {
		p.fail("recursive loops are not supported")
	}
	s.Tag = p.endBlock(begin)
	p.loops++
	var end string
	s.Body, end = p.body("for", "else", "endfor")
	p.loops--
	if end == "else" {
		p.endBlock(begin)
		s.Else, _ = p.body("for", "endfor")
	}
	p.endBlock(begin)
	return s
}

func (p *parser) setStmt(begin token) Stmt {
	pos := Pos(begin.line)
	target := p.target(true)
	if p.accept(tokOp, "=") {
		value := p.tuple(true)
		p.endBlock(begin)
		return &Set{pos, target, value}
	}
	filter := p.filters(blockText{pos})
	p.endBlock(begin)
	body, _ := p.body("set", "endset")
	p.endBlock(begin)
	return &SetBlock{pos, target, filter, body}
}

func (p *parser) target(namespace bool) Target {
	paren := p.accept(tokOp, "(")
	t := Target{Names: []string{p.assignable()}}
	if namespace && p.accept(tokOp, ".") {
		t.Attr = p.name()
		return t
	}
	for p.accept(tokOp, ",") {
		t.Tuple = true
		if p.cur().kind != tokName || p.isName("in") {
			break
		}
		t.Names = append(t.Names, p.assignable())
	}
	if paren {
		p.expectOp(")")
	}
	return t
}

func (p *parser) assignable() string {
	name := p.name()
	switch name {
	case "true", "false", "none", "True", "False", "None":
		p.fail("cannot assign to %q", name)
	}
	return name
}

func (p *parser) macro(begin token) Stmt {
	s := &Macro{Pos: Pos(begin.line), Name: p.assignable()}
	p.expectOp("(")
	for !p.accept(tokOp, ")") {
		if len(s.Params) > 0 {
			p.expectOp(",")
		}
		s.Params = append(s.Params, p.assignable())
		if p.accept(tokOp, "=") {
			s.Defaults = append(s.Defaults, p.expr())
		} else if len(s.Defaults) > 0 {
			p.fail("a parameter without a default after one with")
		}
	}
	p.endBlock(begin)
	loops := p.loops
	p.loops = 0
	s.Body, _ = p.body("macro", "endmacro")
	p.loops = loops
	p.endBlock(begin)
	return s
}

// tuple parses an expression, or several with commas between, which make a tuple.
func (p *parser) tuple(cond bool) Expr {
	pos := p.pos()
	one := func() Expr {
		if cond {
			return p.expr()
		}
		return p.or()
	}
	first := one()
	if !p.isOp(",") {
		return first
	}
	items := []Expr{first}
	for p.accept(tokOp, ",") {
		if k := p.cur().kind; k == tokVarEnd || k == tokBlockEnd || p.isOp(")") {
			break
		}
		items = append(items, one())
	}
	return &List{pos, items, true}
}

// expr parses the loosest operator: a if test else b.
func (p *parser) expr() Expr {
	p.enter()
	defer p.leave()
	pos := p.pos()
	e := p.or()
	for p.accept(tokName, "if") {
		c := &Cond{Pos: pos, Then: e, Test: p.or()}
		if p.accept(tokName, "else") {
			c.Else = p.expr()
		}
		e = c
	}
	return e
}

func (p *parser) or() Expr {
	pos := p.pos()
	e := p.and()
	for p.accept(tokName, "or") {
		e = &Logic{pos, "or", e, p.and()}
	}
	return e
}

func (p *parser) and() Expr {
	pos := p.pos()
	e := p.not()
	for p.accept(tokName, "and") {
		e = &Logic{pos, "and", e, p.not()}
	}
	return e
}

func (p *parser) not() Expr {
	pos := p.pos()
	if !p.accept(tokName, "not") {
		return p.compare()
	}
	p.enter()
	defer p.leave()
	return &Unary{pos, "not", p.not()}
}

func (p *parser) compare() Expr {
	c := &Compare{Pos: p.pos(), First: p.sum()}
	for {
		op := ""
		switch t := p.cur(); {
		case t.kind == tokOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text):
			op = t.text
		case p.isName("in"):
			op = "in"
		case p.isName("not") && p.toks[p.i+1].kind == tokName && p.toks[p.i+1].text == "in":
			p.i++
			op = "not in"
		}
		if op == "" {
			break
		}
		p.i++
		c.Ops = append(c.Ops, op)
		c.Rest = append(c.Rest, p.sum())
	}
	if len(c.Ops) == 0 {
		return c.First
	}
	return c
}

// binary parses operands with left-associative operators between.
func (p *parser) binary(operand func() Expr, ops ...string) Expr {
	pos := p.pos()
	e := operand()
	for p.cur().kind == tokOp && slices.Contains(ops, p.cur().text) {
		op := p.next().text
		e = &Binary{pos, op, e, operand()}
	}
	return e
}

func (p *parser) sum() Expr { return p.binary(p.concat, "+", "-") }

func (p *parser) concat() Expr {
	pos := p.pos()
	items := []Expr{p.product()}
	for p.accept(tokOp, "~") {
		items = append(items, p.product())
	}
	if len(items) == 1 {
		return items[0]
	}
	return &Concat{pos, items}
}

func (p *parser) product() Expr { return p.binary(p.power, "*", "/", "//", "%") }

func (p *parser) power() Expr { return p.binary(func() Expr { return p.unary(true) }, "**") }

func (p *parser) unary(filters bool) Expr {
	pos := p.pos()
	var e Expr
	if p.isOp("-") || p.isOp("+") {
		op := p.next().text
		p.enter()
		e = &Unary{pos, op, p.unary(false)}
		p.leave()
	} else {
		e = p.primary()
	}
	e = p.postfix(e)
	if filters {
		e = p.filters(e)
	}
	return e
}

func (p *parser) primary() Expr {
	pos := p.pos()
	switch t := p.next(); t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return &Const{pos, true}
		case "false", "False":
			return &Const{pos, false}
		case "none", "None":
			return &Const{pos, nil}
		}
		return &Name{pos, t.text}
	case tokString:
		s := t.text
		for p.cur().kind == tokString {
			s += p.next().text
		}
		return &Const{pos, s}
	case tokInt:
		n, err := strconv.ParseInt(strings.ReplaceAll(t.text, "_", ""), intBase(t.text), 64)
		if err != nil {
			p.fail("integer %.40s is out of range", t.text)
		}
		return &Const{pos, n}
	case tokFloat:
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil || math.IsInf(f, 0) {
			p.fail("float %.40s is out of range", t.text)
		}
		return &Const{pos, f}
	case tokOp:
		switch t.text {
		case "(":
			return p.paren(pos)
		case "[":
			return &List{pos, p.items("]"), false}
		case "{":
			return p.dict(pos)
		}
	}
	p.i--
	p.fail("unexpected %s", p.cur().describe())
	return nil
}

func intBase(s string) int {
	if len(s) > 1 && s[0] == '0' && !isDigit(s[1]) {
		return 0
	}
	return 10
}

func (p *parser) paren(pos Pos) Expr {
	p.enter()
	defer p.leave()
	if p.accept(tokOp, ")") {
		return &List{pos, nil, true}
	}
	e := p.tuple(true)
	p.expectOp(")")
	return e
}

// items parses expressions up to the bracket end.
func (p *parser) items(end string) []Expr {
	var items []Expr
	for !p.accept(tokOp, end) {
		if len(items) > 0 {
			p.expectOp(",")
			if p.accept(tokOp, end) {
				break
			}
		}
		items = append(items, p.expr())
	}
	return items
}

func (p *parser) dict(pos Pos) Expr {
	d := &DictLit{Pos: pos}
	for !p.accept(tokOp, "}") {
		if len(d.Keys) > 0 {
			p.expectOp(",")
			if p.accept(tokOp, "}") {
				break
			}
		}
		d.Keys = append(d.Keys, p.expr())
		p.expectOp(":")
		d.Values = append(d.Values, p.expr())
	}
	return d
}

// postfix parses attributes, items, slices and calls.
func (p *parser) postfix(e Expr) Expr {
	for {
		pos := p.pos()
		switch {
		case p.accept(tokOp, "."):
			if p.cur().kind == tokInt {
				n, err := strconv.ParseInt(p.next().text, 10, 64)
				if err != nil {
					p.fail("index is out of range")
				}
				e = &Item{pos, e, &Const{pos, n}}
			} else {
				e = &Attr{pos, e, p.name()}
			}
		case p.accept(tokOp, "["):
			e = p.subscript(pos, e)
		case p.isOp("("):
			e = &Call{pos, e, p.args()}
		default:
			return e
		}
	}
}

func (p *parser) subscript(pos Pos, value Expr) Expr {
	var part [3]Expr
	colons := 0
	for !p.accept(tokOp, "]") {
		if p.accept(tokOp, ":") {
			if colons++; colons > 2 {
				p.fail("a slice of more than three parts")
			}
			continue
		}
		if part[colons] != nil {
			p.fail("expected %q, got %s", "]", p.cur().describe())
		}
		part[colons] = p.expr()
	}
	if colons > 0 {
		return &Slice{pos, value, part[0], part[1], part[2]}
	}
	if part[0] == nil {
		p.fail("an empty subscript")
	}
	return &Item{pos, value, part[0]}
}

// filters parses filters, tests and calls of their results.
func (p *parser) filters(e Expr) Expr {
	for {
		pos := p.pos()
		switch {
		case p.accept(tokOp, "|"):
			f := &Filter{Pos: pos, Value: e, Name: p.name()}
			if p.isOp("(") {
				f.Args = p.args()
			}
			e = f
		case p.isName("is"):
			p.i++
			e = p.test(pos, e)
		case p.isOp("("):
			e = &Call{pos, e, p.args()}
		default:
			return e
		}
	}
}

func (p *parser) test(pos Pos, e Expr) Expr {
	t := &Test{Pos: pos, Value: e, Not: p.accept(tokName, "not"), Name: p.name()}
	switch c := p.cur(); {
	case p.isOp("("):
		t.Args = p.args()
	case c.kind == tokString || c.kind == tokInt || c.kind == tokFloat || p.isOp("[") || p.isOp("{"),
		c.kind == tokName && !slices.Contains([]string{"else", "or", "and", "if", "in", "not", "is"}, c.text):
		t.Args.Pos = []Expr{p.postfix(p.primary())}
	case p.isName("is"):
		p.fail("tests cannot be chained")
	}
	return t
}

func (p *parser) args() Args {
	p.enter()
	defer p.leave()
	var a Args
	p.expectOp("(")
	for n := 0; !p.accept(tokOp, ")"); n++ {
		if n > 0 {
			p.expectOp(",")
			if p.accept(tokOp, ")") {
				break
			}
		}
		if p.isOp("*") || p.isOp("**") {
			p.fail("unpacking arguments is not supported")
		}
		if next := p.toks[p.i+1]; p.cur().kind == tokName && next.kind == tokOp && next.text == "=" {
			name := p.name()
			p.i++
			a.Keywords = append(a.Keywords, Keyword{name, p.expr()})
			continue
		}
		if len(a.Keywords) > 0 {
			p.fail("a positional argument after a named one")
		}
		a.Pos = append(a.Pos, p.expr())
	}
	return a
}
