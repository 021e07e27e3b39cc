package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/internal/grammar"
)

// The schemas that SDKs send: OpenAI's structured outputs, pydantic, zod, and hand-written ones.
const (
	// mathSchema is of OpenAI's documentation.
	mathSchema = `{"type":"object","properties":{"steps":{"type":"array","items":{"type":"object","properties":{"explanation":{"type":"string"},
		"output":{"type":"string"}},"required":["explanation","output"],"additionalProperties":false}},"final_answer":{"type":"string"}},
		"required":["steps","final_answer"],"additionalProperties":false}`
	// uiSchema is recursive, by "#".
	uiSchema = `{"type":"object","properties":{"type":{"type":"string","enum":["div","button","form"]},"label":{"type":"string"},
		"children":{"type":"array","items":{"$ref":"#"}},"attributes":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},
		"value":{"type":"string"}},"additionalProperties":false,"required":["name","value"]}}},"required":["type","label","children","attributes"],
		"additionalProperties":false}`
	// pydanticSchema has $defs, Optional fields and defaults.
	pydanticSchema = `{"$defs":{"Item":{"properties":{"sku":{"pattern":"^[A-Z]{3}-\\d{4}$","title":"Sku","type":"string"},"qty":{"minimum":1,"title":"Qty","type":"integer"},
		"note":{"anyOf":[{"type":"string"},{"type":"null"}],"default":null,"title":"Note"}},"required":["sku","qty"],"title":"Item","type":"object"}},
		"properties":{"id":{"format":"uuid","title":"Id","type":"string"},"items":{"items":{"$ref":"#/$defs/Item"},"maxItems":3,"minItems":1,"title":"Items","type":"array"},
		"when":{"format":"date-time","title":"When","type":"string"},"total":{"exclusiveMinimum":0,"title":"Total","type":"number"}},
		"required":["id","items"],"title":"Order","type":"object"}`
	// zodSchema is of zod-to-json-schema, a discriminated union of draft 7.
	zodSchema = `{"$schema":"http://json-schema.org/draft-07/schema#","anyOf":[{"type":"object","properties":{"kind":{"type":"string","const":"circle"},"r":{"type":"number","exclusiveMinimum":0}},
		"required":["kind","r"],"additionalProperties":false},{"type":"object","properties":{"kind":{"type":"string","const":"box"},"size":{"type":"array","minItems":2,"maxItems":2,
		"items":[{"type":"number"},{"type":"number"}]}},"required":["kind","size"],"additionalProperties":false}]}`
	linkedSchema = `{"type":"object","properties":{"linked_list":{"$ref":"#/$defs/node"}},"$defs":{"node":{"type":"object","properties":{"value":{"type":"number"},
		"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"additionalProperties":false,"required":["next","value"]}},"additionalProperties":false,"required":["linked_list"]}`
)

const aUUID = `"123e4567-e89b-12d3-a456-426614174000"`

// TestCorpus holds grammars to documents: the valid ones are written, others not, and package jsonschema agrees but where
// a document is only spelled as grammars do not.
func TestCorpus(t *testing.T) {
	v := newBytes(t)
	for name, c := range map[string]struct {
		schema  string
		valid   []string
		invalid []string
		narrow  []string // valid, but not written
	}{
		"math": {mathSchema,
			[]string{
				`{"steps":[],"final_answer":""}`, `{ "steps" : [ { "explanation" : "a\"b\\\u00e9\ud83d\ude00é😀" , "output" : "x" } ] , "final_answer" : "8x" }`,
				"\n{\"steps\":[\n\t{\"explanation\":\"\",\"output\":\"\"},\r\n{\"explanation\":\"\\/\",\"output\":\"\"}],\"final_answer\":\"\"}\n",
			},
			[]string{
				`{}`, `[]`, `{"steps":[]}`, `{"steps":[{}],"final_answer":""}`, `{"steps":[],"final_answer":"","x":1}`, `{"steps":[],"final_answer":1}`, `{"steps":{},"final_answer":""}`,
			},
			[]string{
				`{"final_answer":"","steps":[]}`, `{"steps":[],"final_answer":""}` + strings.Repeat(" ", 65), `{"steps":[],` + strings.Repeat("\n", 65) + `"final_answer":""}`,
				`{"\u0073teps":[],"final_answer":""}`,
			},
		},
		"ui": {uiSchema,
			[]string{
				`{"type":"div","label":"","children":[{"type":"button","label":"b","children":[],"attributes":[]}],"attributes":[{"name":"a","value":"b"}]}`,
				strings.Repeat(`{"type":"div","label":"","children":[`, 50) + strings.Repeat(`],"attributes":[]}`, 50),
			},
			[]string{`{"type":"span","label":"","children":[],"attributes":[]}`, `{"type":"div","label":"","children":[{}],"attributes":[]}`},
			nil,
		},
		"pydantic": {pydanticSchema,
			[]string{
				`{"id":` + aUUID + `,"items":[{"sku":"ABC-1234","qty":1}]}`,
				`{"id":` + aUUID + `,"items":[{"sku":"ABC-1234","qty":10,"note":null},{"sku":"XYZ-0000","qty":2,"note":"n"}],"when":"2024-02-29T10:00:00Z","total":0.5}`,
				`{"id":` + aUUID + `,"items":[{"sku":"ABC-1234","qty":1,"note":null,"more":[1,{"a":{}}]}],"extra":"x"}`,
			},
			[]string{
				`{"id":` + aUUID + `,"items":[]}`, `{"id":` + aUUID + `,"items":[{"sku":"ABC-123","qty":1}]}`, `{"id":` + aUUID + `,"items":[{"sku":"ABC-1234","qty":0}]}`,
				`{"id":` + aUUID + `,"items":[{"sku":"ABC-1234","qty":1,"note":3}]}`, `{"id":` + aUUID + `,"items":[{"sku":"ABC-1234","qty":1}],"total":0}`,
				`{"id":` + aUUID + `,"items":[` + strings.Repeat(`{"sku":"ABC-1234","qty":1},`, 3) + `{"sku":"ABC-1234","qty":1}]}`,
			},
			[]string{`{"id":"x","items":[{"sku":"ABC-1234","qty":1}]}`, `{"id":` + aUUID + `,"items":[{"sku":"ABC-1234","qty":1}],"total":1e2}`},
		},
		"zod": {zodSchema,
			[]string{`{"kind":"circle","r":1.5}`, `{"kind":"box","size":[1,-2.5e3]}`},
			[]string{`{"kind":"circle","size":[1,2]}`, `{"kind":"box","r":1}`, `{"kind":"box","size":[1]}`, `{"kind":"box","size":[1,2,3]}`, `{"kind":"circle","r":0}`},
			nil,
		},
		"linked": {linkedSchema,
			[]string{`{"linked_list":{"value":1,"next":{"value":2,"next":null}}}`},
			[]string{`{"linked_list":null}`, `{"linked_list":{"value":1,"next":{}}}`},
			[]string{`{"linked_list":{"next":null,"value":1}}`},
		},
		"boolean true":       {`true`, []string{`1`, `"x"`, `[{}]`, ` null `, `{"a":{"b":[1,2.5e-3,true]}}`}, []string{``, `{`, `01`, `[1,]`, `{"a":}`, `nul`, `"\x"`}, nil},
		"any object":         {`{"type":"object"}`, []string{`{}`, `{"a":1,"b":[]}`}, []string{`[]`, `1`}, nil},
		"type list":          {`{"type":["string","integer","null"]}`, []string{`""`, `12`, `null`, `-0`}, []string{`true`, `1.5`, `[]`}, nil},
		"nullable":           {`{"type":"string","nullable":true}`, []string{`"x"`, `null`}, []string{`1`}, nil},
		"nullable enum":      {`{"type":"string","nullable":true,"enum":["a"]}`, []string{`"a"`, `null`}, []string{`"b"`}, nil},
		"enum":               {`{"enum":["a","ab",1,null,{"k":[1,2]}]}`, []string{`"a"`, `"ab"`, `1`, `null`, `{"k":[1,2]}`, `{ "k" : [ 1 , 2 ] }`}, []string{`"b"`, `2`, `{"k":[2,1]}`, `"abc"`}, nil},
		"const":              {`{"const":"a\"\n\u0001é"}`, []string{`"a\"\n\u0001é"`}, []string{`"a"`}, []string{`"\u0061\"\n\u0001é"`}},
		"integer range":      {`{"type":"integer","minimum":-5,"exclusiveMaximum":120}`, []string{`-5`, `0`, `7`, `119`}, []string{`-6`, `120`, `1000`, `1.5`}, []string{`5.0`, `1e1`}},
		"number range":       {`{"type":"number","minimum":0.5,"maximum":1.25}`, []string{`0.5`, `1`, `1.25`, `0.75001`}, []string{`0.49`, `1.26`, `0`, `-1`}, []string{`5e-1`}},
		"multiple":           {`{"type":"number","multipleOf":0.05}`, []string{`0.05`, `1.5`, `2`, `-0.15`}, []string{`0.01`, `1.51`}, nil},
		"lengths":            {`{"type":"string","minLength":2,"maxLength":4}`, []string{`"ab"`, `"é😀"`, `"\u00e9\ud83d\ude00\n\\"`, `"abcd"`}, []string{`"a"`, `"abcde"`, `"\n"`}, nil},
		"pattern":            {`{"type":"string","pattern":"^(a|b)+\\d*$"}`, []string{`"a"`, `"ba12"`}, []string{`""`, `"c"`, `"a1b"`}, nil},
		"open pattern":       {`{"type":"string","pattern":"b"}`, []string{`"b"`, `"abc"`, `"a\"\\b\u0041"`}, []string{`"a"`, `""`}, nil},
		"pattern and length": {`{"type":"string","pattern":"^a*b*$","minLength":2,"maxLength":3}`, []string{`"ab"`, `"aab"`, `"bbb"`}, []string{`"a"`, `"aabb"`, `"ba"`}, nil},
		"two patterns":       {`{"type":"string","allOf":[{"pattern":"^a"},{"pattern":"z$"}]}`, []string{`"az"`, `"a.z"`}, []string{`"a"`, `"z"`, `"za"`}, nil},
		"tuple":              {`{"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"items":{"type":"boolean"}}`, []string{`[]`, `["a"]`, `["a",1]`, `["a",1,true,false]`}, []string{`[1]`, `["a",1,2]`}, nil},
		"closed tuple":       {`{"type":"array","prefixItems":[{"type":"string"}],"items":false,"minItems":1}`, []string{`["a"]`}, []string{`[]`, `["a",1]`}, nil},
		"item bounds":        {`{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3}`, []string{`[1,2]`, `[1,2,3]`}, []string{`[]`, `[1]`, `[1,2,3,4]`}, nil},
		"additional":         {`{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"string"}}`, []string{`{}`, `{"a":1}`, `{"a":1,"b":"x","ab":""}`, `{"":"","b\u0062":"x"}`}, []string{`{"b":1}`, `{"a":"x"}`}, []string{`{"b":"x","a":1}`, `{"\u0062":"x"}`}},
		"required other":     {`{"type":"object","required":["b"],"properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"string"}}`, []string{`{"b":"x"}`, `{"a":1,"b":"x","c":""}`}, []string{`{}`, `{"a":1}`, `{"b":1}`}, nil},
		"name patterns":      {`{"type":"object","patternProperties":{"^n_":{"type":"number"},"_s$":{"type":"string"}},"additionalProperties":false}`, []string{`{}`, `{"n_a":1}`, `{"x_s":"","n_":2}`}, []string{`{"n_s":1}`, `{"n_s":""}`, `{"q":1}`, `{"n_a":""}`}, nil},
		"allOf":              {`{"allOf":[{"type":"object","properties":{"a":{"type":["integer","string"]}},"required":["a"]},{"properties":{"a":{"minimum":3,"type":["integer","null"]},"b":{"type":"string"}},"required":["b"]}]}`, []string{`{"a":3,"b":""}`}, []string{`{"a":2,"b":""}`, `{"a":"x","b":""}`, `{"a":3}`}, nil},
		"anyOf beside":       {`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"anyOf":[{"required":["a"]},{"required":["b"]}]}`, []string{`{"a":1}`, `{"b":1}`, `{"a":1,"b":2}`}, []string{`{}`, `{"c":1}`}, nil},
		"ref beside":         {`{"$defs":{"s":{"type":"string"}},"$ref":"#/$defs/s","maxLength":2}`, []string{`"ab"`}, []string{`"abc"`, `1`}, nil},
		"anchor":             {`{"$defs":{"x":{"$anchor":"here","type":"integer"}},"type":"array","items":{"$ref":"#here"}}`, []string{`[1]`}, []string{`["a"]`}, nil},
		"escaped pointer":    {`{"$defs":{"a/b~c d":{"type":"integer"}},"$ref":"#/$defs/a~1b~0c%20d"}`, []string{`1`}, []string{`"a"`}, nil},
		"anyOf itself":       {`{"anyOf":[{"$ref":"#"},{"type":"integer"}]}`, nil, nil, []string{`1`}},
		"unevaluated":        {`{"type":"object","allOf":[{"properties":{"a":{}}}],"properties":{"b":{}},"unevaluatedProperties":false}`, []string{`{}`, `{"b":1,"a":2}`}, []string{`{"c":1}`}, nil},
		"draft 4":            {`{"$schema":"http://json-schema.org/draft-04/schema#","type":"integer","minimum":1,"exclusiveMinimum":true,"maximum":3}`, []string{`2`, `3`}, []string{`1`, `4`}, nil},
		"no type":            {`{"properties":{"a":{}},"required":["a"]}`, []string{`{"a":1}`}, []string{`{}`}, []string{`1`}},
		"deep value":         {`{}`, []string{strings.Repeat("[", 200) + strings.Repeat("]", 200)}, nil, nil},
		"false property":     {`{"type":"object","properties":{"a":false,"b":{}}}`, []string{`{}`, `{"b":1}`, `{"c":1}`}, []string{`{"a":1}`}, nil},
		"min properties":     {`{"type":"object","properties":{"a":{}},"minProperties":1}`, []string{`{"a":1}`, `{"b":1}`}, []string{`{}`}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Parse(decode(t, c.schema), Response)
			if err != nil {
				t.Fatal(err)
			}
			g, notes, err := compileSchema(v, s)
			if err != nil {
				t.Fatal(err)
			}
			if len(notes) > 0 {
				t.Errorf("not enforced: %q", notes)
			}
			for _, text := range c.valid {
				if ok, n := accepts(g, text); !ok {
					t.Errorf("%s is not written: it ends at %q", text, text[:n])
				}
				if err := s.ValidateText(text); err != nil {
					t.Errorf("%s: %v", text, err)
				}
			}
			for _, text := range c.invalid {
				if ok, _ := accepts(g, text); ok {
					t.Errorf("%s is written", text)
				}
				if s.ValidateText(text) == nil {
					t.Errorf("%s is valid", text)
				}
			}
			for _, text := range c.narrow {
				if ok, _ := accepts(g, text); ok != (name == "anyOf itself") {
					t.Errorf("%s is written: %v", text, ok)
				}
				if name != "pydantic" && name != "anyOf itself" {
					if err := s.ValidateText(text); err != nil {
						t.Errorf("%s: %v", text, err)
					}
				}
			}
		})
	}
}

func TestUnenforced(t *testing.T) {
	v := newBytes(t)
	for text, want := range map[string][]string{
		`{"type":"array","uniqueItems":true}`:                                               {"/uniqueItems"},
		`{"type":"array","uniqueItems":false}`:                                              nil,
		`{"type":"array","contains":{"const":1}}`:                                           {"/contains"},
		`{"type":"array","minItems":65}`:                                                    {"/minItems"},
		`{"type":"array","minItems":64,"maxItems":64}`:                                      nil,
		`{"type":"array","maxItems":1000}`:                                                  {"/maxItems"},
		`{"type":"integer","multipleOf":100000}`:                                            {"/multipleOf"},
		`{"type":"string","pattern":"(?=a)b"}`:                                              {"/pattern"},
		`{"type":"string","pattern":"\\bword\\b"}`:                                          {"/pattern"},
		`{"type":"string","pattern":"(a)\\1"}`:                                              {"/pattern"},
		`{"type":"string","pattern":"^(a|b)*a(a|b){20}$"}`:                                  {"/pattern"},
		`{"type":"string","pattern":"^a*$","maxLength":100000}`:                             {"/maxLength"},
		`{"type":"string","format":"uri"}`:                                                  {"/format"},
		`{"type":"string","maxLength":100000}`:                                              nil,
		`{"type":"object","propertyNames":{"pattern":"^a"},"maxProperties":3}`:              {"/propertyNames", "/maxProperties"},
		`{"type":"object","properties":{"a/b":{"not":{"const":1}}}}`:                        {"/properties/a~1b/not"},
		`{"type":"integer","if":{"minimum":1},"then":{"maximum":2}}`:                        {"/if"},
		`{"type":"object","dependentRequired":{"a":["b"]}}`:                                 {"/dependentRequired"},
		`{"type":"object","minProperties":2}`:                                               {"/minProperties"},
		`{"oneOf":[{"type":"integer"},{"type":"string"}]}`:                                  {"/oneOf"},
		`{"anyOf":[{"type":"integer"},{"type":"string","not":{"const":"x"}}]}`:              {"/anyOf/1/not"},
		`{"type":"object","properties":{"a":{}},"unevaluatedProperties":{"type":"string"}}`: {"/unevaluatedProperties"},
		`{"type":"array","prefixItems":[{}],"unevaluatedItems":false}`:                      {"/unevaluatedItems"},
	} {
		s, err := Parse(decode(t, text), Response)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		_, notes, err := compileSchema(v, s)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, notes); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

// nested is a schema with so many levels of objects.
func nested(levels int) string {
	return strings.Repeat(`{"not":`, levels-1) + "{}" + strings.Repeat("}", levels-1)
}

func TestRefusals(t *testing.T) {
	for text, want := range map[string]string{
		`1`:        "unsupported output schema: a schema is an object or a boolean",
		nested(64): "",
		nested(65): "unsupported output schema: more than 64 levels of arrays and objects",
		`{"enum":[` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `]}`:     "unsupported output schema: more than 64 levels",
		`{"$ref":"https://example.com/x.json"}`:                                    "remote schema reference is not allowed: https://example.com/x.json",
		`{"properties":{"a":{"$ref":"other.json#/a"}}}`:                            "remote schema reference is not allowed: other.json#/a",
		`{"$dynamicRef":"http://x"}`:                                               "remote schema reference is not allowed: http://x",
		`{"$ref":1}`:                                                               "unsupported output schema: $ref must be a string",
		`{"$schema":1}`:                                                            "unsupported output schema: $schema must be a string",
		`{"$ref":"#/nowhere"}`:                                                     "unsupported output schema: ",
		`{"$ref":"#nowhere"}`:                                                      "unsupported output schema: ",
		`{"$schema":"https://example.com/dialect"}`:                                "unsupported output schema: ",
		`{"type":"strin"}`:                                                         "unsupported output schema: /type: ",
		`{"minLength":-1}`:                                                         "unsupported output schema: /minLength: ",
		`{"properties":{"a":3}}`:                                                   "unsupported output schema: ",
		`{"pattern":"("}`:                                                          "unsupported output schema: ",
		`{"minimum":1e999999999}`:                                                  "unsupported output schema: 1e999999999 is too large a number",
		`{"minLength":1e999999999}`:                                                "unsupported output schema: 1e999999999 is too large a number",
		`{"unevaluatedProperties":false,"patternProperties":{"a":{}}}`:             "unsupported output schema: unevaluatedProperties with patternProperties",
		`{"properties":{"$ref":{"type":"string"},"$schema":{}}}`:                   "",
		`{"const":{"$ref":"https://example.com"},"default":{"$ref":5}}`:            "",
		`{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#"}`:         "",
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"null"}`: "",
	} {
		_, err := Parse(decode(t, text), Response)
		got := ""
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Errorf("%.60s: %T", text, err)
			}
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) || want == "" && got != "" || strings.Contains(got, "\n") {
			t.Errorf("%.60s: %q, want %q", text, got, want)
		}
	}
	if _, err := Parse(decode(t, `{"$ref":"https://x"}`), StrictTool); err == nil || err.Error() != "remote tool schema reference is not allowed: https://x" {
		t.Error(err)
	}
	// A tool may have what a response may not.
	if _, err := Parse(decode(t, `{"unevaluatedProperties":false,"patternProperties":{"a":{}}}`), Tool); err != nil {
		t.Error(err)
	}
}

// TestImpossible compiles schemas that no value satisfies.
func TestImpossible(t *testing.T) {
	v := newBytes(t)
	for _, text := range []string{
		`false`, `{"$ref":"#"}`, `{"allOf":[{"$ref":"#"}],"type":"object"}`, `{"allOf":[{"type":"string"},{"type":"integer"}]}`, `{"enum":["a"],"type":"integer"}`,
		`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`, `{"type":"object","required":["x"],"additionalProperties":false}`,
		`{"type":"integer","minimum":5,"maximum":4}`, `{"type":"string","minLength":3,"maxLength":2}`, `{"type":"array","items":false,"minItems":1}`,
		`{"type":"array","minItems":3,"maxItems":2}`, `{"type":"string","allOf":[{"pattern":"^a$"},{"pattern":"^b$"}]}`, `{"enum":[1,2],"minimum":3}`,
		`{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}`,
	} {
		s, err := Parse(decode(t, text), Response)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if _, _, err = compileSchema(v, s); !errors.Is(err, grammar.ErrEmpty) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestHostile compiles schemas that are made to be costly. They are refused, or compile; either way soon.
func TestHostile(t *testing.T) {
	v := newBytes(t)
	list := func(n int, item func(i int) string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = item(i)
		}
		return strings.Join(items, ",")
	}
	anyOfs := func(groups, alternatives int) string {
		return `{"allOf":[` + list(groups, func(i int) string {
			return `{"anyOf":[` + list(alternatives, func(j int) string { return fmt.Sprintf(`{"type":"object","properties":{"p%d_%d":{}}}`, i, j) }) + `]}`
		}) + `]}`
	}
	for name, text := range map[string]string{
		"alternatives": anyOfs(20, 10),
		"conjunctions of choices in recursion": `{"$defs":{` + list(12, func(i int) string {
			return fmt.Sprintf(`"d%d":{"anyOf":[{"properties":{"a":{"$ref":"#/$defs/d%d"}}},{"properties":{"a":{"$ref":"#/$defs/d%d"}}}]}`, i, (i+1)%12, (i+5)%12)
		}) + `},"allOf":[` + list(12, func(i int) string { return fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i) }) + `]}`,
		"doubling references": `{"$defs":{` + list(40, func(i int) string {
			return fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1)
		}) + `,"d40":{"type":"object"}},"$ref":"#/$defs/d0"}`,
		"doubling choices": `{"$defs":{` + list(40, func(i int) string {
			return fmt.Sprintf(`"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1)
		}) + `,"d40":{"type":"object"}},"$ref":"#/$defs/d0"}`,
		"large enum":      `{"enum":[` + list(100_000, func(i int) string { return fmt.Sprintf(`"value %d of many"`, i) }) + `]}`,
		"large lists":     `{"enum":[` + list(5000, func(i int) string { return fmt.Sprintf(`[%d,[%d]]`, i, i) }) + `]}`,
		"long strings":    `{"enum":["` + strings.Repeat("a", 3_000_000) + `"]}`,
		"many properties": `{"type":"object","properties":{` + list(20_000, func(i int) string { return fmt.Sprintf(`"p%d":{"type":"string"}`, i) }) + `}}`,
		"properties":      `{"type":"object","properties":{` + list(2000, func(i int) string { return fmt.Sprintf(`"p%d":{"type":"string"}`, i) }) + `}}`,
		"many arrays":     `{"type":"object","properties":{` + list(3000, func(i int) string { return fmt.Sprintf(`"p%d":{"type":"array","maxItems":64}`, i) }) + `}}`,
		"many patterns": `{"type":"object","properties":{` + list(500, func(i int) string {
			return fmt.Sprintf(`"p%d":{"type":"string","pattern":"(a|b)*a(a|b){%d}x%d"}`, i, 8+i%8, i)
		}) + `}}`,
		"name patterns":      `{"patternProperties":{` + list(4, func(i int) string { return fmt.Sprintf(`"(a|b)*a(a|b){%d}":{}`, 6+i) }) + `}}`,
		"length and pattern": `{"type":"string","pattern":"^(a|b)*a(a|b){9}$","minLength":3000,"maxLength":5000}`,
		"huge bounds":        `{"type":"string","minLength":1000000000,"maxLength":2000000000}`,
		"long numbers":       `{"type":"number","minimum":1` + strings.Repeat("0", 390) + `,"multipleOf":0.001}`,
		"unicode classes":    `{"type":"string","pattern":"^\\p{L}{1,200}\\p{N}{1,200}$"}`,
		"nested repetitions": `{"type":"string","pattern":"^((((a{1,10}){1,10}){1,10})b)*$"}`,
		"long pattern":       `{"type":"string","pattern":"` + strings.Repeat("(a|b)?", 600) + `"}`,
		"too long a pattern": `{"type":"string","pattern":"` + strings.Repeat("a", 5000) + `"}`,
		"tuple":              `{"type":"array","prefixItems":[` + list(20_000, func(i int) string { return `{"type":"integer"}` }) + `]}`,
		"too large":          `{"description":"` + strings.Repeat("x", maxBytes) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			source := decode(t, text)
			start := time.Now()
			s, err := Parse(source, Response)
			states := 0
			if err == nil {
				var g *grammar.Grammar
				if g, _, err = compileSchema(v, s); err == nil {
					states = g.States()
					m := g.Matcher()
					row := make([]uint64, m.Words())
					for _, b := range []byte(`{"p1":["`) {
						if err := m.Allowed(row); err != nil && !errors.Is(err, grammar.ErrTooComplex) {
							t.Error(err)
						}
						if m.Accept(int32(b)) != nil {
							break
						}
					}
				}
			}
			took := time.Since(start)
			t.Logf("%v, %d states, error %v", took.Round(time.Millisecond), states, err)
			var e *Error
			if err != nil && !errors.As(err, &e) && !errors.Is(err, grammar.ErrTooLarge) && !errors.Is(err, grammar.ErrEmpty) {
				t.Error(err)
			}
		})
	}
}

func TestCancelled(t *testing.T) {
	s, err := Parse(decode(t, mathSchema), Response)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := NewBuilder(ctx, &grammar.Rules{}).Value(s); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct{ schema, value, want string }{
		{mathSchema, `{"steps":[],"final_answer":""}`, ""},
		{mathSchema, `no`, `invalid JSON at byte 1: unexpected 'o' in null`},
		{mathSchema, `{"steps":[{"explanation":1,"output":""}],"final_answer":""}`, `/steps/0/explanation: got number, want string`},
		{mathSchema, `{"steps":[]}`, `the value: missing property 'final_answer'`},
		{zodSchema, `{"kind":"box","size":[1,"x"]}`, `/size/1: got string, want number`},
		{`{"uniqueItems":true}`, `[1,1.0]`, `the value: items at 0 and 1 are equal`},
		{`{"pattern":"^(?=.*a)(?=.*b)"}`, `"ab"`, ""},
		{`{"pattern":"^(?=.*a)(?=.*b)"}`, `"a"`, `the value: 'a' does not match pattern '^(?=.*a)(?=.*b)'`},
		{`{"pattern":"^(a)\\1$"}`, `"aa"`, ""},
		{`{"pattern":"^\\u0061$"}`, `"a"`, ""},
		{`{"type":"string","nullable":true}`, `null`, ""},
		{`{"properties":{"a":{"items":{"anyOf":[{"type":"string","nullable":true,"enum":["x"]}]}}}}`, `{"a":[null,"x"]}`, ""},
		{`{"type":"string"}`, `"` + strings.Repeat("x", 2000) + `" 1`, `invalid JSON at byte 2003: unexpected '1' after the value`},
		{`{"maxLength":1}`, `"` + strings.Repeat("x", 2000) + `"`, `the value: maxLength: got 2,000, want 1`},
		{`{"const":"a"}`, `"` + strings.Repeat("x", 2000) + `"`, `the value: value must be 'a'`},
		{`{"type":"integer"}`, `1e99999999`, ErrNotEvaluated.Error()},
		{`{"pattern":"^(?=a)(a+)+$"}`, `"` + strings.Repeat("a", 2000) + `b"`, ErrNotEvaluated.Error()},
		{`{"anyOf":[{"type":"array","items":{"$ref":"#"}},{"type":"array","items":{"$ref":"#"}}]}`, strings.Repeat("[", 60) + "1" + strings.Repeat("]", 60), ErrNotEvaluated.Error()},
		{`{"anyOf":[{"items":{"$ref":"#"},"format":"regex","type":"array"},{"items":{"$ref":"#"},"format":"regex","type":"array"}],"$schema":"http://json-schema.org/draft-07/schema#"}`,
			strings.Repeat("[", 60) + "1" + strings.Repeat("]", 60), ErrNotEvaluated.Error()},
		{`{}`, strings.Repeat("[", 600) + strings.Repeat("]", 600), "invalid JSON at byte 512: more than 512 levels of arrays and objects"},
	} {
		s, err := Parse(decode(t, c.schema), Response)
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		got := ""
		if err := s.ValidateText(c.value); err != nil {
			got = err.Error()
			var invalid *InvalidError
			if !errors.As(err, &invalid) && err != ErrNotEvaluated {
				t.Errorf("%T", err)
			}
		}
		if got != c.want {
			t.Errorf("%.60s on %.60s: %q, want %q", c.schema, c.value, got, c.want)
		}
	}
}

// TestOrder says that declared properties keep their place, and come before others.
func TestOrder(t *testing.T) {
	v := newBytes(t)
	s, err := Parse(decode(t, `{"type":"object","properties":{"b":{},"a":{},"c":{}},"required":["a"]}`), Response)
	if err != nil {
		t.Fatal(err)
	}
	g, _, err := compileSchema(v, s)
	if err != nil {
		t.Fatal(err)
	}
	var taken []string
	for _, text := range []string{
		`{"a":1}`, `{"b":1,"a":1}`, `{"a":1,"b":1}`, `{"a":1,"c":1}`, `{"b":1,"a":1,"c":1,"d":1,"e":1}`, `{"d":1,"a":1}`, `{"b":1}`, `{"b":1,"c":1}`, `{"a":1,}`, `{,"a":1}`,
	} {
		if ok, _ := accepts(g, text); ok {
			taken = append(taken, text)
		}
	}
	if want := []string{`{"a":1}`, `{"b":1,"a":1}`, `{"a":1,"c":1}`, `{"b":1,"a":1,"c":1,"d":1,"e":1}`}; !slices.Equal(taken, want) {
		t.Errorf("%q", taken)
	}
}
