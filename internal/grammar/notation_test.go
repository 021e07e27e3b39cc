package grammar

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// parseRules reads the notation that tests write grammars in, the first rule being the root:
//
//	list = "[" item {0,3} "]" | <7> ;    text, a reference, a repetition, the special token 7
//	item = [a-zé] * #80-BF ? ( x | "" ) + ;    a character, a byte, nothing
//	x = ~"</a>~"<" ; y = >"</a>" ;    text without the marks, text through the mark
func parseRules(text string) (rules *Rules, root Rule, err error) {
	p := &notation{rest: text, rules: &Rules{}, names: map[string]Rule{}}
	defer func() {
		if e, ok := recover().(notationError); ok {
			err = e
		}
	}()
	defined := map[Rule]bool{}
	for p.space(); p.rest != ""; p.space() {
		r := p.ref(p.name())
		if defined[r] {
			p.fail("a second definition")
		}
		defined[r] = true
		p.want("=")
		p.rules.Define(r, p.alt(0))
		p.want(";")
	}
	if len(defined) == 0 {
		p.fail("no rule")
	}
	return p.rules, 0, nil
}

type notation struct {
	rest  string
	rules *Rules
	names map[string]Rule
}

type notationError string

func (e notationError) Error() string { return string(e) }

func (p *notation) fail(what string) {
	panic(notationError(fmt.Sprintf("%s at %.20q", what, p.rest)))
}

func (p *notation) space() { p.rest = strings.TrimLeft(p.rest, " \n\t") }

func (p *notation) take(s string) bool {
	p.space()
	rest, ok := strings.CutPrefix(p.rest, s)
	p.rest = rest
	return ok
}

func (p *notation) want(s string) {
	if !p.take(s) {
		p.fail("no " + s)
	}
}

func (p *notation) name() string {
	p.space()
	n := 0
	for n < len(p.rest) && (p.rest[n] >= 'a' && p.rest[n] <= 'z' || p.rest[n] >= 'A' && p.rest[n] <= 'Z') {
		n++
	}
	name := p.rest[:n]
	p.rest = p.rest[n:]
	return name
}

func (p *notation) ref(name string) Rule {
	if name == "" {
		p.fail("no name")
	}
	r, ok := p.names[name]
	if !ok {
		r = p.rules.New(name)
		p.names[name] = r
	}
	return r
}

func (p *notation) alt(depth int) *Expr {
	if depth > 100 {
		p.fail("too deep")
	}
	items := []*Expr{p.seq(depth)}
	for p.take("|") {
		items = append(items, p.seq(depth))
	}
	return Alt(items...)
}

func (p *notation) seq(depth int) *Expr {
	var items []*Expr
	for p.space(); p.rest != "" && !strings.ContainsRune("|);", rune(p.rest[0])); p.space() {
		items = append(items, p.suffixed(p.atom(depth)))
	}
	return Seq(items...)
}

func (p *notation) suffixed(e *Expr) *Expr {
	for n := 0; ; n++ {
		if n > 4 {
			p.fail("too many suffixes")
		}
		switch {
		case p.take("*"):
			e = Repeat(e, 0, Unbounded)
		case p.take("+"):
			e = Repeat(e, 1, Unbounded)
		case p.take("?"):
			e = Optional(e)
		case p.take("{"):
			least, most := p.number(), 0
			switch {
			case p.take("}"):
				return Repeat(e, least, least)
			case !p.take(","):
				p.fail("no ,")
			case p.take("}"):
				return Repeat(e, least, Unbounded)
			}
			most = p.number()
			p.want("}")
			e = Repeat(e, least, most)
		default:
			return e
		}
	}
}

func (p *notation) number() int {
	p.space()
	n := 0
	for n < len(p.rest) && p.rest[n] >= '0' && p.rest[n] <= '9' {
		n++
	}
	v, err := strconv.Atoi(p.rest[:n])
	if err != nil || v > 40 {
		p.fail("no small number")
	}
	p.rest = p.rest[n:]
	return v
}

func (p *notation) quoted() string {
	p.space()
	q, err := strconv.QuotedPrefix(p.rest)
	if err != nil || q[0] != '"' {
		p.fail("no text")
	}
	p.rest = p.rest[len(q):]
	s, err := strconv.Unquote(q)
	if err != nil || len(s) > 20 {
		p.fail("no short text")
	}
	return s
}

func (p *notation) mark() string {
	s := p.quoted()
	if s == "" || !utf8.ValidString(s) {
		p.fail("no mark")
	}
	return s
}

func (p *notation) atom(depth int) *Expr {
	switch {
	case strings.HasPrefix(p.rest, `"`):
		return Text(p.quoted())
	case p.take("("):
		e := p.alt(depth + 1)
		p.want(")")
		return e
	case p.take("<"):
		id := p.number()
		p.want(">")
		return Token(int32(id))
	case p.take("#"):
		lo := p.hex()
		p.want("-")
		return Bytes(lo, p.hex())
	case p.take("["):
		return p.class()
	case p.take("."):
		return Class(Range{0, '!'}, Range{'#', ';'}, Range{'=', utf8.MaxRune})
	case p.take("~"):
		marks := []string{p.mark()}
		for p.take("~") {
			marks = append(marks, p.mark())
		}
		return Avoid(marks...)
	case p.take(">"):
		return Through("", p.mark())
	}
	return Ref(p.ref(p.name()))
}

func (p *notation) hex() byte {
	if len(p.rest) < 2 {
		p.fail("no byte")
	}
	v, err := strconv.ParseUint(p.rest[:2], 16, 8)
	if err != nil {
		p.fail("no byte")
	}
	p.rest = p.rest[2:]
	return byte(v)
}

func (p *notation) class() *Expr {
	var ranges []Range
	for !p.take("]") {
		if len(ranges) > 8 {
			p.fail("a large class")
		}
		lo := p.char()
		hi := lo
		if p.take("-") {
			hi = p.char()
		}
		ranges = append(ranges, Range{lo, hi})
	}
	return Class(ranges...)
}

func (p *notation) char() rune {
	r, n := utf8.DecodeRuneInString(p.rest)
	if r == utf8.RuneError {
		p.fail("no character")
	}
	p.rest = p.rest[n:]
	return r
}
