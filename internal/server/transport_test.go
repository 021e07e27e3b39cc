package server

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"splash/internal/model"
)

// TestRawRequests sends what no client library sends.
func TestRawRequests(t *testing.T) {
	f := serve(t, Options{MaxBody: 1000})
	long := strings.Repeat("a", 65537)
	post := func(path, headers, body string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + headers + "\r\n" + body
	}
	for _, c := range []struct {
		row           int
		send          string
		status        int
		code, message string
	}{
		{1, "GET /health HTTP/1.0\r\n\r\n", 200, "", `{"status":"ok"}`},
		{1, "GET /health HTTP/1.1\nHost: localhost\n\n", 200, "", `{"status":"ok"}`},
		{1, "GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "", `{"status":"ok"}`},
		{1, "GET /%68ealth?x=%zz#y HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "", `{"status":"ok"}`},
		{1, "GET //a/..//%68ealth HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "", `{"status":"ok"}`},
		{5, "GET /health/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, codeNotFound, ""},
		{7, "get /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 501, codeMethod, ""},
		{8, "GET / HTTP/2.5\r\n\r\n", 505, codeVersion, ""},
		{8, "GET /\r\n\r\n", 505, codeVersion, ""},
		{8, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, codeVersion, ""},
		{9, "GARBAGE\r\n\r\n", 400, codeInvalid, "malformed request line"},
		{9, "\r\n\r\n", 400, codeInvalid, "malformed request line"},
		{9, "GET /a b HTTP/1.1\r\n\r\n", 400, codeInvalid, ""},
		{9, "GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, codeInvalid, ""},
		{9, "GET /health HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n", 400, codeInvalid, ""},
		{9, "GET /health HTTP/1.1\r\n\r\n", 400, codeInvalid, "Host"},
		{9, "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, codeInvalid, "Host"},
		{9, "GET /health HTTP/1.1\r\nHost: a b\r\n\r\n", 400, codeInvalid, "Host"},
		{10, "GET /" + long + " HTTP/1.1\r\n", 414, codeInvalid, "65536"},
		{11, "GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + long + "\r\n\r\n", 431, codeInvalid, "65536"},
		{11, "GET /health HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("X: y\r\n", 101) + "\r\n", 431, codeInvalid, "100"},
		{28, post(cc, "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"), 400, codeInvalid, "transfer encoding is not supported"},
		{28, post(cc, "Transfer-Encoding: gzip\r\n", "x"), 400, codeInvalid, ""},
		{29, post(cc, "", ""), 400, codeInvalid, "Content-Length"},
		{29, post(cc, "Content-Length: 0\r\n", ""), 400, codeInvalid, "Content-Length"},
		{29, post(cc, "Content-Length: -1\r\n", ""), 400, codeInvalid, ""},
		{29, post(cc, "Content-Length: +5\r\n", "12345"), 400, codeInvalid, ""},
		{29, post(cc, "Content-Length: 1_0\r\n", "1234567890"), 400, codeInvalid, ""},
		{29, post(cc, "Content-Length: 5\r\nContent-Length: 6\r\n", "123456"), 400, codeInvalid, ""},
		{30, post(cc, "Content-Length: 1001\r\n", strings.Repeat(" ", 1001)), 413, codeTooLarge, "request body is 1001 bytes; limit is 1000 bytes (--max-request-size)"},
	} {
		got := f.raw(c.send)
		res, body, _ := strings.Cut(got, "\r\n\r\n")
		if !strings.HasPrefix(res, fmt.Sprintf("HTTP/1.1 %d ", c.status)) && !strings.HasPrefix(res, fmt.Sprintf("HTTP/1.0 %d ", c.status)) {
			t.Errorf("row %d: %.60q answers %.300s, want %d", c.row, c.send, got, c.status)
			continue
		}
		if c.code != "" && field(t, body, "error", "code") != c.code || !strings.Contains(body, c.message) {
			t.Errorf("row %d: %.60q answers %s", c.row, c.send, body)
		}
		if !strings.Contains(res, "\r\nConnection: close") && strings.HasPrefix(res, "HTTP/1.1") || !strings.Contains(res, "\r\nServer: Splash") {
			t.Errorf("row %d: %.60q has the head %s", c.row, c.send, res)
		}
	}
	if got := f.raw("GET " + msgs + " HTTP/1.1\r\nHost: localhost\r\nX: " + long + "\r\n\r\n"); !strings.Contains(got, `{"type":"error","error":{"type":"invalid_request_error"`) {
		t.Errorf("row 11: %s", got)
	}
	if got := f.raw(post(cc, "Expect: 200-maybe\r\nContent-Length: 2\r\n", "{}")); !strings.HasPrefix(got, "HTTP/1.1 417 ") {
		t.Errorf("an unknown expectation: %s", got)
	}
}

// TestShortBody: a body that ends early, and one that is refused while it is being sent.
func TestShortBody(t *testing.T) {
	f := serve(t, Options{MaxBody: 64 << 20})
	c, err := net.Dial("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "POST "+cc+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{}")
	c.(*net.TCPConn).CloseWrite()
	got, _ := io.ReadAll(c)
	if !bytes.Contains(got, []byte("request body ended before Content-Length")) || !bytes.HasPrefix(got, []byte("HTTP/1.1 400")) {
		t.Errorf("row 31: %s", got)
	}
	// The client sends all of what is refused by its head, and then reads the refusal.
	big := strings.Repeat(" ", 20<<20)
	r := f.do("POST", cc, big, header("Content-Type", "text/plain"))
	if r.status != http.StatusUnsupportedMediaType {
		t.Errorf("status %d of a large body of another type", r.status)
	}
}

// TestExpectContinue: a client that asks first is told to send its body, or not to.
func TestExpectContinue(t *testing.T) {
	f := serve(t, Options{MaxBody: 1000})
	body := chatBody("")
	head := "POST " + cc + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: "
	got := f.raw(fmt.Sprintf("%s%d\r\n\r\n%s", head, len(body), body))
	if !strings.HasPrefix(got, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200") {
		t.Errorf("%.200s", got)
	}
	got = f.raw(head + "2000\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 413") {
		t.Errorf("%.200s", got)
	}
}

func TestWideBodies(t *testing.T) {
	f := serve(t, Options{})
	text := chatBody(`"user":"ä€𝄞"`)
	for name, encode := range map[string]func(r rune) []byte{
		"UTF-32BE": func(r rune) []byte { return []byte{byte(r >> 24), byte(r >> 16), byte(r >> 8), byte(r)} },
		"UTF-32LE": func(r rune) []byte { return []byte{byte(r), byte(r >> 8), byte(r >> 16), byte(r >> 24)} },
	} {
		var b []byte
		for _, r := range text {
			b = append(b, encode(r)...)
		}
		if r := f.post(cc, string(b)); r.status != 200 {
			t.Errorf("%s: %s", name, r.body)
		}
		if r := f.post(cc, string(b[:len(b)-1])); r.status != 400 {
			t.Errorf("%s, cut: %d", name, r.status)
		}
	}
	if r := f.post(cc, `{"messages":[{"role":"user","content":"\ud800"}]}`); r.status != 400 {
		t.Errorf("a lone surrogate: %d", r.status)
	}
}

// TestConnections takes every connection: one that waits for its head gives way, and when all hold a request a new one
// is refused.
func TestConnections(t *testing.T) {
	f := serve(t, Options{Queue: 4})
	dial := func() net.Conn {
		c, err := net.Dial("tcp", f.address)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(20 * time.Second))
		return c
	}
	var idle []net.Conn
	for range 68 {
		idle = append(idle, dial())
	}
	defer func() {
		for _, c := range idle {
			c.Close()
		}
	}()
	for f.server.listener.Load().connections() < 68 {
		time.Sleep(time.Millisecond)
	}
	if r := f.do("GET", "/health", "", nil); r.status != 200 {
		t.Errorf("row 112: %d", r.status)
	}
	got, err := io.ReadAll(idle[0])
	want := `{"error":{"message":"HTTP connection capacity is exhausted","type":"server_error","code":"frontend_overloaded"}}`
	if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 503") || !strings.Contains(string(got), "Retry-After: 1") || !strings.HasSuffix(string(got), want) {
		t.Errorf("row 112: the longest waiting connection gets %q, %v", got, err)
	}
	idle[1].SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := idle[1].Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("row 112: the second connection: %v", err)
	}
}

// TestHeadDeadline: a head that is never finished is closed without a word.
func TestHeadDeadline(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limited := newListener(l, 10)
	defer limited.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET / HTTP/1.1\r\n")
	accepted, err := limited.Accept()
	if err != nil {
		t.Fatal(err)
	}
	accepted.(*conn).deadline = time.Now().Add(20 * time.Millisecond)
	if n, err := accepted.Read(make([]byte, 10)); n != 0 || err != io.EOF {
		t.Errorf("row 33: %d bytes, %v", n, err)
	}
	accepted.Close()
	if got, err := io.ReadAll(c); len(got) > 0 || err != nil {
		t.Errorf("row 33: the client reads %q, %v", got, err)
	}
	if limited.connections() != 0 {
		t.Errorf("%d connections left", limited.connections())
	}
}

// TestClientGone: a client that goes, or closes its sending side, frees its lane.
func TestClientGone(t *testing.T) {
	f := serve(t, Options{})
	f.says(strings.Repeat("word ", 500))
	for _, half := range []bool{false, true} {
		c, err := net.Dial("tcp", f.address)
		if err != nil {
			t.Fatal(err)
		}
		body := chatBody(`"stream":true`)
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", cc, len(body), body)
		release := slowly(f)
		if _, err := io.ReadAtLeast(c, make([]byte, 4096), 400); err != nil {
			t.Fatal(err)
		}
		if half {
			c.(*net.TCPConn).CloseWrite()
		} else {
			c.Close()
		}
		waitFor(t, "the lane", func() bool { return f.script.open() == 0 })
		release()
		c.Close()
	}
	f.says("answer")
	if r := f.post(cc, chatBody("")); r.status != 200 {
		t.Errorf("row 113: %d", r.status)
	}
	waitFor(t, "the console", func() bool { return strings.Count(f.out.String(), "Gone · ") == 2 })
}

// slowly lets a pass happen every few milliseconds, until release is called.
func slowly(f *fixture) (release func()) {
	gate := make(chan struct{})
	f.script.mu.Lock()
	f.script.gate = gate
	f.script.mu.Unlock()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				select {
				case gate <- struct{}{}:
				case <-done:
					return
				}
			}
		}
	}()
	return func() {
		f.script.mu.Lock()
		f.script.gate = nil
		f.script.mu.Unlock()
		close(done)
		<-ended
		close(gate)
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%s: not in ten seconds", what)
}

// TestQueueFull: what has no slot is refused before its body is read; control routes go on.
func TestQueueFull(t *testing.T) {
	f := serve(t, Options{Queue: 2})
	release := f.hold()
	replies := make(chan reply, 2)
	for range 2 {
		go func() { replies <- f.post(cc, chatBody("")) }()
	}
	waitFor(t, "the slots", func() bool { return len(f.server.slots) == 2 })
	for _, c := range []check{
		{row: 111, path: cc, body: chatBody(""), status: 503, has: []string{"Retry-After: 1", `"code":"frontend_overloaded"`, "frontend request capacity is exhausted"}},
		{row: 111, path: msgs, body: "{" + mu + "}", status: 503, has: []string{`"type":"overloaded_error"`}},
		{row: 111, path: "/health", status: 200},
		{row: 111, path: "/status", status: 200, has: []string{`"requests":{"active":2,"capacity":2}`}},
		{row: 111, path: "/tokenize", body: `{"content":"x"}`, status: 200},
	} {
		c.run(f)
	}
	release()
	for range 2 {
		if r := <-replies; r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
}

func TestBodyBudget(t *testing.T) {
	f := serve(t, Options{})
	f.server.bodies.take(f.server.bodies.limit - 10)
	c := check{path: cc, body: chatBody(""), status: 503, has: []string{"request body capacity is exhausted; retry shortly"}}
	c.run(f)
	f.server.bodies.give(f.server.bodies.limit - 10)
	c = check{path: cc, body: chatBody(""), status: 200}
	c.run(f)
	if n := f.server.bodies.inUse(); n != 0 {
		t.Errorf("%d bytes are still charged", n)
	}
}

func TestTimeout(t *testing.T) {
	f := serve(t, Options{})
	release := f.hold()
	answered := make(chan struct{})
	go func() { // the request's pass, if it has come to one, ends after its time has
		for f.script.open() == 0 {
			select {
			case <-answered:
				return
			case <-time.After(time.Millisecond):
			}
		}
		time.Sleep(150 * time.Millisecond)
		release()
	}()
	c := check{row: 114, path: cc, body: chatBody(`"timeout":0.05`), status: 504, has: []string{`"code":"request_timeout"`}}
	c.run(f)
	close(answered)
	release()
	c = check{row: 114, path: cc, body: chatBody(""), status: 200}
	c.run(f)
}

// TestFaults: a fault of the engine is the request's error, and the server goes on and says that it is ready.
func TestFaults(t *testing.T) {
	f := serve(t, Options{})
	set := func(fault func() error, nan bool) {
		f.script.mu.Lock()
		f.script.fault, f.script.nan = fault, nan
		f.script.mu.Unlock()
	}
	set(nil, true)
	c := check{path: cc, body: chatBody(""), status: 500, has: []string{`"code":"model_result_invalid"`}}
	c.run(f)
	set(func() error { panic("a kernel") }, false)
	c = check{path: cc, body: chatBody(""), status: 500, has: []string{`"code":"internal_server_error"`, "Content-Type: application/json"}, hasNot: []string{"kernel"}}
	c.run(f)
	// The first pass of a stream may fail before or after the stream has begun: the client learns of it in both.
	r := f.post(cc, chatBody(`"stream":true`))
	begun := r.status == 200 && strings.HasSuffix(r.body, "data: [DONE]\n\n")
	if r.status != 500 && !begun || !strings.Contains(r.body, `"code":"internal_server_error"`) || strings.Contains(r.body, "kernel") {
		t.Errorf("a stream whose first pass fails: %d %s", r.status, r.body)
	}
	set(nil, false)
	f.says("answer and more")
	defer slowly(f)()
	passes := 0
	set(func() error {
		if passes++; passes > 2 {
			return fmt.Errorf("a device is lost")
		}
		return nil
	}, false)
	r = f.post(cc, chatBody(`"stream":true`))
	events, _, err := parseEvents(strings.NewReader(r.body))
	n := len(events)
	if err != nil || n < 3 || field(t, events[n-2].data, "error", "code") != codeInternal || events[n-1].data != "[DONE]" {
		t.Errorf("row 59: %v %s", err, r.body)
	}
	passes = 0
	r = f.post(msgs, "{"+mu+`,"stream":true}`)
	events, _, err = parseEvents(strings.NewReader(r.body))
	n = len(events)
	if err != nil || n < 3 || events[n-1].name != "error" || field(t, events[n-1].data, "error", "type") != "api_error" {
		t.Errorf("row 59: %v %s", err, r.body)
	}
	set(nil, false)
	for _, c := range []check{{path: cc, body: chatBody(""), status: 200}, {path: "/ready", status: 200}} {
		c.run(f)
	}
	if log := f.out.String(); !strings.Contains(log, "a device is lost") {
		t.Errorf("the console does not say why:\n%s", log)
	}
}

// TestShutdown: requests under way end with an error that says so, and Serve returns.
func TestShutdown(t *testing.T) {
	f := serve(t, Options{})
	f.says(strings.Repeat("word ", 1000))
	release := slowly(f)
	defer release()
	streamed := make(chan reply, 1)
	go func() { streamed <- f.post(cc, chatBody(`"stream":true`)) }()
	waitFor(t, "the stream", func() bool { return f.script.open() == 1 })
	time.Sleep(20 * time.Millisecond)
	began := time.Now()
	f.stop()
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("row 115: stopping took %v", took)
	}
	r := <-streamed
	if !strings.Contains(r.body, `"code":"server_shutdown"`) {
		t.Errorf("row 115: %d %.1000s", r.status, r.body)
	}
}

// TestConsoleIsSilent: nothing of what clients say is on the console.
func TestConsoleIsSilent(t *testing.T) {
	f := serve(t, Options{})
	f.says("classified-answer")
	secret := `{"messages":[{"role":"user","content":"classified-question"}],` + strings.Replace(tools, `"add"`, `"classified_tool"`, 1)
	f.post(cc, secret+"}")
	f.post(cc, secret+`,"stream":true}`)
	f.post(cc, secret+`,"temperature":"classified"}`)
	f.post(cc, secret+`,"chat_template_kwargs":{"messages":"classified"}}`)
	f.post(cc, `{"messages":[{"role":"assistant","content":"classified"},{"role":"tool","content":[1]}]}`)
	f.raw("GET /%1b[31mclassifi%0aed HTTP/1.1\r\nHost: localhost\r\n\r\n")
	log := f.out.String()
	if strings.Contains(log, "classified") || strings.ContainsAny(log, "\x1b") {
		t.Errorf("the console shows what a client said:\n%s", log)
	}
	if !strings.Contains(log, "1 tools ") || strings.Count(log, "Done · ") != 2 {
		t.Errorf("the console:\n%s", log)
	}
}

func TestOriginsOnConsole(t *testing.T) {
	f := serve(t, Options{})
	for i := range 40 {
		for range 2 {
			f.do("GET", "/health", "", header("Origin", fmt.Sprintf("https://site-%d.example", i)))
		}
	}
	log := f.out.String()
	if n := strings.Count(log, "Refused · Origin https://site-"); n != 32 {
		t.Errorf("%d origins are logged, want 32", n)
	}
	if strings.Count(log, "Refused · further Origins are not logged") != 1 {
		t.Errorf("the end of the list is logged not once:\n%s", log)
	}
}

var _ model.Network = (*script)(nil)

// TestStalledBody: an upload that stops is given up.
func TestStalledBody(t *testing.T) {
	f := serve(t, Options{Timeout: 100 * time.Millisecond})
	c, err := net.Dial("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, "POST "+cc+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{")
	got, err := io.ReadAll(c)
	if err != nil || !bytes.HasPrefix(got, []byte("HTTP/1.1 408")) || !bytes.Contains(got, []byte(`"code":"request_timeout"`)) {
		t.Errorf("row 32: %s %v", got, err)
	}
	waitFor(t, "the slot", func() bool { return len(f.server.slots) == 0 && f.server.bodies.inUse() == 0 })
}

// TestNotReady: a server whose engine has stopped lives, and says that it is not ready.
func TestNotReady(t *testing.T) {
	f := serve(t, Options{})
	f.server.model.Engine.Close()
	for _, c := range []check{
		{row: 2, path: "/ready", status: 503, has: []string{`{"status":"unavailable"}`, "Retry-After: 1"}},
		{row: 2, path: "/health", status: 200},
		{row: 2, path: "/metrics", status: 200, has: []string{"\nsplash_ready 0\n"}},
		{row: 2, path: cc, body: chatBody(""), status: 503, has: []string{"Retry-After: 1"}},
		{row: 58, path: cc, body: chatBody(`"stream":true`), status: 503, has: []string{"Content-Type: application/json"}},
	} {
		c.run(f)
	}
}
