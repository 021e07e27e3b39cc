package schema

import (
	"errors"
	"math/rand/v2"
	"regexp"
	"testing"
	"unicode/utf8"

	"splash/internal/chat/ojson"
	"splash/internal/grammar"
)

// FuzzSchema compiles schemas. What their grammars write is JSON, and valid where all is enforced; and so is a value that
// they take.
func FuzzSchema(f *testing.F) {
	for _, text := range []string{
		mathSchema, uiSchema, pydanticSchema, zodSchema, linkedSchema, `{"type":"object","patternProperties":{"^a":{"type":"number"}},"required":["b"]}`,
		`{"allOf":[{"minimum":1.5},{"multipleOf":0.5,"type":"number"}]}`, `{"anyOf":[{"$ref":"#"},{"const":null}]}`, `{"type":"string","format":"ipv6","maxLength":20}`,
		`{"$defs":{"a":{"$anchor":"x","enum":[1,"a",{"b":[]}]}},"prefixItems":[{"$ref":"#x"}],"minItems":1,"items":false}`, `{"$ref":"#/properties/a","properties":{"a":true}}`,
	} {
		f.Add(text, `{"a":[1,"b"]}`, uint64(1))
	}
	f.Fuzz(func(t *testing.T, text, value string, seed uint64) {
		if len(text) > 2000 {
			return
		}
		source, err := ojson.Decode(text, ojson.Options{})
		if err != nil {
			return
		}
		s, err := Parse(source, Response)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			return
		}
		g, notes, err := compileSchema(newBytes(t), s)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) && !errors.Is(err, grammar.ErrTooLarge) && !errors.Is(err, grammar.ErrEmpty) {
				t.Fatal(err)
			}
			return
		}
		values := []string{}
		if ok, _ := accepts(g, value); ok {
			values = append(values, value)
		}
		if out, ok := write(t, g, rand.New(rand.NewPCG(seed, 1))); ok {
			values = append(values, out)
		}
		for _, v := range values {
			decoded, err := ojson.Decode(v, ojson.Options{MaxDepth: 10_000, RejectSurrogates: true})
			if err != nil {
				t.Fatalf("%q is no JSON: %v", v, err)
			}
			if err := s.Validate(decoded); err != nil && len(notes) == 0 && !errors.Is(err, ErrNotEvaluated) {
				t.Fatalf("%q: %v", v, err)
			}
		}
	})
}

// FuzzPattern holds automata of patterns to Go's package regexp.
func FuzzPattern(f *testing.F) {
	for _, p := range []string{`^a|b$`, `(?:ab)+c?`, `^[^a-c\]]{2,3}\s`, `\p{Lu}\w*`, `a.b`, `^(\$|x)*$`, `[[]a`, `\cA\x41\u0041`, `(?i)k`} {
		f.Add(p, "aab")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 200 || !utf8.ValidString(pattern) || !utf8.ValidString(text) {
			return
		}
		d, err := patternAutomaton(pattern)
		if err != nil {
			return
		}
		p, err := translate(pattern)
		if err != nil {
			t.Fatal(err)
		}
		re, err := regexp.Compile(p)
		if err != nil {
			t.Fatalf("%q has an automaton, but %v", pattern, err)
		}
		if d.matches(text) != re.MatchString(text) {
			t.Fatalf("%q on %q: %v", pattern, text, d.matches(text))
		}
	})
}
