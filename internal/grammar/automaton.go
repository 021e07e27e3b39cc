package grammar

import (
	"context"
	"fmt"
	"slices"
)

// automaton is the grammar without empty edges. Its states are those of the nfa that consume something; every way over
// empty edges from where a byte, a call or a rule's beginning leads is a target.
//
// A state's frame carries the rounds of the loop it is in, 0 outside of loops.
type automaton struct {
	states  []state
	edges   []byteMove
	tokens  []tokenMove
	calls   []call
	targets []target
	rules   []rule
	loops   []loop
	class   [256]uint8 // byte classes: bytes that no edge tells apart
	sample  []byte     // by class: one of its bytes
}

// A span is a part of one of the automaton's lists.
type span struct{ from, to int32 }

type state struct {
	edges, tokens, calls span
	loop                 int32
	text                 bool // see findText
}

type byteMove struct {
	lo, hi  byte
	targets span
}

type tokenMove struct {
	token   int32
	targets span
}

// A call pushes a frame and enters a rule. When the rule is done, the frame goes on to one of the targets. A tail call
// would only pop the frame, so it pushes none.
type call struct {
	rule    int32
	returns span
	tail    bool
}

// pop is the target that ends the rule.
const pop = none

// A target is a state to be in, if the count of the frame allows.
type target struct {
	state int32
	loop  int32
	op    op
}

// An op is what the way to a target does to a frame's count of rounds, in this order.
type op uint8

const (
	opRound op = 1 << iota // a round is over: the count goes up
	opMore                 // another round begins: there must be one left
	opLeave                // the loop ends: there must have been enough; the count is 0 again
)

type rule struct {
	entry span // targets, without pop
	rank  int32
	null  bool // matches the empty text
}

// apply returns the count of a frame at a target, and whether it allows to go there.
func (a *automaton) apply(t *target, count int32) (int32, bool) {
	if t.op == 0 {
		return count, true
	}
	l := &a.loops[t.loop]
	if t.op&opRound != 0 {
		count++
		if l.max < 0 {
			count = min(count, l.min)
		}
	}
	if t.op&opMore != 0 && l.max >= 0 && count >= l.max {
		return 0, false
	}
	if t.op&opLeave != 0 {
		return 0, count >= l.min
	}
	return count, true
}

// assembler makes an automaton of an nfa.
type assembler struct {
	automaton
	ctx     context.Context
	limits  Limits
	nfa     *nfa
	number  []int32 // by nfa state: its number in the automaton
	after   []span  // by nfa state: the targets of arriving there
	seen    []uint8 // by nfa state: a bit for each op that reached it
	touched []int32
	stack   []arrival
}

// An arrival is a state of the nfa with what the way to it does.
type arrival struct {
	state int32
	op    op
	fixed bool // the count is known to be 0
}

func assemble(ctx context.Context, n *nfa, limits Limits) (*automaton, error) {
	a := &assembler{ctx: ctx, limits: limits, nfa: n}
	a.loops = n.kinds
	a.number = slices.Repeat([]int32{none}, len(n.heads))
	a.after = slices.Repeat([]span{{none, none}}, len(n.heads))
	a.seen = make([]uint8, len(n.heads))
	for s := range n.heads {
		if a.consumes(int32(s)) {
			a.number[s] = int32(len(a.states))
			a.states = append(a.states, state{loop: n.loops[s]})
		}
	}
	if err := a.moves(); err != nil {
		return nil, err
	}
	if err := a.enter(); err != nil {
		return nil, err
	}
	a.classes()
	a.findText()
	return &a.automaton, nil
}

func (a *assembler) consumes(s int32) bool {
	for i := a.nfa.heads[s]; i != none; i = a.nfa.edges[i].next {
		if a.nfa.edges[i].kind >= byteEdge {
			return true
		}
	}
	return false
}

// moves fills the lists of what states consume.
func (a *assembler) moves() error {
	for s, n := range a.number {
		if n == none {
			continue
		}
		st := &a.states[n]
		st.edges.from, st.tokens.from, st.calls.from = int32(len(a.edges)), int32(len(a.tokens)), int32(len(a.calls))
		for i := a.nfa.heads[s]; i != none; i = a.nfa.edges[i].next {
			if err := a.move(&a.nfa.edges[i]); err != nil {
				return err
			}
		}
		st.edges.to, st.tokens.to, st.calls.to = int32(len(a.edges)), int32(len(a.tokens)), int32(len(a.calls))
	}
	return nil
}

func (a *assembler) move(e *nfaEdge) error {
	if e.kind < byteEdge {
		return nil
	}
	to, err := a.arrive(e.to)
	if err != nil {
		return err
	}
	switch e.kind {
	case byteEdge:
		a.edges = append(a.edges, byteMove{e.lo, e.hi, to})
	case tokenEdge:
		a.tokens = append(a.tokens, tokenMove{e.arg, to})
	case callEdge:
		t := a.targets[to.from:to.to]
		a.calls = append(a.calls, call{e.arg, to, len(t) == 1 && t[0].state == pop && t[0].op == 0})
	}
	return nil
}

// arrive returns the targets of arriving at a state of the nfa.
func (a *assembler) arrive(s int32) (span, error) {
	if a.after[s].from != none {
		return a.after[s], nil
	}
	if len(a.targets) > a.limits.Edges {
		return span{}, ErrTooLarge
	}
	if s%1024 == 0 && a.ctx.Err() != nil {
		return span{}, a.ctx.Err()
	}
	out := span{from: int32(len(a.targets))}
	l := a.nfa.loops[s]
	a.reach(arrival{s, 0, l == none})
	for len(a.stack) > 0 {
		at := a.stack[len(a.stack)-1]
		a.stack = a.stack[:len(a.stack)-1]
		a.land(at, l)
		for i := a.nfa.heads[at.state]; i != none; i = a.nfa.edges[i].next {
			a.cross(at, &a.nfa.edges[i])
		}
	}
	for _, t := range a.touched {
		a.seen[t] = 0
	}
	a.touched = a.touched[:0]
	out.to = int32(len(a.targets))
	a.after[s] = out
	return out, nil
}

// reach notes an arrival that is new.
func (a *assembler) reach(at arrival) {
	bit := uint8(1) << at.op
	if a.seen[at.state]&bit != 0 {
		return
	}
	if a.seen[at.state] == 0 {
		a.touched = append(a.touched, at.state)
	}
	a.seen[at.state] |= bit
	a.stack = append(a.stack, at)
}

// land adds the target of an arrival, if its state is one. The end of a rule is the state after its start.
func (a *assembler) land(at arrival, l int32) {
	if n := a.number[at.state]; n != none {
		a.targets = append(a.targets, target{n, l, at.op})
	}
	if a.isEnd(at.state) {
		a.targets = append(a.targets, target{pop, l, at.op})
	}
}

func (a *assembler) isEnd(s int32) bool {
	_, found := slices.BinarySearchFunc(a.nfa.rules, s, func(r nfaRule, s int32) int { return int(r.end - s) })
	return found
}

// cross follows an empty edge. Where the count is known, an edge of a loop is taken or not here and now; a round without
// a byte is none.
func (a *assembler) cross(at arrival, e *nfaEdge) {
	next := arrival{e.to, at.op, at.fixed}
	switch e.kind {
	case emptyEdge:
	case moreEdge:
		if !at.fixed {
			next.op |= opMore
		}
	case roundEdge:
		if at.fixed || at.op&opRound != 0 {
			return
		}
		next.op |= opRound
	case leaveEdge:
		if at.fixed && a.loops[a.nfa.loops[at.state]].min > 0 {
			return
		}
		if !at.fixed {
			next.op |= opLeave
			next.fixed = true
		}
	default:
		return
	}
	a.reach(next)
}

// enter sets how rules begin, and ranks them so that a rule stands before those that it may begin with.
func (a *assembler) enter() error {
	begins := make([][]int32, len(a.nfa.rules))
	for i, r := range a.nfa.rules {
		to, err := a.arrive(r.start)
		if err != nil {
			return err
		}
		entry := rule{entry: span{int32(len(a.targets)), 0}}
		for _, t := range a.targets[to.from:to.to] {
			if t.state == pop {
				entry.null = true
				continue
			}
			a.targets = append(a.targets, t)
			calls := a.states[t.state].calls
			for _, c := range a.calls[calls.from:calls.to] {
				begins[i] = append(begins[i], c.rule)
			}
		}
		entry.entry.to = int32(len(a.targets))
		a.rules = append(a.rules, entry)
	}
	return a.rank(begins)
}

// rank orders the rules by what they may begin with (Kahn 1962), and finds left recursion.
func (a *assembler) rank(begins [][]int32) error {
	before := make([]int, len(begins))
	for _, list := range begins {
		for _, r := range list {
			before[r]++
		}
	}
	var queue []int32
	for r, n := range before {
		if n == 0 {
			queue = append(queue, int32(r))
		}
	}
	done := 0
	for ; done < len(queue); done++ {
		r := queue[done]
		a.rules[r].rank = int32(done)
		for _, next := range begins[r] {
			if before[next]--; before[next] == 0 {
				queue = append(queue, next)
			}
		}
	}
	if done == len(begins) {
		return nil
	}
	at := slices.IndexFunc(before, func(n int) bool { return n > 0 })
	return fmt.Errorf("grammar: rule %q is left recursive, or begins with one that is", a.nfa.rules[at].name)
}

// classes numbers the byte classes.
func (a *automaton) classes() {
	var starts [257]bool
	for _, e := range a.edges {
		starts[e.lo] = true
		starts[int(e.hi)+1] = true
	}
	for b := range 256 {
		if b == 0 || starts[b] {
			a.sample = append(a.sample, byte(b))
		}
		a.class[b] = uint8(len(a.sample) - 1)
	}
}

// plain reports whether b, below 0x80, is a byte that needs no attention in JSON strings and before tags.
func plain(b byte) bool { return b >= ' ' && b != '"' && b != '\\' && b != '<' }

// findText marks the states that take any plain character and are then back in the same state, or have counted it: the
// insides of strings and of free text. A mask takes the tokens made of plain characters as a whole there.
func (a *automaton) findText() {
	for s := range a.states {
		a.states[s].text = a.isText(int32(s))
	}
}

func (a *automaton) isText(s int32) bool {
	for b := byte(' '); b < 0x80; b++ {
		if plain(b) && !a.returns(s, s, b, b, byteSeq{}) {
			return false
		}
	}
	for _, r := range AnyChar {
		for _, seq := range appendUTF8(nil, r) {
			if seq.n > 1 && !a.returns(s, s, seq.lo[0], seq.hi[0], rest(seq)) {
				return false
			}
		}
	}
	return true
}

// rest returns a sequence without its first byte.
func rest(s byteSeq) byteSeq {
	out := byteSeq{n: s.n - 1}
	copy(out.lo[:], s.lo[1:])
	copy(out.hi[:], s.hi[1:])
	return out
}

// returns reports whether one edge of state at takes all of lo to hi, and leads, after the bytes of more, to state s. Only
// the last byte may end a round.
func (a *automaton) returns(s, at int32, lo, hi byte, more byteSeq) bool {
	moves := a.states[at].edges
	for _, e := range a.edges[moves.from:moves.to] {
		if e.lo > lo || e.hi < hi {
			continue
		}
		for _, t := range a.targets[e.targets.from:e.targets.to] {
			if more.n <= 0 {
				counts := a.states[s].loop != none
				if t.state == s && (t.op == 0 && !counts || t.op == opRound|opMore && counts) {
					return true
				}
			} else if t.state != pop && t.op == 0 && a.returns(s, t.state, more.lo[0], more.hi[0], rest(more)) {
				return true
			}
		}
	}
	return false
}
