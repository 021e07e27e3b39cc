package schema

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"slices"

	"splash/internal/grammar"
)

const (
	maxRules = 50_000  // of a grammar
	maxParts = 400_000 // of a grammar: characters of properties and listed values, states of patterns and the like
	maxNotes = 100     // entries of Unenforced
)

// A Builder adds the rules of schemas to a grammar.
type Builder struct {
	ctx   context.Context
	rules *grammar.Rules

	// Rules that every schema uses, made on demand.
	space, text, integer, number, any, anyObject, anyArray *grammar.Rule

	groups   map[string]grammar.Rule // by the numbers of their schemas
	classes  map[string]grammar.Rule // of many characters, by their ranges
	numbers  map[*node]uint32
	queue    []queued
	matchers matchers
	steps    int
	parts    int
	notes    []string
	noted    map[string]bool
	err      error
}

type queued struct {
	rule  grammar.Rule
	group group
}

// NewBuilder returns a builder that adds to rules. The work of its methods ends early when the context does.
func NewBuilder(ctx context.Context, rules *grammar.Rules) *Builder {
	return &Builder{
		ctx: ctx, rules: rules,
		groups: map[string]grammar.Rule{}, classes: map[string]grammar.Rule{}, numbers: map[*node]uint32{},
		matchers: matchers{}, noted: map[string]bool{},
	}
}

// Value matches the JSON values of a schema, without space around them. Errors are *Error or the context's.
func (b *Builder) Value(s *Schema) (*grammar.Expr, error) {
	e := b.value(group{s.root})
	return e, b.finish()
}

// Object matches any JSON object.
func (b *Builder) Object() *grammar.Expr { return b.shared(&b.anyObject, "object", b.anyObjectExpr) }

// Space matches the white space between JSON's tokens.
func (b *Builder) Space() *grammar.Expr { return b.shared(&b.space, "space", spaceExpr) }

// Unenforced lists what the grammar leaves to Validate, as JSON pointers to keywords.
func (b *Builder) Unenforced() []string { return b.notes }

// finish builds the rules that were referred to.
func (b *Builder) finish() error {
	for len(b.queue) > 0 && b.err == nil {
		q := b.queue[0]
		b.queue = b.queue[1:]
		if err := b.ctx.Err(); err != nil {
			return err
		}
		b.rules.Define(q.rule, b.groupExpr(q.group))
	}
	return b.err
}

// part counts parts of the grammar, and fails when there are too many.
func (b *Builder) part(n int) {
	if b.parts += n; b.parts > maxParts || b.rules.Len() > maxRules {
		b.fail(ErrTooLarge)
	}
}

func (b *Builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// note reports a keyword that is not enforced.
func (b *Builder) note(n *node, keyword string) {
	path := n.place.at(keyword).path
	if !b.noted[path] && len(b.notes) < maxNotes {
		b.noted[path] = true
		b.notes = append(b.notes, path)
	}
}

// noteAll reports a keyword of every schema of a shape that has it.
func (b *Builder) noteAll(s *shape, keyword string) {
	for _, n := range s.group {
		if n.source == nil {
			continue
		}
		if _, ok := n.source.Get(keyword); ok {
			b.note(n, keyword)
		}
	}
}

// shared refers to a rule that is made when it is first asked for.
func (b *Builder) shared(rule **grammar.Rule, name string, body func() *grammar.Expr) *grammar.Expr {
	if *rule == nil {
		r := b.rules.New(name)
		*rule = &r
		b.rules.Define(r, body())
	}
	return grammar.Ref(**rule)
}

// value refers to the rule of the values that satisfy a group.
func (b *Builder) value(g group) *grammar.Expr { return grammar.Ref(b.rule(g)) }

func (b *Builder) rule(g group) grammar.Rule {
	g, key := b.key(g)
	if r, ok := b.groups[key]; ok {
		return r
	}
	name := "any"
	if len(g) > 0 {
		name = orRoot(g[0].place.path)
	}
	r := b.rules.New(name)
	b.groups[key] = r
	b.part(1)
	b.queue = append(b.queue, queued{r, g})
	return r
}

// key returns a group without repetitions and schemas that say nothing, and its name among groups.
func (b *Builder) key(g group) (group, string) {
	var kept group
	for _, n := range g {
		if !has(kept, n) && n != n.schema.yes {
			kept = append(kept, n)
		}
	}
	var ids []uint32
	for _, n := range kept {
		id, ok := b.numbers[n]
		if !ok {
			id = uint32(len(b.numbers))
			b.numbers[n] = id
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var key []byte
	for _, id := range ids {
		key = binary.LittleEndian.AppendUint32(key, id)
	}
	return kept, string(key)
}

// groupExpr is the body of a group's rule: its shapes as alternatives.
func (b *Builder) groupExpr(g group) *grammar.Expr {
	if len(g) == 0 {
		return b.anyValue()
	}
	shapes, err := b.expand(g)
	if err != nil {
		b.fail(err)
		return grammar.Alt()
	}
	var alts []*grammar.Expr
	for _, s := range shapes {
		alts = append(alts, b.shapeExpr(s))
	}
	return grammar.Alt(alts...)
}

// shapeExpr is a shape's values, its types as alternatives.
func (b *Builder) shapeExpr(s *shape) *grammar.Expr {
	b.noteShape(s)
	b.part(len(s.group))
	if s.listed {
		return b.listedExpr(s)
	}
	if s.types == anyTypes && s.free() {
		return b.anyValue()
	}
	var alts []*grammar.Expr
	if s.types&object != 0 {
		alts = append(alts, b.objectExpr(s))
	}
	if s.types&array != 0 {
		alts = append(alts, b.arrayExpr(s))
	}
	if s.types&str != 0 {
		alts = append(alts, b.stringExpr(s))
	}
	if s.types&number != 0 {
		alts = append(alts, b.numberExpr(s))
	}
	if s.types&boolean != 0 {
		alts = append(alts, grammar.Text("true"), grammar.Text("false"))
	}
	if s.types&null != 0 {
		alts = append(alts, grammar.Text("null"))
	}
	return grammar.Alt(alts...)
}

// noteShape reports what no grammar keeps to.
func (b *Builder) noteShape(s *shape) {
	for i, n := range s.group {
		for _, keyword := range n.unenforced {
			if keyword == "unevaluatedProperties" && s.whole && i == 0 && n.closed && s.closed() {
				continue
			}
			if keyword == "minProperties" && n.minProps <= 1 {
				continue
			}
			b.note(n, keyword)
		}
		if n.minItems > maxCountedItems {
			b.note(n, "minItems")
		}
		if n.maxItems > maxCountedItems {
			b.note(n, "maxItems")
		}
	}
}

// free reports whether the schemas say nothing.
func (s *shape) free() bool {
	for _, n := range s.group {
		if n.speaks != 0 || len(n.formats) > 0 || n.closed {
			return false
		}
	}
	return true
}

func (b *Builder) anyValue() *grammar.Expr {
	return b.shared(&b.any, "value", func() *grammar.Expr {
		return grammar.Alt(
			b.Object(), b.shared(&b.anyArray, "array", b.anyArrayExpr), b.anyText(), b.anyNumber(),
			grammar.Text("true"), grammar.Text("false"), grammar.Text("null"),
		)
	})
}

func (b *Builder) anyText() *grammar.Expr {
	return b.shared(&b.text, "string", func() *grammar.Expr { return quotedExpr(chars()) })
}

func (b *Builder) anyNumber() *grammar.Expr { return b.shared(&b.number, "number", numberExpr) }

// chars are any characters of a string.
func chars() *grammar.Expr { return grammar.Repeat(charExpr(), 0, grammar.Unbounded) }

func quotedExpr(inside *grammar.Expr) *grammar.Expr {
	return grammar.Seq(grammar.Text(`"`), inside, grammar.Text(`"`))
}

func (b *Builder) anyObjectExpr() *grammar.Expr {
	return b.objectOf([]otherMember{{quotedExpr(chars()), b.anyValue()}}, nil, false)
}

func (b *Builder) anyArrayExpr() *grammar.Expr {
	return b.arrayOf(nil, b.anyValue(), 0, -1)
}

// listedExpr is listed values.
func (b *Builder) listedExpr(s *shape) *grammar.Expr {
	texts, others := []string{}, []*grammar.Expr{}
	for _, v := range s.values {
		if text, ok := scalar(v); ok {
			b.part(1 + len(text))
			texts = append(texts, text)
			if n, ok := v.(json.Number); ok {
				texts = append(texts, spelling(n)) // 1 beside 1.0
			}
		} else {
			others = append(others, b.constantExpr(v))
			if s.speaksOf(typeOf(v)) {
				b.noteAll(s, "enum")
				b.noteAll(s, "const")
			}
		}
	}
	if len(texts) > 0 {
		others = append(others, oneOf(texts))
	}
	return grammar.Alt(others...)
}

// speaksOf reports whether the schemas have keywords for values of a type.
func (s *shape) speaksOf(t types) bool {
	for _, n := range s.group {
		if n.speaks&t != 0 {
			return true
		}
	}
	return false
}

func (b *Builder) constantExpr(v any) *grammar.Expr {
	b.part(1 + len(spelling(v)))
	return constant(v, b.Space())
}

func (b *Builder) numberExpr(s *shape) *grammar.Expr {
	n := s.numbers
	n.whole = s.types&number == integer
	if !n.min.set && !n.max.set && len(n.multipleOf) == 0 {
		if n.whole {
			return b.shared(&b.integer, "integer", integerExpr)
		}
		return b.anyNumber()
	}
	d, enforced := n.automaton()
	if !enforced {
		b.noteAll(s, "multipleOf")
	}
	if d == nil {
		n.multipleOf = nil
		b.noteAll(s, "multipleOf")
		if d, _ = n.automaton(); d == nil {
			b.fail(ErrTooLarge)
			return grammar.Alt()
		}
	}
	b.part(len(d.final))
	return d.expr(class, grammar.Text(""))
}

// maxTextStates bounds the automaton of a string under patterns, formats and lengths together.
const maxTextStates = 6000

func (b *Builder) stringExpr(s *shape) *grammar.Expr {
	d := b.textAutomaton(s)
	switch {
	case d != nil:
		b.part(len(d.final))
		return quotedExpr(d.expr(b.charsExpr, chars()))
	case s.least == 0 && s.most < 0:
		return b.anyText()
	}
	return quotedExpr(grammar.Repeat(charExpr(), s.least, s.most))
}

// automaton returns the automaton of a pattern, nil where it has none, and counts what it takes to find out.
func (b *Builder) automaton(pattern string) *dfa {
	if _, known := b.matchers[pattern]; !known {
		d := b.matchers.of(pattern)
		if d == nil {
			b.part(maxPatternStates)
		} else {
			b.part(len(d.final))
		}
	}
	return b.matchers[pattern]
}

// maxRanges is the most ranges of characters that are written out at each place. Those of \p{L} take hundreds of states.
const maxRanges = 32

// charsExpr is charsExpr, as a rule where it is large.
func (b *Builder) charsExpr(ranges []grammar.Range) *grammar.Expr {
	if len(ranges) <= maxRanges {
		return charsExpr(ranges)
	}
	var key []byte
	for _, r := range ranges {
		key = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(key, uint32(r.Lo)), uint32(r.Hi))
	}
	r, ok := b.classes[string(key)]
	if !ok {
		r = b.rules.Add("characters", charsExpr(ranges))
		b.classes[string(key)] = r
	}
	return grammar.Ref(r)
}

// textAutomaton returns the automaton of the strings under patterns and formats, and lengths beside them; nil where there
// are neither patterns nor formats that an automaton has.
func (b *Builder) textAutomaton(s *shape) *dfa {
	var d *dfa
	join := func(n *node, keyword, pattern string) {
		next := b.automaton(pattern)
		if next != nil && d != nil {
			if next = both(d, next, maxTextStates); next != nil {
				b.part(len(next.final))
			}
		}
		if next == nil {
			b.note(n, keyword)
			return
		}
		d = next
	}
	for _, n := range s.group {
		for _, p := range n.patterns {
			join(n, "pattern", p)
		}
		for _, f := range n.formats {
			join(n, "format", formats[f])
		}
	}
	if d == nil || s.least == 0 && s.most < 0 {
		return d
	}
	if max(s.least, s.most) <= maxTextStates {
		if sized := both(d, lengths(s.least, s.most), maxTextStates); sized != nil {
			return sized
		}
	}
	b.noteAll(s, "minLength")
	b.noteAll(s, "maxLength")
	return d
}

// An otherMember is properties that are not declared by name: how their quoted keys are written, and their values.
type otherMember struct{ key, value *grammar.Expr }

func (b *Builder) objectExpr(s *shape) *grammar.Expr {
	members := s.members(b.matchers)
	names := make([]string, len(members))
	least := 0
	for i, m := range members {
		names[i] = m.name
		b.part(1 + len(m.name))
	}
	for _, n := range s.group {
		least = max(least, n.minProps)
	}
	return b.objectOf(b.otherMembers(s, names), members, least > 0)
}

// maxNamePatterns bounds the patterns of property names, each combination of which has keys of its own.
const maxNamePatterns = 4

// otherMembers returns the properties of a shape beside the named ones, by which patterns of names they match.
func (b *Builder) otherMembers(s *shape, names []string) []otherMember {
	patterns, all := s.patternNames(b.matchers)
	if len(patterns) == 0 {
		g, ok := s.others(nil, b.matchers)
		if !ok {
			return nil
		}
		if !all {
			b.noteAll(s, "patternProperties")
		}
		return []otherMember{{quotedExpr(b.keyExpr(names)), b.value(g)}}
	}
	if len(patterns) > maxNamePatterns {
		b.noteAll(s, "patternProperties")
		return []otherMember{{quotedExpr(b.keyExpr(names)), b.anyValue()}}
	}
	var list []otherMember
	for set := range 1 << len(patterns) {
		if b.err != nil {
			break
		}
		d := without(allText(), words(names), maxTextStates)
		matching := map[string]bool{}
		for i, p := range patterns {
			if d == nil {
				break
			}
			if set>>i&1 != 0 {
				matching[p] = true
				d = both(d, b.matchers.of(p), maxTextStates)
			} else {
				d = without(d, b.matchers.of(p), maxTextStates)
			}
			if d != nil {
				b.part(len(d.final))
			}
		}
		if d == nil {
			b.noteAll(s, "patternProperties")
			continue
		}
		if g, ok := s.others(matching, b.matchers); ok {
			b.part(len(d.final))
			list = append(list, otherMember{quotedExpr(d.expr(b.charsExpr, chars())), b.value(g)})
		}
	}
	return list
}

// keyExpr is any key but the names.
func (b *Builder) keyExpr(names []string) *grammar.Expr {
	if len(names) == 0 {
		return chars()
	}
	size := 0
	for _, n := range names {
		size += len(n)
	}
	b.part(size)
	return except(names, []grammar.Range{{Lo: 0, Hi: lastRune}}, charsExpr, chars(), true)
}

// objectOf is an object of the members in order, then of the others in any number. Some says that it is not empty.
//
// Its graph has two states a member: before it, where a key may come, and after it, where a comma or the end may.
func (b *Builder) objectOf(others []otherMember, members []member, some bool) *grammar.Expr {
	g := &grammar.Graph{}
	space := b.Space()
	start, end := g.State(), g.State()
	keys, dones := make([]int, len(members)+1), make([]int, len(members)+1)
	for i := range keys {
		keys[i], dones[i] = g.State(), g.State()
	}
	g.Final = []int{end}
	mayEnd := true // no member from here on is required
	for i := len(members); i >= 0; i-- {
		if i < len(members) {
			m := members[i]
			key := grammar.Seq(grammar.Text(quoted(m.name)), space, grammar.Text(":"), space, b.value(m.values))
			g.Add(keys[i], dones[i+1], key)
			if !m.required {
				g.Add(keys[i], keys[i+1], nil)
			}
			mayEnd = mayEnd && !m.required
		} else {
			for _, o := range others {
				g.Add(keys[i], dones[i], grammar.Seq(o.key, space, grammar.Text(":"), space, o.value))
			}
		}
		// A comma comes only before another key.
		after := g.State()
		g.Add(dones[i], after, space)
		g.Add(after, keys[i], grammar.Seq(grammar.Text(","), space))
		if mayEnd {
			g.Add(after, end, grammar.Text("}"))
		}
	}
	g.Add(start, keys[0], grammar.Seq(grammar.Text("{"), space))
	if mayEnd && !some {
		g.Add(start, end, grammar.Seq(grammar.Text("{"), space, grammar.Text("}")))
	}
	return g.Expr()
}

func (b *Builder) arrayExpr(s *shape) *grammar.Expr {
	l := s.itemList()
	first := make([]*grammar.Expr, len(l.first))
	for i, g := range l.first {
		first[i] = b.value(g)
	}
	b.part(len(first) + max(l.least, l.most, 0))
	var rest *grammar.Expr
	if !l.closed {
		rest = b.value(l.rest)
	}
	return b.arrayOf(first, rest, l.least, l.most)
}

// arrayOf is an array of least to most items, of which the first ones are given and all others match rest.
func (b *Builder) arrayOf(first []*grammar.Expr, rest *grammar.Expr, least, most int) *grammar.Expr {
	g := &grammar.Graph{}
	space := b.Space()
	start, end := g.State(), g.State()
	g.Final = []int{end}
	// The last state stands for any number of items where there is no bound.
	n := max(least, len(first))
	if most >= 0 {
		n = most
	}
	item := g.State() // where an item may come
	g.Add(start, item, grammar.Seq(grammar.Text("["), space))
	if least == 0 {
		g.Add(start, end, grammar.Seq(grammar.Text("["), space, grammar.Text("]")))
	}
	for i := 1; ; i++ {
		done, after := g.State(), g.State()
		e := rest
		if i <= len(first) {
			e = first[i-1]
		}
		if e == nil || most >= 0 && i > most {
			break
		}
		g.Add(item, done, e)
		g.Add(done, after, space)
		if i >= least {
			g.Add(after, end, grammar.Text("]"))
		}
		if most < 0 && i > n {
			g.Add(after, item, grammar.Seq(grammar.Text(","), space))
			break
		}
		item = g.State()
		g.Add(after, item, grammar.Seq(grammar.Text(","), space))
	}
	return g.Expr()
}
