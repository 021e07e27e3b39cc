package server

import (
	"net/http"
	"time"
)

// An eventStream writes server-sent events (WHATWG HTML, section 9.2). Its first write begins the response, so that what
// fails before is answered with its status.
type eventStream struct {
	x      *exchange
	buffer []byte
	timer  *time.Timer // fires after a silence
}

func (x *exchange) events() *eventStream {
	return &eventStream{x: x, timer: time.NewTimer(x.s.o.silence)}
}

// comment writes a line that clients ignore.
func (e *eventStream) comment(text string) error {
	e.buffer = append(append(append(e.buffer[:0], ": "...), text...), "\n\n"...)
	return e.write()
}

// data writes an event without a name.
func (e *eventStream) data(v any) error {
	e.buffer = e.appendData(e.buffer[:0], encode(v))
	return e.write()
}

// text writes an event whose data is not JSON.
func (e *eventStream) text(s string) error {
	e.buffer = e.appendData(e.buffer[:0], []byte(s))
	return e.write()
}

// event writes an event with a name.
func (e *eventStream) event(name string, v any) error {
	e.buffer = append(append(append(e.buffer[:0], "event: "...), name...), '\n')
	e.buffer = e.appendData(e.buffer, encode(v))
	return e.write()
}

func (e *eventStream) appendData(b, data []byte) []byte {
	return append(append(append(b, "data: "...), data...), "\n\n"...)
}

// write sends the buffer. A client that does not read it in time is gone.
func (e *eventStream) write() error {
	x := e.x
	if !x.answered {
		x.answered = true
		h := x.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		x.w.WriteHeader(http.StatusOK)
	}
	x.control.SetWriteDeadline(time.Now().Add(x.s.o.slow))
	_, err := x.w.Write(e.buffer)
	if err == nil {
		err = x.control.Flush()
	}
	e.timer.Reset(x.s.o.silence)
	if err != nil {
		x.cancel(errGone)
		return errGone
	}
	return nil
}
