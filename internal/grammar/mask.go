package grammar

import "math/bits"

// Masks are made by walking the tries of the vocabulary along with the automaton, from a place: a node whose text leads
// nowhere ends the walk of its subtree, and the tokens of the others are allowed. Three things keep that short.
//
// A place's stacks are taken apart into their top frames and what lies below. A walk from the top frames alone, as if
// the stack were empty below, finds the tokens that stay inside the frame's rule and those it calls, whatever the
// context, and the nodes where the rule may end with more of the token to come. That walk is made once for a set of top
// frames (topMask). For the stacks at hand, only the subtrees of those nodes are walked, from what lies below.
//
// In the insides of strings and free text (state.text), the tokens made of plain characters need no walk.
//
// And every mask is kept with its place.

// A mask is a set of tokens: bits, or a list where that is shorter.
type mask struct {
	bits  []uint64
	list  []int32
	empty bool
}

// A topMask is what the top frames of a place allow.
type topMask struct {
	mask   *mask
	reach  bool     // the rule of the frames may end inside a token
	ends   []uint32 // if so, the nodes with children at whose text it does; made on demand
	listed bool     // ends are made
}

// write sets row to the mask.
func (m *mask) write(row []uint64) {
	if m.bits != nil {
		copy(row, m.bits)
		return
	}
	clear(row)
	m.add(row)
}

// add adds the mask to row.
func (m *mask) add(row []uint64) {
	for i, w := range m.bits {
		row[i] |= w
	}
	for _, id := range m.list {
		setBit(row, id)
	}
}

// pack makes a mask of row.
func (t *tables) pack(row []uint64) *mask {
	n := 0
	for _, w := range row {
		n += bits.OnesCount64(w)
	}
	if n >= len(row) {
		t.bytes += 48 + 8*len(row)
		return &mask{bits: append([]uint64(nil), row...)}
	}
	m := &mask{list: make([]int32, 0, n), empty: n == 0}
	t.bytes += 72 + 4*n
	for i, w := range row {
		for ; w != 0; w &= w - 1 {
			m.list = append(m.list, int32(i<<6+bits.TrailingZeros64(w)))
		}
	}
	return m
}

// maskOf returns the tokens that are allowed at a place.
func (t *tables) maskOf(p *place) *mask {
	if p.mask != nil {
		return p.mask
	}
	tops := t.topsOf(p)
	row := t.row
	clear(row)
	for _, top := range tops {
		top.mask.mask.add(row)
		t.work += len(row) / 4
		if top.mask.reach {
			t.walkBelow(row, top)
		}
	}
	if p.ends {
		for _, id := range t.vocabulary.stop {
			setBit(row, id)
		}
	}
	m := t.pack(row)
	if !t.broken {
		p.mask = m
	}
	return m
}

// A groupTop is the topMask of those stacks of a place that have the same frames below.
type groupTop struct {
	place *place // the top frames alone
	mask  *topMask
	below *set
}

func (t *tables) topsOf(p *place) []groupTop {
	t.tops = t.tops[:0]
	for i, it := range p.items {
		t.work += len(t.tops) / 4
		if t.work > maxWork {
			t.broken = true
			return nil
		}
		if t.grouped(it.below) {
			continue
		}
		t.group = t.group[:0]
		for _, other := range p.items[i:] {
			if other.below == it.below {
				t.group = append(t.group, item{other.where, t.usualCount(other), t.bottom})
			}
		}
		base := len(t.slab)
		t.slab = append(t.slab, t.group...)
		t.merge(base)
		top := t.internPlace(t.slab[base:], false)
		t.slab = t.slab[:base]
		t.tops = append(t.tops, groupTop{top, t.topMaskOf(top), it.below})
	}
	return t.tops
}

func (t *tables) grouped(below *set) bool {
	for i := range t.tops {
		if t.tops[i].below == below {
			return true
		}
	}
	return false
}

// usualCount returns a count in place of an item's that leads to the same masks: where no token can reach the bounds of
// the loop, it does not matter how far they are.
func (t *tables) usualCount(it item) int32 {
	l := t.states[it.where].loop
	if l == none {
		return 0
	}
	bounds, reach := &t.loops[l], int32(t.vocabulary.longest)
	switch {
	case bounds.max >= 0 && bounds.max-it.count <= reach:
	case it.count >= bounds.min:
		return bounds.min
	case bounds.min-it.count > reach:
		return 0
	}
	return it.count
}

// topMaskOf returns what a place of top frames allows.
func (t *tables) topMaskOf(p *place) *topMask {
	if p.top != nil {
		return p.top
	}
	top := &topMask{}
	clear(t.row)
	t.work += len(t.row)
	t.walkTop(t.row, p, func(int, *node) { top.reach = true })
	if chars := t.freeChars(p); chars > 0 {
		for i, w := range t.vocabulary.plain[chars] {
			t.row[i] |= w
		}
	}
	for _, it := range p.items {
		moves := t.states[it.where].tokens
		for _, m := range t.tokens[moves.from:moves.to] {
			setBit(t.row, m.token)
		}
	}
	top.mask = t.pack(t.row)
	t.bytes += 64
	if !t.broken {
		p.top = top
	}
	return top
}

// walkTop adds to row what the tries have from a place of top frames, but for the tokens that it is known to allow.
func (t *tables) walkTop(row []uint64, p *place, ends func(int, *node)) {
	v := t.vocabulary
	t.depth[0] = p
	t.walk(row, v.middle, len(v.nodes)-1, 0, ends)
	if chars := t.freeChars(p); chars < maxPlain {
		t.walk(row, 0, v.middle, chars, ends)
	}
}

// endsOf returns the nodes at which the rule of top frames may end.
func (t *tables) endsOf(top groupTop) []uint32 {
	if !top.mask.listed {
		var ends []uint32
		t.walkTop(t.spare, top.place, func(i int, _ *node) { ends = append(ends, uint32(i)) })
		if t.broken {
			return nil
		}
		top.mask.ends, top.mask.listed = ends, true
		t.bytes += 4 * len(ends)
	}
	return top.mask.ends
}

// freeChars returns how many plain characters are surely allowed at a place, up to maxPlain.
func (t *tables) freeChars(p *place) int {
	if p.free < 0 {
		p.free = int8(t.findFree(p))
	}
	return int(p.free)
}

func (t *tables) findFree(p *place) int {
	free := 0
	for _, it := range p.items {
		s := &t.states[it.where]
		if !s.text {
			continue
		}
		if s.loop == none || t.loops[s.loop].max < 0 {
			return maxPlain
		}
		free = max(free, min(maxPlain, int(t.loops[s.loop].max-it.count)))
	}
	return free
}

// walkBelow adds the tokens that go on after a rule's end among the stacks below.
func (t *tables) walkBelow(row []uint64, top groupTop) {
	next := t.after(top.below)
	if !t.takesBytes(next) {
		return
	}
	for _, i := range t.endsOf(top) {
		n := &t.vocabulary.nodes[i]
		t.depth[n.depth] = next
		t.walk(row, int(i)+1, int(i+n.size), 0, nil)
	}
}

// takesBytes reports whether a place goes on by a byte.
func (t *tables) takesBytes(p *place) bool {
	for _, it := range p.items {
		if s := &t.states[it.where]; s.edges.from < s.edges.to {
			return true
		}
	}
	return false
}

// walk adds the tokens of the nodes from first to last that the places in t.depth lead to, where each is that of the text
// of a node on the way. Subtrees whose tokens have at most known characters are in row already. Nodes at which the output
// may end, with more of a token to come, are given to ends, unless it is nil.
func (t *tables) walk(row []uint64, first, last, known int, ends func(int, *node)) {
	v := t.vocabulary
	for i := first; i < last; {
		n := &v.nodes[i]
		if int(n.chars) <= known && n.chars > 0 {
			i += int(n.size)
			continue
		}
		if t.work++; t.work > maxWork {
			t.broken = true
			return
		}
		at, class := t.depth[n.depth-1], t.class[n.b]
		var next *place
		if at.moves != nil {
			next = at.moves[class]
		}
		if next == nil {
			next = t.step(at, class)
			if t.broken {
				return
			}
		}
		if !next.live() {
			i += int(n.size)
			continue
		}
		if n.whole && t.freeChars(next) >= int(n.chars) {
			// The whole subtree: nothing in it has to be looked at.
			subtree := v.sorted[n.first:v.nodes[i+int(n.size)].first]
			for _, id := range subtree {
				setBit(row, id)
			}
			t.work += len(subtree) / 4
			i += int(n.size)
			continue
		}
		for _, id := range v.sorted[n.first : n.first+uint32(n.own)] {
			setBit(row, id)
		}
		if next.ends && ends != nil && n.size > 1 {
			ends(i, n)
		}
		t.depth[n.depth] = next
		i++
	}
}
