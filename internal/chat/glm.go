package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"splash/internal/chat/ojson"
)

// The tags of GLM-4.7's calls, each a token:
//
//	<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>...</tool_call>
const (
	ArgKeyOpen    = "<arg_key>"
	ArgKeyClose   = "</arg_key>"
	ArgValueOpen  = "<arg_value>"
	ArgValueClose = "</arg_value>"
)

type glmState uint8

const (
	glmStart     glmState = iota // before the first token
	glmReasoning                 // up to </think>; calls in it are reasoning
	glmText                      // content
	glmUndecided                 // before an answer that is JSON or calls
	glmJSON
	glmName
	glmArguments // between pairs
	glmKey
	glmAfterKey
	glmValue
)

// glmReader reads FLINT output. Only tokens are tags: the same characters written as text are text.
//
// A pair is written once the call is complete, because a key that is given twice has its last value: an <arg_key>
// without a value, a value without a key and a second tag of one kind end the pair that is open, which is dropped.
type glmReader struct {
	*Parser
	state glmState
	name  []byte
	call  call

	pairs  []pair
	places map[string]int // of the keys in pairs
	key    []byte
	value  []byte
	keyed  bool // the value has a key
}

// A pair is a key and the JSON of its value.
type pair struct {
	key  string
	json []byte
}

func newGLMReader(p *Parser) *glmReader {
	g := &glmReader{Parser: p}
	if p.reasoning {
		g.state = glmReasoning
	}
	return g
}

func (g *glmReader) text(s string) {
	switch g.state {
	case glmStart:
		g.answer()
		g.text(s)
	case glmReasoning:
		g.emit(ReasoningDelta, s)
	case glmText:
		g.content(s)
	case glmUndecided:
		g.undecided(s)
	case glmJSON:
		g.emit(ContentDelta, g.afterThink(s))
	case glmName:
		g.name = append(g.name, s...)
		if len(g.name) > 2*utf8.UTFMax*MaxName {
			g.giveBack()
		}
	case glmKey:
		g.key = append(g.key, s...)
	case glmValue:
		g.value = append(g.value, s...)
	}
}

// answer leaves reasoning, or the start, for the answer.
func (g *glmReader) answer() {
	g.state = glmText
	if g.opt.Structured && g.opt.Tools.Len() > 0 {
		g.state = glmUndecided
	}
}

// undecided reads the text before an answer; the first visible character decides that it is JSON, since a call begins
// with a tag.
func (g *glmReader) undecided(s string) {
	s = g.afterThink(s)
	if trimBlank(s) == "" {
		g.space = append(g.space, s...)
		return
	}
	g.emit(ContentDelta, string(g.space))
	g.space = g.space[:0]
	g.state = glmJSON
	g.emit(ContentDelta, s)
}

func (g *glmReader) tag(tag string) {
	switch g.state {
	case glmStart:
		if tag == thinkOpen {
			g.state, g.reasoning = glmReasoning, true
			return
		}
		g.answer()
		g.tag(tag)
	case glmReasoning:
		if tag == thinkClose {
			g.endReasoning()
			g.answer()
			return
		}
		g.emit(ReasoningDelta, tag)
	case glmText, glmUndecided:
		g.contentTag(tag)
	case glmJSON:
		g.text(tag)
	default:
		g.callTag(tag)
	}
}

func (g *glmReader) contentTag(tag string) {
	switch {
	case tag == callOpen && g.calling():
		g.openCall()
	case tag == thinkClose && g.opt.Tools.Len() > 0: // dropped
	default:
		g.state = glmText
		g.content(tag)
	}
}

func (g *glmReader) openCall() {
	g.dropNewlines = false
	g.name = g.name[:0]
	g.pairs, g.places = nil, nil
	g.state = glmName
}

// callTag reads a tag inside a call.
func (g *glmReader) callTag(tag string) {
	if tag == thinkOpen || tag == thinkClose {
		g.text(tag)
		return
	}
	if g.state == glmName && !g.begun() {
		g.tag(tag)
		return
	}
	switch tag {
	case ArgKeyOpen:
		g.state, g.key = glmKey, g.key[:0]
	case ArgKeyClose:
		if g.state == glmKey {
			g.state = glmAfterKey
		} else {
			g.state = glmArguments
		}
	case ArgValueOpen:
		g.keyed = g.state == glmKey || g.state == glmAfterKey
		g.state, g.value = glmValue, g.value[:0]
	case ArgValueClose:
		g.commit()
	case callClose:
		g.closeCall()
	case callOpen:
		g.closeCall()
		g.openCall()
	}
}

// begun starts the call at the tag after its name. It returns false when the name is none and the call was given back.
func (g *glmReader) begun() bool {
	name := strings.TrimSpace(string(g.name))
	if strings.ContainsFunc(name, func(r rune) bool { return r == '<' || r == '>' || unicode.IsSpace(r) }) ||
		utf8.RuneCountInString(name) > MaxName {
		g.giveBack()
		return false
	}
	g.call = g.begin(name)
	g.state = glmArguments
	return true
}

// giveBack makes content of a call whose name is none.
func (g *glmReader) giveBack() {
	g.state = glmText
	g.content(callOpen)
	g.content(string(g.name))
}

// commit ends a value.
func (g *glmReader) commit() {
	state := g.state
	g.state = glmArguments
	key := g.keyText()
	if state != glmValue || !g.keyed || key == "" {
		return
	}
	json := appendArgument(nil, string(g.value), g.opt.Tools.parameter(g.call.tool, key))
	if i, ok := g.places[key]; ok {
		g.pairs[i].json = json
		return
	}
	if g.places == nil {
		g.places = map[string]int{}
	}
	g.places[key] = len(g.pairs)
	g.pairs = append(g.pairs, pair{key, json})
}

// writePairs writes the pairs that are complete.
func (g *glmReader) writePairs() {
	for _, p := range g.pairs {
		g.call.write(string(append(g.call.appendKey(nil, p.key), p.json...)))
	}
	g.pairs, g.places = nil, nil
}

func (g *glmReader) closeCall() {
	g.commit()
	g.writePairs()
	g.call.end()
	g.state = glmText
}

func (g *glmReader) finish(cut bool) {
	switch g.state {
	case glmUndecided:
		g.space = nil
	case glmName:
		g.finishName(cut)
	case glmArguments, glmKey, glmAfterKey, glmValue:
		if !cut {
			g.closeCall()
			return
		}
		_, repeated := g.places[g.keyText()]
		g.writePairs()
		if g.state == glmValue && g.keyed && !repeated {
			g.writeUnfinished()
		}
	}
}

func (g *glmReader) finishName(cut bool) {
	switch {
	case cut:
	case strings.TrimSpace(string(g.name)) == "":
		g.giveBack()
	case g.begun():
		g.closeCall()
	}
}

// writeUnfinished writes the beginning of a string that the token limit cut.
func (g *glmReader) writeUnfinished() {
	key := g.keyText()
	if key != "" && g.opt.Tools.parameter(g.call.tool, key) == typeString {
		b := append(g.call.appendKey(nil, key), '"')
		g.call.write(string(ojson.AppendEscaped(b, string(g.value))))
	}
}

func (g *glmReader) keyText() string { return strings.TrimSpace(string(g.key)) }
