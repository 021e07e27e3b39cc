package chat

import (
	"strings"
	"unicode/utf8"

	"splash/internal/chat/ojson"
)

// EventKind is the kind of an event.
type EventKind uint8

// The kinds of events.
const (
	ReasoningDelta EventKind = iota // Text goes on with the reasoning
	ContentDelta                    // Text goes on with the content
	CallStart                       // call number Call of the answer begins; Text is the tool's name
	ArgumentsDelta                  // Text goes on with the JSON of call number Call's arguments
	CallEnd                         // the arguments of call number Call are complete
)

// An Event is a piece of what an output says.
type Event struct {
	Kind EventKind
	Call int // from 0
	Text string
}

// ParserOptions are what a request says about its answer.
type ParserOptions struct {
	// Thinking says that the answer begins inside a think block: Prompt.Thinking.
	Thinking bool
	// Tools are the tools offered, nil for none.
	Tools *ToolSet
	// NoCalls says that the answer may not call them: tool_choice none.
	NoCalls bool
	// Structured says that the answer may be JSON, of a response format, as well as calls.
	Structured bool
	// Stop are the request's stop strings, which end the output, reasoning included.
	Stop []string
}

// A Parser reads one output as it arrives, in pieces cut anywhere. The events joined are the same whatever the cuts.
// It is not safe for concurrent use.
//
// What an output says is never lost: a call that is not written as the format lays calls out is content.
type Parser struct {
	opt    ParserOptions
	format *Format
	reader reader
	events []Event
	stop   *StopScanner
	queue  []piece // what the stop scanner holds

	reasoning    bool   // what comes next is reasoning
	dropNewlines bool   // what comes next follows </think>
	seenText     bool   // content was passed on
	afterCall    bool   // no content since the last call
	space        []byte // white space since the last call
	calls        int    // calls begun
}

// A reader reads the text and tags of one call syntax.
type reader interface {
	text(s string)
	tag(s string)
	finish(cut bool)
}

// A piece is text, or a tag's token.
type piece struct {
	text string
	tag  bool
}

// NewParser returns a parser for one answer in the format.
func (f *Format) NewParser(opt ParserOptions) *Parser {
	p := &Parser{opt: opt, format: f, reasoning: opt.Thinking}
	if len(opt.Stop) > 0 {
		p.stop = NewStopScanner(opt.Stop)
	}
	p.reader = f.syntax(p)
	return p
}

// Feed reads the next text. The events are valid until the next call of a method.
func (p *Parser) Feed(text string) []Event {
	p.events = p.events[:0]
	if text == "" {
		return nil
	}
	if p.stop != nil {
		p.feedStopped(piece{text: text})
	} else {
		p.reader.text(text)
	}
	return p.events
}

// FeedTag reads the token of one of the format's tags, for a format whose tags are tokens; in others it is text.
func (p *Parser) FeedTag(tag string) []Event {
	if !p.format.TagTokens {
		return p.Feed(tag)
	}
	p.events = p.events[:0]
	if p.stop != nil {
		p.feedStopped(piece{text: tag, tag: true})
	} else {
		p.reader.tag(tag)
	}
	return p.events
}

// Finish ends the output. An output that was cut, by the token limit, ends where it is: a call that is open keeps the
// arguments it has, and the beginning of a tag is dropped. Otherwise an open call is closed. After a stop string,
// finish an output as one that was not cut.
func (p *Parser) Finish(cut bool) []Event {
	p.events = p.events[:0]
	for _, q := range p.queue {
		p.read(q)
	}
	p.queue = nil
	p.reader.finish(cut)
	return p.events
}

// Stopped returns the stop string that ended the output. What is fed afterwards is ignored.
func (p *Parser) Stopped() (string, bool) {
	if p.stop == nil {
		return "", false
	}
	return p.stop.Found()
}

// Reasoning reports whether what comes next is reasoning, as far as has been read.
func (p *Parser) Reasoning() bool { return p.reasoning }

func (p *Parser) read(q piece) {
	if q.tag {
		p.reader.tag(q.text)
	} else {
		p.reader.text(q.text)
	}
}

// feedStopped reads a piece through the stop scanner. A tag is held as a whole, and its beginning is text where a stop
// string ends inside it.
func (p *Parser) feedStopped(q piece) {
	if _, stopped := p.stop.Found(); stopped {
		return
	}
	ready := p.stop.advance(q.text)
	if len(p.queue) == 0 && ready == len(q.text) {
		p.read(q)
		return
	}
	for _, h := range p.queue {
		ready += len(h.text)
	}
	_, stopped := p.stop.Found()
	p.queue = append(p.queue, q)
	for len(p.queue) > 0 && ready > 0 {
		h := &p.queue[0]
		if len(h.text) > ready {
			if !h.tag || stopped {
				p.reader.text(h.text[:ready])
				h.text = h.text[ready:]
			}
			break
		}
		p.read(*h)
		ready -= len(h.text)
		p.queue = p.queue[1:]
	}
	if stopped {
		p.queue = nil
	}
}

func (p *Parser) emit(kind EventKind, text string) {
	if text != "" {
		p.events = append(p.events, Event{Kind: kind, Text: text})
	}
}

// calling reports whether the output may hold calls.
func (p *Parser) calling() bool { return p.opt.Tools.Len() > 0 && !p.opt.NoCalls }

// endReasoning is called at </think>.
func (p *Parser) endReasoning() {
	p.reasoning = false
	p.dropNewlines = true
}

// isBlank reports whether c is white space that only frames.
func isBlank(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

// trimBlank returns s without the white space it begins with.
func trimBlank(s string) string {
	i := 0
	for i < len(s) && isBlank(s[i]) {
		i++
	}
	return s[i:]
}

// afterThink returns content less the newlines between it and </think>.
func (p *Parser) afterThink(s string) string {
	if p.dropNewlines {
		s = strings.TrimLeft(s, "\n")
		p.dropNewlines = s == ""
	}
	return s
}

// content passes on text of the answer. Where the request offers tools, white space before the first text, between
// calls and after the last call frames them and is dropped.
func (p *Parser) content(s string) {
	s = p.afterThink(s)
	if p.opt.Tools.Len() > 0 && (p.afterCall || !p.seenText) {
		text := trimBlank(s)
		if p.seenText {
			p.space = append(p.space, s[:len(s)-len(text)]...)
		}
		s = text
	}
	if s == "" {
		return
	}
	if len(p.space) > 0 {
		p.emit(ContentDelta, string(p.space))
		p.space = p.space[:0]
	}
	p.seenText, p.afterCall = true, false
	p.emit(ContentDelta, s)
}

// maxDelta is the most characters of arguments that one event carries.
const maxDelta = 16 << 10

// A call writes the arguments of a call as they are read.
type call struct {
	*Parser
	index   int
	tool    string
	dropped bool // it has no name, and is read without a word
	keys    int  // parameters written
}

// begin starts a call. One without a name is dropped.
func (p *Parser) begin(tool string) call {
	c := call{Parser: p, index: p.calls, tool: tool, dropped: tool == ""}
	p.space = p.space[:0]
	if !c.dropped {
		p.calls++
		p.events = append(p.events, Event{Kind: CallStart, Call: c.index, Text: tool})
		c.write("{")
	}
	return c
}

// write passes on arguments.
func (c *call) write(text string) {
	if c.dropped {
		return
	}
	for len(text) > maxDelta {
		n := maxDelta
		for n > maxDelta-utf8.UTFMax && !utf8.RuneStart(text[n]) {
			n--
		}
		c.events = append(c.events, Event{Kind: ArgumentsDelta, Call: c.index, Text: text[:n]})
		text = text[n:]
	}
	if text != "" {
		c.events = append(c.events, Event{Kind: ArgumentsDelta, Call: c.index, Text: text})
	}
}

// appendKey appends what comes before a parameter's value.
func (c *call) appendKey(b []byte, key string) []byte {
	if c.keys++; c.keys > 1 {
		b = append(b, ',')
	}
	return append(ojson.AppendString(b, key, false), ':')
}

// end closes the arguments.
func (c *call) end() {
	c.write("}")
	if !c.dropped {
		c.events = append(c.events, Event{Kind: CallEnd, Call: c.index})
	}
	c.afterCall = true
}
