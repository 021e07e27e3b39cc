package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"splash/internal/chat/ojson"
)

// The marks of Qwen3-Coder's calls, beside the tokens around them:
//
//	<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n ... </function>\n</tool_call>
const (
	FunctionOpen   = "<function="
	FunctionClose  = "</function>"
	ParameterOpen  = "<parameter="
	ParameterClose = "\n</parameter>\n"
)

// MaxName is the most characters of the name of a function or parameter that is read.
const MaxName = 256

const (
	thinkOpen   = "<think>"
	thinkClose  = "</think>"
	callOpen    = "<tool_call>"
	callClose   = "</tool_call>"
	callOpening = callOpen + "\n" + FunctionOpen
)

// A mark is what stands at a place of the text.
type mark uint8

const (
	noMark      mark = iota
	partialMark      // the text ends in what may become a mark
	thinkMark
	openMark
	parameterMark
	functionEndMark
	callEndMark
)

type qwenState uint8

const (
	qwenText      qwenState = iota // reasoning or content
	qwenUndecided                  // before an answer that is JSON or calls
	qwenJSON
	qwenArguments
	qwenValue
	qwenClosing // after </function>
)

// qwenReader reads QWEN output. Text is scanned once: what is held at the end of a piece is the beginning of a mark,
// whose length is bounded.
type qwenReader struct {
	*Parser
	state qwenState
	held  []byte
	call  call

	keys      map[string]bool
	key       string
	declared  types
	skip      bool   // the value is not kept
	streaming bool   // the value is a string, passed on as it arrives
	begun     bool   // the value's first newline, if any, is behind
	value     []byte // of a value that is not streamed
	scratch   []byte
}

func newQwenReader(p *Parser) *qwenReader {
	q := &qwenReader{Parser: p}
	if !p.reasoning {
		q.decide()
	}
	return q
}

func (q *qwenReader) tag(s string) { q.text(s) }

func (q *qwenReader) text(s string) {
	if len(q.held) > 0 {
		s = string(append(q.held, s...))
		q.held = q.held[:0]
	}
	for s != "" {
		n, more := q.step(s)
		s = s[n:]
		if !more {
			break
		}
	}
	q.held = append(q.held, s...)
}

// step reads from the beginning of s and returns how much. It returns false when the rest is the beginning of a mark.
func (q *qwenReader) step(s string) (n int, more bool) {
	switch q.state {
	case qwenUndecided:
		return q.stepUndecided(s), true
	case qwenJSON:
		q.raw(q.afterThink(s))
		return len(s), true
	case qwenValue:
		return q.stepValue(s)
	case qwenClosing:
		return q.stepClosing(s)
	}
	at, m, length := q.find(s)
	q.pass(s[:at])
	switch m {
	case noMark:
		return at, true
	case partialMark:
		return at, false
	}
	q.take(m, s[at:at+length])
	return at + length, true
}

// pass handles text between marks.
func (q *qwenReader) pass(s string) {
	switch {
	case q.state == qwenArguments: // only marks count here
	case q.reasoning:
		q.emit(ReasoningDelta, s)
	default:
		q.content(s)
	}
}

// find returns the first mark of s that counts in this state, or where s ends.
func (q *qwenReader) find(s string) (at int, m mark, length int) {
	if q.state == qwenText && !q.reasoning && q.opt.Tools.Len() == 0 {
		return len(s), noMark, 0
	}
	for at = 0; ; at++ {
		k := strings.IndexByte(s[at:], '<')
		if k < 0 {
			return len(s), noMark, 0
		}
		at += k
		if m, length = q.markAt(s[at:]); m != noMark {
			return at, m, length
		}
	}
}

// markAt returns the mark that s begins with, of those that count in this state.
func (q *qwenReader) markAt(s string) (mark, int) {
	if q.state == qwenArguments {
		return firstMark(s, parameterMark, functionEndMark, callEndMark)
	}
	if q.calling() {
		return firstMark(s, thinkMark, openMark)
	}
	return firstMark(s, thinkMark)
}

// firstMark returns which of the marks s begins with; it may be the beginning of several.
func firstMark(s string, marks ...mark) (mark, int) {
	partial := noMark
	for _, m := range marks {
		switch n, ok := beginsWith(s, m); {
		case n > 0:
			return m, n
		case ok:
			partial = partialMark
		}
	}
	return partial, 0
}

// beginsWith returns the length of the mark at the beginning of s. Without one, it reports whether s may become one.
func beginsWith(s string, m mark) (n int, partial bool) {
	switch m {
	case thinkMark:
		return literal(s, thinkClose)
	case functionEndMark:
		return literal(s, FunctionClose)
	case callEndMark:
		return literal(s, callClose)
	case openMark:
		return named(s, callOpening)
	}
	return named(s, ParameterOpen)
}

func literal(s, text string) (int, bool) {
	if strings.HasPrefix(s, text) {
		return len(text), false
	}
	return 0, strings.HasPrefix(text, s)
}

// named matches a mark of the form prefix NAME ">".
func named(s, prefix string) (int, bool) {
	n, partial := literal(s, prefix)
	if n == 0 {
		return 0, partial
	}
	length, partial := nameEnd(s[n:])
	if length == 0 {
		return 0, partial
	}
	return n + length, false
}

// nameEnd returns the length of a name and its ">" at the beginning of s. White space around a name does not belong to
// it; one that holds white space, "<" or ">", or more than 256 characters, is none.
func nameEnd(s string) (int, bool) {
	const before, inside, after = 0, 1, 2
	state, chars := before, 0
	for i, r := range s[:wholeRunes(s)] {
		blank := r < utf8.RuneSelf && isBlank(byte(r))
		switch {
		case r == '>':
			return i + 1, false
		case r == '<', !blank && (unicode.IsSpace(r) || state == after):
			return 0, false
		case blank && state == inside:
			state = after
		case !blank:
			state = inside
		}
		if chars++; chars > MaxName {
			return 0, false
		}
	}
	return 0, true
}

// wholeRunes returns the length of s without the character that a piece may have cut at its end.
func wholeRunes(s string) int {
	for i := len(s) - 1; i >= 0 && i >= len(s)-utf8.UTFMax; i-- {
		if utf8.RuneStart(s[i]) {
			if !utf8.FullRuneInString(s[i:]) {
				return i
			}
			break
		}
	}
	return len(s)
}

// take handles a mark, whose text is s.
func (q *qwenReader) take(m mark, s string) {
	switch m {
	case thinkMark:
		if q.reasoning {
			q.endReasoning()
			q.decide()
		}
	case openMark:
		q.reasoning = false
		q.open(markName(s, callOpening))
	case parameterMark:
		q.parameter(markName(s, ParameterOpen))
	case functionEndMark:
		q.call.end()
		q.state = qwenClosing
	case callEndMark:
		q.call.end()
		q.state = qwenText
	}
}

func markName(s, prefix string) string {
	return strings.TrimFunc(strings.TrimSuffix(s[len(prefix):], ">"), func(r rune) bool {
		return r < utf8.RuneSelf && isBlank(byte(r))
	})
}

// decide leaves reasoning for the answer.
func (q *qwenReader) decide() {
	if q.opt.Structured && q.opt.Tools.Len() > 0 {
		q.state = qwenUndecided
	}
}

func (q *qwenReader) stepUndecided(s string) int {
	s0 := s
	s = q.afterThink(s)
	text := trimBlank(s)
	q.space = append(q.space, s[:len(s)-len(text)]...)
	if text == "" {
		return len(s0)
	}
	if text[0] == '<' {
		q.space = q.space[:0]
		q.state = qwenText
	} else {
		q.raw(string(q.space))
		q.space = q.space[:0]
		q.state = qwenJSON
	}
	return len(s0) - len(text)
}

// raw passes content on as it is.
func (q *qwenReader) raw(s string) { q.emit(ContentDelta, s) }

func (q *qwenReader) open(tool string) {
	q.dropNewlines = false
	q.call = q.begin(tool)
	q.keys = nil
	q.state = qwenArguments
}

func (q *qwenReader) parameter(key string) {
	q.key = key
	q.skip = key == "" || q.call.dropped || q.keys[key]
	q.begun = false
	q.value = q.value[:0]
	q.streaming = false
	q.state = qwenValue
	if q.skip {
		return
	}
	if q.keys == nil {
		q.keys = map[string]bool{}
	}
	q.keys[key] = true
	q.declared = q.opt.Tools.parameter(q.call.tool, key)
	if q.streaming = q.declared == typeString; q.streaming {
		q.scratch = append(q.call.appendKey(q.scratch[:0], key), '"')
		q.call.write(string(q.scratch))
	}
}

// stepValue reads a value up to the mark that ends it.
func (q *qwenReader) stepValue(s string) (int, bool) {
	for at := 0; ; at++ {
		k := strings.IndexByte(s[at:], '\n')
		if k < 0 {
			q.addValue(s)
			return len(s), true
		}
		at += k
		switch n, partial := valueEnd(s[at:]); {
		case n > 0:
			q.addValue(s[:at])
			q.endValue()
			return at + n, true
		case partial:
			q.addValue(s[:at])
			return at, false
		}
	}
}

// valueEnd returns the length of the mark that ends a value. It ends one only where a mark that may follow it does, so
// that a value may hold it.
func valueEnd(s string) (int, bool) {
	n, partial := literal(s, ParameterClose)
	if n == 0 {
		return 0, partial
	}
	if n == len(s) {
		return 0, true
	}
	switch m, _ := firstMark(s[n:], parameterMark, functionEndMark, callEndMark); m {
	case noMark:
		return 0, false
	case partialMark:
		return 0, true
	}
	return n, false
}

// addValue goes on with a value, whose first newline is the layout's.
func (q *qwenReader) addValue(s string) {
	if s == "" || q.skip {
		return
	}
	if !q.begun {
		q.begun = true
		s = strings.TrimPrefix(s, "\n")
	}
	switch {
	case !q.streaming:
		q.value = append(q.value, s...)
	case ojson.Plain(s):
		q.call.write(s)
	default:
		q.scratch = ojson.AppendEscaped(q.scratch[:0], s)
		q.call.write(string(q.scratch))
	}
}

func (q *qwenReader) endValue() {
	q.state = qwenArguments
	switch {
	case q.skip:
	case q.streaming:
		q.call.write(`"`)
	default:
		q.scratch = q.call.appendKey(q.scratch[:0], q.key)
		q.scratch = appendArgument(q.scratch, string(q.value), q.declared)
		q.call.write(string(q.scratch))
	}
}

// stepClosing looks for </tool_call> after </function>.
func (q *qwenReader) stepClosing(s string) (int, bool) {
	rest := trimBlank(s)
	blanks := len(s) - len(rest)
	q.space = append(q.space, s[:blanks]...)
	if rest == "" {
		return blanks, true
	}
	n, partial := literal(rest, callClose)
	switch {
	case n > 0:
		q.space = q.space[:0]
	case partial:
		return blanks, false
	case !q.seenText:
		q.space = q.space[:0] // before the first text
	}
	q.state = qwenText
	return blanks + n, true
}

func (q *qwenReader) finish(cut bool) {
	s := string(q.held)
	q.held = nil
	switch q.state {
	case qwenText:
		q.finishText(s, cut)
	case qwenUndecided:
		q.space = nil
	case qwenValue:
		q.finishValue(s, cut)
	case qwenArguments:
		if !cut {
			q.call.end()
		}
	}
}

// finishText ends reasoning or content that ends in s, the beginning of a mark.
func (q *qwenReader) finishText(s string, cut bool) {
	rest, opening := strings.CutPrefix(s, callOpening)
	name := markName(callOpening+rest, callOpening)
	switch {
	case opening && cut:
	case opening && name != "":
		q.reasoning = false
		q.open(name)
		q.call.end()
	case q.reasoning || !cut:
		q.pass(s)
	}
}

func (q *qwenReader) finishValue(s string, cut bool) {
	if cut {
		return
	}
	if !strings.HasPrefix(s, strings.TrimSuffix(ParameterClose, "\n")) {
		q.addValue(s)
	}
	q.endValue()
	q.call.end()
}
