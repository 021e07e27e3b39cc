package grammar

import "slices"

// earley recognizes what rules match, symbol by symbol (Earley 1970): plainly, with no thought of speed, and with
// repetitions written out. Symbols are bytes, and special tokens above them.
type earley struct {
	productions [][]production // by symbol of the grammar
	columns     [][]earleyItem
	known       []map[earleyItem]bool // what the columns hold
}

// A production is a sequence of terminals and of symbols of the grammar.
type production []earleySymbol

type earleySymbol struct {
	lo, hi int     // terminals, where symbol < 0
	chars  []Range // or the bytes of a character
	symbol int
}

type earleyItem struct {
	symbol, production, dot, origin int

	char string // the bytes so far of the character at the dot
}

const tokenSymbol = 256

func newEarley(rules *Rules, root Rule) *earley {
	e := &earley{productions: make([][]production, rules.Len())}
	for i, body := range rules.bodies {
		e.productions[i] = []production{e.of(body)}
	}
	e.trim()
	e.columns, e.known = [][]earleyItem{nil}, []map[earleyItem]bool{{}}
	for i := range e.productions[root] {
		e.add(0, earleyItem{symbol: int(root), production: i})
	}
	e.complete(0)
	return e
}

// trim drops the productions that derive no text: their beginnings are beginnings of nothing.
func (e *earley) trim() {
	finishes := make([]bool, len(e.productions))
	ends := func(p production) bool {
		return !slices.ContainsFunc(p, func(s earleySymbol) bool {
			return s.symbol < 0 && s.chars == nil && s.lo > s.hi || s.symbol >= 0 && !finishes[s.symbol]
		})
	}
	for changed := true; changed; {
		changed = false
		for i, list := range e.productions {
			if !finishes[i] && slices.ContainsFunc(list, ends) {
				finishes[i], changed = true, true
			}
		}
	}
	for i, list := range e.productions {
		e.productions[i] = slices.DeleteFunc(list, func(p production) bool { return !ends(p) })
	}
}

func (e *earley) add(column int, it earleyItem) {
	if !e.known[column][it] {
		e.known[column][it] = true
		e.columns[column] = append(e.columns[column], it)
	}
}

// symbol adds a symbol of the grammar.
func (e *earley) symbol(productions ...production) earleySymbol {
	e.productions = append(e.productions, productions)
	return earleySymbol{symbol: len(e.productions) - 1}
}

func terminal(lo, hi int) earleySymbol { return earleySymbol{lo: lo, hi: hi, symbol: -1} }

func (e *earley) of(x *Expr) production {
	switch x.kind {
	case text:
		var p production
		for i := range len(x.text) {
			p = append(p, terminal(int(x.text[i]), int(x.text[i])))
		}
		return p
	case byteRange:
		return production{terminal(int(x.lo), int(x.hi))}
	case token:
		return production{terminal(tokenSymbol+int(x.token), tokenSymbol+int(x.token))}
	case reference:
		return production{{symbol: int(x.rule)}}
	case sequence:
		var p production
		for _, item := range x.items {
			p = append(p, e.of(item)...)
		}
		return p
	case choice:
		var list []production
		for _, item := range x.items {
			list = append(list, e.of(item))
		}
		return production{e.symbol(list...)}
	case class:
		if len(x.ranges) == 0 {
			return production{terminal(1, 0)}
		}
		return production{{chars: x.ranges, symbol: -1}}
	case repeat:
		return e.repeated(x)
	}
	return e.graphed(x.graph)
}

// startsChar reports whether a text is the UTF-8 of a character of ranges, or the beginning of such.
func startsChar(ranges []Range, text string) (whole, begins bool) {
	size, value := 0, rune(text[0])
	switch {
	case text[0] < 0x80:
		size = 1
	case text[0] >= 0xF8 || text[0] < 0xC0:
		return false, false
	case text[0] >= 0xF0:
		size, value = 4, value&7
	case text[0] >= 0xE0:
		size, value = 3, value&15
	default:
		size, value = 2, value&31
	}
	for _, b := range []byte(text[1:]) {
		if b&0xC0 != 0x80 {
			return false, false
		}
		value = value<<6 | rune(b&0x3F)
	}
	least := [...]rune{0, 0, 0x80, 0x800, 0x10000}[size]
	more := 6 * (size - len(text))
	lo, hi := value<<more, value<<more|(1<<more-1)
	for _, r := range ranges {
		if max(lo, r.Lo, least) <= min(hi, r.Hi) {
			return more == 0, more > 0
		}
	}
	return false, false
}

func (e *earley) repeated(x *Expr) production {
	if x.max >= 0 && x.max < x.min {
		return production{e.symbol()}
	}
	body := e.symbol(e.of(x.items[0]))
	var p production
	for range x.min {
		p = append(p, body)
	}
	if x.max < 0 {
		star := e.symbol(nil)
		e.productions[star.symbol] = append(e.productions[star.symbol], production{body, star})
		return append(p, star)
	}
	rest := e.symbol(nil)
	for range x.max - x.min {
		rest = e.symbol(nil, production{body, rest})
	}
	return append(p, rest)
}

func (e *earley) graphed(g *Graph) production {
	first := len(e.productions)
	for range g.States {
		e.symbol()
	}
	for _, s := range g.Final {
		e.productions[first+s] = append(e.productions[first+s], nil)
	}
	for _, edge := range g.Edges {
		var p production
		if edge.Label != nil {
			p = append(p, e.of(edge.Label)...)
		}
		p = append(p, earleySymbol{symbol: first + edge.To})
		e.productions[first+edge.From] = append(e.productions[first+edge.From], p)
	}
	return production{{symbol: first}}
}

// complete closes a column under prediction and completion. Repeating until nothing is new takes care of empty symbols.
func (e *earley) complete(column int) {
	for size := -1; size != len(e.columns[column]); {
		size = len(e.columns[column])
		for i := 0; i < len(e.columns[column]); i++ {
			it := e.columns[column][i]
			p := e.productions[it.symbol][it.production]
			if it.dot < len(p) {
				if s := p[it.dot].symbol; s >= 0 {
					for k := range e.productions[s] {
						e.add(column, earleyItem{symbol: s, production: k, origin: column})
					}
				}
				continue
			}
			for j := 0; j < len(e.columns[it.origin]); j++ {
				up := e.columns[it.origin][j]
				q := e.productions[up.symbol][up.production]
				if up.dot < len(q) && q[up.dot].symbol == it.symbol {
					up.dot++
					e.add(column, up)
				}
			}
		}
	}
}

// feed goes on with a symbol and reports whether some text may follow.
func (e *earley) feed(symbol int) bool {
	last := len(e.columns) - 1
	e.columns, e.known = append(e.columns, nil), append(e.known, map[earleyItem]bool{})
	for _, it := range e.columns[last] {
		p := e.productions[it.symbol][it.production]
		if it.dot == len(p) || p[it.dot].symbol >= 0 {
			continue
		}
		switch want := p[it.dot]; {
		case want.chars != nil && symbol < tokenSymbol:
			text := it.char + string([]byte{byte(symbol)})
			switch whole, begins := startsChar(want.chars, text); {
			case whole:
				it.char = ""
				it.dot++
				e.add(last+1, it)
			case begins:
				it.char = text
				e.add(last+1, it)
			}
		case want.chars == nil && want.lo <= symbol && symbol <= want.hi:
			it.dot++
			e.add(last+1, it)
		}
	}
	e.complete(last + 1)
	return len(e.columns[last+1]) > 0
}

// feedAll feeds the symbols of a token.
func (e *earley) feedAll(symbols []int) bool {
	for _, s := range symbols {
		if !e.feed(s) {
			return false
		}
	}
	return true
}

// back forgets all but the first columns.
func (e *earley) back(columns int) { e.columns, e.known = e.columns[:columns], e.known[:columns] }

// accepts reports whether the symbols so far are a whole output.
func (e *earley) accepts(root Rule) bool {
	return slices.ContainsFunc(e.columns[len(e.columns)-1], func(it earleyItem) bool {
		return it.symbol == int(root) && it.origin == 0 && it.dot == len(e.productions[it.symbol][it.production])
	})
}
