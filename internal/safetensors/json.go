package safetensors

import (
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds the nesting of values that are skipped.
const maxDepth = 64

// maxInteger is the largest integer every JSON reader agrees on, 2^53 - 1.
const maxInteger = 1<<53 - 1

var errSyntax = errors.New("not valid JSON")

// A scanner reads JSON where encoding/json is too lenient: it sees every key of an object, equal ones too, and tells
// integers from other numbers.
type scanner struct {
	data []byte
	pos  int
}

func (s *scanner) errorf(format string, args ...any) error {
	return fmt.Errorf("at byte %d of its JSON: %w", s.pos, fmt.Errorf(format, args...))
}

// next skips white space and returns the byte after it, or 0 at the end.
func (s *scanner) next() byte {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expect(c byte) error {
	if got := s.next(); got != c || s.pos == len(s.data) {
		return s.errorf("%w: expected %q", errSyntax, c)
	}
	s.pos++
	return nil
}

// members calls f for each member of the object that follows, after its key and colon.
func (s *scanner) members(f func(key string) error) error {
	return s.list('{', '}', func() error {
		s.next()
		key, err := s.text()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		return f(key)
	})
}

// list calls f for each element between the brackets.
func (s *scanner) list(open, end byte, f func() error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	if s.next() == end {
		s.pos++
		return nil
	}
	for {
		if err := f(); err != nil {
			return err
		}
		if s.next() == end {
			s.pos++
			return nil
		}
		if err := s.expect(','); err != nil {
			return err
		}
	}
}

// integer reads a whole number from 0 to 2^53 - 1, written without a fraction or an exponent.
func (s *scanner) integer() (int64, error) {
	c := s.next()
	if c < '0' || c > '9' {
		return 0, s.errorf("expected an integer from 0 to %d", int64(maxInteger))
	}
	start, v := s.pos, int64(0)
	for ; s.pos < len(s.data); s.pos++ {
		d := s.data[s.pos]
		if d < '0' || d > '9' {
			if d == '.' || d == 'e' || d == 'E' {
				return 0, s.errorf("expected an integer from 0 to %d, not a fraction", int64(maxInteger))
			}
			break
		}
		if v = v*10 + int64(d-'0'); v > maxInteger {
			return 0, s.errorf("expected an integer from 0 to %d", int64(maxInteger))
		}
	}
	if c == '0' && s.pos > start+1 {
		return 0, s.errorf("%w: a number with a leading zero", errSyntax)
	}
	return v, nil
}

// text reads a string.
func (s *scanner) text() (string, error) {
	if s.pos >= len(s.data) || s.data[s.pos] != '"' {
		return "", s.errorf("expected a string")
	}
	s.pos++
	start := s.pos
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			b := s.data[start:s.pos]
			if !utf8.Valid(b) {
				return "", s.errorf("a string is not UTF-8")
			}
			s.pos++
			return string(b), nil
		case c == '\\':
			return s.escaped(start)
		case c < ' ':
			return "", s.errorf("%w: a control character in a string", errSyntax)
		}
		s.pos++
	}
	return "", s.errorf("%w: a string does not end", errSyntax)
}

// escaped reads the rest of a string that holds escapes.
func (s *scanner) escaped(start int) (string, error) {
	b := append([]byte(nil), s.data[start:s.pos]...)
	for s.pos < len(s.data) {
		c := s.data[s.pos]
		s.pos++
		switch {
		case c == '"':
			if !utf8.Valid(b) {
				return "", s.errorf("a string is not UTF-8")
			}
			return string(b), nil
		case c == '\\':
			r, err := s.escape()
			if err != nil {
				return "", err
			}
			b = utf8.AppendRune(b, r)
		case c < ' ':
			return "", s.errorf("%w: a control character in a string", errSyntax)
		default:
			b = append(b, c)
		}
	}
	return "", s.errorf("%w: a string does not end", errSyntax)
}

// escape reads what follows a backslash.
func (s *scanner) escape() (rune, error) {
	if s.pos == len(s.data) {
		return 0, s.errorf("%w: a string does not end", errSyntax)
	}
	c := s.data[s.pos]
	s.pos++
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		return s.unicode()
	}
	return 0, s.errorf("%w: an unknown escape", errSyntax)
}

// unicode reads four hexadecimal digits, and the pair they start where they are half of one.
func (s *scanner) unicode() (rune, error) {
	r, err := s.hex()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if s.pos+2 > len(s.data) || s.data[s.pos] != '\\' || s.data[s.pos+1] != 'u' {
		return 0, s.errorf("half a surrogate pair in a string")
	}
	s.pos += 2
	low, err := s.hex()
	if err != nil {
		return 0, err
	}
	if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
		return 0, s.errorf("half a surrogate pair in a string")
	}
	return r, nil
}

func (s *scanner) hex() (rune, error) {
	if s.pos+4 > len(s.data) {
		return 0, s.errorf("%w: a string does not end", errSyntax)
	}
	var r rune
	for _, c := range s.data[s.pos : s.pos+4] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, s.errorf("%w: an unknown escape", errSyntax)
		}
	}
	s.pos += 4
	return r, nil
}

// skip passes over a value of any kind.
func (s *scanner) skip(depth int) error {
	if depth > maxDepth {
		return s.errorf("values nested more than %d deep", maxDepth)
	}
	switch c := s.next(); {
	case c == '"':
		_, err := s.text()
		return err
	case c == '{':
		return s.members(func(string) error { return s.skip(depth + 1) })
	case c == '[':
		return s.list('[', ']', func() error { return s.skip(depth + 1) })
	case c == '-' || '0' <= c && c <= '9':
		s.run("+-.0123456789eE")
		return nil
	default:
		start := s.pos
		s.run("aeflnrstu")
		switch string(s.data[start:s.pos]) {
		case "true", "false", "null":
			return nil
		}
		return s.errorf("%w: expected a value", errSyntax)
	}
}

// run passes over the bytes of a set.
func (s *scanner) run(set string) {
	for s.pos < len(s.data) {
		i := 0
		for i < len(set) && set[i] != s.data[s.pos] {
			i++
		}
		if i == len(set) {
			return
		}
		s.pos++
	}
}
