package grammar

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// nestedRules is a grammar with recursion, counted text and a special token.
const nestedRules = `s = t <0> t ; t = "\"" .{0,20} "\"" | "[" ( t ( "," t )* )? "]" ;`

// randomOutput follows a grammar for some tokens, and returns them.
func randomOutput(t *testing.T, g *Grammar, r *rand.Rand, steps int) []int32 {
	t.Helper()
	m := g.Matcher()
	var out []int32
	for range steps {
		ids := slices.DeleteFunc(allowed(t, m), func(id int32) bool { return g.vocabulary.uses[id] == stopToken })
		if len(ids) == 0 {
			break
		}
		id := ids[r.IntN(len(ids))]
		if err := m.Accept(id); err != nil {
			t.Fatal(err)
		}
		out = append(out, id)
	}
	return out
}

// TestRows holds the masks of a drafted block to those of accepting its tokens one after the other.
func TestRows(t *testing.T) {
	v := newVocabulary(t, smallTokens...)
	g := compile(t, v, nestedRules)
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		out := randomOutput(t, g, r, 12)
		at := r.IntN(len(out) + 1)
		m := g.Matcher()
		for _, id := range out[:at] {
			if err := m.Accept(id); err != nil {
				t.Fatal(err)
			}
		}
		proposals := slices.Clone(out[at:])
		if len(proposals) > 0 && r.IntN(2) == 0 {
			proposals[r.IntN(len(proposals))] = int32(r.IntN(v.rows + 1))
		}
		rows := make([]uint64, (len(proposals)+1)*v.Words())
		n, err := m.Rows(rows, proposals)
		if err != nil && !errors.Is(err, ErrNoToken) {
			t.Fatal(err)
		}
		step, refused := m.Clone(), false
		var last []int32
		for i := range len(proposals) + 1 {
			if !refused {
				last = allowed(t, step)
			}
			if got := tokensOf(rows[i*v.Words() : (i+1)*v.Words()]); !slices.Equal(got, last) {
				t.Fatalf("row %d of %q after %q: %v, want %v", i, texts(v, proposals), texts(v, out[:at]), got, last)
			}
			if i < len(proposals) && !refused {
				refused = step.Accept(proposals[i]) != nil
				if refused != (i >= n) {
					t.Fatalf("%d proposals of %q allowed after %q", n, texts(v, proposals), texts(v, out[:at]))
				}
			}
		}
		// The matcher itself has not moved.
		for _, id := range out[at:] {
			if err := m.Accept(id); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestClone goes on from one output in two ways, which are those of matchers of their own.
func TestClone(t *testing.T) {
	v := newVocabulary(t, smallTokens...)
	g := compile(t, v, nestedRules)
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 8))
		one, other := randomOutput(t, g, r, 10), randomOutput(t, g, r, 10)
		common := 0
		for common < min(len(one), len(other)) && one[common] == other[common] {
			common++
		}
		m := g.Matcher()
		for _, id := range one[:common] {
			if err := m.Accept(id); err != nil {
				t.Fatal(err)
			}
		}
		for _, out := range [][]int32{other, one} {
			fork, alone := m.Clone(), compile(t, v, nestedRules).Matcher()
			for i, id := range out {
				if err := alone.Accept(id); err != nil {
					t.Fatal(err)
				}
				if i < common {
					continue
				}
				if err := fork.Accept(id); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(allowed(t, alone), allowed(t, fork)); diff != "" {
					t.Fatalf("after %q: %s", texts(v, out[:i+1]), diff)
				}
			}
		}
	}
}

func TestStop(t *testing.T) {
	v := newVocabulary(t, "a", "b")
	m := compile(t, v, `s = "a" "b"? <0>? ;`).Matcher()
	if m.CanEnd() || m.Accept(3) == nil {
		t.Error("the output ends before it may")
	}
	if err := m.Accept(4); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int32{0, 3, 5}, allowed(t, m)); diff != "" {
		t.Error(diff)
	}
	rows := make([]uint64, 3*v.Words())
	if n, err := m.Rows(rows, []int32{3, 5}); n != 1 || err != nil {
		t.Errorf("%d proposals allowed, %v", n, err)
	}
	for i := range 3 {
		if diff := cmp.Diff([]int32{0, 3, 5}, tokensOf(rows[i*v.Words():(i+1)*v.Words()])); diff != "" {
			t.Errorf("row %d: %s", i, diff)
		}
	}
	if err := m.Accept(3); err != nil || !m.Ended() || m.CanEnd() {
		t.Errorf("the stop token: %v, ended %v", err, m.Ended())
	}
	if err := m.Allowed(make([]uint64, v.Words())); !errors.Is(err, ErrNoToken) {
		t.Errorf("after the end: %v", err)
	}
	for id := int32(0); int(id) < v.rows; id++ {
		if m.Accept(id) == nil {
			t.Errorf("token %d is accepted after the end", id)
		}
	}
}

func TestNoToken(t *testing.T) {
	m := compile(t, newVocabulary(t, "a"), `s = "a" "b" ;`).Matcher()
	if err := m.Accept(4); err != nil {
		t.Fatal(err)
	}
	row := []uint64{1}
	if err := m.Allowed(row); !errors.Is(err, ErrNoToken) || row[0] != 0 {
		t.Errorf("%v, row %x", err, row[0])
	}
}

func TestCompileErrors(t *testing.T) {
	v := newVocabulary(t, "a")
	for text, want := range map[string]string{
		`s = s "a" | "b" ;`:                  "left recursive",
		`s = t "a" ; t = "b"? s ;`:           "matches nothing",
		`s = t "a" | "c" ; t = "b"? s ;`:     "left recursive",
		`s = u? t | "c" ; t = s ; u = "a"?;`: "left recursive",
		`s = s ;`:                            "matches nothing",
		`s = "a" [] ;`:                       "matches nothing",
		`s = "a"{3,2} ;`:                     "matches nothing",
		`s = <3> ;`:                          "no tag",
		`s = <9> ;`:                          "no tag",
		`s = x ;`:                            `"x" is not defined`,
	} {
		rules, root, err := parseRules(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = Compile(context.Background(), v, rules, root, Limits{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestNeed(t *testing.T) {
	v := newVocabulary(t, "a")
	want := errors.New("needed")
	var rules Rules
	empty := rules.Add("empty", Alt())
	root := rules.Add("root", Alt(Ref(empty), Text("a")))
	if _, err := Compile(context.Background(), v, &rules, root, Limits{}); err != nil {
		t.Error(err)
	}
	rules.Need(empty, want)
	if _, err := Compile(context.Background(), v, &rules, root, Limits{}); err != want {
		t.Error(err)
	}
}

func TestLimits(t *testing.T) {
	v := newVocabulary(t, "a")
	long := func(n int) *Expr { return Text(strings.Repeat("a", n)) }
	deep := Text("a")
	for range 2 * maxExprDepth {
		deep = &Expr{kind: sequence, items: []*Expr{deep, Text("a")}}
	}
	many := &Graph{}
	first := many.State()
	for range 3000 {
		s := many.State()
		many.Add(s-1, s, nil)
		many.Add(s-1, s, Text("b"))
		many.Add(s, first, Text("a"))
	}
	many.Final = []int{first}
	for name, c := range map[string]struct {
		e      *Expr
		limits Limits
		want   error
	}{
		"small":       {long(100), Limits{States: 1000}, nil},
		"states":      {long(2000), Limits{States: 1000}, ErrTooLarge},
		"edges":       {many.Expr(), Limits{Edges: 100_000}, ErrTooLarge},
		"depth":       {deep, Limits{}, ErrTooLarge},
		"many rounds": {Repeat(long(2), 0, 1<<40), Limits{States: 100}, nil},
		"most rounds": {Repeat(long(2), 1<<40, Unbounded), Limits{States: 100}, ErrTooLarge},
	} {
		var rules Rules
		if _, err := Compile(context.Background(), v, &rules, rules.Add("s", c.e), c.limits); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var rules Rules
	if _, err := Compile(ctx, v, &rules, rules.Add("s", long(10)), Limits{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestForget walks with tables that are thrown away all the time.
func TestForget(t *testing.T) {
	v := newVocabulary(t, smallTokens...)
	rules, root, err := parseRules(nestedRules)
	if err != nil {
		t.Fatal(err)
	}
	small, err := Compile(context.Background(), v, rules, root, Limits{Memory: 2000})
	if err != nil {
		t.Fatal(err)
	}
	large := compile(t, v, nestedRules)
	r := rand.New(rand.NewPCG(5, 5))
	var resets int
	for range 30 {
		a, b := small.Matcher(), large.Matcher()
		for _, id := range randomOutput(t, large, r, 30) {
			before := small.tables
			if diff := cmp.Diff(allowed(t, b), allowed(t, a)); diff != "" {
				t.Fatal(diff)
			}
			if err := errors.Join(a.Accept(id), b.Accept(id)); err != nil {
				t.Fatal(err)
			}
			if small.tables != before {
				resets++
			}
		}
	}
	if resets < 30 {
		t.Errorf("only %d new tables", resets)
	}
}

// TestAmbiguous follows a grammar whose stacks double with every token, and one whose stacks cannot be merged.
func TestAmbiguous(t *testing.T) {
	v := newVocabulary(t, "a", "b", "c")
	g := compile(t, v, `s = "a" s "b" | "a" s "c" | "a" s "b" "c" | "" ;`)
	m := g.Matcher()
	for range 2000 {
		if err := m.Accept(4); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2000 {
		if err := m.Accept(5); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if !m.CanEnd() {
		t.Error("the output cannot end")
	}
	m = compile(t, v, `s = ( ( "a" | "aa" | "ab" ){0,40} "b"? ){0,40} "c" ;`).Matcher()
	for i := range 2000 {
		if err := m.Accept(4); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
}

// TestTooComplex begins more texts with one letter than a place may hold.
func TestTooComplex(t *testing.T) {
	v := newVocabulary(t, "a", "b")
	var alts []*Expr
	for range maxItems + 1 {
		alts = append(alts, Text("ab"))
	}
	var rules Rules
	g, err := Compile(context.Background(), v, &rules, rules.Add("s", Alt(append(alts, Text("bb"))...)), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	m := g.Matcher()
	if err := m.Allowed(make([]uint64, v.Words())); !errors.Is(err, ErrTooComplex) {
		t.Error(err)
	}
	if err := m.Accept(4); !errors.Is(err, ErrTooComplex) {
		t.Error(err)
	}
	if _, err := m.Rows(make([]uint64, 2*v.Words()), []int32{4}); !errors.Is(err, ErrTooComplex) {
		t.Error(err)
	}
	// The grammar goes on to work where it can.
	if err := m.Accept(5); err != nil {
		t.Error(err)
	}
}

func TestConcurrent(t *testing.T) {
	v := newVocabulary(t, smallTokens...)
	rules, root, err := parseRules(nestedRules)
	if err != nil {
		t.Fatal(err)
	}
	g, err := Compile(context.Background(), v, rules, root, Limits{Memory: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range uint64(8) {
		wg.Go(func() {
			m, alone := g.Matcher(), compile(t, v, nestedRules)
			n := alone.Matcher()
			for _, id := range randomOutput(t, alone, rand.New(rand.NewPCG(i, 3)), 60) {
				if !slices.Equal(allowed(t, m), allowed(t, n)) {
					t.Error("masks differ")
				}
				if err := errors.Join(m.Accept(id), n.Accept(id)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestVocabularyErrors(t *testing.T) {
	tokens := fakeTokens{"a", "b", strings.Repeat("c", 1<<16)}
	for name, c := range map[string]struct {
		tokens     fakeTokens
		rows       int
		tags, stop []int32
		want       string
	}{
		"rows":     {tokens[:2], 1, nil, nil, "2 tokens and the model 1"},
		"tag":      {tokens[:2], 2, []int32{2}, nil, "tag token 2"},
		"stop":     {tokens[:2], 2, nil, []int32{-1}, "stop token -1"},
		"both":     {tokens[:2], 2, []int32{1}, []int32{1}, "stop token 1"},
		"too long": {tokens, 3, nil, nil, "65536"},
	} {
		if _, err := NewVocabulary(c.tokens, c.rows, c.tags, c.stop); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}
