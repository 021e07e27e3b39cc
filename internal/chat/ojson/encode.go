package ojson

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Style is the spelling of JSON that Append writes.
type Style struct {
	ItemSep, KeySep string // between two items, and between a key and its value
	Indent          string // one level of indentation; empty writes one line. Lines break after ItemSep
	Lines           bool   // break lines even where Indent is empty
	SortKeys        bool   // by code point
	ASCII           bool   // escape what is not ASCII, as \uXXXX
	CanonicalNumber bool   // spell numbers as Python does after reading them, instead of as they were given
	MaxBytes        int    // fail beyond that many bytes; 0 does not limit

	// Other turns a value that is not JSON into one that is. Nil refuses all of them.
	Other func(any) (any, bool)
}

// The two spellings that the server writes.
var (
	// Compact is JSON without spaces.
	Compact = Style{ItemSep: ",", KeySep: ":"}
	// Spaced is how Python's json module writes by default, and so how chat templates write tools.
	Spaced = Style{ItemSep: ", ", KeySep: ": "}
)

// encodeDepth bounds the nesting of what Append writes; what Decode reads is far shallower.
const encodeDepth = 512

// ErrTooLong says that the JSON is longer than Style.MaxBytes.
var ErrTooLong = errors.New("the JSON is too long")

// Append appends the JSON of v to dst. Strings escape the quote, the backslash and control characters alone.
// It fails on values that JSON does not have, such as NaN.
func Append(dst []byte, v any, style Style) ([]byte, error) {
	e := encoder{Style: style, dst: dst, base: len(dst)}
	if err := e.value(v, 0); err != nil {
		return dst, err
	}
	return e.dst, nil
}

// String returns the JSON of v, which must be a JSON value.
func String(v any, style Style) (string, error) {
	b, err := Append(nil, v, style)
	return string(b), err
}

type encoder struct {
	Style
	dst  []byte
	base int
}

func (e *encoder) value(v any, depth int) error {
	if e.MaxBytes > 0 && len(e.dst)-e.base > e.MaxBytes {
		return ErrTooLong
	}
	if depth > encodeDepth {
		return ErrDepth
	}
	switch v := v.(type) {
	case nil:
		e.dst = append(e.dst, "null"...)
	case bool:
		e.dst = strconv.AppendBool(e.dst, v)
	case string:
		e.dst = AppendString(e.dst, v, e.ASCII)
	case json.Number:
		return e.number(v)
	case int:
		e.dst = strconv.AppendInt(e.dst, int64(v), 10)
	case int64:
		e.dst = strconv.AppendInt(e.dst, v, 10)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("JSON has no number %v", v)
		}
		e.dst = append(e.dst, FormatFloat(v)...)
	case []any:
		return e.array(v, depth)
	case *Object:
		return e.object(v, depth)
	default:
		if e.Other != nil {
			if w, ok := e.Other(v); ok {
				return e.value(w, depth+1)
			}
		}
		return fmt.Errorf("%T is not a JSON value", v)
	}
	return nil
}

func (e *encoder) number(n json.Number) error {
	if !e.CanonicalNumber {
		e.dst = append(e.dst, n...)
		return nil
	}
	s, err := CanonicalNumber(n)
	e.dst = append(e.dst, s...)
	return err
}

func (e *encoder) array(list []any, depth int) error {
	if len(list) == 0 {
		e.dst = append(e.dst, "[]"...)
		return nil
	}
	e.dst = append(e.dst, '[')
	for i, v := range list {
		e.separate(i, depth+1)
		if err := e.value(v, depth+1); err != nil {
			return err
		}
	}
	e.line(depth)
	e.dst = append(e.dst, ']')
	return nil
}

func (e *encoder) object(o *Object, depth int) error {
	if o.Len() == 0 {
		e.dst = append(e.dst, "{}"...)
		return nil
	}
	keys := o.keys
	if e.SortKeys {
		keys = slices.Sorted(slices.Values(keys))
	}
	e.dst = append(e.dst, '{')
	for i, k := range keys {
		e.separate(i, depth+1)
		e.dst = AppendString(e.dst, k, e.ASCII)
		e.dst = append(e.dst, e.KeySep...)
		v := o.vals[i]
		if e.SortKeys {
			v = o.Value(k)
		}
		if err := e.value(v, depth+1); err != nil {
			return err
		}
	}
	e.line(depth)
	e.dst = append(e.dst, '}')
	return nil
}

func (e *encoder) separate(i, depth int) {
	if i > 0 {
		e.dst = append(e.dst, e.ItemSep...)
	}
	e.line(depth)
}

func (e *encoder) line(depth int) {
	if !e.Lines && e.Indent == "" {
		return
	}
	e.dst = append(e.dst, '\n')
	for range depth {
		e.dst = append(e.dst, e.Indent...)
	}
}

// AppendString appends s as a JSON string with its quotes.
func AppendString(dst []byte, s string, ascii bool) []byte {
	dst = append(dst, '"')
	if ascii {
		dst = appendASCII(dst, s)
	} else {
		dst = AppendEscaped(dst, s)
	}
	return append(dst, '"')
}

// Plain reports whether s stands in a JSON string as it is.
func Plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// AppendEscaped appends s as it stands between the quotes of a JSON string. Pieces of a text may be escaped one by one.
func AppendEscaped(dst []byte, s string) []byte {
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		dst = appendEscape(dst, c)
		start = i + 1
	}
	return append(dst, s[start:]...)
}

const hexDigits = "0123456789abcdef"

func appendEscape(dst []byte, c byte) []byte {
	if k := strings.IndexByte("\"\\\b\f\n\r\t", c); k >= 0 {
		return append(dst, '\\', `"\bfnrt`[k])
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

func appendASCII(dst []byte, s string) []byte {
	for _, r := range s {
		switch {
		case r < utf8.RuneSelf:
			dst = AppendEscaped(dst, string(r))
		case r > 0xFFFF:
			r -= 0x10000
			dst = appendUnit(appendUnit(dst, 0xD800+r>>10), 0xDC00+r&0x3FF)
		default:
			dst = appendUnit(dst, r)
		}
	}
	return dst
}

func appendUnit(dst []byte, u rune) []byte {
	return append(dst, '\\', 'u', hexDigits[u>>12&15], hexDigits[u>>8&15], hexDigits[u>>4&15], hexDigits[u&15])
}

// FormatFloat spells f as Python's repr does: the shortest digits that read back as f, with an exponent below 1e-4 and
// from 1e16, and with ".0" where there would be neither point nor exponent.
func FormatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return map[bool]string{true: "inf", false: "-inf"}[f > 0]
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	exp, _ := strconv.Atoi(s[strings.IndexByte(s, 'e')+1:])
	if exp < -4 || exp >= 16 {
		return s
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// maxDigits is the length of an integer above which Python refuses to read one from text.
const maxDigits = 4300

// IsInteger reports whether the number is written without a point or an exponent.
func IsInteger(n json.Number) bool { return !strings.ContainsAny(string(n), ".eE") }

// CanonicalNumber spells n as Python's json module does after reading it: integers as they are, others as the nearest
// float64. It fails where that is infinite, and on integers of more than 4300 digits.
func CanonicalNumber(n json.Number) (string, error) {
	if IsInteger(n) {
		if len(strings.TrimPrefix(string(n), "-")) > maxDigits {
			return "", fmt.Errorf("an integer of more than %d digits", maxDigits)
		}
		if n == "-0" {
			return "0", nil
		}
		return string(n), nil
	}
	f, err := n.Float64()
	if err != nil {
		return "", fmt.Errorf("number %.40s has no float64", n)
	}
	return FormatFloat(f), nil
}
