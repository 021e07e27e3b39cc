// Package server answers the HTTP interfaces that clients of language models know, OpenAI's and Anthropic's, with a model
// that an engine decodes.
//
// A request passes the listener, which checks its head; access (Host, Origin, key); admission, which gives it a slot before
// its body is read; its route, which makes a prompt of it; and a turn, which reads the engine's tokens as the parts of an
// answer and hands them to the writer of the interface's responses. The console is told that a request came and how it
// went, never what it said.
package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"splash/internal/chat"
	"splash/internal/engine"
	"splash/internal/grammar/output"
	"splash/internal/tokenizer"
)

// A Model is what a server serves.
type Model struct {
	ID        string
	Engine    *engine.Engine
	Tokenizer *tokenizer.Tokenizer
	Format    *chat.Format
	Templates *chat.Templates
	Stop      []int32 // tokens that end an answer
	Context   int     // tokens of prompt and output
	Lanes     int     // requests decoded at once
	Backend   string
	Device    string      // that the backend computes on; empty: not named
	Features  []string    // of the device, that it uses
	Drafted   bool        // a draft proposes tokens
	Rows      string      // which proposals are verified, as /status says it
	Memory    *MemoryPlan // nil: not planned
	// IdleRelease is the time without a request after which the engine releases the weights; 0: never.
	IdleRelease time.Duration
	Vision      *Vision       // nil: it takes no images
	LastCrash   func() string // the path of what was written of the engine's last fault; nil: nothing is
	NoVision    string        // why it takes none, for errors
}

// A MemoryPlan is what the model takes of the memory there is, in bytes, as /status tells it.
type MemoryPlan struct {
	Limit                int64 // 0: not known
	Weights, Lane, Token int64 // of the model, of a lane, and of each of its tokens
	Passes               int64 // of what its passes compute with; 0: not known
	KV                   string
}

// Options are a server's limits and manners. A zero value takes the default.
type Options struct {
	Host     string // the address it is asked to listen on, which requests may name
	Access   Access
	Aliases  []string      // names of the model beside its ID
	Announce bool          // responses name the first alias instead
	Effort   string        // of reasoning, where a request says nothing; "": the template's
	MaxBody  int64         // bytes of a request's body; 128 MiB
	Timeout  time.Duration // of a request; 0: none
	Queue    int           // requests admitted at once, running or waiting; 32
	Console  *Console
	Thinking *ThinkingKey // hides reasoning that is not shown; one that nobody else knows
	NoPage   bool         // do not serve the chat page

	silence  time.Duration // after which a stream says that it lives; 2 s
	slow     time.Duration // that a write may wait for its reader; 30 s
	unmasked bool          // the engine is not told of grammars, so that their answers need not keep to them
}

func (o Options) withDefaults() Options {
	if o.MaxBody == 0 {
		o.MaxBody = 128 << 20
	}
	if o.Queue == 0 {
		o.Queue = 32
	}
	if o.Thinking == nil {
		o.Thinking = NewThinkingKey()
	}
	if o.silence == 0 {
		o.silence = 2 * time.Second
	}
	if o.slow == 0 {
		o.slow = 30 * time.Second
	}
	return o
}

// A Server serves one model.
type Server struct {
	model   Model
	o       Options
	routes  map[string]route // by path
	prompts *tokenizer.PromptCache
	outputs *output.Compiler

	slotLabels func() []string // the labels of scored answers, which are found at the first request

	responses    responseStore
	skippedTools sync.Once // says that tools are not offered

	slots       chan struct{} // generations
	countSlots  chan struct{} // requests that make a prompt alone
	preparing   chan struct{}
	waiting     atomic.Int64 // for preparing
	bodies      budget
	refused     refusedOrigins
	metrics     *metrics
	instance    string
	started     time.Time
	listener    atomic.Pointer[listener]
	address     atomic.Pointer[net.TCPAddr]
	stop        context.CancelCauseFunc
	running     context.Context // ends with the server, for the reason of errShutdown
	outstanding sync.WaitGroup
}

// New returns a server of the model. The engine stays the caller's, who closes it when Serve has returned.
func New(m Model, o Options) (*Server, error) {
	o = o.withDefaults()
	if err := checkTags(&m); err != nil {
		return nil, err
	}
	outputs, err := newOutputs(&m)
	if err != nil {
		return nil, err
	}
	s := &Server{
		model: m, o: o, outputs: outputs, prompts: tokenizer.NewPromptCache(m.Tokenizer, m.Format.Boundary),
		slots: make(chan struct{}, o.Queue), countSlots: make(chan struct{}, o.Queue),
		preparing: make(chan struct{}, max(1, m.Lanes)),
		bodies:    budget{limit: max(512<<20, 2*o.MaxBody)},
		instance:  randomHex(12), started: time.Now(),
	}
	s.running, s.stop = context.WithCancelCause(context.Background())
	s.slotLabels = sync.OnceValue(s.findSlots)
	s.routes = s.table()
	s.metrics = newMetrics(s)
	return s, nil
}

// checkTags holds the vocabulary to the chat format: each of its tags is one token.
func checkTags(m *Model) error {
	for _, tag := range m.Format.Tags {
		if ids := m.Tokenizer.Encode(tag, true); len(ids) != 1 {
			return fmt.Errorf("tokenizer must encode %q as one token, not %d", tag, len(ids))
		}
	}
	return nil
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// Serve answers requests until ctx ends, which cancels those under way. It returns when all of them are done, or have
// been given some seconds.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		s.address.Store(a)
	}
	limited := newListener(l, s.o.Queue+64)
	s.listener.Store(limited)
	h := &http.Server{
		Handler: s, MaxHeaderBytes: 2 * mostHead, DisableGeneralOptionsHandler: true, ErrorLog: discardLog(),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	h.SetKeepAlivesEnabled(false)
	served := make(chan error, 1)
	go func() { served <- h.Serve(limited) }()
	select {
	case err := <-served:
		s.stop(errShutdown)
		h.Close()
		s.outstanding.Wait()
		return err
	case <-ctx.Done():
	}
	s.stop(errShutdown)
	const grace = 5 * time.Second
	end, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := h.Shutdown(end); err != nil {
		h.Close()
	}
	<-served
	s.outstanding.Wait()
	return nil
}

// Stopping reports whether the server is told to stop.
func (s *Server) stopping() bool { return s.running.Err() != nil }

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.outstanding.Add(1)
	defer s.outstanding.Done()
	x := s.exchange(w, r)
	defer x.release()
	defer x.cancel(nil)
	defer func() {
		switch p := recover(); {
		case p == nil:
		case p == http.ErrAbortHandler:
			panic(p)
		default:
			s.o.Console.Errorf("Error · panic · %v · %s", p, firstFrame(debug.Stack()))
			x.fail(errInternal)
		}
	}()
	if err := x.serve(); err != nil {
		x.fail(err)
	}
}
