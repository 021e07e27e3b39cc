package schema

// A group is schemas that a value must satisfy all.
type group []*node

// A shape is what a group comes to once references are followed, allOf is joined and an alternative of each anyOf and
// oneOf is chosen: schemas that speak for themselves.
type shape struct {
	group    group
	types    types
	listed   bool
	values   []any
	numbers  numbers
	least    int
	most     int
	patterns []string
	whole    bool // all of the group is part of its first schema
}

const (
	maxShapes = 4096    // of one group
	maxJoins  = 500_000 // of expanding all groups of a grammar
)

// expander finds the shapes of a group.
type expander struct {
	shapes []*shape
	steps  *int
	whole  bool
	err    error
}

// A step is a schema to be joined, with those it stands in.
type step struct {
	node *node
	path *step
}

// within reports whether the schema stands in itself: an alternative that leads back to where it is chosen adds nothing,
// and a schema that is itself has no value.
func (s *step) within() bool {
	for up := s.path; up != nil; up = up.path {
		if up.node == s.node {
			return true
		}
	}
	return false
}

// expand returns the shapes of a group.
func (b *Builder) expand(g group) ([]*shape, error) {
	x := &expander{steps: &b.steps, whole: len(g) == 1}
	var todo []*step
	for _, n := range g {
		todo = append(todo, &step{node: n})
	}
	x.join(todo, nil, nil)
	return x.shapes, x.err
}

// A fork is a choice to be made.
type fork struct {
	choice choice
	path   *step
}

// join adds the schemas of todo to a group, and where that is done, each alternative of the first fork in turn.
func (x *expander) join(todo []*step, have group, forks []fork) {
	have = have[:len(have):len(have)]
	forks = forks[:len(forks):len(forks)]
	allowed := types(anyTypes)
	for len(todo) > 0 {
		if *x.steps += 1 + len(have)/8; *x.steps > maxJoins || len(x.shapes) > maxShapes {
			x.err = ErrTooLarge
			return
		}
		s := todo[0]
		todo = todo[1:]
		if s.within() {
			return
		}
		if has(have, s.node) {
			continue
		}
		n := s.node
		have = append(have, n)
		if n.never {
			return
		}
		if n.types != 0 {
			allowed &= n.types
		}
		if n.ref != nil {
			todo = append(todo, &step{n.ref, s})
		}
		for _, sub := range n.all {
			todo = append(todo, &step{sub, s})
		}
		for _, c := range n.choices {
			forks = append(forks, fork{c, s})
		}
	}
	if allowed == 0 {
		return
	}
	if len(forks) == 0 {
		if s := newShape(have); s != nil {
			s.whole = x.whole
			x.shapes = append(x.shapes, s)
		}
		return
	}
	first := forks[0]
	for _, n := range first.choice {
		x.join([]*step{{n, first.path}}, have, forks[1:])
		if x.err != nil {
			return
		}
	}
}

func has(g group, n *node) bool {
	for _, m := range g {
		if m == n {
			return true
		}
	}
	return false
}

// newShape joins what the schemas of a group say of values without parts; nil where no value is left.
func newShape(g group) *shape {
	s := &shape{group: g, types: anyTypes, most: -1}
	spoken, named := types(0), false
	for _, n := range g {
		if n.types != 0 {
			s.types &= n.types
			named = true
		}
		spoken |= n.speaks
		if n.listed {
			s.list(n.values)
		}
		s.numbers.min.tighten(n.numbers.min, 1)
		s.numbers.max.tighten(n.numbers.max, -1)
		s.numbers.multipleOf = append(s.numbers.multipleOf, n.numbers.multipleOf...)
		s.least = max(s.least, n.least)
		if n.most >= 0 && (s.most < 0 || n.most < s.most) {
			s.most = n.most
		}
		s.patterns = append(s.patterns, n.patterns...)
	}
	if !named && !s.listed {
		switch spoken {
		case number, str, array, object:
			s.types = spoken
		}
	}
	if s.listed {
		s.keepAllowed()
		if len(s.values) == 0 {
			return nil
		}
	}
	if s.types == 0 {
		return nil
	}
	return s
}

// list takes listed values: those that other lists have too.
func (s *shape) list(values []any) {
	known := map[string]bool{}
	for _, v := range s.values {
		known[spelling(v)] = true
	}
	var kept []any
	seen := map[string]bool{}
	for _, v := range values {
		key := spelling(v)
		if seen[key] || s.listed && !known[key] {
			continue
		}
		seen[key] = true
		kept = append(kept, v)
	}
	s.listed, s.values = true, kept
}

// keepAllowed drops listed values that the other keywords refuse, as far as the value itself shows.
func (s *shape) keepAllowed() {
	var patterns []*dfa
	for _, p := range s.patterns {
		if d, err := patternAutomaton(p); err == nil {
			patterns = append(patterns, d)
		}
	}
	kept := s.values[:0:0]
	for _, v := range s.values {
		if s.allows(v, patterns) {
			kept = append(kept, v)
		}
	}
	s.values = kept
}
