package server

import (
	"time"

	"splash/internal/chat"
)

// A responder writes the responses of one interface.
type responder interface {
	whole(t *turn, m *message) any // the response in one piece

	silence() <-chan time.Time // receives when the stream has been silent for long
	waiting() error            // a sign of life before the request starts
	begin(t *turn) error       // the stream begins, once the request has started
	idle() error               // a sign of life after that
	progress(p *progress) error
	event(e chat.Event) error
	end(t *turn) error
	fail(e *Error) // after the stream has begun
	close()
}

// generate runs a generation and answers with it.
func (x *exchange) generate(g *generation, r responder) (err error) {
	defer r.close()
	t, err := x.submit(g)
	if err != nil {
		return err
	}
	defer func() {
		t.close()
		t.report(t.outcome(err))
	}()
	if !g.stream {
		m, err := t.read()
		if err != nil {
			return err
		}
		x.json(200, r.whole(t, m))
		return nil
	}
	return x.streamed(t, r)
}

// streamed writes the answer as it comes.
func (x *exchange) streamed(t *turn, r responder) error {
	err := x.stream(t, r)
	if err == nil || err == errGone || !x.answered {
		return err
	}
	e, known := asError(err)
	if !known {
		x.s.o.Console.Errorf("Error · %v", err)
	}
	x.log(e)
	r.fail(e)
	return err
}

func (x *exchange) stream(t *turn, r responder) error {
	begun := false
	begin := func() error {
		if begun || t.stream.Timing().Started.IsZero() {
			return nil
		}
		begun = true
		return r.begin(t)
	}
	for {
		s, err := t.next(r.silence())
		if err != nil {
			return err
		}
		first := begun
		if err := begin(); err != nil {
			return err
		}
		switch {
		case s.silent && !begun:
			err = r.waiting()
		case s.silent && first:
			err = r.idle()
		default:
			err = t.write(s, r)
		}
		if err != nil || s.done {
			return err
		}
	}
}

// write hands a step to the responder.
func (t *turn) write(s step, r responder) error {
	if p := t.promptProgress(); p != nil {
		if err := r.progress(p); err != nil {
			return err
		}
	}
	for _, e := range s.events {
		if err := r.event(e); err != nil {
			return err
		}
	}
	if s.done {
		return r.end(t)
	}
	return nil
}

// A writer has what the responders of OpenAI's interfaces share.
type writer struct {
	x       *exchange
	g       *generation
	out     *eventStream
	created int64
}

func newWriter(x *exchange, g *generation) writer {
	return writer{x: x, g: g, out: x.events(), created: time.Now().Unix()}
}

func (w *writer) silence() <-chan time.Time { return w.out.timer.C }
func (w *writer) close()                    { w.out.timer.Stop() }

func (w *writer) waiting() error { return w.out.comment("splash-keepalive") }

func (w *writer) fail(e *Error) {
	if w.out.data(openAI.body(e)) == nil {
		w.out.text("[DONE]")
	}
}

// reason is why the answer ended, as OpenAI's interfaces say it.
func (t *turn) finishReason() string {
	switch {
	case t.cut:
		return "length"
	case t.reader.Calls() > 0:
		return "tool_calls"
	}
	return "stop"
}
