package schema

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"splash/internal/grammar"
)

// A dfa is a deterministic automaton over characters. State 0 is the first; where a state has no arc for a character,
// the text is not in the language.
type dfa struct {
	arcs  [][]arc // by state, in order and apart
	final []bool
}

type arc struct {
	lo, hi rune
	to     int
}

const lastRune = utf8.MaxRune

func (d *dfa) state(final bool) int {
	d.arcs = append(d.arcs, nil)
	d.final = append(d.final, final)
	return len(d.final) - 1
}

// add adds an arc that comes after the state's others, joining it with the last where it can.
func (d *dfa) add(from int, a arc) {
	arcs := d.arcs[from]
	if n := len(arcs); n > 0 && arcs[n-1].hi+1 == a.lo && arcs[n-1].to == a.to {
		arcs[n-1].hi = a.hi
		return
	}
	d.arcs[from] = append(arcs, a)
}

// anything reports whether every text goes on from state s, and is in the language.
func (d *dfa) anything(s int) bool {
	arcs := d.arcs[s]
	return d.final[s] && len(arcs) == 1 && arcs[0] == arc{0, lastRune, s}
}

// step returns the state after r.
func (d *dfa) step(s int, r rune) (int, bool) {
	i, ok := slices.BinarySearchFunc(d.arcs[s], r, func(a arc, r rune) int {
		switch {
		case a.hi < r:
			return -1
		case a.lo > r:
			return 1
		}
		return 0
	})
	if !ok {
		return 0, false
	}
	return d.arcs[s][i].to, true
}

// matches reports whether a text is in the language.
func (d *dfa) matches(text string) bool {
	s, ok := 0, true
	for _, r := range text {
		if s, ok = d.step(s, r); !ok {
			return false
		}
	}
	return d.final[s]
}

// explore returns the automaton whose states are the values of K that next leads to from start, or nil where there are
// more than limit of them. The alphabet is in order.
func explore[K comparable](start K, next func(K, rune) (K, bool), final func(K) bool, alphabet []rune, limit int) *dfa {
	d := &dfa{}
	number := map[K]int{start: d.state(final(start))}
	queue := []K{start}
	for len(queue) > 0 {
		k := queue[0]
		queue = queue[1:]
		for _, r := range alphabet {
			to, ok := next(k, r)
			if !ok {
				continue
			}
			n, known := number[to]
			if !known {
				if len(d.final) >= limit {
					return nil
				}
				n = d.state(final(to))
				number[to] = n
				queue = append(queue, to)
			}
			d.add(number[k], arc{r, r, n})
		}
	}
	return d
}

// combine returns the automaton of the texts for which keep holds, given whether each of two automata has them; or nil
// where it has more than limit states. Texts that neither has must not be kept.
func combine(a, b *dfa, keep func(inA, inB bool) bool, limit int) *dfa {
	type pair struct{ a, b int }
	const out = -1
	d := &dfa{}
	in := func(d *dfa, s int) bool { return s != out && d.final[s] }
	number := map[pair]int{}
	var queue []pair
	of := func(p pair) int {
		n, ok := number[p]
		if !ok {
			n = d.state(keep(in(a, p.a), in(b, p.b)))
			number[p] = n
			queue = append(queue, p)
		}
		return n
	}
	of(pair{0, 0})
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		var left, right []arc
		if p.a != out {
			left = a.arcs[p.a]
		}
		if p.b != out {
			right = b.arcs[p.b]
		}
		for _, c := range refine(left, right) {
			// Where a text is left that only one could still have, and it alone is not kept, nothing is.
			if c.a == out && !keep(false, true) || c.b == out && !keep(true, false) {
				continue
			}
			if to := of(pair{c.a, c.b}); len(d.final) <= limit {
				d.add(number[p], arc{c.lo, c.hi, to})
			}
		}
		if len(d.final) > limit {
			return nil
		}
	}
	return d
}

// A cell is a range of characters and where two states go by it, -1 for nowhere.
type cell struct {
	lo, hi rune
	a, b   int
}

// refine cuts the arcs of two states at each other's ends.
func refine(a, b []arc) []cell {
	var cells []cell
	for at := rune(0); len(a) > 0 || len(b) > 0; {
		c := cell{at, lastRune, -1, -1}
		for _, side := range []struct {
			arcs *[]arc
			to   *int
		}{{&a, &c.a}, {&b, &c.b}} {
			if len(*side.arcs) == 0 {
				continue
			}
			if first := (*side.arcs)[0]; first.lo > at {
				c.hi = min(c.hi, first.lo-1)
			} else {
				*side.to = first.to
				c.hi = min(c.hi, first.hi)
			}
		}
		if c.a >= 0 || c.b >= 0 {
			cells = append(cells, c)
		}
		at = c.hi + 1
		for _, arcs := range []*[]arc{&a, &b} {
			if len(*arcs) > 0 && (*arcs)[0].hi < at {
				*arcs = (*arcs)[1:]
			}
		}
	}
	return cells
}

// both and without are the intersection and the difference of two languages, nil beyond limit states.
func both(a, b *dfa, limit int) *dfa {
	return combine(a, b, func(inA, inB bool) bool { return inA && inB }, limit)
}

func without(a, b *dfa, limit int) *dfa {
	return combine(a, b, func(inA, inB bool) bool { return inA && !inB }, limit)
}

// allText has every text.
func allText() *dfa {
	d := &dfa{}
	d.state(true)
	d.add(0, arc{0, lastRune, 0})
	return d
}

// lengths has the texts of at least least characters and, unless most is negative, at most most.
func lengths(least, most int) *dfa {
	d := &dfa{}
	n := least
	if most >= 0 {
		n = most
	}
	for i := range n + 1 {
		d.state(i >= least)
		if i > 0 {
			d.add(i-1, arc{0, lastRune, i})
		}
	}
	if most < 0 {
		d.add(n, arc{0, lastRune, n})
	}
	return d
}

// words has the given texts.
func words(list []string) *dfa {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b string) int { return slices.Compare([]rune(a), []rune(b)) })
	d := &dfa{}
	d.state(false)
	for _, w := range list {
		s := 0
		for _, r := range w {
			if n := len(d.arcs[s]); n > 0 && d.arcs[s][n-1].lo == r {
				s = d.arcs[s][n-1].to
				continue
			}
			to := d.state(false)
			d.arcs[s] = append(d.arcs[s], arc{r, r, to})
			s = to
		}
		d.final[s] = true
	}
	return d
}

// expr returns the grammar of the language. Label writes characters of some ranges; where anything may follow, rest
// matches it.
func (d *dfa) expr(label func([]grammar.Range) *grammar.Expr, rest *grammar.Expr) *grammar.Expr {
	g := &grammar.Graph{States: len(d.final)}
	end := g.State()
	for s := range d.final {
		switch {
		case d.anything(s):
			g.Add(s, end, rest)
			continue
		case d.final[s]:
			g.Final = append(g.Final, s)
		}
		arcs := slices.Clone(d.arcs[s])
		slices.SortStableFunc(arcs, func(a, b arc) int { return cmp.Compare(a.to, b.to) })
		for i := 0; i < len(arcs); {
			var ranges []grammar.Range
			to := arcs[i].to
			for ; i < len(arcs) && arcs[i].to == to; i++ {
				ranges = append(ranges, grammar.Range{Lo: arcs[i].lo, Hi: arcs[i].hi})
			}
			g.Add(s, to, label(ranges))
		}
	}
	g.Final = append(g.Final, end)
	return g.Expr()
}
