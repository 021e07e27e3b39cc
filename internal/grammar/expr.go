package grammar

import (
	"slices"
	"unicode/utf8"
)

// An Expr is a pattern of bytes and special tokens. Expressions are immutable: one may stand in many places of many
// grammars. They are made by the functions of this package that return one.
type Expr struct {
	kind     kind
	text     string  // of text
	ranges   []Range // of class
	lo, hi   byte    // of byteRange
	token    int32   // of token
	items    []*Expr // of sequence and choice; the body of repeat
	min, max int     // of repeat
	rule     Rule    // of reference
	graph    *Graph  // of graph
}

type kind uint8

const (
	text kind = iota
	byteRange
	class
	token
	sequence
	choice
	repeat
	reference
	graph
)

// Unbounded is the max of a Repeat without one.
const Unbounded = -1

// A Range is a range of characters, both ends included.
type Range struct{ Lo, Hi rune }

// AnyChar are all characters that UTF-8 encodes.
var AnyChar = []Range{{0, 0xD7FF}, {0xE000, utf8.MaxRune}}

// A Rule names a rule of Rules.
type Rule int32

// Text matches the bytes of s.
func Text(s string) *Expr { return &Expr{kind: text, text: s} }

// Bytes matches one byte of lo to hi.
func Bytes(lo, hi byte) *Expr { return &Expr{kind: byteRange, lo: lo, hi: hi} }

// Class matches the UTF-8 of one character of the ranges; surrogates are none. Without a character it matches nothing.
func Class(ranges ...Range) *Expr { return &Expr{kind: class, ranges: normalize(ranges)} }

// Token matches a special token, which no text matches.
func Token(id int32) *Expr { return &Expr{kind: token, token: id} }

// Seq matches all of the expressions, one after the other.
func Seq(items ...*Expr) *Expr {
	if len(items) == 1 {
		return items[0]
	}
	return &Expr{kind: sequence, items: items}
}

// Alt matches any one of the expressions; of none, nothing.
func Alt(items ...*Expr) *Expr {
	if len(items) == 1 {
		return items[0]
	}
	return &Expr{kind: choice, items: items}
}

// Repeat matches e min to max times, max included; max may be Unbounded. The bounds cost no states: they are counted.
func Repeat(e *Expr, min, max int) *Expr {
	return &Expr{kind: repeat, items: []*Expr{e}, min: min, max: max}
}

// Optional matches e or nothing.
func Optional(e *Expr) *Expr { return Repeat(e, 0, 1) }

// Ref matches what a rule matches.
func Ref(r Rule) *Expr { return &Expr{kind: reference, rule: r} }

// A Graph is a finite automaton whose edges are labelled by expressions.
type Graph struct {
	States int // numbered from 0, where the graph begins
	Edges  []Edge
	Final  []int
}

// An Edge goes from one state to another over Label; a nil label is the empty text.
type Edge struct {
	From, To int
	Label    *Expr
}

// State adds a state to the graph.
func (g *Graph) State() int {
	g.States++
	return g.States - 1
}

// Add adds an edge.
func (g *Graph) Add(from, to int, label *Expr) { g.Edges = append(g.Edges, Edge{from, to, label}) }

// Expr matches what the graph matches, which must not be changed afterwards.
func (g *Graph) Expr() *Expr { return &Expr{kind: graph, graph: g} }

// Rules are the rules of a grammar. The zero value has none.
type Rules struct {
	names  []string
	bodies []*Expr
	needed map[Rule]error
}

// New adds a rule, to be defined later; the name is for errors.
func (r *Rules) New(name string) Rule {
	r.names = append(r.names, name)
	r.bodies = append(r.bodies, nil)
	return Rule(len(r.names) - 1)
}

// Define says what a rule matches.
func (r *Rules) Define(rule Rule, e *Expr) { r.bodies[rule] = e }

// Add adds a rule and defines it.
func (r *Rules) Add(name string, e *Expr) Rule {
	rule := r.New(name)
	r.Define(rule, e)
	return rule
}

// Need makes Compile fail with err where the rule matches nothing at all, not even the empty text.
func (r *Rules) Need(rule Rule, err error) {
	if r.needed == nil {
		r.needed = map[Rule]error{}
	}
	if _, ok := r.needed[rule]; !ok {
		r.needed[rule] = err
	}
}

// Len returns the number of rules.
func (r *Rules) Len() int { return len(r.names) }

// normalize sorts ranges, joins those that touch, and takes the surrogates out.
func normalize(ranges []Range) []Range {
	out := make([]Range, 0, len(ranges))
	for _, r := range ranges {
		r.Lo, r.Hi = max(r.Lo, 0), min(r.Hi, utf8.MaxRune)
		if below := min(r.Hi, 0xD7FF); r.Lo <= below {
			out = append(out, Range{r.Lo, below})
		}
		if above := max(r.Lo, 0xE000); above <= r.Hi {
			out = append(out, Range{above, r.Hi})
		}
	}
	slices.SortFunc(out, func(a, b Range) int { return int(a.Lo - b.Lo) })
	joined := out[:0]
	for _, r := range out {
		if n := len(joined); n > 0 && r.Lo <= joined[n-1].Hi+1 {
			joined[n-1].Hi = max(joined[n-1].Hi, r.Hi)
		} else {
			joined = append(joined, r)
		}
	}
	return joined
}
