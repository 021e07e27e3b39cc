package schema

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/internal/chat/ojson"
	"splash/internal/grammar"
)

// narrower are the tests of the suite whose valid values the grammar does not write, as the package's comment says.
var narrower = []string{
	`draft7/const: const with 0 does not match other zero-like types: float zero is valid: 0.0`,
	`draft7/const: const with 1 does not match true: float one is valid: 1.0`,
	`draft7/const: float and integers are equal up to 64-bit representation limits: float is valid: 9007199254740992.0`,
	`draft7/enum: enum with 0 does not match false: float zero is valid: 0.0`,
	`draft7/enum: enum with [0] does not match [false]: [0.0] is valid: [0.0]`,
	`draft7/enum: enum with 1 does not match true: float one is valid: 1.0`,
	`draft7/enum: enum with [1] does not match [true]: [1.0] is valid: [1.0]`,
	`draft7/items: a schema given for items: JavaScript pseudo-array is valid: {"0":"invalid","length":1}`,
	`draft7/items: an array of schemas for items: JavaScript pseudo-array is valid: {"0":"invalid","1":"valid","length":2}`,
	`draft7/ref: root pointer ref: match: {"foo":false}`,
	`draft7/ref: root pointer ref: recursive match: {"foo":{"foo":false}}`,
	`draft7/type: integer type matches integers: a float with zero fractional part is an integer: 1.0`,
	`draft2020-12/const: const with 0 does not match other zero-like types: float zero is valid: 0.0`,
	`draft2020-12/const: const with 1 does not match true: float one is valid: 1.0`,
	`draft2020-12/const: float and integers are equal up to 64-bit representation limits: float is valid: 9007199254740992.0`,
	`draft2020-12/enum: enum with 0 does not match false: float zero is valid: 0.0`,
	`draft2020-12/enum: enum with [0] does not match [false]: [0.0] is valid: [0.0]`,
	`draft2020-12/enum: enum with 1 does not match true: float one is valid: 1.0`,
	`draft2020-12/enum: enum with [1] does not match [true]: [1.0] is valid: [1.0]`,
	`draft2020-12/items: a schema given for items: JavaScript pseudo-array is valid: {"0":"invalid","length":1}`,
	`draft2020-12/prefixItems: a schema given for prefixItems: JavaScript pseudo-array is valid: {"0":"invalid","1":"valid","length":2}`,
	`draft2020-12/ref: root pointer ref: match: {"foo":false}`,
	`draft2020-12/ref: root pointer ref: recursive match: {"foo":{"foo":false}}`,
	`draft2020-12/type: integer type matches integers: a float with zero fractional part is an integer: 1.0`,
	`draft2020-12/unevaluatedProperties: unevaluatedProperties with anyOf: when two match and has no unevaluated properties: {"foo":"foo","bar":"bar","baz":"baz"}`,
}

// refused are the schemas of the suite that are refused, and why, but for those that refer to others by their URL.
var refused = []string{
	"draft2020-12/unevaluatedProperties: unevaluatedProperties with adjacent patternProperties: " +
		"unsupported output schema: unevaluatedProperties with patternProperties",
}

// TestSuite walks the JSON Schema test suite: what is valid is an output of the grammar, and what is not either is none
// or breaks a keyword that the grammar is said not to enforce.
func TestSuite(t *testing.T) {
	v := newBytes(t)
	var narrow, refusals []string
	groups, tests, remotes := 0, 0, 0
	for _, draft := range []string{"draft7", "draft2020-12"} {
		for _, line := range readLines(t, filepath.Join("testdata", draft+".jsonl")) {
			group := decode(t, line).(*ojson.Object)
			source := group.Value("schema")
			if o, ok := source.(*ojson.Object); ok && draft == "draft7" && o.Value("$schema") == nil {
				with := ojson.NewObject("$schema", "http://json-schema.org/draft-07/schema#")
				for k, x := range o.All() {
					with.Set(k, x)
				}
				source = with
			}
			name := draft + "/" + group.Value("file").(string) + ": " + group.Value("description").(string)
			groups++
			s, err := Parse(source, Response)
			if err != nil {
				if remote := "remote schema reference is not allowed: "; strings.HasPrefix(err.Error(), remote) {
					remotes++
				} else {
					refusals = append(refusals, name+": "+err.Error())
				}
				continue
			}
			g, notes, err := compileSchema(v, s)
			empty := errors.Is(err, grammar.ErrEmpty)
			if err != nil && !empty {
				refusals = append(refusals, name+": "+err.Error())
				continue
			}
			for _, item := range group.Value("tests").([]any) {
				tests++
				test := item.(*ojson.Object)
				data, _ := ojson.String(test.Value("data"), ojson.Compact)
				valid := test.Value("valid").(bool)
				if err := s.ValidateText(data); (err == nil) != valid {
					t.Errorf("%s: %s: %v", name, data, err)
				}
				taken := false
				for _, text := range orders(test.Value("data")) {
					if ok := false; !empty && !taken {
						ok, _ = accepts(g, text)
						taken = ok
					}
				}
				if strings.HasPrefix(test.Value("description").(string), "ignores ") {
					continue // what a schema without a type does not speak of
				}
				if valid && !taken {
					narrow = append(narrow, name+": "+test.Value("description").(string)+": "+data)
				}
				if !valid && taken && len(notes) == 0 {
					t.Errorf("%s: the grammar takes %s, and says that it enforces everything", name, data)
				}
			}
		}
	}
	if groups < 500 || tests < 1500 || remotes > 60 {
		t.Errorf("%d groups, %d of them refused for a URL, %d tests", groups, remotes, tests)
	}
	if diff := cmp.Diff(narrower, narrow); diff != "" {
		t.Errorf("valid values that are not taken (-expected +found):\n%s", diff)
	}
	if diff := cmp.Diff(refused, refusals); diff != "" {
		t.Errorf("schemas that are refused (-expected +found):\n%s", diff)
	}
}

// orders returns the JSON of a value with the keys of its outermost object in every order.
func orders(v any) []string {
	o, ok := v.(*ojson.Object)
	if !ok || o.Len() < 2 || o.Len() > 4 {
		text, _ := ojson.String(v, ojson.Compact)
		return []string{text}
	}
	var out []string
	var place func(with *ojson.Object)
	place = func(with *ojson.Object) {
		if with.Len() == o.Len() {
			text, _ := ojson.String(with, ojson.Compact)
			out = append(out, text)
		}
		for k, x := range o.All() {
			if _, used := with.Get(k); used {
				continue
			}
			next := &ojson.Object{}
			for k, x := range with.All() {
				next.Set(k, x)
			}
			next.Set(k, x)
			place(next)
		}
	}
	place(&ojson.Object{})
	return out
}

func readLines(t *testing.T, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []string
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		lines = append(lines, scan.Text())
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(lines, func(s string) bool { return strings.TrimSpace(s) == "" })
}
