package grammar

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/internal/tokenizer"
)

// fakeTokens is a small vocabulary. Tokens beginning with ctrl are control tokens.
type fakeTokens []string

const ctrl = "\x00ctrl:"

func (f fakeTokens) Size() int             { return len(f) }
func (f fakeTokens) Bytes(id int32) []byte { return []byte(f[id]) }
func (f fakeTokens) Kind(id int32) tokenizer.Kind {
	if strings.HasPrefix(f[id], ctrl) {
		return tokenizer.Control
	}
	return tokenizer.Normal
}

// newVocabulary has the given texts as tokens, from number 4 on. Tokens 0 to 2 are tags, 3 is the stop token, and the last
// one is a control token.
func newVocabulary(t testing.TB, texts ...string) *Vocabulary {
	t.Helper()
	tokens := fakeTokens{"<x>", "<y>", ctrl + "z", ctrl + "stop"}
	tokens = append(append(tokens, texts...), ctrl+"other")
	v, err := NewVocabulary(tokens, len(tokens)+3, []int32{0, 1, 2}, []int32{3})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func compile(t testing.TB, v *Vocabulary, text string) *Grammar {
	t.Helper()
	rules, root, err := parseRules(text)
	if err != nil {
		t.Fatal(err)
	}
	g, err := Compile(context.Background(), v, rules, root, Limits{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return g
}

// allowed returns the tokens of the mask.
func allowed(t testing.TB, m *Matcher) []int32 {
	t.Helper()
	row := make([]uint64, m.Words())
	if err := m.Allowed(row); err != nil && !errors.Is(err, ErrNoToken) {
		t.Fatal(err)
	}
	return tokensOf(row)
}

func tokensOf(row []uint64) []int32 {
	var ids []int32
	for id := range int32(64 * len(row)) {
		if row[id>>6]>>(id&63)&1 != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// symbols returns a token as the oracle reads it.
func symbols(v *Vocabulary, id int32) []int {
	if v.uses[id] == tagToken {
		return []int{tokenSymbol + int(id)}
	}
	var out []int
	for _, b := range v.tokens.Bytes(id) {
		out = append(out, int(b))
	}
	return out
}

// oracleAllowed tries every token.
func oracleAllowed(v *Vocabulary, e *earley, root Rule) []int32 {
	var ids []int32
	for id := range int32(v.rows) {
		switch v.uses[id] {
		case stopToken:
			if e.accepts(root) {
				ids = append(ids, id)
			}
		case textToken, tagToken:
			n := len(e.columns)
			if e.feedAll(symbols(v, id)) {
				ids = append(ids, id)
			}
			e.back(n)
		}
	}
	return ids
}

// TestCountedLoops holds the masks of every count of a loop to the oracle's: those far from its bounds share one.
func TestCountedLoops(t *testing.T) {
	v := newVocabulary(t, "a", "b", "ab", "abab", "aaaaaaa", "\"", "a\"", "aaaa\"a", "é", "\xc3", "\xa9")
	for _, text := range []string{
		`s = .{20,38} "\"" ;`, `s = .{12,} "\"" ;`, `s = .{16} "\"" ;`, `s = .{9,17} .{9,} "\"" ;`, `s = [a-é]{12,30} <0> ;`,
		`s = ( t "b"? ){10,20} ; t = "a" ;`,
	} {
		rules, root, err := parseRules(text)
		if err != nil {
			t.Fatal(err)
		}
		m, e := compile(t, v, text).Matcher(), newEarley(rules, root)
		for step := range 40 {
			if diff := cmp.Diff(oracleAllowed(v, e, root), allowed(t, m)); diff != "" {
				t.Fatalf("%s\nafter %d characters (-oracle +mask):\n%s", text, step, diff)
			}
			if m.Accept(4) != nil {
				break
			}
			e.feed('a')
		}
	}
}

// compareWalk follows random outputs of a grammar and holds every mask to the oracle's.
func compareWalk(t *testing.T, v *Vocabulary, rules *Rules, root Rule, g *Grammar, r *rand.Rand, steps int, name string) {
	t.Helper()
	e := newEarley(rules, root)
	m := g.Matcher()
	var path []int32
	for range steps {
		got, want := allowed(t, m), oracleAllowed(v, e, root)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s\nafter %q the mask differs (-oracle +mask):\n%s", name, texts(v, path), diff)
		}
		if m.CanEnd() != e.accepts(root) {
			t.Fatalf("%s\nafter %q CanEnd is %v", name, texts(v, path), m.CanEnd())
		}
		for id := int32(-1); int(id) <= v.rows; id++ {
			if err := m.Clone().Accept(id); (err == nil) != slices.Contains(got, id) {
				t.Fatalf("%s\nafter %q token %d: %v", name, texts(v, path), id, err)
			}
		}
		got = slices.DeleteFunc(got, func(id int32) bool { return v.uses[id] == stopToken })
		if len(got) == 0 {
			return
		}
		id := got[r.IntN(len(got))]
		path = append(path, id)
		if err := m.Accept(id); err != nil {
			t.Fatal(err)
		}
		e.feedAll(symbols(v, id))
	}
}

func texts(v *Vocabulary, ids []int32) []string {
	var out []string
	for _, id := range ids {
		out = append(out, string(v.tokens.Bytes(id)))
	}
	return out
}

// smallTokens have all that is hard: ends of marks, halves of characters, and tokens across the ends of rules.
var smallTokens = []string{
	"a", "b", "c", "ab", "ba", "aa", "abc", "aab", "bca", "aaaa", "abab", "\"", "<", ">", "/", "</", "/b>", "<b>", "a<", "<a",
	"a\"", "\"a", "\"b\"", "[", "]", "[[", "]]", "][", "a]", "[a", "{", "}", ",", ",a", "a,", "é", "\xc3", "\xa9", "a\xc3", "\xa9b",
	"€", "\xe2", "\x82", "\xac", "\xe2\x82", "\x82\xac", "\xac\xe2", "😀", "\xf0\x9f", "\x98\x80", " ", "  ", "\n", "\n\n", "a b",
	"\\", "\xff", "abcabcabcabca", "1", "23", "0", "ab", "éé", "é€a",
}

func TestAgainstOracle(t *testing.T) {
	v := newVocabulary(t, smallTokens...)
	for _, text := range []string{
		`s = "" ;`,
		`s = "abc" | "ab" <0> | "é" ;`,
		`s = [a-c]{2,3} <1> ;`,
		`s = [a-cé]{2,3} [a-c€]{1,4} ;`,
		`s = ( [a-b]{2,3} "c" ){2,3} ;`,
		`s = ( "a" | "aa" ){2,4} "b" ;`,
		`s = ( "a"? ){2,3} "b" ;`,
		`s = ( "a"* "b" ){2,} ;`,
		`s = "[" ( s ( "," s )* )? "]" | [a-c]+ ;`,
		`s = "a" s "b" | "a" s "c" | "" ;`,
		`s = "a" s "a" | "b" s "b" | "" ;`,
		`s = a b ; a = "a"? ; b = "b"? | a "c" ;`,
		`s = ~"</b>" <2> ;`,
		`s = ~"</b>" ~"aab" ;`,
		`s = >"</b>" >"\n\n" ;`,
		`s = ~"abab"~"ba" "!" | ~"a" ;`,
		`s = #C3-C3 #A9-A9 | #FF-FF * ;`,
		`s = "\"" ( [ -!#-\uD7FF] )* "\"" ( "," s )? ;`,
		`s = ( t "," ){0,3} t ; t = "\"" [a-zé€😀]{0,5} "\"" | "1" | "23" | "[" s "]" ;`,
		`s = w "a" w "b" w ; w = [ \n]{0,3} ;`,
		`s = x "b" | y "c" ; x = "a" x | "" ; y = "a" y | "" ;`,
		`s = x | y ; x = "a" | <0> x ; y = "a" y "b" | "aa" ;`,
		`s = "a"{0,0} "b"{2,1} | "c" ;`,
		`s = u "a" | "b" ; u = "a" u ;`,
		`s = ( s "x" ){0,0} "a"{3,5} ;`,
		`s = "\"" .* "\"" ( "," s )? ;`,
		`s = "\"" .{0,5} "\"" ( "," s )? ;`,
		`s = "\"" .{3,7} ( "\"" | "]" <0> ) ;`,
		`s = ( t | "b" ){0,3} ; t = .{2,4} ;`,
		`s = .{20,38} "\"" | "a"+ ;`,
		`s = ( .{4,30} "\"" ){2,} ;`,
		`s = .{25,} "\"" ;`,
		`s = ( "a"{2,3} ){2,3} | ( ( "b"{1,2} "c" ){1,2} "a" ){2,} ;`,
	} {
		text = strings.ReplaceAll(text, `\uD7FF`, "\uD7FF")
		rules, root, err := parseRules(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		g, err := Compile(context.Background(), v, rules, root, Limits{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for seed := range uint64(12) {
			compareWalk(t, v, rules, root, g, rand.New(rand.NewPCG(seed, 1)), 10, text)
		}
	}
}

// randomRules writes a random grammar.
type randomRules struct {
	*rand.Rand
	rules int
}

func (r *randomRules) text() string {
	var b strings.Builder
	for i := range r.rules {
		fmt.Fprintf(&b, "%c = %s ;\n", 'p'+i, r.alt(2))
	}
	return b.String()
}

func (r *randomRules) alt(depth int) string {
	n := 1 + r.IntN(3)
	list := make([]string, n)
	for i := range list {
		for range r.IntN(4) {
			list[i] += r.item(depth) + " "
		}
	}
	return strings.Join(list, "| ")
}

func (r *randomRules) item(depth int) string {
	atoms := []string{
		`"a"`, `"b"`, `"ab"`, `"é"`, `"\""`, `"</"`, `.`, `.`, `[a-b]`, `[a-c]`, `[é-€]`, `[a-😀]`, `#C3-E2`, `#80-BF`, `<0>`, `<1>`, `~"ab"`, `>"b>"`,
	}
	var atom string
	switch {
	case depth > 0 && r.IntN(4) == 0:
		atom = "( " + r.alt(depth-1) + " )"
	case r.IntN(4) == 0:
		atom = string(rune('p' + r.IntN(r.rules)))
	default:
		atom = atoms[r.IntN(len(atoms))]
	}
	suffixes := []string{"*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "{3,4}", "{0,7}", "{5,}"}
	if r.IntN(3) == 0 {
		atom += " " + suffixes[r.IntN(len(suffixes))]
	}
	return atom
}

func TestRandomGrammarsAgainstOracle(t *testing.T) {
	v := newVocabulary(t, smallTokens...)
	compiled, n := 0, 150
	if testing.Short() {
		n = 50
	}
	for seed := range uint64(n) {
		r := &randomRules{rand.New(rand.NewPCG(seed, 2)), 1 + int(seed%4)}
		text := r.text()
		rules, root, err := parseRules(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		g, err := Compile(context.Background(), v, rules, root, Limits{})
		if err != nil {
			if !errors.Is(err, ErrEmpty) && !strings.Contains(err.Error(), "left recursive") {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		compiled++
		for range 3 {
			compareWalk(t, v, rules, root, g, r.Rand, 8, text)
		}
	}
	if compiled < n/4 {
		t.Errorf("only %d of %d grammars compiled", compiled, n)
	}
}
