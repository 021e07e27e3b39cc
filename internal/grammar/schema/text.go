package schema

import (
	"encoding/json"
	"slices"

	"splash/internal/chat/ojson"
	"splash/internal/grammar"
)

// maxSpace is the most white space between JSON's tokens. Without a bound, a model may write blanks up to its limit.
const maxSpace = 64

func spaceExpr() *grammar.Expr {
	blank := grammar.Alt(grammar.Bytes(' ', ' '), grammar.Bytes('\t', '\n'), grammar.Bytes('\r', '\r'))
	return grammar.Repeat(blank, 0, maxSpace)
}

// unescaped are the characters that a JSON string holds as they are.
var unescaped = []grammar.Range{{Lo: ' ', Hi: '!'}, {Lo: '#', Hi: '['}, {Lo: ']', Hi: lastRune}}

// charExpr is any character of a JSON string, however it is written, but for halves of surrogate pairs.
func charExpr() *grammar.Expr {
	digit := func(ranges ...byte) *grammar.Expr {
		var alts []*grammar.Expr
		for i := 0; i < len(ranges); i += 2 {
			alts = append(alts, grammar.Bytes(ranges[i], ranges[i+1]))
		}
		return grammar.Alt(alts...)
	}
	hex := digit('0', '9', 'a', 'f', 'A', 'F')
	d := digit('d', 'd', 'D', 'D')
	unit := grammar.Alt(
		grammar.Seq(digit('0', '9', 'a', 'c', 'e', 'f', 'A', 'C', 'E', 'F'), hex, hex, hex),
		grammar.Seq(d, digit('0', '7'), hex, hex),
		grammar.Seq(
			d, digit('8', '9', 'a', 'b', 'A', 'B'), hex, hex,
			grammar.Text(`\u`), d, digit('c', 'f', 'C', 'F'), hex, hex,
		),
	)
	short := digit('"', '"', '\\', '\\', '/', '/', 'b', 'b', 'f', 'f', 'n', 'n', 'r', 'r', 't', 't')
	return grammar.Alt(
		grammar.Class(unescaped...),
		grammar.Seq(grammar.Text(`\`), grammar.Alt(short, grammar.Seq(grammar.Text("u"), unit))),
	)
}

// charsExpr is a character of some ranges in a JSON string, escaped only where it must be.
func charsExpr(ranges []grammar.Range) *grammar.Expr {
	var raw []grammar.Range
	var alts []*grammar.Expr
	for _, r := range ranges {
		for _, u := range unescaped {
			if lo, hi := max(r.Lo, u.Lo), min(r.Hi, u.Hi); lo <= hi {
				raw = append(raw, grammar.Range{Lo: lo, Hi: hi})
			}
		}
		for c := r.Lo; c <= min(r.Hi, '\\'); c++ {
			if c >= ' ' && c != '"' && c != '\\' {
				continue
			}
			alts = append(alts, grammar.Text(string(ojson.AppendEscaped(nil, string(c)))))
		}
	}
	if len(raw) > 0 {
		alts = append(alts, grammar.Class(raw...))
	}
	return grammar.Alt(alts...)
}

// class is a character of some ranges, as it is.
func class(ranges []grammar.Range) *grammar.Expr { return grammar.Class(ranges...) }

// except matches texts of chars and what follows, rest, that are not among names; the empty text only where it may be.
// Char writes characters of some ranges among those of within.
func except(
	names []string, within []grammar.Range, char func([]grammar.Range) *grammar.Expr, rest *grammar.Expr, empty bool,
) *grammar.Expr {
	d := words(names)
	g := &grammar.Graph{States: len(d.final)}
	end := g.State()
	for s := range d.final {
		if !d.final[s] && (s > 0 || empty) {
			g.Final = append(g.Final, s)
		}
		var others []grammar.Range
		at := rune(0)
		for _, a := range d.arcs[s] {
			if one := intersect(within, []grammar.Range{{Lo: a.lo, Hi: a.lo}}); len(one) > 0 {
				g.Add(s, a.to, char(one))
			}
			others = append(others, grammar.Range{Lo: at, Hi: a.lo - 1})
			at = a.lo + 1
		}
		others = intersect(within, append(others, grammar.Range{Lo: at, Hi: lastRune}))
		if len(others) > 0 {
			g.Add(s, end, grammar.Seq(char(others), rest))
		}
	}
	g.Final = append(g.Final, end)
	return g.Expr()
}

// intersect returns the characters of both lists.
func intersect(a, b []grammar.Range) []grammar.Range {
	var out []grammar.Range
	for _, x := range a {
		for _, y := range b {
			if lo, hi := max(x.Lo, y.Lo), min(x.Hi, y.Hi); lo <= hi {
				out = append(out, grammar.Range{Lo: lo, Hi: hi})
			}
		}
	}
	return out
}

// oneOf matches any of the texts, whose common beginnings it shares.
func oneOf(texts []string) *grammar.Expr {
	if len(texts) == 1 {
		return grammar.Text(texts[0])
	}
	texts = slices.Clone(texts)
	slices.Sort(texts)
	g := &grammar.Graph{}
	g.State()
	var path []int // the states after each byte of the last text
	last := ""
	for _, t := range slices.Compact(texts) {
		common := 0
		for common < len(t) && common < len(last) && t[common] == last[common] {
			common++
		}
		path = path[:common]
		for i := common; i < len(t); i++ {
			from := 0
			if i > 0 {
				from = path[i-1]
			}
			path = append(path, g.State())
			g.Add(from, path[i], grammar.Text(t[i:i+1]))
		}
		state := 0
		if len(t) > 0 {
			state = path[len(t)-1]
		}
		g.Final = append(g.Final, state)
		last = t
	}
	return g.Expr()
}

// quoted is a text as JSON's string.
func quoted(s string) string { return string(ojson.AppendString(nil, s, false)) }

// scalar returns the JSON of a value that is neither an array nor an object.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "null", true
	case bool:
		if v {
			return "true", true
		}
		return "false", true
	case string:
		return quoted(v), true
	case json.Number:
		return string(v), true
	}
	return "", false
}

// constant matches the JSON of a value, with space between its tokens.
func constant(v any, space *grammar.Expr) *grammar.Expr {
	if s, ok := scalar(v); ok {
		return grammar.Text(s)
	}
	var items []*grammar.Expr
	open, shut := "[", "]"
	if list, ok := v.([]any); ok {
		for _, x := range list {
			items = append(items, constant(x, space))
		}
	} else {
		open, shut = "{", "}"
		for k, x := range v.(*ojson.Object).All() {
			items = append(items, grammar.Seq(grammar.Text(quoted(k)), space, grammar.Text(":"), space, constant(x, space)))
		}
	}
	seq := []*grammar.Expr{grammar.Text(open), space}
	for i, item := range items {
		if i > 0 {
			seq = append(seq, grammar.Text(","), space)
		}
		seq = append(seq, item, space)
	}
	return grammar.Seq(append(seq, grammar.Text(shut))...)
}
