package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"strconv"
	"strings"
	"time"

	"splash/internal/engine"
	"splash/internal/media"
)

// An exchange is one request and its response.
type exchange struct {
	s       *Server
	w       http.ResponseWriter
	r       *http.Request
	control *http.ResponseController
	path    string // normalized
	dialect dialect
	began   time.Time

	ctx      context.Context // ends with the client, the deadline or the server; its cause says which
	cancel   context.CancelCauseFunc
	deadline time.Time // zero: none
	priority engine.Priority
	batch    *media.Batch // its images; nil: none yet

	answered bool // the response has begun
	unread   bool // the body was not read
}

func (s *Server) exchange(w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{s: s, w: w, r: r, control: http.NewResponseController(w), began: time.Now(), unread: r.ContentLength != 0}
	x.path, _ = normalPath(r.RequestURI)
	x.dialect = dialectOf(x.path)
	x.ctx, x.cancel = context.WithCancelCause(context.WithoutCancel(r.Context()))
	stopGone := context.AfterFunc(r.Context(), func() { x.cancel(errGone) })
	stopServer := context.AfterFunc(s.running, func() { x.cancel(errShutdown) })
	context.AfterFunc(x.ctx, func() { stopGone(); stopServer() })
	if s.o.Timeout > 0 {
		x.limit(s.o.Timeout)
	}
	h := w.Header()
	h.Set("Server", "Splash")
	h.Set("Connection", "close")
	return x
}

// limit gives the request a timeout from its arrival; a longer one than it has changes nothing.
func (x *exchange) limit(d time.Duration) {
	deadline := x.began.Add(d)
	if !x.deadline.IsZero() && x.deadline.Before(deadline) {
		return
	}
	x.deadline = deadline
	timer := time.AfterFunc(time.Until(deadline), func() { x.cancel(errDeadline) })
	context.AfterFunc(x.ctx, func() { timer.Stop() })
}

// serve decides who answers, in the order that a client may count on: access, then the route.
func (x *exchange) serve() error {
	s, r := x.s, x.r
	if err := s.checkHost(r); err != nil {
		return err
	}
	if err := s.checkOrigin(x.w, r); err != nil {
		return err
	}
	switch r.Method {
	case http.MethodOptions:
		x.answered = true
		preflight(x.w, r)
		return nil
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete:
	default:
		return &Error{Status: http.StatusNotImplemented, Code: codeMethod, Message: "method " + shorten(r.Method) + " is not implemented"}
	}
	route, ok := s.route(r.Method, x.path)
	if !ok || !route.public {
		if err := s.checkKey(r); err != nil {
			return err
		}
	}
	if !ok {
		return errNotFound
	}
	return route.serve(x)
}

// statusOverloaded is what System One's clients know for 503.
const statusOverloaded = 529

// fail answers with an error. Where the response has begun, its writer has dealt with the error, and there is nothing left
// to say.
func (x *exchange) fail(err error) {
	if x.answered || errors.Is(err, errGone) {
		return
	}
	e, known := asError(err)
	if !known {
		x.s.o.Console.Errorf("Error · %v", err)
	}
	if x.dialect == systemOne && e.Status == http.StatusServiceUnavailable {
		overload := *e
		overload.Status = statusOverloaded
		e = &overload
	}
	x.log(e)
	h := x.w.Header()
	if e.Status == http.StatusServiceUnavailable || e.Status == statusOverloaded {
		h.Set("Retry-After", "1")
	}
	if e.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	x.json(e.Status, x.dialect.body(e))
	x.drain()
}

// log tells the console of an error. Those that only a client's requests can cause are the client's to see, but the paths
// of failed ones tell who operates the server which client it is.
func (x *exchange) log(e *Error) {
	x.s.metrics.failed(e)
	x.s.o.Console.Errorf("Error · %s · %s %s", e.Code, x.r.Method, shorten(x.path))
}

// drain receives what a refused client is still sending, so that it reads the refusal instead of a reset.
func (x *exchange) drain() {
	if !x.unread || x.r.ContentLength <= 0 || len(x.r.TransferEncoding) > 0 {
		return
	}
	x.unread = false
	if x.control.Flush() != nil {
		return
	}
	if c, ok := x.r.Context().Value(connKey{}).(*conn); ok {
		c.CloseWrite()
	}
	if strings.EqualFold(x.r.Header.Get("Expect"), "100-continue") {
		x.control.SetReadDeadline(time.Now().Add(refuseTimeout)) // it waits to be asked, and may go now
		return
	}
	if x.upload(io.Discard) != nil {
		x.control.SetReadDeadline(time.Now())
	}
}

// connKey is where a request's context has its connection.
type connKey struct{}

// json answers with v.
func (x *exchange) json(status int, v any) {
	x.send(status, "application/json", encode(v))
}

func (x *exchange) send(status int, contentType string, body []byte) {
	x.answered = true
	h := x.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	x.control.SetWriteDeadline(time.Now().Add(x.s.o.slow))
	x.w.WriteHeader(status)
	x.w.Write(body)
}

// encode is JSON as clients write it: without escapes that only HTML needs.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // every value is made of this program's own types
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

// firstFrame is where a panic came from: the function and line after panic's own in a stack's text.
func firstFrame(stack []byte) string {
	lines := strings.Split(string(stack), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "panic(") && i+3 < len(lines) {
			file := strings.TrimSpace(lines[i+3])
			file, _, _ = strings.Cut(file, " ")
			return file[strings.LastIndex(file, "/")+1:]
		}
	}
	return "unknown"
}
