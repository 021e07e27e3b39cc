package grammar

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Errors of matchers.
var (
	// ErrNoToken says that no token of the vocabulary goes on with the output, which cannot end either.
	ErrNoToken = errors.New("grammar: no token is allowed")
	// ErrTooComplex says that a grammar has too many ways to read an output for a mask to be made in good time.
	ErrTooComplex = errors.New("grammar: too ambiguous to follow")
)

// A Grammar is compiled rules for a vocabulary. It is safe for concurrent use.
type Grammar struct {
	automaton  *automaton
	vocabulary *Vocabulary
	limits     Limits

	mu     sync.Mutex
	tables *tables
	floor  int // bytes of the tables that matchers brought along
}

// Compile makes the grammar of the outputs that rule root matches. It fails with ErrTooLarge, ErrEmpty, the error of a
// rule that is needed, the context's error, or one that names a fault of the rules.
func Compile(ctx context.Context, v *Vocabulary, rules *Rules, root Rule, limits Limits) (*Grammar, error) {
	limits = limits.orDefault()
	n, f, err := build(ctx, rules, root, limits)
	if err != nil {
		return nil, err
	}
	for i := range rules.Len() {
		if err, ok := rules.needed[Rule(i)]; ok && !f.some.rules[i] {
			return nil, err
		}
	}
	if !f.some.rules[root] {
		return nil, ErrEmpty
	}
	a, err := assemble(ctx, n, limits)
	if err != nil {
		return nil, err
	}
	for _, m := range a.tokens {
		if m.token < 0 || int(m.token) >= v.rows || v.uses[m.token] != tagToken {
			return nil, fmt.Errorf("grammar: token %d is no tag of the vocabulary", m.token)
		}
	}
	return &Grammar{automaton: a, vocabulary: v, limits: limits, tables: newTables(a, v)}, nil
}

// States returns the size of the grammar's automaton.
func (g *Grammar) States() int { return len(g.automaton.states) }

// Vocabulary returns the vocabulary that the grammar was compiled for.
func (g *Grammar) Vocabulary() *Vocabulary { return g.vocabulary }

// Memory returns about how many bytes the grammar takes, with the masks that it keeps.
func (g *Grammar) Memory() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.automaton
	return 32*len(a.states) + 12*(len(a.edges)+len(a.tokens)+len(a.targets)) + 16*(len(a.calls)+len(a.rules)) + g.tables.bytes
}

// Matcher returns a matcher at the beginning of an output.
func (g *Grammar) Matcher() *Matcher {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, m := g.begin(), &Matcher{grammar: g}
	m.tables, m.at = t, t.start()
	return m
}

// begin starts an operation on the tables, or on new ones where they have grown too large.
func (g *Grammar) begin() *tables {
	if g.tables.bytes > g.limits.Memory+g.floor || g.tables.broken {
		g.tables = newTables(g.automaton, g.vocabulary)
		g.floor = 0
	}
	g.tables.work = 0
	return g.tables
}

// A Matcher follows one output. Its methods are for one goroutine at a time; matchers of one grammar are independent of
// each other. It allocates nothing where the grammar has been before.
type Matcher struct {
	grammar *Grammar
	tables  *tables // those that at belongs to
	at      *place
	ended   bool
	work    int // so far, less what the tokens so far may take
}

// Clone returns a matcher of the same output so far.
func (m *Matcher) Clone() *Matcher {
	c := *m
	return &c
}

// Set makes the matcher follow the output that other follows so far, of the same grammar or another.
func (m *Matcher) Set(other *Matcher) { *m = *other }

// Words is the length of a mask.
func (m *Matcher) Words() int { return m.grammar.vocabulary.Words() }

// Ended reports whether a stop token was accepted.
func (m *Matcher) Ended() bool { return m.ended }

// CanEnd reports whether a stop token is allowed.
func (m *Matcher) CanEnd() bool { return !m.ended && m.at.ends }

// Allowed writes the mask of the tokens that may come next to row: bit t%64 of word t/64 is token t's. Row has Words
// words. It fails with ErrNoToken or ErrTooComplex.
func (m *Matcher) Allowed(row []uint64) error {
	t := m.begin()
	defer m.done(t)
	if m.work > freeWork {
		return ErrTooComplex
	}
	return m.write(t, m.at, m.ended, row)
}

// Rows writes the masks of a drafted block: that of the next token, and those after each of the proposals in turn. Rows
// has Words words for each, one after the other. The output stays where it is. From the first proposal on that is not
// allowed, every mask is the one that refused it. It returns how many proposals are allowed.
func (m *Matcher) Rows(rows []uint64, proposals []int32) (allowed int, err error) {
	t := m.begin()
	defer m.done(t)
	if m.work > freeWork {
		return 0, ErrTooComplex
	}
	words := m.Words()
	at, ended := m.at, m.ended
	if err := m.write(t, at, ended, rows[:words]); err != nil {
		return 0, err
	}
	for i, id := range proposals {
		next, end, ok := m.step(t, at, ended, id)
		if t.broken {
			return allowed, ErrTooComplex
		}
		if !ok || end {
			if ok {
				allowed++
			}
			// Behind the output's end nothing is allowed, and nothing asked for.
			for j := i + 1; j <= len(proposals); j++ {
				copy(rows[j*words:(j+1)*words], rows[i*words:])
			}
			return allowed, nil
		}
		allowed++
		at = next
		if err := m.write(t, at, false, rows[(i+1)*words:(i+2)*words]); err != nil {
			return allowed, err
		}
	}
	return allowed, nil
}

// Accept goes on with a token. It fails, and stays where it is, where the token is not allowed.
func (m *Matcher) Accept(id int32) error {
	t := m.begin()
	defer m.done(t)
	next, end, ok := m.step(t, m.at, m.ended, id)
	if t.broken {
		return ErrTooComplex
	}
	if !ok {
		return fmt.Errorf("grammar: token %d is not allowed here", id)
	}
	m.at, m.ended = next, end
	m.work = max(0, m.work-tokenWork)
	return nil
}

// begin locks the grammar for an operation, and brings the matcher's place into its present tables.
func (m *Matcher) begin() *tables {
	g := m.grammar
	g.mu.Lock()
	t := g.begin()
	if m.tables != t {
		before := t.bytes
		m.at = t.adopt(m.at)
		m.tables = t
		g.floor += t.bytes - before
	}
	return t
}

// done ends an operation.
func (m *Matcher) done(t *tables) {
	m.work += t.work
	m.grammar.mu.Unlock()
}

// write writes the mask of a place to row.
func (m *Matcher) write(t *tables, at *place, ended bool, row []uint64) error {
	if ended {
		clear(row[:m.Words()])
		return ErrNoToken
	}
	k := t.maskOf(at)
	switch {
	case t.broken:
		return ErrTooComplex
	case k.empty:
		clear(row[:m.Words()])
		return ErrNoToken
	}
	k.write(row[:m.Words()])
	return nil
}

// step returns the place after a token, and whether it ends the output.
func (m *Matcher) step(t *tables, at *place, ended bool, id int32) (next *place, end, ok bool) {
	v := m.grammar.vocabulary
	if ended || id < 0 || int(id) >= v.rows {
		return at, ended, false
	}
	switch v.uses[id] {
	case stopToken:
		return at, true, at.ends
	case tagToken:
		next = t.stepToken(at, id)
	case textToken:
		next = at
		for _, b := range v.tokens.Bytes(id) {
			class := t.class[b]
			if next.moves != nil && next.moves[class] != nil {
				next = next.moves[class]
			} else {
				next = t.step(next, class)
			}
			if len(next.items) == 0 && !next.ends {
				break
			}
		}
	default:
		return at, false, false
	}
	return next, false, next.live()
}

// adopt returns the place of these tables that is like one of others.
func (t *tables) adopt(p *place) *place {
	known := map[*set]*set{}
	base := len(t.slab)
	t.work += len(p.items)
	for _, it := range p.items {
		it.below = t.adoptSet(it.below, known)
		t.slab = append(t.slab, it)
	}
	t.merge(base)
	q := t.internPlace(t.slab[base:], p.ends)
	t.slab = t.slab[:base]
	return q
}

func (t *tables) adoptSet(s *set, known map[*set]*set) *set {
	if k, ok := known[s]; ok {
		return k
	}
	base := len(t.slab)
	t.work += len(s.items)
	for _, it := range s.items {
		it.below = t.adoptSet(it.below, known)
		t.slab = append(t.slab, it)
	}
	k := t.internSet(base, s.end)
	known[s] = k
	return k
}
