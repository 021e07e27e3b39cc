package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlclark/regexp2"

	"splash/fixtures"
	"splash/internal/chat"
	"splash/internal/engine"
	"splash/internal/gguf"
	"splash/internal/model"
	"splash/internal/tokenizer"
)

const (
	fakeID      = "test/model"
	fakeContext = 4096
	fakeEOS     = 4071 // <|im_end|> of the demonstration model's vocabulary
)

// A script is a network that says what it is told to.
type script struct {
	say func(prompt []int32) []int32

	mu     sync.Mutex
	lanes  map[model.Lane]*scriptLane
	most   int // lanes at once
	logits []int32
	gate   chan struct{} // a pass waits for one value; nil: none does
	fault  func() error  // of a pass; nil: none
	nan    bool
}

type scriptLane struct {
	prompt, answer []int32
	started        bool
}

func (s *script) Backend() model.Backend                                { return scriptBackend{script: s} }
func (s *script) Tap(tap, row int) []float32                            { return nil }
func (s *script) Ends() (table, head model.Matrix, taps []model.Buffer) { return 0, 0, nil }

type scriptBackend struct {
	model.Backend // no operator is called
	*script
}

func (b scriptBackend) Rollback(model.Lane, int) error { return nil }

func (b scriptBackend) Save(l model.Lane) (model.Checkpoint, int64, error) {
	return 0, 0, errors.New("no states are kept")
}

func (b scriptBackend) NewLane() (model.Lane, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := model.Lane(0); ; l++ {
		if b.lanes[l] == nil {
			b.lanes[l] = &scriptLane{}
			b.most = max(b.most, len(b.lanes))
			return l, nil
		}
	}
}

func (b scriptBackend) FreeLane(l model.Lane) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.lanes, l)
}

func (s *script) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lanes)
}

func (s *script) Forward(p *model.Pass) error {
	s.mu.Lock()
	gate, fault := s.gate, s.fault
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if fault != nil {
		if err := fault(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logits = s.logits[:0]
	for _, seg := range p.Segments {
		l := s.lanes[seg.Lane]
		if !l.started {
			l.prompt = append(l.prompt, seg.Tokens...)
		}
		if seg.Outputs == 0 {
			continue
		}
		if !l.started {
			l.started = true
			l.answer = s.say(l.prompt)
		}
		next := int32(fakeEOS)
		if len(l.answer) > 0 {
			next, l.answer = l.answer[0], l.answer[1:]
		}
		s.logits = append(s.logits, next)
	}
	return nil
}

func (s *script) Logits(i int) []float32 {
	row := make([]float32, 4096)
	if s.nan {
		for j := range row {
			row[j] = float32(math.NaN())
		}
		return row
	}
	row[s.logits[i]] = 100
	return row
}

// vocabulary is the demonstration model's.
var vocabulary = sync.OnceValues(func() (*tokenizer.Vocabulary, error) {
	f, err := gguf.FromBytes("demo", fixtures.Pebble)
	if err != nil {
		return nil, err
	}
	return tokenizer.FromGGUF(f.Header)
})

// A fixture is a server on a scripted model.
type fixture struct {
	*testing.T
	url     string
	address string
	script  *script
	server  *Server
	tok     *tokenizer.Tokenizer
	out     *logBuffer
	prompt  []int32 // of the last request
	stop    func()
}

// A logBuffer is what the console wrote.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serve starts a server whose model answers "answer". It is stopped with the test, after which no goroutine is left.
func serve(t *testing.T, o Options) *fixture {
	t.Helper()
	return serveModel(t, o, nil)
}

func serveModel(t *testing.T, o Options, change func(m *Model, e *engine.Options)) *fixture {
	t.Helper()
	before := runtime.NumGoroutine()
	v, err := vocabulary()
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{T: t, out: &logBuffer{}, script: &script{lanes: map[model.Lane]*scriptLane{}}}
	if f.tok, err = tokenizer.New(v); err != nil {
		t.Fatal(err)
	}
	f.says("answer")
	templates, err := chat.NewTemplates(t.Context(), v.Templates, chat.TemplateOptions{Format: chat.QWEN})
	if err != nil {
		t.Fatal(err)
	}
	m := Model{
		ID: fakeID, Tokenizer: f.tok, Format: chat.QWEN, Templates: templates, Stop: []int32{fakeEOS}, Context: fakeContext,
		Lanes: 4, Backend: "script", Rows: "all", NoVision: "the model has no vision tower",
	}
	if o.silence == 0 {
		o.silence = time.Minute // so that a slow machine is not taken for a silent model
	}
	if o.Queue == 0 {
		o.Queue = 4
	}
	eo := engine.Options{Context: m.Context, Queue: o.Queue, Vocab: f.tok.Size()}
	if change != nil {
		change(&m, &eo)
	}
	m.Engine = engine.New(f.script, eo)
	if o.Effort == "" {
		o.Effort = "none"
	}
	o.Console = &Console{Out: f.out, Err: f.out}
	if f.server, err = New(m, o); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.address = l.Addr().String()
	f.url = "http://" + f.address
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- f.server.Serve(ctx, l) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		m.Engine.Close()
	})
	t.Cleanup(func() {
		f.stop()
		if n := f.script.open(); n > 0 {
			t.Errorf("%d lanes left", n)
		}
		settle(t, before)
	})
	return f
}

// settle waits for the goroutines to be as many as before.
func settle(t *testing.T, before int) {
	http.DefaultClient.CloseIdleConnections()
	regexp2.StopTimeoutClock() // of patterns that answers were held to
	for range 200 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	stacks := make([]byte, 1<<16)
	t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
}

// says makes the model say text.
func (f *fixture) says(text string) {
	f.saysTokens(f.tok.Encode(text, true))
}

func (f *fixture) saysTokens(answer []int32) {
	f.script.mu.Lock()
	defer f.script.mu.Unlock()
	f.script.say = func(prompt []int32) []int32 {
		f.prompt = append(f.prompt[:0], prompt...)
		return answer
	}
}

// hold makes passes wait until release is called, which lets all of them go.
func (f *fixture) hold() (release func()) {
	gate := make(chan struct{})
	f.script.mu.Lock()
	f.script.gate = gate
	f.script.mu.Unlock()
	release = sync.OnceFunc(func() {
		f.script.mu.Lock()
		f.script.gate = nil
		f.script.mu.Unlock()
		close(gate)
	})
	f.Cleanup(release)
	return release
}

// A reply is a whole response.
type reply struct {
	status int
	header http.Header
	body   string
}

func (f *fixture) do(method, path, body string, header map[string]string) reply {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	if body == "" {
		r.Body = nil
	} else {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range header {
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		f.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		f.Fatalf("%s %s: %v", method, path, err)
	}
	return reply{res.StatusCode, res.Header, string(data)}
}

func (f *fixture) post(path, body string) reply {
	f.Helper()
	return f.do(http.MethodPost, path, body, nil)
}

// postUntil posts, and calls then once the response's body has held marker n times.
func (f *fixture) postUntil(path, body string, n int, marker string, then func()) reply {
	f.Helper()
	res, err := http.Post(f.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	defer res.Body.Close()
	var got []byte
	for buffer := make([]byte, 4096); ; {
		read, err := res.Body.Read(buffer)
		got = append(got, buffer[:read]...)
		if n > 0 && bytes.Count(got, []byte(marker)) >= n {
			n = 0
			then()
		}
		if err == io.EOF {
			return reply{res.StatusCode, res.Header, string(got)}
		}
		if err != nil {
			f.Fatalf("%s: %v", path, err)
		}
	}
}

// raw sends bytes as they are, and reads what comes until the server closes.
func (f *fixture) raw(request string) string {
	f.Helper()
	c, err := net.Dial("tcp", f.address)
	if err != nil {
		f.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		f.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil {
		f.Fatalf("%.40q: %v", request, err)
	}
	return string(got)
}

// An event is a server-sent event.
type event struct{ name, data string }

// parseEvents reads a stream strictly: every event is an optional name and one line of data, and ends with an empty line.
func parseEvents(r io.Reader) (events []event, comments int, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<22)
	var e event
	open := ""
	for lines.Scan() {
		line := lines.Text()
		name, isName := strings.CutPrefix(line, "event: ")
		data, isData := strings.CutPrefix(line, "data: ")
		switch {
		case isName && open == "":
			e.name, open = name, "event"
		case isData && open != "data" && open != "comment":
			e.data, open = data, "data"
		case strings.HasPrefix(line, ": ") && open == "":
			comments++
			open = "comment"
		case line == "" && open == "data":
			events, e, open = append(events, e), event{}, ""
		case line == "" && open == "comment":
			open = ""
		default:
			return nil, 0, errors.New("not an event stream at " + line)
		}
	}
	if open != "" {
		return nil, 0, errors.New("the stream ends within an event")
	}
	return events, comments, lines.Err()
}

// stream posts a request and reads the events of its response.
func (f *fixture) stream(path, body string) []event {
	f.Helper()
	r := f.post(path, body)
	if r.status != http.StatusOK || r.header.Get("Content-Type") != "text/event-stream" || r.header.Get("Cache-Control") != "no-cache" {
		f.Fatalf("%s: %d %v %s", path, r.status, r.header, r.body)
	}
	events, _, err := parseEvents(strings.NewReader(r.body))
	if err != nil {
		f.Fatalf("%v\n%s", err, r.body)
	}
	return events
}

// field reads a value of a JSON text by its keys and indices; nil where there is none.
func field(t testing.TB, text string, keys ...any) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, key := range keys {
		switch k := key.(type) {
		case string:
			o, _ := v.(map[string]any)
			v = o[k]
		case int:
			list, _ := v.([]any)
			if k >= len(list) {
				return nil
			}
			v = list[k]
		}
	}
	return v
}
