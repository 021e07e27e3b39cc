package grammar

import (
	"context"
	"math/rand/v2"
	"testing"
)

// FuzzGrammar reads grammars in the tests' notation and holds their masks to the oracle's.
func FuzzGrammar(f *testing.F) {
	for _, text := range []string{
		`s = "abc" | "ab" <0> | "é" ;`, `s = [a-cé]{2,3} [a-c€]{1,4} ;`, `s = "[" ( s ( "," s )* )? "]" | [a-c]+ ;`,
		`s = ~"</b>" <2> ;`, `s = >"</b>" >"\n\n" ;`, `s = "\"" .{0,5} "\"" ( "," s )? ;`, `s = t "a" | "c" ; t = "b"? s ;`,
		`s = ( ( "b"{1,2} "c" ){1,2} "a" ){2,} ;`, nestedRules, `s = #C3-E2 . {3,4} | ( a | "" )* ; a = #80-BF ;`,
	} {
		f.Add(text, uint64(1))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		if len(text) > 150 {
			return
		}
		rules, root, err := parseRules(text)
		if err != nil {
			return
		}
		v := newVocabulary(t, smallTokens...)
		g, err := Compile(context.Background(), v, rules, root, Limits{States: 5000, Edges: 50_000})
		if err != nil {
			return
		}
		e := newEarley(rules, root)
		if len(e.columns[0]) > 300 {
			return // the oracle would take too long
		}
		compareWalk(t, v, rules, root, g, rand.New(rand.NewPCG(seed, 1)), 3, text)
	})
}
