package schema

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"splash/internal/chat/ojson"
	"splash/internal/grammar"
)

// write follows the grammar at random to an output that may end; it hurries after some bytes, and gives up after many.
func write(t testing.TB, g *grammar.Grammar, r *rand.Rand) (string, bool) {
	t.Helper()
	m := g.Matcher()
	row := make([]uint64, m.Words())
	var out []byte
	for len(out) < 6000 {
		if m.CanEnd() && (len(out) > 100 || r.IntN(4) == 0) {
			return string(out), true
		}
		if err := m.Allowed(row); err != nil {
			t.Fatalf("after %q: %v", out, err)
		}
		row[stopToken>>6] &^= 1 << (stopToken & 63)
		b := pick(row, r, len(out) > 200)
		if b < 0 {
			return string(out), true
		}
		if err := m.Accept(int32(b)); err != nil {
			t.Fatal(err)
		}
		out = append(out, byte(b))
	}
	return "", false
}

// pick returns one of the bytes of a mask, one that ends something where it is to hurry.
func pick(row []uint64, r *rand.Rand, hurry bool) int {
	var list []int
	for b := range 256 {
		if row[b>>6]>>(b&63)&1 != 0 {
			if hurry && strings.IndexByte("\"}]", byte(b)) >= 0 {
				return b
			}
			list = append(list, b)
		}
	}
	if len(list) == 0 {
		return -1
	}
	b := list[r.IntN(len(list))]
	// White space and escapes are rare enough not to fill the output.
	if strings.IndexByte(" \n\r\t\\", byte(b)) >= 0 && r.IntN(8) > 0 {
		b = list[r.IntN(len(list))]
	}
	return b
}

// schemaWriter writes random schemas.
type schemaWriter struct {
	*rand.Rand
	defs int
}

func (w *schemaWriter) document() string {
	w.defs = w.IntN(3)
	root := w.schema(3)
	if w.defs == 0 {
		return root
	}
	var defs []string
	for i := range w.defs {
		defs = append(defs, fmt.Sprintf(`"d%d":%s`, i, w.schema(2)))
	}
	return fmt.Sprintf(`{"$defs":{%s},"allOf":[%s]}`, strings.Join(defs, ","), root)
}

func (w *schemaWriter) one(list ...string) string { return list[w.IntN(len(list))] }

func (w *schemaWriter) schema(depth int) string {
	n := 12
	if depth == 0 {
		n = 7
	}
	switch w.IntN(n) {
	case 0:
		return w.one(`true`, `{}`, `{"type":"null"}`, `{"type":"boolean"}`, `{"type":["string","null"]}`, `{"type":"boolean","nullable":true}`)
	case 1:
		return fmt.Sprintf(`{"type":"%s"%s}`, w.one("integer", "number"), w.numeric())
	case 2, 3:
		return fmt.Sprintf(`{"type":"string"%s}`, w.textual())
	case 4:
		return w.one(
			`{"enum":["a","ab","b\"\\",1,null,[1,{"x":2}]]}`, `{"const":"x\ny"}`, `{"type":"string","enum":["a","é","abc"]}`, `{"enum":[1,2.5,1e2,-3]}`,
			`{"const":{"a":[true,false]}}`, `{"type":"integer","enum":[1,2,3],"minimum":2}`,
		)
	case 5:
		if w.defs > 0 {
			return fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, w.IntN(w.defs))
		}
		return `{"type":"string"}`
	case 6:
		return `{"type":["integer","string"],"minimum":3,"maxLength":2}`
	case 7, 8:
		return w.objectSchema(depth)
	case 9:
		return w.arraySchema(depth)
	case 10:
		return fmt.Sprintf(`{"anyOf":[%s,%s]}`, w.schema(depth-1), w.schema(depth-1))
	}
	return fmt.Sprintf(`{"allOf":[%s,%s]}`, w.objectSchema(depth), w.objectSchema(depth))
}

func (w *schemaWriter) numeric() string {
	var b strings.Builder
	values := []string{"-10", "-1.5", "0", "3", "7.25", "100", "1e2"}
	for _, k := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"} {
		if w.IntN(4) == 0 {
			at := w.IntN(4)
			if strings.HasSuffix(k, "aximum") {
				at += 3
			}
			fmt.Fprintf(&b, `,"%s":%s`, k, values[at])
		}
	}
	if w.IntN(5) == 0 {
		fmt.Fprintf(&b, `,"multipleOf":%s`, w.one("2", "5", "0.5", "0.01", "3"))
	}
	return b.String()
}

func (w *schemaWriter) textual() string {
	var b strings.Builder
	if w.IntN(3) == 0 {
		fmt.Fprintf(&b, `,"minLength":%d`, w.IntN(6))
	}
	if w.IntN(3) == 0 {
		fmt.Fprintf(&b, `,"maxLength":%d`, 5+w.IntN(40))
	}
	if w.IntN(3) == 0 {
		fmt.Fprintf(&b, `,"pattern":%s`, w.one(`"^[a-z]+$"`, `"[0-9]"`, `"^a.*b$"`, `"^\\S{1,8}$"`, `"^(foo|bar)+"`, `"é|\\\\|\""`, `"^\\p{Lu}\\w*$"`))
	}
	if w.IntN(6) == 0 {
		fmt.Fprintf(&b, `,"format":"%s"`, w.one("date", "date-time", "uuid", "ipv4", "email", "duration"))
	}
	return b.String()
}

func (w *schemaWriter) objectSchema(depth int) string {
	var props, required []string
	for _, name := range []string{"a", "ab", "b\\\"c", "é", "x1"} {
		if w.IntN(2) == 0 {
			props = append(props, fmt.Sprintf(`"%s":%s`, name, w.schema(depth-1)))
			if w.IntN(2) == 0 {
				required = append(required, fmt.Sprintf(`"%s"`, name))
			}
		}
	}
	if w.IntN(8) == 0 {
		required = append(required, `"z"`)
	}
	s := fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s]`, strings.Join(props, ","), strings.Join(required, ","))
	switch w.IntN(4) {
	case 0:
		s += `,"additionalProperties":false`
	case 1:
		s += `,"additionalProperties":` + w.schema(depth-1)
	}
	if w.IntN(6) == 0 {
		s += fmt.Sprintf(`,"patternProperties":{"^a":%s,"[0-9]$":%s}`, w.schema(depth-1), w.schema(0))
	}
	if w.IntN(8) == 0 {
		s += `,"minProperties":1`
	}
	if w.IntN(12) == 0 {
		s += `,"unevaluatedProperties":false`
	}
	return s + "}"
}

func (w *schemaWriter) arraySchema(depth int) string {
	s := `{"type":"array"`
	if w.IntN(3) > 0 {
		s += `,"items":` + w.schema(depth-1)
	}
	if w.IntN(3) == 0 {
		s += fmt.Sprintf(`,"prefixItems":[%s,%s]`, w.schema(depth-1), w.schema(0))
	}
	if w.IntN(3) == 0 {
		s += fmt.Sprintf(`,"minItems":%d`, w.IntN(5))
	}
	if w.IntN(3) == 0 {
		s += fmt.Sprintf(`,"maxItems":%d`, w.IntN(6))
	}
	if w.IntN(15) == 0 {
		s += `,"uniqueItems":true`
	}
	return s + "}"
}

// TestWalks follows the grammars of random schemas: whatever is written is JSON, and valid where the grammar is said to
// enforce all of the schema.
func TestWalks(t *testing.T) {
	v := newBytes(t)
	schemas, written, valid := 0, 0, 0
	n := 400
	if testing.Short() {
		n = 100
	}
	for seed := range uint64(n) {
		w := &schemaWriter{Rand: rand.New(rand.NewPCG(seed, 9))}
		text := w.document()
		s, err := Parse(decode(t, text), Tool) // a response's schema may not have all of these keywords together
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		g, notes, err := compileSchema(v, s)
		if errors.Is(err, grammar.ErrEmpty) {
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		schemas++
		for range 4 {
			out, ok := write(t, g, w.Rand)
			if !ok {
				continue
			}
			written++
			if _, err := ojson.Decode(out, ojson.Options{MaxDepth: 512, RejectSurrogates: true}); err != nil {
				t.Fatalf("%s\nwrote %s: %v", text, out, err)
			}
			if len(notes) > 0 {
				continue
			}
			valid++
			if err := s.ValidateText(out); err != nil {
				t.Fatalf("%s\nwrote %s: %v", text, out, err)
			}
		}
	}
	t.Logf("%d schemas, %d outputs, %d of them validated", schemas, written, valid)
	if schemas < n*3/4 || written < 3*schemas || valid < written*2/3 {
		t.Errorf("%d schemas, %d outputs, %d of them validated", schemas, written, valid)
	}
}

// TestEveryKeyword writes values of a schema that has every keyword grammars keep to.
func TestEveryKeyword(t *testing.T) {
	const text = `{"$schema":"https://json-schema.org/draft/2020-12/schema","$defs":{
		"tree":{"type":"object","properties":{"value":{"type":["integer","null"],"minimum":-5,"maximum":5},"children":{"type":"array","items":{"$ref":"#/$defs/tree"},"maxItems":2}},
			"required":["value","children"],"additionalProperties":false},
		"base":{"type":"object","properties":{"id":{"type":"string","format":"uuid"}},"required":["id"]}},
		"allOf":[{"$ref":"#/$defs/base"}],"type":"object","minProperties":1,"unevaluatedProperties":false,
		"properties":{"kind":{"const":"order"},"state":{"enum":["new","done",null,3]},"name":{"type":"string","minLength":2,"maxLength":12},
			"code":{"type":"string","pattern":"^[A-Z]{2}[0-9]+$"},"price":{"type":"number","exclusiveMinimum":0,"exclusiveMaximum":100,"multipleOf":0.25},
			"flag":{"type":"boolean"},"pair":{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}],"items":false,"minItems":2},
			"tree":{"$ref":"#/$defs/tree"},"either":{"anyOf":[{"type":"string","maxLength":3},{"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":64}]},
			"map":{"type":"object","patternProperties":{"^n":{"type":"number"}},"additionalProperties":{"type":"string"}},
			"merged":{"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"a":{"minimum":3},"b":true}}]},
			"anything":true},
		"required":["kind","state","name","code","price","flag","pair","tree","either","map","merged"]}`
	s, err := Parse(decode(t, text), Response)
	if err != nil {
		t.Fatal(err)
	}
	g, notes, err := compileSchema(newBytes(t), s)
	if err != nil || len(notes) > 0 {
		t.Fatalf("%v, not enforced: %q", err, notes)
	}
	written := 0
	for seed := range uint64(60) {
		out, ok := write(t, g, rand.New(rand.NewPCG(seed, 4)))
		if !ok {
			continue
		}
		written++
		if err := s.ValidateText(out); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	}
	if written < 30 {
		t.Errorf("only %d values were written", written)
	}
}
