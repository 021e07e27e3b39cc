package jinja

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokKind is the kind of a token.
type tokKind uint8

const (
	tokEOF tokKind = iota
	tokData
	tokVarBegin
	tokVarEnd
	tokBlockBegin
	tokBlockEnd
	tokName
	tokString
	tokInt
	tokFloat
	tokOp
)

// A token is a piece of a template. Its text is the data, the name, the operator, the digits or the string's value.
type token struct {
	kind tokKind
	text string
	pos  int // byte offset of its first byte
	end  int // byte offset after its last; a tag's end stands before the white space that the tag strips
	line int
}

// Limits of a template's source. Published chat templates are below 32 KiB, their longest tag below 300 tokens.
const (
	maxSource    = 1 << 20 // bytes
	maxTagTokens = 10_000  // tokens of one tag, which bounds the height of an expression
)

// normalize makes every line end a line feed and drops one at the end, as Jinja does before lexing.
func normalize(src string) string {
	if strings.Contains(src, "\r") {
		src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	}
	return strings.TrimSuffix(src, "\n")
}

// isSpace is Python's str.isspace of one character.
func isSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

// lexer cuts a normalized source into tokens. It works as Jinja's does with trim_blocks and lstrip_blocks on.
type lexer struct {
	src       string
	i         int
	line      int
	counted   int  // lines are counted up to here
	lineStart bool // what was lexed last ended with a line feed
	toks      []token
}

func lex(src string) ([]token, error) {
	if len(src) > maxSource {
		return nil, &Error{Line: 1, Kind: KindSyntax, Msg: "the template is larger than 1 MiB"}
	}
	l := &lexer{src: src, line: 1, lineStart: true}
	for l.i < len(l.src) {
		if err := l.root(); err != nil {
			return nil, err
		}
	}
	l.add(tokEOF, "", len(src), len(src))
	return l.toks, nil
}

// lineAt returns the line of offset i, which never goes back.
func (l *lexer) lineAt(i int) int {
	if i > l.counted {
		l.line += strings.Count(l.src[l.counted:i], "\n")
		l.counted = i
	}
	return l.line
}

func (l *lexer) add(kind tokKind, text string, pos, end int) {
	l.toks = append(l.toks, token{kind: kind, text: text, pos: pos, end: end, line: l.lineAt(pos)})
}

func (l *lexer) fail(pos int, msg string) error {
	return &Error{Line: l.lineAt(pos), Kind: KindSyntax, Msg: msg}
}

// tagStart returns the offset of the next tag, the length of the source without one.
func (l *lexer) tagStart() int {
	for i := l.i; ; i++ {
		k := strings.IndexByte(l.src[i:], '{')
		if k < 0 || i+k+1 >= len(l.src) {
			return len(l.src)
		}
		i += k
		if c := l.src[i+1]; c == '{' || c == '%' || c == '#' {
			return i
		}
	}
}

// root lexes text up to a tag, and the tag.
func (l *lexer) root() error {
	at := l.tagStart()
	text := l.src[l.i:at]
	if at == len(l.src) {
		l.data(text)
		l.i = at
		return nil
	}
	sign := l.sign(at + 2)
	l.data(l.strip(text, sign, l.src[at+1] == '{'))
	l.i = at + 2
	if sign != 0 {
		l.i++
	}
	switch l.src[at+1] {
	case '#':
		return l.comment(at)
	case '{':
		return l.tag(at, tokVarBegin, tokVarEnd, "}}")
	}
	if end, ok := l.rawBegin(l.i); ok {
		l.i = end
		return l.raw(at)
	}
	return l.tag(at, tokBlockBegin, tokBlockEnd, "%}")
}

// sign returns the white space control at i: '-', '+' or 0.
func (l *lexer) sign(i int) byte {
	if i < len(l.src) && (l.src[i] == '-' || l.src[i] == '+') {
		return l.src[i]
	}
	return 0
}

// strip takes from the end of text what the tag after it strips: all white space by '-'; by lstrip_blocks the blanks
// before a statement or comment that begins its line.
func (l *lexer) strip(text string, sign byte, output bool) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(text, isSpace)
	case sign == '+' || output:
		return text
	}
	from := strings.LastIndexByte(text, '\n') + 1
	if (from > 0 || l.lineStart) && strings.TrimLeftFunc(text[from:], isSpace) == "" {
		return text[:from]
	}
	return text
}

func (l *lexer) data(text string) {
	if text != "" {
		l.add(tokData, text, l.i, l.i+len(text))
	}
}

// finish moves behind a tag that ended at i with the given sign before its closing mark.
func (l *lexer) finish(i int, sign byte, trimNewline bool) {
	from := i
	switch {
	case sign == '-':
		i = len(l.src) - len(strings.TrimLeftFunc(l.src[i:], isSpace))
	case sign == 0 && trimNewline && i < len(l.src) && l.src[i] == '\n':
		i++
	}
	l.i = i
	l.lineStart = i > from && l.src[i-1] == '\n'
}

func (l *lexer) comment(at int) error {
	k := strings.Index(l.src[l.i:], "#}")
	if k < 0 {
		return l.fail(at, "missing end of comment tag")
	}
	sign := byte(0)
	if k > 0 {
		sign = l.sign(l.i + k - 1)
	}
	l.finish(l.i+k+2, sign, true)
	return nil
}

// rawBegin reports whether the block whose content starts at i is {% raw %}, and where the raw text begins.
func (l *lexer) rawBegin(i int) (int, bool) {
	rest := strings.TrimLeftFunc(l.src[i:], isSpace)
	rest, ok := strings.CutPrefix(rest, "raw")
	if !ok {
		return 0, false
	}
	rest = strings.TrimLeftFunc(rest, isSpace)
	if rest, ok := strings.CutPrefix(rest, "-%}"); ok {
		return len(l.src) - len(strings.TrimLeftFunc(rest, isSpace)), true
	}
	rest, ok = strings.CutPrefix(rest, "%}")
	return len(l.src) - len(rest), ok
}

// raw lexes the text of a raw block and its end tag.
func (l *lexer) raw(at int) error {
	l.lineStart = l.src[l.i-1] == '\n'
	for from := l.i; ; {
		k := strings.Index(l.src[from:], "{%")
		if k < 0 {
			return l.fail(at, "missing end of raw directive")
		}
		from += k
		sign := l.sign(from + 2)
		rest := l.src[from+2:]
		if sign != 0 {
			rest = rest[1:]
		}
		rest, ok := strings.CutPrefix(strings.TrimLeftFunc(rest, isSpace), "endraw")
		rest = strings.TrimLeftFunc(rest, isSpace)
		end := len(l.src) - len(rest)
		closing := l.sign(end)
		if closing != 0 {
			rest = rest[1:]
			end++
		}
		if !ok || !strings.HasPrefix(rest, "%}") {
			from += 2
			continue
		}
		l.data(l.strip(l.src[l.i:from], sign, false))
		l.finish(end+2, closing, true)
		return nil
	}
}

// tag lexes the inside of a tag, from l.i to its end.
func (l *lexer) tag(at int, begin, end tokKind, mark string) error {
	l.add(begin, l.src[at:l.i], at, l.i)
	var open []byte // the brackets that wait for their ends
	for n := 0; ; n++ {
		l.i = len(l.src) - len(strings.TrimLeftFunc(l.src[l.i:], isSpace))
		if l.i >= len(l.src) {
			return l.fail(at, "unexpected end of template in a tag")
		}
		if n > maxTagTokens {
			return l.fail(at, "a tag of more than 10000 tokens")
		}
		if len(open) == 0 && l.tagEnd(end, mark) {
			return nil
		}
		if err := l.inside(&open); err != nil {
			return err
		}
	}
}

// tagEnd lexes the end of a tag if it stands here. Output tags know no '+' before their end.
func (l *lexer) tagEnd(kind tokKind, mark string) bool {
	rest, sign := l.src[l.i:], l.sign(l.i)
	if sign == '+' && kind == tokVarEnd {
		sign = 0
	}
	if sign != 0 {
		rest = rest[1:]
	}
	if !strings.HasPrefix(rest, mark) {
		return false
	}
	end := len(l.src) - len(rest) + len(mark)
	l.add(kind, l.src[l.i:end], l.i, end)
	l.finish(end, sign, kind == tokBlockEnd)
	return true
}

var operators = []string{
	"//", "**", "==", "!=", ">=", "<=",
	"+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";",
}

// inside lexes one token of an expression.
func (l *lexer) inside(open *[]byte) error {
	rest := l.src[l.i:]
	c := rest[0]
	switch {
	case c == '\'' || c == '"':
		return l.str()
	case '0' <= c && c <= '9':
		return l.number()
	}
	if n := nameLen(rest); n > 0 {
		l.add(tokName, rest[:n], l.i, l.i+n)
		l.i += n
		return nil
	}
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			if err := l.balance(open, op[0]); err != nil {
				return err
			}
			l.add(tokOp, op, l.i, l.i+len(op))
			l.i += len(op)
			return nil
		}
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return l.fail(l.i, "unexpected character "+strconv.QuoteRune(r))
}

var closer = map[byte]byte{'(': ')', '[': ']', '{': '}'}

func (l *lexer) balance(open *[]byte, c byte) error {
	switch c {
	case '(', '[', '{':
		*open = append(*open, closer[c])
	case ')', ']', '}':
		n := len(*open) - 1
		if n < 0 || (*open)[n] != c {
			return l.fail(l.i, "unexpected "+strconv.QuoteRune(rune(c)))
		}
		*open = (*open)[:n]
	}
	return nil
}

func nameLen(s string) int {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return i
		}
	}
	return len(s)
}

// number lexes an integer or a float: 12, 1_000, 0x1f, 1.5, 1e3.
func (l *lexer) number() error {
	s := l.src[l.i:]
	n := 0
	if len(s) > 2 && s[0] == '0' && strings.IndexByte("xXoObB", s[1]) >= 0 {
		for n = 2; n < len(s) && (isHex(s[n]) || s[n] == '_'); n++ {
		}
		l.add(tokInt, s[:n], l.i, l.i+n)
		l.i += n
		return nil
	}
	digits := func(i int) int {
		for i < len(s) && ('0' <= s[i] && s[i] <= '9' || s[i] == '_' && i+1 < len(s) && isDigit(s[i+1]) && isDigit(s[i-1])) {
			i++
		}
		return i
	}
	kind := tokInt
	n = digits(0)
	// A digit after a point is an index: a.0.1
	if l.i > 0 && l.src[l.i-1] != '.' {
		if n+1 < len(s) && s[n] == '.' && isDigit(s[n+1]) {
			n, kind = digits(n+1), tokFloat
		}
		if e := n + 1; n < len(s) && s[n]|0x20 == 'e' {
			if e < len(s) && (s[e] == '+' || s[e] == '-') {
				e++
			}
			if e < len(s) && isDigit(s[e]) {
				n, kind = digits(e), tokFloat
			}
		}
	}
	l.add(kind, strings.ReplaceAll(s[:n], "_", ""), l.i, l.i+n)
	l.i += n
	return nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

// str lexes a string literal at its opening quote.
func (l *lexer) str() error {
	start := l.i
	for i := l.i + 1; i < len(l.src); i++ {
		switch l.src[i] {
		case '\\':
			i++
		case l.src[start]:
			text, ok := unescape(l.src[start+1 : i])
			if !ok {
				return l.fail(start, "invalid escape in a string")
			}
			l.add(tokString, text, start, i+1)
			l.i = i + 1
			return nil
		}
	}
	return l.fail(start, "a string without its end")
}

// unescape reads the escapes of a Python string literal. An unknown one stands for itself, backslash included.
func unescape(s string) (string, bool) {
	if !strings.Contains(s, `\`) {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		if i == len(s) {
			return "", false
		}
		c := s[i]
		switch k := strings.IndexByte(`\'"abfnrtv`, c); {
		case k >= 0:
			b.WriteByte("\\'\"\a\b\f\n\r\t\v"[k])
		case c == '\n':
		case '0' <= c && c <= '7':
			n, r := 0, rune(0)
			for ; n < 3 && i+n < len(s) && '0' <= s[i+n] && s[i+n] <= '7'; n++ {
				r = r<<3 | rune(s[i+n]-'0')
			}
			b.WriteRune(r)
			i += n - 1
		case c == 'x' || c == 'u' || c == 'U':
			n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			r, ok := hexRune(s[i+1:], n)
			if !ok {
				return "", false
			}
			b.WriteRune(r)
			i += n
		case c == 'N':
			return "", false // named characters
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String(), true
}

func hexRune(s string, n int) (rune, bool) {
	if len(s) < n {
		return 0, false
	}
	r := rune(0)
	for i := range n {
		if !isHex(s[i]) || r > unicode.MaxRune {
			return 0, false
		}
		d := s[i] | 0x20
		if d >= 'a' {
			d -= 'a' - 10
		} else {
			d -= '0'
		}
		r = r<<4 | rune(d)
	}
	return r, r <= unicode.MaxRune
}
