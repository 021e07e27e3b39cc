package schema

import (
	"encoding/json"
	"unicode/utf8"
)

// allows reports whether a listed value has an allowed type and, where it has no parts, satisfies the other keywords.
func (s *shape) allows(v any, patterns []*dfa) bool {
	t := typeOf(v)
	if t&s.types == 0 {
		return false
	}
	switch v := v.(type) {
	case json.Number:
		return s.numbers.allows(v)
	case string:
		n := utf8.RuneCountInString(v)
		if n < s.least || s.most >= 0 && n > s.most {
			return false
		}
		for _, p := range patterns {
			if !p.matches(v) {
				return false
			}
		}
	}
	return true
}

// A member is a declared property of a shape.
type member struct {
	name     string
	values   group
	required bool
}

// members returns the declared properties of a shape in order, and those that are required besides.
func (s *shape) members(m matchers) []member {
	var list []member
	at := map[string]int{}
	add := func(name string) int {
		i, ok := at[name]
		if !ok {
			i = len(list)
			at[name] = i
			list = append(list, member{name: name, values: s.valuesOf(name, m)})
		}
		return i
	}
	for _, n := range s.group {
		for _, p := range n.properties {
			add(p.name)
		}
	}
	for _, n := range s.group {
		for _, name := range n.required {
			list[add(name)].required = true
		}
	}
	return list
}

// matchers are the automata of the patterns of property names; nil for one that has none.
type matchers map[string]*dfa

func (m matchers) of(pattern string) *dfa {
	d, ok := m[pattern]
	if !ok {
		d, _ = patternAutomaton(pattern)
		m[pattern] = d
	}
	return d
}

// valuesOf returns the schemas of a property's value: what each schema of the shape declares for it by name, by pattern,
// or for all others.
func (s *shape) valuesOf(name string, m matchers) group {
	var g group
	for _, n := range s.group {
		declared := false
		if i, ok := n.index[name]; ok {
			g, declared = append(g, n.properties[i].node), true
		}
		for _, p := range n.byPattern {
			if d := m.of(p.name); d != nil && d.matches(name) {
				g, declared = append(g, p.node), true
			}
		}
		if !declared && n.additional != nil {
			g = append(g, n.additional)
		}
	}
	if s.closed() && !s.declares(name, m) {
		g = append(g, s.group[0].schema.no)
	}
	return g
}

// closed reports whether the shape allows no property that none of its schemas declares: one of them says so, and none
// before it, which it is not part of, declares any.
func (s *shape) closed() bool {
	closed := false
	for _, n := range s.group {
		if n.hides {
			return false
		}
		closed = closed || n.closed
		if !closed && (n.index != nil || len(n.byPattern) > 0 || n.additional != nil) {
			return false
		}
	}
	return closed
}

func (s *shape) declares(name string, m matchers) bool {
	for _, n := range s.group {
		if _, ok := n.index[name]; ok || n.additional != nil {
			return true
		}
		for _, p := range n.byPattern {
			if d := m.of(p.name); d == nil || d.matches(name) {
				return true
			}
		}
	}
	return false
}

// patternNames returns the patterns of property names, and whether automata have them all.
func (s *shape) patternNames(m matchers) (list []string, all bool) {
	seen := map[string]bool{}
	all = true
	for _, n := range s.group {
		for _, p := range n.byPattern {
			if seen[p.name] {
				continue
			}
			seen[p.name] = true
			if m.of(p.name) == nil {
				all = false
			} else {
				list = append(list, p.name)
			}
		}
	}
	return list, all
}

// others returns the schemas of the value of a property that is not declared by name, whose name matches the given
// patterns; the second result is false where it has none.
func (s *shape) others(matching map[string]bool, m matchers) (group, bool) {
	var g group
	open := true
	for _, n := range s.group {
		declared := false
		for _, p := range n.byPattern {
			if matching[p.name] {
				g, declared = append(g, p.node), true
			}
			// A pattern without an automaton may or may not match: nothing is refused for it.
			declared = declared || m.of(p.name) == nil
		}
		if !declared && n.additional != nil {
			g = append(g, n.additional)
			declared = true
		}
		if declared {
			open = false
		}
	}
	if open && s.closed() {
		return nil, false
	}
	for _, n := range g {
		if n.never {
			return nil, false
		}
	}
	return g, true
}

// An itemList says what the items of an array are.
type itemList struct {
	first       []group // by place
	rest        group   // of all others
	closed      bool    // there are no others
	least, most int
}

const maxCountedItems = 64 // bounds of items that grammars keep to

func (s *shape) itemList() itemList {
	l := itemList{most: -1}
	places := 0
	for _, n := range s.group {
		places = max(places, len(n.prefix))
		l.least = max(l.least, min(n.minItems, maxCountedItems))
		if n.maxItems >= 0 && n.maxItems <= maxCountedItems && (l.most < 0 || n.maxItems < l.most) {
			l.most = n.maxItems
		}
		if n.items != nil {
			l.rest = append(l.rest, n.items)
			l.closed = l.closed || n.items.never
		}
	}
	for i := range places {
		var g group
		for _, n := range s.group {
			if i < len(n.prefix) {
				g = append(g, n.prefix[i])
			} else if n.items != nil {
				g = append(g, n.items)
			}
		}
		l.first = append(l.first, g)
	}
	if l.closed && (l.most < 0 || l.most > places) {
		l.most = places
	}
	return l
}
