package grammar

import (
	"context"
	"slices"
)

// facts are what the compiler knows of rules before it builds them: which match something, and which match the empty
// text. Both are least fixed points: a rule that only leads back to itself matches nothing.
type facts struct {
	source *Rules
	some   ruleFact
	none   ruleFact
}

// A ruleFact is one fact of every rule, and of the expressions that were asked for. A sequence has it where all items do,
// a choice where one does, and a repetition where its body does or may be left out.
type ruleFact struct {
	rules []bool
	exprs map[*Expr]bool
	leaf  func(e *Expr) bool
}

func findFacts(ctx context.Context, source *Rules) (*facts, error) {
	f := &facts{source: source}
	f.some.leaf = func(e *Expr) bool { return e.kind != class || len(e.ranges) > 0 }
	f.none.leaf = func(e *Expr) bool { return e.kind == text && e.text == "" }
	users, err := usersOf(source)
	if err != nil {
		return nil, err
	}
	for _, fact := range []*ruleFact{&f.some, &f.none} {
		if err := fact.solve(ctx, source, users); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// usersOf returns, by rule, the rules that refer to it.
func usersOf(source *Rules) ([][]Rule, error) {
	users := make([][]Rule, source.Len())
	seen := map[*Expr]bool{}
	for i, e := range source.bodies {
		clear(seen)
		err := visit(e, 0, seen, func(e *Expr) {
			if e.kind != reference {
				return
			}
			if of := users[e.rule]; len(of) == 0 || of[len(of)-1] != Rule(i) {
				users[e.rule] = append(of, Rule(i))
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return users, nil
}

// visit calls f with an expression and all that it is made of, but for those in seen.
func visit(e *Expr, depth int, seen map[*Expr]bool, f func(*Expr)) error {
	if depth > maxExprDepth {
		return ErrTooLarge
	}
	if seen[e] {
		return nil
	}
	seen[e] = true
	f(e)
	for _, item := range e.items {
		if err := visit(item, depth+1, seen, f); err != nil {
			return err
		}
	}
	if e.graph == nil {
		return nil
	}
	for _, edge := range e.graph.Edges {
		if edge.Label == nil {
			continue
		}
		if err := visit(edge.Label, depth+1, seen, f); err != nil {
			return err
		}
	}
	return nil
}

// solve looks at every rule, and again at those that use one whose fact has just become true.
func (f *ruleFact) solve(ctx context.Context, source *Rules, users [][]Rule) error {
	f.rules = make([]bool, source.Len())
	queue := make([]Rule, source.Len())
	queued := slices.Repeat([]bool{true}, source.Len())
	for i := range queue {
		queue[i] = Rule(i)
	}
	for n := 0; len(queue) > 0; n++ {
		if n%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		r := queue[0]
		queue = queue[1:]
		queued[r] = false
		if f.rules[r] || !f.of(source.bodies[r]) {
			continue
		}
		f.rules[r] = true
		for _, u := range users[r] {
			if !f.rules[u] && !queued[u] {
				queued[u] = true
				queue = append(queue, u)
			}
		}
	}
	f.exprs = map[*Expr]bool{} // from here on facts do not change
	return nil
}

// of returns the fact of an expression.
func (f *ruleFact) of(e *Expr) bool {
	switch e.kind {
	case text, byteRange, class, token:
		return f.leaf(e)
	case reference:
		return f.rules[e.rule]
	}
	if known, ok := f.exprs[e]; ok {
		return known
	}
	v := f.composed(e)
	if f.exprs != nil {
		f.exprs[e] = v
	}
	return v
}

func (f *ruleFact) composed(e *Expr) bool {
	switch e.kind {
	case sequence:
		return !slices.ContainsFunc(e.items, func(item *Expr) bool { return !f.of(item) })
	case choice:
		return slices.ContainsFunc(e.items, f.of)
	case repeat:
		return (e.max < 0 || e.min <= e.max) && (e.min == 0 || f.of(e.items[0]))
	}
	reached := f.reach(e.graph, false)
	return slices.ContainsFunc(e.graph.Final, func(s int) bool { return reached[s] })
}

// reach returns which states of a graph are reached from its beginning over edges that have the fact; backwards, which
// reach a final state.
func (f *ruleFact) reach(g *Graph, backwards bool) []bool {
	out := make([][]int, g.States)
	for i, e := range g.Edges {
		from := e.From
		if backwards {
			from = e.To
		}
		out[from] = append(out[from], i)
	}
	reached := make([]bool, g.States)
	stack := []int{0}
	if backwards {
		stack = slices.Clone(g.Final)
	}
	for len(stack) > 0 {
		s := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if reached[s] {
			continue
		}
		reached[s] = true
		for _, i := range out[s] {
			e := g.Edges[i]
			to := e.To
			if backwards {
				to = e.From
			}
			if !reached[to] && (e.Label == nil || f.of(e.Label)) {
				stack = append(stack, to)
			}
		}
	}
	return reached
}

// matches reports whether e matches anything.
func (f *facts) matches(e *Expr) bool { return f.some.of(e) }

// nullable reports whether e matches the empty text.
func (f *facts) nullable(e *Expr) bool { return f.none.of(e) }

// liveEdges returns which edges of a graph lie on a way from its beginning to a final state.
func (f *facts) liveEdges(g *Graph) []bool {
	ahead, back := f.some.reach(g, false), f.some.reach(g, true)
	live := make([]bool, len(g.Edges))
	for i, e := range g.Edges {
		live[i] = ahead[e.From] && back[e.To] && (e.Label == nil || f.matches(e.Label))
	}
	return live
}
