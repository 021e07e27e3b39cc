package grammar

import "slices"

// Avoid matches all text in which none of the marks occurs, the empty text included.
func Avoid(marks ...string) *Expr {
	m := newMarks(marks)
	g := &Graph{States: len(m.nodes)}
	for s := range m.nodes {
		if m.nodes[s].match {
			continue
		}
		g.Final = append(g.Final, s)
		m.edges(g, s, false)
	}
	return g.Expr()
}

// Through matches the texts that, after prefix, end where the first occurrence of one of the marks does. The occurrence
// may begin in prefix, which itself contains none.
func Through(prefix string, marks ...string) *Expr {
	m := newMarks(marks)
	start := 0
	for _, r := range prefix {
		start = m.next(start, r)
	}
	// A graph begins at state 0: the states move up by one.
	g := &Graph{States: len(m.nodes) + 1}
	g.Add(0, start+1, nil)
	inner := &Graph{}
	for s := range m.nodes {
		if m.nodes[s].match {
			g.Final = append(g.Final, s+1)
			continue
		}
		m.edges(inner, s, true)
	}
	for _, e := range inner.Edges {
		g.Add(e.From+1, e.To+1, e.Label)
	}
	return g.Expr()
}

// marks is the automaton of Aho and Corasick (1975) over characters: its states are the beginnings of marks, and the
// state after a text is its longest end that is one.
type marks struct {
	nodes []markNode
	runes []rune // all that occur in marks
}

type markNode struct {
	children map[rune]int
	fail     int  // the state of the longest proper end
	match    bool // a mark ends here
}

func newMarks(texts []string) *marks {
	m := &marks{nodes: []markNode{{children: map[rune]int{}}}}
	for _, text := range texts {
		s := 0
		for _, r := range text {
			child, ok := m.nodes[s].children[r]
			if !ok {
				child = len(m.nodes)
				m.nodes = append(m.nodes, markNode{children: map[rune]int{}})
				m.nodes[s].children[r] = child
			}
			s = child
			m.runes = append(m.runes, r)
		}
		m.nodes[s].match = true
	}
	slices.Sort(m.runes)
	m.runes = slices.Compact(m.runes)
	m.link()
	return m
}

// link sets the failure links, level by level.
func (m *marks) link() {
	queue := []int{0}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		for r, child := range m.nodes[s].children {
			if s != 0 {
				m.nodes[child].fail = m.next(m.nodes[s].fail, r)
			}
			if m.nodes[m.nodes[child].fail].match {
				m.nodes[child].match = true
			}
			queue = append(queue, child)
		}
	}
}

// next returns the state after r.
func (m *marks) next(s int, r rune) int {
	for {
		if child, ok := m.nodes[s].children[r]; ok {
			return child
		}
		if s == 0 {
			return 0
		}
		s = m.nodes[s].fail
	}
}

// edges adds the edges out of state s; those into a match only on demand.
func (m *marks) edges(g *Graph, s int, matches bool) {
	targets := map[int][]Range{}
	var others []Range
	at := rune(0)
	for _, r := range m.runes {
		if at < r {
			others = append(others, Range{at, r - 1})
		}
		at = r + 1
		t := m.next(s, r)
		targets[t] = append(targets[t], Range{r, r})
	}
	others = append(others, Range{at, AnyChar[1].Hi})
	targets[0] = append(targets[0], others...)
	for t := range m.nodes {
		if ranges := targets[t]; len(ranges) > 0 && (matches || !m.nodes[t].match) {
			g.Add(s, t, Class(ranges...))
		}
	}
}
