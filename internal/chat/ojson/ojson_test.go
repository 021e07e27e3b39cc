package ojson

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestRoundTrip(t *testing.T) {
	for _, s := range []string{
		`null`, `true`, `false`, `0`, `-1.50e+3`, `123456789012345678901234567890`, `""`, `"é\"\\\n"`, `[]`, `{}`,
		`{"z":1,"a":{"y":[1,2,{"x":null}],"b":1e400},"m":"</script>&"}`, "\"\u2028\x7f😀\"",
		`{"1":0,"2":0,"3":0,"4":0,"5":0,"6":0,"7":0,"8":0,"9":0,"a":0,"b":0,"c":0,"d":0,"e":0,"0":0}`,
	} {
		v, err := Decode(s, Options{})
		if err != nil {
			t.Errorf("%s: %v", s, err)
			continue
		}
		if got, err := String(v, Compact); got != s || err != nil {
			t.Errorf("%s came back as %s, %v", s, got, err)
		}
	}
}

func TestDecode(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{" \t\r\n[ 1 , 2 ] ", `[1,2]`},
		{`{"a":1,"b":2,"a":3}`, `{"a":3,"b":2}`},
		{`"\u00e9\ud83d\ude00\/\b\f"`, `"é😀/\b\f"`},
		{`"\ud800"`, "\"\uFFFD\""},
		{`"\udc00x\ud800\u0041"`, "\"\uFFFDx\uFFFDA\""},
		{"\"\xff\"", "\"\uFFFD\""},
	} {
		v, err := Decode(c.in, Options{})
		got, _ := String(v, Compact)
		if err != nil || got != c.want {
			t.Errorf("%q: %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth)
	for _, c := range []struct {
		in   string
		want error // nil: plain wrong
	}{
		{``, ErrUnfinished}, {` `, ErrUnfinished}, {`{`, ErrUnfinished}, {`{"`, ErrUnfinished}, {`{"a`, ErrUnfinished},
		{`{"a"`, ErrUnfinished}, {`{"a":`, ErrUnfinished}, {`{"a":1`, ErrUnfinished}, {`{"a":1,`, ErrUnfinished},
		{`[`, ErrUnfinished}, {`[1,`, ErrUnfinished}, {`tru`, ErrUnfinished}, {`-`, ErrUnfinished}, {`1.`, ErrUnfinished},
		{`1e`, ErrUnfinished}, {`1e-`, ErrUnfinished}, {`"\`, ErrUnfinished}, {`"\u12`, ErrUnfinished},
		{`"\ud800`, ErrUnfinished}, {`"\ud800\`, ErrUnfinished}, {`"\ud800\udc`, ErrUnfinished}, {deep, ErrUnfinished},
		{deep + "[", ErrDepth},
		{`}`, nil}, {`{a:1}`, nil}, {`{"a" 1}`, nil}, {`{"a":1,}`, nil}, {`[1,]`, nil}, {`[,1]`, nil}, {`[1 2]`, nil},
		{`1 2`, nil}, {`01`, nil}, {`+1`, nil}, {`.5`, nil}, {`1.e3`, nil}, {`NaN`, nil}, {`Infinity`, nil}, {`True`, nil},
		{`'a'`, nil}, {"\"\n\"", nil}, {`"\x41"`, nil}, {`"\u12g4"`, nil}, {`{"a":1]`, nil}, {"\u00a01", nil},
	} {
		_, err := Decode(c.in, Options{})
		var e *SyntaxError
		if !errors.As(err, &e) || errors.Unwrap(err) != c.want {
			t.Errorf("%q: %v, want %v", c.in, err, c.want)
		}
	}
	if _, err := Decode(`"\ud800x"`, Options{RejectSurrogates: true}); !errors.Is(err, ErrSurrogate) {
		t.Errorf("a lone surrogate: %v, want ErrSurrogate", err)
	}
}

func TestStyles(t *testing.T) {
	v, err := Decode(`{"b":[1,{"d":[],"c":{}}],"a":"é😀"}`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		style Style
		want  string
	}{
		{Compact, `{"b":[1,{"d":[],"c":{}}],"a":"é😀"}`},
		{Spaced, `{"b": [1, {"d": [], "c": {}}], "a": "é😀"}`},
		{Style{ItemSep: ",", KeySep: ":", SortKeys: true, ASCII: true}, `{"a":"\u00e9\ud83d\ude00","b":[1,{"c":{},"d":[]}]}`},
		{Style{ItemSep: ",", KeySep: ": ", Indent: " "}, "{\n \"b\": [\n  1,\n  {\n   \"d\": [],\n   \"c\": {}\n  }\n ],\n \"a\": \"é😀\"\n}"},
	} {
		if got, err := String(v, c.style); got != c.want || err != nil {
			t.Errorf("%+v: %q, %v; want %q", c.style, got, err, c.want)
		}
	}
	if _, err := String(v, Style{MaxBytes: 3}); !errors.Is(err, ErrTooLong) {
		t.Errorf("beyond MaxBytes: %v", err)
	}
	for _, bad := range []any{math.NaN(), math.Inf(1), struct{}{}, []any{func() {}}} {
		if s, err := String(bad, Compact); err == nil {
			t.Errorf("%v encoded as %q", bad, s)
		}
	}
}

func TestFormatFloat(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0.0", 1: "1.0", -1.5: "-1.5", 1e15: "1000000000000000.0", 1e16: "1e+16", 0.0001: "0.0001", 0.00001: "1e-05",
		1e22: "1e+22", 1e100: "1e+100", 1.5e-7: "1.5e-07", 123456789.125: "123456789.125", 0.1: "0.1", math.MaxFloat64: "1.7976931348623157e+308",
		math.Copysign(0, -1): "-0.0", math.Inf(-1): "-inf",
	} {
		if got := FormatFloat(f); got != want {
			t.Errorf("%v: %s, want %s", f, got, want)
		}
	}
}

func TestCanonicalNumber(t *testing.T) {
	for in, want := range map[json.Number]string{
		"42": "42", "-0": "0", "1e3": "1000.0", "2.0": "2.0", "-0.50": "-0.5", "1E+16": "1e+16", "-0.0": "-0.0",
		"12345678901234567890": "12345678901234567890", "1e400": "", json.Number(strings.Repeat("9", 4300)): strings.Repeat("9", 4300),
		json.Number(strings.Repeat("9", 4301)): "",
	} {
		got, err := CanonicalNumber(in)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%.30s: %.30s, %v; want %.30s", in, got, err, want)
		}
	}
}

func TestObject(t *testing.T) {
	o := &Object{}
	for i := range 100 {
		o.Set(fmt.Sprint(i), i)
		o.Set(fmt.Sprint(i/2), -i)
	}
	if o.Len() != 100 {
		t.Fatalf("%d keys", o.Len())
	}
	i := 0
	for k, v := range o.All() {
		if k != fmt.Sprint(i) || i < 50 && v != -2*i-1 || i >= 50 && v != i {
			t.Errorf("place %d: %s = %v", i, k, v)
		}
		i++
	}
	if v, ok := o.Get("no"); ok || v != nil {
		t.Error("a key that was not set")
	}
	var back Object
	data, err := json.Marshal(o)
	if err != nil || json.Unmarshal(data, &back) != nil {
		t.Fatal(err)
	}
	if again, _ := back.MarshalJSON(); string(again) != string(data) {
		t.Error("encoding/json changed the object")
	}
}

// plain turns a value into what encoding/json makes of the same text.
func plain(v any) any {
	switch v := v.(type) {
	case []any:
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = plain(x)
		}
		return list
	case *Object:
		m := map[string]any{}
		for k, x := range v.All() {
			m[k] = plain(x)
		}
		return m
	}
	return v
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e-3,"x\u00e9\ud83d\ude00",null,true]}`, `"\ud800"`, `[[[`, `{"a":1,"a":2}`, "\"\xff\"", `-0`, ` 1 `} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := Decode(s, Options{MaxDepth: 1000})
		dec := json.NewDecoder(strings.NewReader(s))
		dec.UseNumber()
		var want any
		wantErr := dec.Decode(&want)
		if wantErr == nil && strings.Trim(s[dec.InputOffset():], " \t\r\n") != "" {
			wantErr = errors.New("more than one value")
		}
		if errors.Is(err, ErrDepth) {
			return
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v, encoding/json says %v", s, err, wantErr)
		}
		if err != nil {
			return
		}
		// encoding/json writes one U+FFFD a byte, and drops the sign of nothing; compare what is valid.
		if utf8.ValidString(s) && !reflect.DeepEqual(plain(v), want) {
			t.Fatalf("%q: %#v, encoding/json has %#v", s, plain(v), want)
		}
		text, err := String(v, Spaced)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(text, Options{MaxDepth: 1000})
		if err != nil || !reflect.DeepEqual(v, again) {
			t.Fatalf("%q came back as %q, %v", s, text, err)
		}
	})
}

// What is reported as unfinished can be finished: every prefix of a value is unfinished or whole.
func TestPrefixes(t *testing.T) {
	const s = `{"a": [1.5e-3, "x\u00e9\ud83d\ude00\n", null, true, {"b": -0}], "c": false}`
	for i := range len(s) {
		if _, err := Decode(s[:i], Options{}); !errors.Is(err, ErrUnfinished) {
			t.Errorf("%q: %v", s[:i], err)
		}
	}
}
