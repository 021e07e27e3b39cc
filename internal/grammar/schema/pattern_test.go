package schema

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestPatternAgainstRegexp holds automata of patterns to Go's package regexp.
func TestPatternAgainstRegexp(t *testing.T) {
	patterns := []string{
		``, `a`, `^a`, `a$`, `^a$`, `^$`, `^`, `$`, `a|b$`, `^a|b`, `(^|x)a`, `a($|b)`, `^(a|b)*abb$`, `(?:ab)+c?`, `^[a-c]{2,3}$`, `[^a]b`,
		`^.{3}$`, `a.b`, `^\d+$`, `\w\W`, `^\s*\S+\s*$`, `^(?:a{2}){2}$`, `a*$`, `x*`, `^[^\n]*$`, `a^b`, `$a`, `(?i)ab`, `^é?€$`,
		`^(?:$|a)$`, `^^a$$`, `[]`, `[^]`, `^[a\]b]$`, `^[[]a`, `\.`, `^\u0061\x62$`, `\/`,
	}
	letters := []rune("abcxA B1\n.é€[]/")
	r := rand.New(rand.NewPCG(1, 1))
	for _, p := range patterns {
		d, err := patternAutomaton(p)
		if err != nil {
			t.Errorf("%q: %v", p, err)
			continue
		}
		goPattern, err := translate(p)
		if err != nil {
			t.Fatal(err)
		}
		re := regexp.MustCompile(goPattern)
		for range 2000 {
			text := make([]rune, r.IntN(7))
			for i := range text {
				text[i] = letters[r.IntN(len(letters))]
			}
			if s := string(text); d.matches(s) != re.MatchString(s) {
				t.Fatalf("%q on %q: %v", p, s, d.matches(s))
			}
		}
	}
}

func TestPatternRefusals(t *testing.T) {
	for _, p := range []string{
		`a(?=b)`, `(?!a)`, `(?<=a)b`, `(?<!a)b`, `(a)\1`, `\bword\b`, `\Ba`, `(`, `[`, `a{1001}`, `(?<n>a)\k<n>`, `\`, `\u12`, `\p{Nonsense}`,
		`\ud800`, strings.Repeat("a", maxPattern+1),
	} {
		if _, err := patternAutomaton(p); err == nil {
			t.Errorf("%.20q is taken", p)
		}
	}
	for _, p := range []string{
		`(a|b)*a(a|b){20}`, `(.*a){30}.{30}`, `((a{1,30}){1,30})`, `^(\w{1,100}\d{1,100}){1,5}$`, strings.Repeat("(a?", 500) + strings.Repeat(")*", 500),
		strings.Repeat("[a-z].*", 500),
	} {
		// They end soon, one way or the other.
		if d, err := patternAutomaton(p); err != nil && d != nil {
			t.Errorf("%.30q: %v, and an automaton", p, err)
		}
	}
}

// trimmed returns the automaton without arcs that lead to no text.
func trimmed(d *dfa) *dfa {
	live := slices.Clone(d.final)
	for changed := true; changed; {
		changed = false
		for s := range live {
			if !live[s] && slices.ContainsFunc(d.arcs[s], func(a arc) bool { return live[a.to] }) {
				live[s], changed = true, true
			}
		}
	}
	out := &dfa{arcs: make([][]arc, len(live)), final: d.final}
	for s, arcs := range d.arcs {
		for _, a := range arcs {
			if live[a.to] {
				out.arcs[s] = append(out.arcs[s], a)
			}
		}
	}
	return out
}

// sample writes a random text of a language whose automaton is trimmed.
func sample(d *dfa, r *rand.Rand) (string, bool) {
	var b strings.Builder
	s := 0
	for range 400 {
		if d.final[s] && (len(d.arcs[s]) == 0 || r.IntN(6) == 0) {
			return b.String(), true
		}
		a := d.arcs[s][r.IntN(len(d.arcs[s]))]
		c := a.lo + rune(r.IntN(int(min(a.hi-a.lo, 200)+1)))
		if 0xD800 <= c && c < 0xE000 {
			continue
		}
		b.WriteRune(c)
		s = a.to
	}
	return b.String(), d.final[s]
}

// TestFormats draws texts of every format and has package jsonschema check them.
func TestFormats(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for name, pattern := range formats {
		d, err := patternAutomaton(pattern)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		if err := c.AddResource("x.json", map[string]any{"format": name}); err != nil {
			t.Fatal(err)
		}
		s, err := c.Compile("x.json")
		if err != nil {
			t.Fatal(err)
		}
		d, n := trimmed(d), 0
		for range 3000 {
			text, ok := sample(d, r)
			if !ok {
				continue
			}
			n++
			if err := s.Validate(text); err != nil {
				t.Fatalf("%s: %q: %v", name, text, err)
			}
		}
		if n < 300 {
			t.Errorf("%s: only %d texts", name, n)
		}
	}
	for name, texts := range map[string][]string{
		"date":      {"2024-02-29", "1999-12-31", "2000-02-29", "0001-01-01"},
		"time":      {"12:00:00Z", "23:59:59.123+05:30"},
		"date-time": {"2025-06-30T08:15:00Z", "2024-02-29T23:59:59.999-08:00"},
		"duration":  {"P1D", "PT5M", "P1Y2M3DT4H5M6S", "P3W"},
		"uuid":      {"123e4567-e89b-12d3-a456-426614174000"},
		"ipv4":      {"127.0.0.1", "255.255.255.255"},
		"ipv6":      {"::", "::1", "2001:db8::ff00:42:8329", "1:2:3:4:5:6:7:8", "fe80::", "1:2:3:4:5:6:7::"},
		"hostname":  {"localhost", "a.example.com"},
		"email":     {"joe.doe@example.com", "a+b@x.org"},
	} {
		d, err := patternAutomaton(formats[name])
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			if !d.matches(text) {
				t.Errorf("%s refuses %s", name, text)
			}
		}
	}
	for _, no := range []string{"2023-02-29", "2023-04-31", "1900-02-29", "2023-13-01", "2023-1-1"} {
		d, _ := patternAutomaton(formats["date"])
		if d.matches(no) {
			t.Errorf("date takes %s", no)
		}
	}
}

// TestNumbers holds the automata of bounded numbers to comparing the numbers.
func TestNumbers(t *testing.T) {
	bounds := []string{"", "0", "1", "-1", "9", "10", "-10", "12", "99", "100", "0.5", "-0.5", "1.25", "-1.25", "10.05", "0.01", "123.456", "-100"}
	r := rand.New(rand.NewPCG(3, 3))
	for range 400 {
		s := numbers{whole: r.IntN(2) == 0}
		pick := func() bound {
			text := bounds[r.IntN(len(bounds))]
			d, _ := parseDecimal(text)
			return bound{d, r.IntN(2) == 0, text != ""}
		}
		s.min, s.max = pick(), pick()
		if r.IntN(3) == 0 {
			step, _ := parseDecimal([]string{"1", "2", "5", "0.5", "0.25", "0.01", "3", "100", "0.3"}[r.IntN(9)])
			s.multipleOf = []decimal{step}
		}
		d, enforced := s.automaton()
		if d == nil || !enforced {
			t.Fatalf("%+v: %v %v", s, d == nil, enforced)
		}
		for range 300 {
			text := randomNumber(r)
			if got, want := d.matches(text), s.allows(json.Number(text)) && s.divides(text) && !s.tooFine(text); got != want {
				t.Fatalf("%+v on %s: %v, want %v", s, text, got, want)
			}
		}
		for _, text := range []string{"", "-", "01", "1.", ".5", "1e5", "+1", "--1", "1.-", "00"} {
			if d.matches(text) {
				t.Fatalf("%+v takes %q", s, text)
			}
		}
	}
}

// divides checks multipleOf in hundredths of hundredths.
func (s *numbers) divides(text string) bool {
	if len(s.multipleOf) == 0 {
		return true
	}
	scale := func(d decimal) int {
		n, err := strconv.Atoi(d.integer + (d.fraction + "0000")[:4])
		if err != nil {
			panic(err)
		}
		return n
	}
	d, _ := parseDecimal(text)
	return len(d.fraction) <= 4 && scale(d)%scale(s.multipleOf[0]) == 0
}

// tooFine reports more digits after the point than the automaton writes: trailing zeros are never needed.
func (s *numbers) tooFine(text string) bool {
	_, places, _ := strings.Cut(text, ".")
	return s.whole && places != "" || len(s.multipleOf) > 0 && len(places) > len(s.multipleOf[0].fraction)
}

func randomNumber(r *rand.Rand) string {
	var b strings.Builder
	if r.IntN(3) == 0 {
		b.WriteByte('-')
	}
	if r.IntN(3) == 0 {
		b.WriteByte('0')
	} else {
		b.WriteByte(byte('1' + r.IntN(9)))
		for range r.IntN(3) {
			b.WriteByte("00125679"[r.IntN(8)])
		}
	}
	if n := r.IntN(4); n > 0 && r.IntN(2) == 0 {
		b.WriteByte('.')
		for range n {
			b.WriteByte("00125567"[r.IntN(8)])
		}
	}
	return b.String()
}

func TestDecimals(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "-0": "0", "-0.0": "0", "1e2": "100", "1.5e1": "15", "1.50": "1.5", "12e-3": "0.012", "-1.5e-1": "-0.15", "1.25e1": "12.5", "120e-1": "12",
	} {
		if d, ok := parseDecimal(text); !ok || d.String() != want {
			t.Errorf("%s is %s, want %s", text, d, want)
		}
	}
	for _, text := range []string{"1e999999999", "1e-401", strings.Repeat("1", 500)} {
		if _, ok := parseDecimal(text); ok {
			t.Errorf("%.20s is taken", text)
		}
	}
}
