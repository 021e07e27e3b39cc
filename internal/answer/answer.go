// Package answer reads the tokens that a model says as the parts of an answer: reasoning, content and tool calls.
package answer

import (
	"slices"

	"splash/internal/chat"
	"splash/internal/tokenizer"
)

// Options say what the answer is to.
type Options struct {
	Tokenizer *tokenizer.Tokenizer
	Format    *chat.Format
	Stop      []int32 // tokens that end an answer and are no text; nil where none does

	Plain bool // text alone, without reasoning and calls

	Thinking    bool          // the answer begins inside a think block
	Tools       *chat.ToolSet // nil: none
	NoCalls     bool          // the tools may not be called
	Structured  bool          // the answer may be JSON under a response format
	SingleCall  bool          // the answer ends with its first call
	StopStrings []string      // texts that end it
}

// A Reader reads one answer. It is for one goroutine.
type Reader struct {
	o       Options
	parser  parser
	decoder *tokenizer.Decoder
	think   int32            // the token that ends reasoning; -1 without one
	tags    map[int32]string // the format's tags, where only their tokens are tags
	text    []byte
	events  []chat.Event

	tokens    int
	reasoning int  // tokens before the end of reasoning
	thought   bool // reasoning has ended
	calls     int  // that are complete
	complete  bool
}

// A parser reads an answer's text; chat.Parser is one.
type parser interface {
	Feed(text string) []chat.Event
	FeedTag(tag string) []chat.Event
	Finish(cut bool) []chat.Event
	Stopped() (string, bool)
	Reasoning() bool
}

// New returns a reader at the start of an answer.
func New(o Options) *Reader {
	r := &Reader{o: o, decoder: o.Tokenizer.NewDecoder(), think: -1}
	if o.Plain {
		r.parser = &plain{stops: chat.NewStopScanner(o.StopStrings)}
		return r
	}
	r.parser = o.Format.NewParser(chat.ParserOptions{
		Thinking: o.Thinking, Tools: o.Tools, NoCalls: o.NoCalls, Structured: o.Structured, Stop: o.StopStrings,
	})
	if id, ok := o.Tokenizer.ID(o.Format.ThinkClose); ok {
		r.think = id
	}
	if o.Format.TagTokens {
		r.tags = map[int32]string{}
		for _, tag := range o.Format.Tags {
			if id, ok := o.Tokenizer.ID(tag); ok {
				r.tags[id] = tag
			}
		}
	}
	return r
}

// Read reads the next tokens, as far as the answer goes. The events are valid until the next call of a method.
func (r *Reader) Read(tokens []int32) []chat.Event {
	r.events = r.events[:0]
	for _, id := range tokens {
		if r.complete {
			break
		}
		r.token(id)
		r.check()
	}
	return r.events
}

// Finish ends the answer. cut says that the model had more to say.
func (r *Reader) Finish(cut bool) []chat.Event {
	r.events = r.events[:0]
	if !r.complete {
		r.text = r.decoder.Flush(r.text[:0])
		r.feed()
		r.check()
	}
	r.add(r.parser.Finish(cut && !r.complete))
	return r.events
}

// Complete reports that the answer has ended before the model did: at a stop string, or after its only call.
func (r *Reader) Complete() bool { return r.complete }

// StopString is the stop string that ended the answer, or "".
func (r *Reader) StopString() string {
	text, _ := r.parser.Stopped()
	return text
}

// Tokens is how many tokens were read, the one that ended the answer among them.
func (r *Reader) Tokens() int { return r.tokens }

// Calls is how many calls are complete.
func (r *Reader) Calls() int { return r.calls }

// ReasoningTokens is how many of the tokens are reasoning.
func (r *Reader) ReasoningTokens() int {
	opened := r.o.Thinking
	if !r.o.Plain && r.o.Format.ThinkOpen != "" {
		opened = r.thought || r.parser.Reasoning()
	}
	if !opened {
		return 0
	}
	return r.reasoning
}

func (r *Reader) token(id int32) {
	r.tokens++
	if id == r.think {
		r.thought = true
	} else if !r.thought {
		r.reasoning++
	}
	if slices.Contains(r.o.Stop, id) {
		return
	}
	if tag, ok := r.tags[id]; ok {
		r.text = r.decoder.Flush(r.text[:0])
		r.feed()
		r.add(r.parser.FeedTag(tag))
		return
	}
	r.text = r.decoder.Append(r.text[:0], id)
	r.feed()
}

func (r *Reader) feed() {
	if len(r.text) > 0 {
		r.add(r.parser.Feed(string(r.text)))
	}
}

func (r *Reader) check() {
	_, stopped := r.parser.Stopped()
	r.complete = r.complete || stopped || r.o.SingleCall && r.calls > 0
}

// add keeps events, whose own room is the parser's. Text that goes on is one event.
func (r *Reader) add(events []chat.Event) {
	for _, e := range events {
		if e.Kind == chat.CallEnd {
			r.calls++
		}
		if n := len(r.events); n > 0 && (e.Kind == chat.ReasoningDelta || e.Kind == chat.ContentDelta) && r.events[n-1].Kind == e.Kind {
			r.events[n-1].Text += e.Text
			continue
		}
		r.events = append(r.events, e)
	}
}

// plain passes text on as content, up to a stop string.
type plain struct {
	stops  *chat.StopScanner
	events []chat.Event
}

func (p *plain) Feed(text string) []chat.Event {
	ready, _ := p.stops.Scan(text)
	return p.content(ready)
}

func (p *plain) FeedTag(tag string) []chat.Event { return p.Feed(tag) }
func (p *plain) Finish(bool) []chat.Event        { return p.content(p.stops.Flush()) }
func (p *plain) Stopped() (string, bool)         { return p.stops.Found() }
func (p *plain) Reasoning() bool                 { return false }

func (p *plain) content(text string) []chat.Event {
	p.events = p.events[:0]
	if text != "" {
		p.events = append(p.events, chat.Event{Kind: chat.ContentDelta, Text: text})
	}
	return p.events
}
