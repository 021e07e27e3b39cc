package grammar

import "slices"

// A set is a set of stacks, as the tree of their frames from the top: stacks whose top frames are alike share the item.
// Sets are interned, so that equal ones are the same pointer as long as tables are.
type set struct {
	items []item
	end   bool // the empty stack is one of them

	id    uint32
	next  *set   // of the same hash
	after *place // what follows when a rule ends above these stacks; made on demand
	stamp uint32 // the last arrival that popped it
}

// An item is a frame and what lies below it. On top of a stack, where is a state; below it, a call that waits to return.
type item struct {
	where, count int32
	below        *set
}

// A place is what a matcher is in: the stacks whose top state goes on by a byte or a token. It is interned like a set.
type place struct {
	items []item
	ends  bool // the output may end here
	free  int8 // see freeChars; -1 where not known yet

	next   *place   // of the same hash
	moves  []*place // by byte class; nil where not known yet
	tokens []tokenPlace
	mask   *mask
	top    *topMask
}

// A tokenPlace is the place after a special token.
type tokenPlace struct {
	token int32
	place *place
}

// live reports whether anything may follow, be it the end.
func (p *place) live() bool { return len(p.items) > 0 || p.ends }

// tables hold the places of a grammar that are known so far. They only grow; a grammar starts anew with empty ones when
// they are too large.
type tables struct {
	*automaton
	vocabulary *Vocabulary

	sets   map[uint64]*set
	places map[uint64]*place
	unions map[[2]*set]*set
	bottom *set   // the empty stack alone
	dead   *place // no stack at all

	bytes  int // what the tables take, about
	lastID uint32
	work   int // of the operation under way
	broken bool

	// Room of one step: the stacks arrived at, those of frames that enter rules, and whether the empty one is among them.
	arrived []item
	entries []entry
	ends    bool
	stamp   uint32
	slab    []item

	// Room of masks.
	row   []uint64
	spare []uint64
	depth []*place
	group []item
	tops  []groupTop
}

// An entry is a rule to be entered above a frame; with call none, above the stacks below it themselves.
type entry struct {
	rank, rule, call int32
	count            int32
	below            *set
}

const (
	// maxWork bounds the work of one operation: the items of the places it makes, and the nodes of the trie it visits. It is
	// some 50 milliseconds, and ten times what a mask takes that visits every token of a vocabulary of 250,000.
	maxWork = 6_000_000
	// An output may take freeWork, and tokenWork for each of its tokens: others wait for its masks. Grammars that are not made
	// to be costly take a thirtieth of that.
	freeWork, tokenWork = 60_000_000, 300_000
	// placeWork is what making a place takes beside its items.
	placeWork = 32
	// maxItems bounds the stacks of one place.
	maxItems = 1 << 15
)

func newTables(a *automaton, v *Vocabulary) *tables {
	t := &tables{
		automaton: a, vocabulary: v,
		sets: map[uint64]*set{}, places: map[uint64]*place{}, unions: map[[2]*set]*set{},
		row: make([]uint64, v.Words()), spare: make([]uint64, v.Words()), depth: make([]*place, v.longest+1),
	}
	t.bottom = t.internSet(0, true)
	t.dead = t.internPlace(nil, false)
	return t
}

// start returns the place before any output.
func (t *tables) start() *place {
	t.begin()
	t.ends = t.rules[0].null
	t.enterLater(0, none, 0, t.bottom)
	return t.finish()
}

// step returns the place after a byte of a class.
func (t *tables) step(p *place, class uint8) *place {
	t.begin()
	t.work += placeWork
	b := t.sample[class]
	for i := range p.items {
		at := &p.items[i]
		moves := t.states[at.where].edges
		edges := t.edges[moves.from:moves.to]
		t.work += len(edges)
		for j := range edges {
			if edges[j].lo <= b && b <= edges[j].hi {
				t.follow(edges[j].targets, at.count, at.below)
			}
		}
	}
	next := t.finish()
	if p.moves == nil {
		p.moves = make([]*place, len(t.sample))
		t.bytes += 8 * len(t.sample)
	}
	p.moves[class] = next
	return next
}

// stepToken returns the place after a special token.
func (t *tables) stepToken(p *place, token int32) *place {
	for _, known := range p.tokens {
		if known.token == token {
			return known.place
		}
	}
	t.begin()
	for i := range p.items {
		at := &p.items[i]
		moves := t.states[at.where].tokens
		for _, m := range t.tokens[moves.from:moves.to] {
			if m.token == token {
				t.follow(m.targets, at.count, at.below)
			}
		}
	}
	next := t.finish()
	p.tokens = append(p.tokens, tokenPlace{token, next})
	t.bytes += 16
	return next
}

// after returns the place where the rules end that lie above the stacks of s.
func (t *tables) after(s *set) *place {
	if s.after == nil {
		t.begin()
		t.pop(s)
		s.after = t.finish()
	}
	return s.after
}

func (t *tables) begin() {
	t.arrived, t.entries, t.ends = t.arrived[:0], t.entries[:0], false
	t.stamp++
}

// follow goes to targets from a frame with a count.
func (t *tables) follow(to span, count int32, below *set) {
	for i := to.from; i < to.to; i++ {
		c, ok := t.apply(&t.targets[i], count)
		switch {
		case !ok:
		case t.targets[i].state == pop:
			t.pop(below)
		default:
			t.arrive(t.targets[i].state, c, below)
		}
	}
}

// pop ends a rule: the frames below go on.
func (t *tables) pop(s *set) {
	if s.stamp == t.stamp {
		return
	}
	s.stamp = t.stamp
	t.ends = t.ends || s.end
	for i := range s.items {
		t.follow(t.calls[s.items[i].where].returns, s.items[i].count, s.items[i].below)
	}
}

func (t *tables) arrive(state, count int32, below *set) {
	if len(t.arrived) >= 4*maxItems {
		t.broken = true
		return
	}
	t.work++
	t.arrived = append(t.arrived, item{state, count, below})
	calls := t.states[state].calls
	for i := calls.from; i < calls.to; i++ {
		if c := &t.calls[i]; c.tail {
			t.enterLater(c.rule, none, 0, below)
		} else {
			t.enterLater(c.rule, i, count, below)
		}
	}
}

// enterLater notes a rule to be entered. The entries are a heap by rank.
func (t *tables) enterLater(rule, call, count int32, below *set) {
	if len(t.entries) >= 4*maxItems {
		t.broken = true
		return
	}
	t.entries = append(t.entries, entry{t.rules[rule].rank, rule, call, count, below})
	h := t.entries
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if h[parent].rank <= h[i].rank {
			break
		}
		h[parent], h[i] = h[i], h[parent]
		i = parent
	}
}

func (t *tables) nextEntry() entry {
	h := t.entries
	first, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && h[child+1].rank < h[child].rank {
			child++
		}
		if h[i].rank <= h[child].rank {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	t.entries = h
	return first
}

// finish enters the rules that were noted, those that call others first, so that each is entered once above all its
// callers; and returns the place of all that was arrived at.
func (t *tables) finish() *place {
	for len(t.entries) > 0 && !t.broken {
		base, end := len(t.slab), false
		rule := t.entries[0].rule
		for len(t.entries) > 0 && t.entries[0].rule == rule {
			e := t.nextEntry()
			if e.call == none {
				t.slab = append(t.slab, e.below.items...)
				end = end || e.below.end
			} else {
				t.slab = append(t.slab, item{e.call, e.count, e.below})
			}
			t.work++
		}
		below := t.internSet(base, end)
		entry := t.rules[rule].entry
		for i := entry.from; i < entry.to; i++ {
			t.arrive(t.targets[i].state, 0, below)
		}
	}
	return t.settle()
}

// settle makes the place of the states arrived at that consume something themselves.
func (t *tables) settle() *place {
	base := len(t.slab)
	for _, it := range t.arrived {
		if s := &t.states[it.where]; s.edges.from < s.edges.to || s.tokens.from < s.tokens.to {
			t.slab = append(t.slab, it)
		}
	}
	t.merge(base)
	if len(t.slab)-base > maxItems || t.work > maxWork {
		t.broken = true
	}
	var p *place
	if t.broken {
		t.entries = t.entries[:0]
		p = t.dead
	} else {
		p = t.internPlace(t.slab[base:], t.ends)
	}
	t.slab = t.slab[:base]
	return p
}

// merge sorts the items of the slab from base on, and makes one of those whose frames are alike.
func (t *tables) merge(base int) {
	slices.SortFunc(t.slab[base:], compareItems)
	n := base
	for i := base; i < len(t.slab); i++ {
		it := t.slab[i]
		if n > base && t.slab[n-1].where == it.where && t.slab[n-1].count == it.count {
			below := t.union(t.slab[n-1].below, it.below)
			t.slab[n-1].below = below
			continue
		}
		t.slab[n] = it
		n++
	}
	t.slab = t.slab[:n]
}

func compareItems(a, b item) int {
	if a.where != b.where {
		return int(a.where - b.where)
	}
	return int(a.count - b.count)
}

// union returns the stacks of both sets.
func (t *tables) union(a, b *set) *set {
	if a == b || t.broken {
		return a
	}
	if a.id > b.id {
		a, b = b, a
	}
	if u := t.unions[[2]*set{a, b}]; u != nil {
		return u
	}
	base := len(t.slab)
	t.slab = append(append(t.slab, a.items...), b.items...)
	t.work += len(t.slab) - base
	if t.work > maxWork {
		t.broken = true
	}
	u := t.internSet(base, a.end || b.end)
	t.unions[[2]*set{a, b}] = u
	t.bytes += 64
	return u
}

// internSet returns the set of the items of the slab from base on, and takes them off.
func (t *tables) internSet(base int, end bool) *set {
	t.merge(base)
	items := t.slab[base:]
	h := hash(items, end)
	s := t.sets[h]
	for ; s != nil; s = s.next {
		if s.end == end && slices.Equal(s.items, items) {
			break
		}
	}
	if s == nil {
		t.lastID++
		s = &set{items: slices.Clone(items), end: end, id: t.lastID, next: t.sets[h]}
		t.sets[h] = s
		t.bytes += 96 + 16*len(items)
	}
	t.slab = t.slab[:base]
	return s
}

func (t *tables) internPlace(items []item, ends bool) *place {
	h := hash(items, ends)
	p := t.places[h]
	for ; p != nil; p = p.next {
		if p.ends == ends && slices.Equal(p.items, items) {
			return p
		}
	}
	p = &place{items: slices.Clone(items), ends: ends, free: -1, next: t.places[h]}
	t.places[h] = p
	t.bytes += 144 + 16*len(items)
	return p
}

// hash mixes items by the multipliers of SplitMix64 (Steele, Lea, Flood 2014).
func hash(items []item, end bool) uint64 {
	h := uint64(len(items)) << 1
	if end {
		h++
	}
	for _, it := range items {
		h ^= uint64(uint32(it.where))<<32 | uint64(uint32(it.count))
		h *= 0xBF58476D1CE4E5B9
		h ^= h>>29 ^ uint64(it.below.id)
		h *= 0x94D049BB133111EB
		h ^= h >> 32
	}
	return h
}
