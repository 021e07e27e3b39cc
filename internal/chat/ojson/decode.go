package ojson

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is the nesting of arrays and objects that Decode takes unless told otherwise.
const MaxDepth = 128

// Errors that a SyntaxError wraps where there is more to know than that the text is not JSON.
var (
	// ErrUnfinished says that the text ended, and that what there is of it could go on to be JSON.
	ErrUnfinished = errors.New("the text ends before the value does")
	// ErrDepth says that arrays and objects nest too deeply.
	ErrDepth = errors.New("arrays and objects nest too deeply")
	// ErrSurrogate says that a string escapes half of a surrogate pair.
	ErrSurrogate = errors.New("a string holds a lone surrogate")
)

// A SyntaxError says where a text stops being JSON.
type SyntaxError struct {
	Offset int    // bytes from the start of the text
	Msg    string // what is wrong there
	err    error
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at byte %d: %s", e.Offset, e.Msg)
}

// Unwrap returns ErrUnfinished, ErrDepth, ErrSurrogate or nil.
func (e *SyntaxError) Unwrap() error { return e.err }

// Options are the limits of Decode.
type Options struct {
	MaxDepth         int  // levels of arrays and objects; 0 is MaxDepth
	RejectSurrogates bool // refuse \ud800 without its pair, which otherwise reads as U+FFFD
}

// Decode reads one JSON value (RFC 8259) and nothing after it but white space. Strings of the result may share the
// memory of text. A key that an object repeats keeps its first place and its last value. Bytes that are not UTF-8 read
// as U+FFFD. Errors are *SyntaxError.
func Decode(text string, opt Options) (any, error) {
	if opt.MaxDepth == 0 {
		opt.MaxDepth = MaxDepth
	}
	d := decoder{s: text, opt: opt}
	d.space()
	v, err := d.value(0)
	if err != nil {
		return nil, err
	}
	d.space()
	if d.i < len(d.s) {
		return nil, d.unexpected("after the value")
	}
	return v, nil
}

type decoder struct {
	s   string
	i   int
	opt Options
}

func (d *decoder) space() {
	for d.i < len(d.s) {
		switch d.s[d.i] {
		case ' ', '\t', '\n', '\r':
			d.i++
		default:
			return
		}
	}
}

func (d *decoder) fail(err error, msg string) error {
	return &SyntaxError{Offset: d.i, Msg: msg, err: err}
}

// unexpected reports the character here, or that the text ends here.
func (d *decoder) unexpected(where string) error {
	if d.i >= len(d.s) {
		return d.fail(ErrUnfinished, ErrUnfinished.Error())
	}
	r, _ := utf8.DecodeRuneInString(d.s[d.i:])
	return d.fail(nil, fmt.Sprintf("unexpected %q %s", r, where))
}

func (d *decoder) value(depth int) (any, error) {
	if d.i >= len(d.s) {
		return nil, d.unexpected("")
	}
	switch c := d.s[d.i]; {
	case c == '{' || c == '[':
		if depth >= d.opt.MaxDepth {
			return nil, d.fail(ErrDepth, fmt.Sprintf("more than %d levels of arrays and objects", d.opt.MaxDepth))
		}
		d.i++
		if c == '{' {
			return d.object(depth + 1)
		}
		return d.array(depth + 1)
	case c == '"':
		return d.str()
	case c == 't':
		return true, d.word("true")
	case c == 'f':
		return false, d.word("false")
	case c == 'n':
		return nil, d.word("null")
	case c == '-' || '0' <= c && c <= '9':
		return d.number()
	}
	return nil, d.unexpected("where a value should begin")
}

func (d *decoder) object(depth int) (any, error) {
	o := &Object{}
	for first := true; ; first = false {
		d.space()
		if first && d.accept('}') {
			return o, nil
		}
		if d.i >= len(d.s) || d.s[d.i] != '"' {
			return nil, d.unexpected("where a key should begin")
		}
		key, err := d.str()
		if err != nil {
			return nil, err
		}
		d.space()
		if !d.accept(':') {
			return nil, d.unexpected("after a key")
		}
		d.space()
		v, err := d.value(depth)
		if err != nil {
			return nil, err
		}
		o.Set(key, v)
		d.space()
		if d.accept('}') {
			return o, nil
		}
		if !d.accept(',') {
			return nil, d.unexpected("after a value of an object")
		}
	}
}

func (d *decoder) array(depth int) (any, error) {
	list := []any{}
	for {
		d.space()
		if len(list) == 0 && d.accept(']') {
			return list, nil
		}
		v, err := d.value(depth)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		d.space()
		if d.accept(']') {
			return list, nil
		}
		if !d.accept(',') {
			return nil, d.unexpected("after a value of an array")
		}
	}
}

func (d *decoder) accept(c byte) bool {
	if d.i < len(d.s) && d.s[d.i] == c {
		d.i++
		return true
	}
	return false
}

func (d *decoder) word(w string) error {
	for i := range len(w) {
		if !d.accept(w[i]) {
			return d.unexpected("in " + w)
		}
	}
	return nil
}

func (d *decoder) number() (any, error) {
	start := d.i
	d.accept('-')
	if !d.accept('0') {
		if err := d.digits(); err != nil {
			return nil, err
		}
	}
	if d.accept('.') {
		if err := d.digits(); err != nil {
			return nil, err
		}
	}
	if d.accept('e') || d.accept('E') {
		if !d.accept('+') {
			d.accept('-')
		}
		if err := d.digits(); err != nil {
			return nil, err
		}
	}
	return json.Number(d.s[start:d.i]), nil
}

func (d *decoder) digits() error {
	start := d.i
	for d.i < len(d.s) && '0' <= d.s[d.i] && d.s[d.i] <= '9' {
		d.i++
	}
	if d.i == start {
		return d.unexpected("in a number")
	}
	return nil
}

// str reads a string at its opening quote. One without escapes shares the text's memory.
func (d *decoder) str() (string, error) {
	d.i++
	start := d.i
	for d.i < len(d.s) {
		switch c := d.s[d.i]; {
		case c == '"':
			s := d.s[start:d.i]
			d.i++
			return strings.ToValidUTF8(s, "\uFFFD"), nil
		case c == '\\':
			return d.escaped(start)
		case c < ' ':
			return "", d.unexpected("in a string")
		}
		d.i++
	}
	return "", d.unexpected("")
}

// escaped goes on with a string that began at start and has its first backslash here.
func (d *decoder) escaped(start int) (string, error) {
	b := []byte(d.s[start:d.i])
	for d.i < len(d.s) {
		c := d.s[d.i]
		switch {
		case c == '"':
			d.i++
			return strings.ToValidUTF8(string(b), "\uFFFD"), nil
		case c < ' ':
			return "", d.unexpected("in a string")
		case c != '\\':
			b = append(b, c)
			d.i++
			continue
		}
		d.i++
		if d.i >= len(d.s) {
			break
		}
		if c = d.s[d.i]; c == 'u' {
			r, err := d.unicodeEscape()
			if err != nil {
				return "", err
			}
			b = utf8.AppendRune(b, r)
			continue
		}
		k := strings.IndexByte(`"\/bfnrt`, c)
		if k < 0 {
			return "", d.unexpected("after a backslash")
		}
		b = append(b, "\"\\/\b\f\n\r\t"[k])
		d.i++
	}
	return "", d.unexpected("")
}

// unicodeEscape reads uXXXX, and the second half that must follow the first half of a surrogate pair.
func (d *decoder) unicodeEscape() (rune, error) {
	r, err := d.hex4()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	at := d.i
	if r < 0xDC00 && strings.HasPrefix(d.s[d.i:], `\u`) {
		d.i++
		low, err := d.hex4()
		if err != nil {
			return 0, err
		}
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, nil
		}
	}
	d.i = at
	// A text that ends here may have been cut between the halves.
	if r < 0xDC00 && (at == len(d.s) || d.s[at:] == `\`) {
		return 0, d.fail(ErrUnfinished, ErrUnfinished.Error())
	}
	if d.opt.RejectSurrogates {
		return 0, d.fail(ErrSurrogate, ErrSurrogate.Error())
	}
	return utf8.RuneError, nil
}

func (d *decoder) hex4() (rune, error) {
	d.i++
	var r rune
	for range 4 {
		if d.i >= len(d.s) {
			return 0, d.unexpected("")
		}
		k := strings.IndexByte("0123456789abcdef", d.s[d.i]|0x20)
		if k < 0 || d.s[d.i] < '0' {
			return 0, d.unexpected("in an escape")
		}
		r = r<<4 | rune(k)
		d.i++
	}
	return r, nil
}
