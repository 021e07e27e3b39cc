package jinja

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/internal/chat/ojson"
)

// golden is one template of testdata/cases.json and what Jinja2 made of it; testdata/cases.py wrote the file.
type golden struct{ template, want, err string }

func goldens(t testing.TB) (vars map[string]any, cases []golden) {
	t.Helper()
	data, err := os.ReadFile("testdata/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := ojson.Decode(string(data), ojson.Options{})
	if err != nil {
		t.Fatal(err)
	}
	file := v.(*ojson.Object)
	vars = map[string]any{}
	for k, v := range file.Value("vars").(*ojson.Object).All() {
		vars[k] = v
	}
	for _, c := range file.Value("cases").([]any) {
		c := c.(*ojson.Object)
		g := golden{template: c.Value("template").(string)}
		g.want, _ = c.Value("want").(string)
		g.err, _ = c.Value("error").(string)
		cases = append(cases, g)
	}
	return vars, cases
}

func fixedNow() time.Time { return time.Date(2026, 3, 7, 5, 4, 9, 21000000, time.UTC) }

func render(source string, vars map[string]any) (string, error) {
	t, err := Parse(source)
	if err != nil {
		return "", err
	}
	return t.Render(context.Background(), vars, Options{Now: fixedNow})
}

// kinds are the names of Python errors that are another's here.
var kinds = map[string]string{
	"SyntaxError":            KindSyntax,  // break outside a loop, which Jinja leaves to Python's compiler
	"TemplateAssertionError": KindRuntime, // unknown filters and tests, which fail here only when they are reached
}

func TestGoldens(t *testing.T) {
	vars, cases := goldens(t)
	for _, c := range cases {
		got, err := render(c.template, vars)
		kind := ""
		var e *Error
		if errors.As(err, &e) {
			kind = e.Kind
		}
		want := c.err
		if k := kinds[want]; k != "" {
			want = k
		}
		if kind != want {
			t.Errorf("%q: error %v, want %q", c.template, err, want)
		} else if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.template, diff)
		}
	}
}

// Two differences from Jinja2 that are meant: an unknown filter on a path that is not taken is no error, and numbers
// of the input keep their text.
func TestDifferences(t *testing.T) {
	vars := map[string]any{"o": mustDecode(t, `{"a":1.50,"b":1e3,"c":12345678901234567890123,"d":-0}`)}
	for _, c := range []struct{ template, want string }{
		{"{% if false %}{{ 1 | nofilter }}{% endif %}x", "x"},
		{"{{ o | tojson }}", `{"a": 1.50, "b": 1e3, "c": 12345678901234567890123, "d": -0}`},
		{"{{ o.a }} {{ o.b ~ '' }} {{ o.c | string }} {{ o.b + 1 }} {{ o.b == 1000 }}", "1.50 1e3 12345678901234567890123 1001.0 True"},
	} {
		got, err := render(c.template, vars)
		if err != nil || got != c.want {
			t.Errorf("%q = %q, %v; want %q", c.template, got, err, c.want)
		}
	}
}

func mustDecode(t testing.TB, s string) any {
	t.Helper()
	v, err := ojson.Decode(s, ojson.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestErrorLines(t *testing.T) {
	for _, c := range []struct {
		source string
		line   int
		kind   string
	}{
		{"a\nb\n{{ raise_exception('x') }}", 3, KindRaised},
		{"a\r\nb\r\n{{ x.y }}", 3, KindUndefined},
		{"{% if true %}\n\n{{ 1 / 0 }}\n{% endif %}", 3, "ZeroDivisionError"},
		{"{% macro m() %}\n{{ x.y }}\n{% endmacro %}\n{{ m() }}", 2, KindUndefined},
		{"one\n{% if %}", 2, KindSyntax},
		{"one\n{{ 'a\nb' ~\n 1 | nofilter }}", 4, KindRuntime},
		{"one\n\n{# open", 3, KindSyntax},
		{"{{ 1 }}\n{% endfor %}", 2, KindSyntax},
	} {
		_, err := render(c.source, nil)
		var e *Error
		if !errors.As(err, &e) || e.Line != c.line || e.Kind != c.kind {
			t.Errorf("%q: %v, want %s at line %d", c.source, err, c.kind, c.line)
		}
	}
}

func TestRaisedMessage(t *testing.T) {
	_, err := render("{{ raise_exception('No user ' ~ 1) }}", nil)
	if want := "TemplateError: No user 1 (template line 1)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}

// hostile are templates that would run for ever, take all memory or overflow the stack without limits.
var hostile = map[string]string{
	"nested loops":        "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% endfor %}{% endfor %}{% endfor %}",
	"empty loops":         "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
	"recursion":           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
	"mutual recursion":    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
	"branching recursion": "{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
	"tall recursion":      "{% macro m() %}" + strings.Repeat("{% if true %}", 90) + "{{ m()" + strings.Repeat(" + ''", 480) + " }}" + strings.Repeat("{% endif %}", 90) + "{% endmacro %}{{ m() }}",
	"default recursion":   "{% macro m(a=m()) %}{% endmacro %}{{ m() }}",
	"repeat":              "{{ 'a' * 1000000000000 }}",
	"repeat a list":       "{% set x = [1] * 1000000000000 %}",
	"repeat nothing":      "{% set x = [] * 9000000000000000000 %}{% for i in range(100000) %}{% set x = '' * 9000000000000000000 %}{% for i in range(100000) %}{% endfor %}{% endfor %}",
	"doubling":            "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
	"doubling by plus":    "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
	"doubling lists":      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
	"a billion laughs":    "{% set ns = namespace(x=['ha']) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
	"laughs to JSON":      "{% set ns = namespace(x=['ha']) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
	"laughs compared":     "{% set ns = namespace(x=['ha'], y=['ha']) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
	"laughs ordered":      "{% set ns = namespace(x=['ha'], y=['ha']) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x < ns.y }}",
	"laughs of tuples":    "{% set ns = namespace(x=('ha',)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ ns.x | tojson }}",
	"deep value":          "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
	"deep JSON":           "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}",
	"long output":         "{% for i in range(100000) %}{{ 'a' * 10000 }}{% endfor %}",
	"long set":            "{% set x %}{% for i in range(100000) %}{{ 'a' * 10000 }}{% endfor %}{% endset %}",
	"replace":             "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x.replace('a', 'aaaaaaaa') %}{% endfor %}",
	"replace nothing":     "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x | replace('', 'aaaaaaaa') %}{% endfor %}",
	"join":                "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] | join(ns.x) %}{% endfor %}",
	"indent":              "{{ 'a\nb\nc' | indent(2000000000) }}",
	"indent lines":        "{% set x = 'a\n' * 1000000 %}{{ x | indent(100000) }}",
	"power":               "{% for i in range(100000) %}{% set x = 1 ** 9000000000000000000 %}{% set x = 2 ** 62 %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
	"searches":            "{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{% if 'b' in x %}{% endif %}{% if x.find('b') %}{% endif %}{% for j in range(100) %}{{ x | trim | length }}{% endfor %}{% endfor %}",
	"indexing":            "{% set x = 'é' * 1000000 %}{% for i in range(100000) %}{% set y = x[-1] %}{% for j in range(100) %}{% set y = x[999999] %}{% endfor %}{% endfor %}",
	"slices":              "{% set x = 'é' * 1000000 %}{% for i in range(100000) %}{% set y = x[::-1] %}{% endfor %}",
	"map":                 "{% set x = [range(100000) | list] * 1000 %}{% for i in range(100000) %}{% set y = x | map('map', 'string') | list %}{% endfor %}",
	"nested map":          "{% for i in range(100000) %}{% for i in range(100000) %}{% set x = [[[1]]] | map('map', 'map', 'string') %}{% endfor %}{% endfor %}",
	"strip a set":         "{% set x = 'a' * 100000 %}{% for i in range(100000) %}{% set y = x.strip('bcdefghija') %}{% endfor %}",
	"dictsort":            "{% set x = dict() %}{% for i in range(100000) %}{% set x = dict(x, a=1) %}{% for j in range(100000) %}{% set y = x | dictsort %}{% endfor %}{% endfor %}",
	"sort":                "{% for i in range(100000) %}{% set x = range(100000) | sort(reverse=true) %}{% endfor %}",
	"unique":              "{% for i in range(100000) %}{% set x = range(100000) | unique | list %}{% endfor %}",
	"strftime":            "{% set f = '%c' * 1000000 %}{% for i in range(100000) %}{% set x = strftime_now(f) %}{% endfor %}",
}

func TestHostileTemplatesStop(t *testing.T) {
	for name, source := range hostile {
		tmpl, err := Parse(source)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, err = tmpl.Render(context.Background(), nil, Options{Limits: Limits{Steps: 1_000_000, Memory: 64 << 20}})
		if !IsLimit(err) {
			t.Errorf("%s: %v, want a limit", name, err)
		}
	}
}

func TestHostileSources(t *testing.T) {
	for name, source := range map[string]string{
		"parentheses":    "{{ " + strings.Repeat("(", 100000) + " }}",
		"brackets":       "{{ " + strings.Repeat("[", 9000) + " }}",
		"braces":         "{{ " + strings.Repeat("{'a':", 5000) + " }}",
		"nots":           "{{ " + strings.Repeat("not ", 9000) + "x }}",
		"minuses":        "{{ " + strings.Repeat("-", 9000) + "x }}",
		"ifs":            strings.Repeat("{% if x %}", 50000),
		"elses":          "{{ " + strings.Repeat("a if b else ", 3000) + "c }}",
		"a long sum":     "{{ 1" + strings.Repeat("+1", 20000) + " }}",
		"a long source":  strings.Repeat("x", maxSource+1),
		"calls":          "{{ f" + strings.Repeat("(g", 5000) + " }}",
		"macro defaults": "{% macro m(a=" + strings.Repeat("(", 5000) + " %}",
		"a high sum":     "{{ 1" + strings.Repeat("+1", 4900) + " }}",
		"filters":        "{{ ''" + strings.Repeat("|trim", 4900) + " }}",
		"attributes":     "{{ x" + strings.Repeat(".a", 4900) + " }}",
	} {
		if _, err := Parse(source); err == nil {
			t.Errorf("%s: parsed, want an error", name)
		}
	}
}

func TestLimitsAreExact(t *testing.T) {
	tmpl, err := Parse("{{ 'abcd' * 4 }}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tmpl.Render(context.Background(), nil, Options{Limits: Limits{Output: 16}}); err != nil {
		t.Errorf("16 bytes into 16: %v", err)
	}
	if _, err := tmpl.Render(context.Background(), nil, Options{Limits: Limits{Output: 15}}); !IsLimit(err) {
		t.Errorf("16 bytes into 15: %v, want a limit", err)
	}
	if _, err := tmpl.Render(context.Background(), nil, Options{Limits: Limits{Memory: 15}}); !IsLimit(err) {
		t.Errorf("16 bytes of memory 15: %v, want a limit", err)
	}
	if _, err := tmpl.Render(context.Background(), nil, Options{Limits: Limits{Steps: 1}}); !IsLimit(err) {
		t.Errorf("1 step: %v, want a limit", err)
	}
}

func TestContextStopsARendering(t *testing.T) {
	tmpl, err := Parse(hostile["nested loops"])
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = tmpl.Render(ctx, nil, Options{})
	if !errors.Is(err, context.Canceled) || !IsLimit(err) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestValuesAreNotChanged(t *testing.T) {
	const before = `{"a":[1,2,{"b":null}],"s":"x"}`
	v := mustDecode(t, before)
	source := "{% set ns = namespace(v) %}{% set ns.a = 1 %}{% set ns.c = 2 %}{{ v.a | reverse | list }}{{ v.a[::-1] }}" +
		"{{ v | dictsort }}{% set v = 3 %}{{ dict(v2, z=1) }}"
	if _, err := render(source, map[string]any{"v": v, "v2": v}); err != nil {
		t.Fatal(err)
	}
	if after, _ := ojson.String(v, ojson.Compact); after != before {
		t.Errorf("the template changed its variable: %s", after)
	}
}

func FuzzRender(f *testing.F) {
	vars, cases := goldens(f)
	for _, c := range cases {
		f.Add(c.template)
	}
	for _, source := range hostile {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := Parse(source)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Kind != KindSyntax || e.Line < 1 || e.Line > 1+strings.Count(normalize(source), "\n") {
				t.Fatalf("Parse(%q) = %v", source, err)
			}
			return
		}
		limits := Limits{Steps: 100_000, Output: 1 << 20, Memory: 4 << 20}
		out, err := tmpl.Render(context.Background(), vars, Options{Limits: limits, Now: fixedNow})
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("Render(%q) = %v, not an *Error", source, err)
		}
		if len(out) > limits.Output {
			t.Fatalf("Render(%q) wrote %d bytes", source, len(out))
		}
		again, err2 := tmpl.Render(context.Background(), vars, Options{Limits: limits, Now: fixedNow})
		if out != again || (err == nil) != (err2 == nil) {
			t.Fatalf("Render(%q) differs between two runs", source)
		}
	})
}
