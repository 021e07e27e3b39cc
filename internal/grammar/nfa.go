package grammar

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Errors of Compile, apart from those of Rules.Need.
var (
	// ErrTooLarge says that a grammar is larger than its Limits.
	ErrTooLarge = errors.New("grammar: too large to compile")
	// ErrEmpty says that a grammar matches nothing.
	ErrEmpty = errors.New("grammar: it matches nothing")
)

// Limits bound a grammar. A zero field is its default.
type Limits struct {
	States int // of the automaton: 1<<18
	Edges  int // of the automaton: 1<<22
	Memory int // bytes of states and masks that are kept: 16 MiB. Beyond that they are made again
}

func (l Limits) orDefault() Limits {
	if l.States == 0 {
		l.States = 1 << 18
	}
	if l.Edges == 0 {
		l.Edges = 1 << 22
	}
	if l.Memory == 0 {
		l.Memory = 16 << 20
	}
	return l
}

const (
	none = int32(-1)
	// maxExprDepth bounds the nesting of expressions, which the compiler follows by recursion.
	maxExprDepth = 10_000
	// maxRounds is what a loop can count.
	maxRounds = 1 << 30
)

// A loop is a counted repetition.
type loop struct{ min, max int32 } // max < 0: unbounded

// nfa is the automaton of all rules with empty edges (Thompson 1968): each expression becomes states between two given
// ones. The states of a counted loop, its head and its body, know their loop.
type nfa struct {
	edges []nfaEdge
	heads []int32 // by state: its last edge
	loops []int32 // by state: its loop
	kinds []loop
	rules []nfaRule
}

type nfaRule struct {
	name       string
	start, end int32
}

type edgeKind uint8

const (
	emptyEdge edgeKind = iota
	moreEdge           // into another round of a loop
	roundEdge          // at the end of a round
	leaveEdge          // out of a loop
	byteEdge
	tokenEdge
	callEdge
)

type nfaEdge struct {
	kind   edgeKind
	lo, hi byte
	arg    int32 // the token, or the called rule
	to     int32
	next   int32 // the state's next edge
}

// nfaBuilder makes an nfa of Rules.
type nfaBuilder struct {
	nfa
	ctx    context.Context
	limits Limits
	facts  *facts
	source *Rules
	index  []int32 // by Rule: its number in nfa.rules
	queue  []*Expr // bodies of nfa.rules, those not built yet nil-ed in turn
	loop   int32   // the loop being built
	tails  map[byteTail]int32
}

// byteTail is the end of a byte sequence before a state; classes that lead to one state share them.
type byteTail struct {
	lo, hi byte
	to     int32
}

// build makes the automaton of the rules that root reaches; root is rule 0.
func build(ctx context.Context, source *Rules, root Rule, limits Limits) (*nfa, *facts, error) {
	for i, e := range source.bodies {
		if e == nil {
			return nil, nil, fmt.Errorf("grammar: rule %q is not defined", source.names[i])
		}
	}
	f, err := findFacts(ctx, source)
	if err != nil {
		return nil, nil, err
	}
	b := &nfaBuilder{ctx: ctx, limits: limits, facts: f, source: source, loop: none}
	b.index = slices.Repeat([]int32{none}, source.Len())
	b.rule(root)
	for i := 0; i < len(b.queue); i++ {
		body := b.queue[i]
		b.tails = map[byteTail]int32{}
		if err := b.frag(body, b.rules[i].start, b.rules[i].end, 0); err != nil {
			return nil, nil, err
		}
	}
	return &b.nfa, f, nil
}

// rule returns the number of a rule, whose body is built later.
func (b *nfaBuilder) rule(r Rule) int32 {
	if b.index[r] == none {
		b.index[r] = b.addRule(b.source.names[r], b.source.bodies[r])
	}
	return b.index[r]
}

func (b *nfaBuilder) addRule(name string, body *Expr) int32 {
	outer := b.loop
	b.loop = none
	b.rules = append(b.rules, nfaRule{name, b.state(), b.state()})
	b.loop = outer
	b.queue = append(b.queue, body)
	return int32(len(b.rules) - 1)
}

func (b *nfaBuilder) state() int32 {
	b.heads = append(b.heads, none)
	b.loops = append(b.loops, b.loop)
	return int32(len(b.heads) - 1)
}

func (b *nfaBuilder) edge(from int32, e nfaEdge) {
	e.next = b.heads[from]
	b.heads[from] = int32(len(b.edges))
	b.edges = append(b.edges, e)
}

func (b *nfaBuilder) empty(from, to int32) { b.edge(from, nfaEdge{kind: emptyEdge, to: to}) }

func (b *nfaBuilder) check(depth int) error {
	if len(b.heads) > b.limits.States || len(b.edges) > b.limits.Edges || depth > maxExprDepth {
		return ErrTooLarge
	}
	if len(b.edges)%1024 == 0 {
		return b.ctx.Err()
	}
	return nil
}

// frag builds the states of e between two given ones. What matches nothing is left out.
func (b *nfaBuilder) frag(e *Expr, from, to int32, depth int) error {
	if err := b.check(depth); err != nil {
		return err
	}
	if !b.facts.matches(e) {
		return nil
	}
	switch e.kind {
	case text:
		return b.text(e.text, from, to)
	case byteRange:
		b.edge(from, nfaEdge{kind: byteEdge, lo: e.lo, hi: e.hi, to: to})
	case class:
		return b.class(e.ranges, from, to)
	case token:
		b.edge(from, nfaEdge{kind: tokenEdge, arg: e.token, to: to})
	case sequence:
		return b.sequence(e.items, from, to, depth)
	case choice:
		for _, item := range e.items {
			if err := b.frag(item, from, to, depth+1); err != nil {
				return err
			}
		}
	case repeat:
		return b.repeat(e, from, to, depth)
	case reference:
		b.edge(from, nfaEdge{kind: callEdge, arg: b.rule(e.rule), to: to})
		if b.facts.nullable(e) {
			b.empty(from, to)
		}
	case graph:
		return b.graph(e.graph, from, to, depth)
	}
	return nil
}

func (b *nfaBuilder) text(s string, from, to int32) error {
	if s == "" {
		b.empty(from, to)
		return nil
	}
	for i := range len(s) {
		next := to
		if i < len(s)-1 {
			next = b.state()
		}
		b.edge(from, nfaEdge{kind: byteEdge, lo: s[i], hi: s[i], to: next})
		from = next
	}
	return b.check(0)
}

func (b *nfaBuilder) class(ranges []Range, from, to int32) error {
	var seqs []byteSeq
	for _, r := range ranges {
		seqs = appendUTF8(seqs[:0], r)
		for _, s := range seqs {
			next := to
			for i := s.n - 1; i > 0; i-- {
				next = b.tail(byteTail{s.lo[i], s.hi[i], next})
			}
			b.edge(from, nfaEdge{kind: byteEdge, lo: s.lo[0], hi: s.hi[0], to: next})
		}
		if err := b.check(0); err != nil {
			return err
		}
	}
	return nil
}

// tail returns the state before the last bytes of a character.
func (b *nfaBuilder) tail(t byteTail) int32 {
	s, ok := b.tails[t]
	if !ok {
		s = b.state()
		b.edge(s, nfaEdge{kind: byteEdge, lo: t.lo, hi: t.hi, to: t.to})
		b.tails[t] = s
	}
	return s
}

func (b *nfaBuilder) sequence(items []*Expr, from, to int32, depth int) error {
	if len(items) == 0 {
		b.empty(from, to)
	}
	for i, item := range items {
		next := to
		if i < len(items)-1 {
			next = b.state()
		}
		if err := b.frag(item, from, next, depth+1); err != nil {
			return err
		}
		from = next
	}
	return nil
}

func (b *nfaBuilder) repeat(e *Expr, from, to int32, depth int) error {
	body, least, most := e.items[0], e.min, e.max
	if b.facts.nullable(body) {
		least = 0
	}
	if !b.facts.matches(body) {
		most = 0
	}
	if least > maxRounds {
		return ErrTooLarge
	}
	if most > maxRounds {
		most = Unbounded
	}
	switch {
	case most == 0:
		b.empty(from, to)
		return nil
	case least == 0 && most == 1:
		b.empty(from, to)
		return b.frag(body, from, to, depth+1)
	case least == 1 && most == 1:
		return b.frag(body, from, to, depth+1)
	case least <= 1 && most < 0:
		return b.plus(body, from, to, least == 0, depth)
	case b.loop != none:
		// A frame counts one loop: the inner one becomes a rule of its own.
		r := b.addRule(b.rules[0].name, e)
		b.edge(from, nfaEdge{kind: callEdge, arg: r, to: to})
		if least == 0 {
			b.empty(from, to)
		}
		return nil
	}
	return b.counted(body, loop{int32(least), int32(most)}, from, to, depth)
}

// plus builds body once or more, or not at all.
func (b *nfaBuilder) plus(body *Expr, from, to int32, star bool, depth int) error {
	first, last := b.state(), b.state()
	b.empty(from, first)
	b.empty(last, first)
	b.empty(last, to)
	if star {
		b.empty(from, to)
	}
	return b.frag(body, first, last, depth+1)
}

func (b *nfaBuilder) counted(body *Expr, l loop, from, to int32, depth int) error {
	b.loop = int32(len(b.kinds))
	b.kinds = append(b.kinds, l)
	tails := b.tails
	b.tails = map[byteTail]int32{}
	head, first, last := b.state(), b.state(), b.state()
	b.empty(from, head)
	b.edge(head, nfaEdge{kind: moreEdge, to: first})
	b.edge(last, nfaEdge{kind: roundEdge, to: head})
	b.edge(head, nfaEdge{kind: leaveEdge, to: to})
	err := b.frag(body, first, last, depth+1)
	b.loop, b.tails = none, tails
	return err
}

func (b *nfaBuilder) graph(g *Graph, from, to int32, depth int) error {
	live := b.facts.liveEdges(g)
	first := int32(len(b.heads))
	for range g.States {
		b.state()
		if err := b.check(depth); err != nil {
			return err
		}
	}
	b.empty(from, first)
	for _, s := range g.Final {
		b.empty(first+int32(s), to)
	}
	for i, e := range g.Edges {
		if !live[i] {
			continue
		}
		if e.Label == nil {
			b.empty(first+int32(e.From), first+int32(e.To))
		} else if err := b.frag(e.Label, first+int32(e.From), first+int32(e.To), depth+1); err != nil {
			return err
		}
	}
	return nil
}
