package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"splash/internal/answer"
	"splash/internal/chat"
	"splash/internal/engine"
)

// A turn is a generation under way.
type turn struct {
	x      *exchange
	g      *generation
	stream *engine.Stream
	cancel context.CancelCauseFunc // of the engine's request
	reader *answer.Reader

	tokens []int32
	events []chat.Event // of a step
	quit   bool         // the engine's stream has ended
	cut    bool         // the limit of tokens ended the answer
	last   time.Time    // when tokens came last
	told   int          // tokens of the prompt that the client was told of

	content strings.Builder // so far, where the whole of it is to be validated
}

// errComplete ends the engine's work on an answer that is complete before the model says so.
var errComplete = errors.New("the answer is complete")

func newTurn(x *exchange, g *generation, stream *engine.Stream, cancel context.CancelCauseFunc) *turn {
	m := &x.s.model
	o := answer.Options{
		Tokenizer: m.Tokenizer, Format: m.Format, Plain: g.plain, Thinking: g.thinking, Tools: g.tools.set(),
		NoCalls: g.tools.choice == choiceNone, SingleCall: g.tools.single(), Structured: g.response != nil, StopStrings: g.stop,
	}
	if !g.ignoreEOS {
		o.Stop = m.Stop
	}
	return &turn{x: x, g: g, stream: stream, cancel: cancel, reader: answer.New(o)}
}

// A step is what a turn came to between two looks at it.
type step struct {
	events []chat.Event // valid until the next step
	silent bool         // nothing has come for as long as a stream may be silent
	done   bool         // the answer is complete
}

// next waits for the next step, or for silence, which may be nil. The error is why the request ended before its answer did.
func (t *turn) next(silence <-chan time.Time) (step, error) {
	for {
		select {
		case <-t.stream.Ready():
		case <-silence:
			return step{silent: true}, nil
		}
		var ended bool
		t.tokens, ended = t.stream.Poll(t.tokens[:0])
		t.measure()
		t.events = append(t.events[:0], t.reader.Read(t.tokens)...)
		t.keep(t.events)
		if ended {
			return t.end()
		}
		if t.reader.Complete() {
			t.cancel(errComplete)
		}
		// A stream wants to know of the prompt's progress too.
		if len(t.events) > 0 || t.g.stream && t.reader.Tokens() == 0 {
			return step{events: t.events}, nil
		}
	}
}

// end is the last step.
func (t *turn) end() (step, error) {
	t.quit = true
	why, err := t.stream.End()
	if err != nil && !t.reader.Complete() {
		return step{}, err
	}
	t.cut = why == engine.Length
	last := t.reader.Finish(t.cut)
	t.keep(last)
	t.events = append(t.events, last...)
	t.cut = t.cut && !t.reader.Complete()
	return step{events: t.events, done: true}, t.validate()
}

// measure notes when tokens come.
func (t *turn) measure() {
	if len(t.tokens) == 0 {
		return
	}
	if t.last.IsZero() {
		t.x.s.metrics.stage(stageFirstToken, t.x.began)
	} else {
		t.x.s.metrics.stage(stageInterval, t.last)
	}
	t.last = time.Now()
}

// close lets go of the request: the engine has its lane back when close returns.
func (t *turn) close() {
	t.cancel(errComplete)
	for more := !t.quit; more; {
		t.tokens, more = t.stream.Next(t.tokens[:0])
	}
}

// A message is a whole answer.
type message struct {
	reasoning, content string
	calls              []messageCall
}

type messageCall struct {
	name, arguments string
	at              int // bytes of the content before it
}

// read gathers the whole answer.
func (t *turn) read() (*message, error) {
	var m message
	var reasoning, content strings.Builder
	var arguments []*strings.Builder
	for done := false; !done; {
		s, err := t.next(nil)
		if err != nil {
			return nil, err
		}
		for _, e := range s.events {
			switch e.Kind {
			case chat.ReasoningDelta:
				reasoning.WriteString(e.Text)
			case chat.ContentDelta:
				content.WriteString(e.Text)
			case chat.CallStart:
				m.calls = append(m.calls, messageCall{name: e.Text, at: content.Len()})
				arguments = append(arguments, &strings.Builder{})
			case chat.ArgumentsDelta:
				arguments[e.Call].WriteString(e.Text)
			}
		}
		done = s.done
	}
	m.reasoning, m.content = reasoning.String(), content.String()
	for i := range m.calls {
		m.calls[i].arguments = arguments[i].String()
	}
	return &m, nil
}

// callID is the ID of a call of the response.
func (g *generation) callID(i int) string {
	id := g.id[strings.LastIndexAny(g.id, "-_")+1:]
	return fmt.Sprintf("call_%s_%d", id, i)
}
