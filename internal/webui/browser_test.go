package webui_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// browserTests is the environment variable that asks for the tests that need Chromium.
const browserTests = "SPLASH_BROWSER_TESTS"

// insecureHost is a name that Chromium takes for another machine's, though it leads here: a page from it has none of the
// interfaces that browsers keep for secure contexts.
const insecureHost = "splash.test"

// patience bounds every wait. It is only met by what will never happen.
const patience = 60 * time.Second

// A browser is a headless Chromium, driven through the pipe of the DevTools protocol
// (https://chromedevtools.github.io/devtools-protocol): messages of JSON, each ended by a zero byte.
type browser struct {
	in    io.WriteCloser
	write sync.Mutex

	mu       sync.Mutex
	last     int
	pending  map[int]chan reply
	sessions map[string]func(event)
	gone     error
}

type event struct {
	Method string
	Params json.RawMessage
}

type reply struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

var shared struct {
	sync.Mutex
	browser *browser
	stop    func()
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.stop != nil {
		shared.stop()
	}
	os.Exit(code)
}

// chromium returns the browser of all tests, which share it in parallel.
func chromium(t *testing.T) *browser {
	t.Helper()
	if os.Getenv(browserTests) == "" {
		t.Skipf("set %s=1 to drive the page in Chromium", browserTests)
	}
	t.Parallel()
	shared.Lock()
	defer shared.Unlock()
	if shared.browser == nil {
		b, stop, err := launch(chromiumPath(t))
		if err != nil {
			t.Fatal(err)
		}
		shared.browser, shared.stop = b, stop
	}
	return shared.browser
}

func chromiumPath(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{
		"chromium", "chromium-browser", "google-chrome", "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
	} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatalf("%s is set, and there is no Chromium: apt-get install -y chromium, or name one in CHROMIUM", browserTests)
	return ""
}

func launch(path string) (*browser, func(), error) {
	profile, err := os.MkdirTemp("", "chromium")
	if err != nil {
		return nil, nil, err
	}
	fail := func(err error) (*browser, func(), error) {
		os.RemoveAll(profile)
		return nil, nil, fmt.Errorf("start %s: %w", path, err)
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(path,
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--mute-audio", "--remote-debugging-pipe",
		"--user-data-dir="+profile, "--host-resolver-rules=MAP "+insecureHost+" 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
		"about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	theirIn.Close()
	theirOut.Close()
	b := &browser{in: in, pending: map[int]chan reply{}, sessions: map[string]func(event){}}
	go b.read(out)
	stop := func() {
		b.call("", "Browser.close", nil, nil)
		in.Close()
		cmd.Wait()
		os.RemoveAll(profile)
	}
	if err := b.call("", "Browser.getVersion", nil, nil); err != nil {
		stop()
		return fail(fmt.Errorf("%w\n%s", err, log.Bytes()))
	}
	return b, stop, nil
}

// read hands out what the browser says, until it ends.
func (b *browser) read(r io.Reader) {
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		data, err := in.ReadBytes(0)
		if err != nil {
			b.end(fmt.Errorf("the browser ended: %w", err))
			return
		}
		var m struct {
			ID        int
			SessionID string
			event
			reply
		}
		if err := json.Unmarshal(data[:len(data)-1], &m); err != nil {
			b.end(err)
			return
		}
		b.mu.Lock()
		answer, handle := b.pending[m.ID], b.sessions[m.SessionID]
		delete(b.pending, m.ID)
		b.mu.Unlock()
		switch {
		case m.ID != 0 && answer != nil:
			answer <- m.reply
		case m.ID == 0 && handle != nil:
			handle(m.event)
		}
	}
}

func (b *browser) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = err
	for id, answer := range b.pending {
		close(answer)
		delete(b.pending, id)
	}
}

// call calls a method of the protocol in a session; "" is the browser's.
func (b *browser) call(session, method string, params, result any) error {
	answer := make(chan reply, 1)
	b.mu.Lock()
	if b.gone != nil {
		b.mu.Unlock()
		return b.gone
	}
	b.last++
	id := b.last
	b.pending[id] = answer
	b.mu.Unlock()
	message := map[string]any{"id": id, "method": method}
	if params != nil {
		message["params"] = params
	}
	if session != "" {
		message["sessionId"] = session
	}
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	b.write.Lock()
	_, err = b.in.Write(append(data, 0))
	b.write.Unlock()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case r, ok := <-answer:
		switch {
		case !ok:
			return b.gone
		case r.Error != nil:
			return fmt.Errorf("%s: %s", method, r.Error.Message)
		case result != nil:
			return json.Unmarshal(r.Result, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: no answer within %v", method, patience)
	}
}

// A tab is a page in a profile of its own. What goes wrong in it fails its test: errors and warnings on the console,
// exceptions, dialogs, and requests to any origin but the one it was opened on.
type tab struct {
	t       *testing.T
	b       *browser
	session string
	origin  string

	mu      sync.Mutex
	faults  []string
	allowed []string // what is part of faults that the test brings about
	loads   int
	urls    []string
}

// A view is how a tab shows pages.
type view struct {
	width, height int
	dark, still   bool // prefers a dark theme; reduced motion
	mobile        bool
}

// open opens an address in a new tab.
func (b *browser) open(t *testing.T, address string, v view) *tab {
	t.Helper()
	p := b.blank(t)
	u, err := url.Parse(address)
	p.must(err)
	p.origin = u.Scheme + "://" + u.Host
	p.show(v)
	p.navigate(address)
	return p
}

// blank returns a tab that shows nothing.
func (b *browser) blank(t *testing.T) *tab {
	t.Helper()
	p := &tab{t: t, b: b}
	var profile struct{ BrowserContextID string }
	p.must(b.call("", "Target.createBrowserContext", nil, &profile))
	t.Cleanup(func() {
		p.check()
		b.call("", "Target.disposeBrowserContext", map[string]any{"browserContextId": profile.BrowserContextID}, nil)
	})
	var target struct{ TargetID string }
	p.must(b.call("", "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": profile.BrowserContextID}, &target))
	var attached struct{ SessionID string }
	p.must(b.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached))
	p.session = attached.SessionID
	b.mu.Lock()
	b.sessions[p.session] = p.handle
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		p.call(domain+".enable", nil, nil)
	}
	p.call("Emulation.setFocusEmulationEnabled", map[string]any{"enabled": true}, nil)
	return p
}

func (p *tab) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *tab) call(method string, params, result any) {
	p.t.Helper()
	p.must(p.b.call(p.session, method, params, result))
}

func (p *tab) show(v view) {
	p.t.Helper()
	if v.width == 0 {
		v.width, v.height = 1024, 768
	}
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": v.width, "height": v.height, "deviceScaleFactor": 1, "mobile": v.mobile,
	}, nil)
	scheme, motion := "light", "no-preference"
	if v.dark {
		scheme = "dark"
	}
	if v.still {
		motion = "reduce"
	}
	p.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": motion},
	}}, nil)
}

// navigate opens an address and waits until the page is loaded.
func (p *tab) navigate(address string) {
	p.t.Helper()
	p.load(func() { p.call("Page.navigate", map[string]any{"url": address}, nil) })
}

func (p *tab) reload() {
	p.t.Helper()
	p.load(func() { p.call("Page.reload", nil, nil) })
}

func (p *tab) load(start func()) {
	p.t.Helper()
	before := p.loaded()
	start()
	for end := time.Now().Add(patience); p.loaded() == before; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatal("the page does not load")
		}
	}
}

func (p *tab) loaded() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loads
}

func (p *tab) handle(e event) {
	var v struct {
		Type, Text string
		Message    string
		Request    struct{ URL string }
		Entry      struct{ Level, Text, URL string }
		Args       []struct {
			Value       any
			Description string
		}
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if err := json.Unmarshal(e.Params, &v); err != nil {
		p.fault("event %s: %v", e.Method, err)
	}
	switch e.Method {
	case "Page.loadEventFired":
		p.mu.Lock()
		p.loads++
		p.mu.Unlock()
	case "Page.javascriptDialogOpening":
		p.fault("dialog: %s", v.Message)
		go p.b.call(p.session, "Page.handleJavaScriptDialog", map[string]any{"accept": true}, nil)
	case "Runtime.exceptionThrown":
		p.fault("exception: %s %s", v.ExceptionDetails.Text, v.ExceptionDetails.Exception.Description)
	case "Runtime.consoleAPICalled":
		p.fault("console.%s: %v", v.Type, v.Args)
	case "Log.entryAdded":
		if v.Entry.Level == "error" || v.Entry.Level == "warning" {
			p.fault("log: %s %s", v.Entry.Text, v.Entry.URL)
		}
	case "Network.requestWillBeSent":
		p.mu.Lock()
		p.urls = append(p.urls, v.Request.URL)
		p.mu.Unlock()
		if !strings.HasPrefix(v.Request.URL, p.origin+"/") && !strings.HasPrefix(v.Request.URL, "data:") {
			p.fault("outside request: %s", v.Request.URL)
		}
	case "Page.windowOpen", "Network.webSocketCreated":
		p.fault("%s: %s", e.Method, e.Params)
	}
}

func (p *tab) fault(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, fmt.Sprintf(format, args...))
}

// allow expects faults that have part in their text.
func (p *tab) allow(parts ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allowed = append(p.allowed, parts...)
}

func (p *tab) check() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
next:
	for _, fault := range p.faults {
		for _, part := range p.allowed {
			if strings.Contains(fault, part) {
				continue next
			}
		}
		p.t.Error(fault)
	}
}

// eval evaluates an expression, a promise's value where it is one, into result.
func (p *tab) eval(result any, expression string, args ...any) {
	p.t.Helper()
	if err := p.tryEval(result, expression, args...); err != nil {
		p.t.Fatalf("%v\n%.2000s", err, expression)
	}
}

// tryEval evaluates an expression in which $0, $1 and so on stand for args.
func (p *tab) tryEval(result any, expression string, args ...any) error {
	for i, arg := range args {
		data, err := json.Marshal(arg)
		if err != nil {
			return err
		}
		expression = strings.ReplaceAll(expression, fmt.Sprintf("$%d", i), string(data))
	}
	var r struct {
		Result struct {
			Value json.RawMessage
		}
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	err := p.b.call(p.session, "Runtime.evaluate", map[string]any{
		"expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true,
	}, &r)
	switch {
	case err != nil:
		return err
	case r.ExceptionDetails != nil:
		return fmt.Errorf("%s %s", r.ExceptionDetails.Text, r.ExceptionDetails.Exception.Description)
	case result != nil && len(r.Result.Value) > 0:
		return json.Unmarshal(r.Result.Value, result)
	}
	return nil
}

func (p *tab) text(selector string) string {
	p.t.Helper()
	var s string
	p.eval(&s, `document.querySelector($0).textContent`, selector)
	return s
}

func (p *tab) is(condition string, args ...any) bool {
	p.t.Helper()
	var ok bool
	p.eval(&ok, "!!("+condition+")", args...)
	return ok
}

func (p *tab) number(expression string) int {
	p.t.Helper()
	var n int
	p.eval(&n, expression)
	return n
}

// wait waits until a condition holds.
func (p *tab) wait(condition string, args ...any) {
	p.t.Helper()
	err := p.tryEval(nil, fmt.Sprintf(`new Promise((resolve, reject) => {
		const end = performance.now() + %d;
		const look = () => {
			let ok = false;
			try { ok = %s; } catch { /* not yet */ }
			if (ok) resolve();
			else if (performance.now() > end) reject(new Error('it never holds'));
			else setTimeout(look, 5);
		};
		look();
	})`, (patience-10*time.Second).Milliseconds(), condition), args...)
	if err != nil {
		p.t.Fatalf("wait for %s %v: %v\n%s", condition, args, err, p.text("#conversation"))
	}
}

// done waits until nothing is running and the page has n turns.
func (p *tab) done(n int) {
	p.t.Helper()
	p.wait(`chat.running === null && chat.turns.length === $0`, n)
}

// key presses a key, with modifiers of the protocol: 1 Alt, 2 Control, 8 Shift.
func (p *tab) key(name string, modifiers int) {
	p.t.Helper()
	codes := map[string]int{"Enter": 13, "Escape": 27, "Tab": 9, "ArrowUp": 38, "Space": 32}
	params := map[string]any{"type": "keyDown", "key": name, "code": name, "windowsVirtualKeyCode": codes[name], "modifiers": modifiers}
	switch name {
	case "Enter":
		params["text"] = "\r"
	case "Space":
		params["key"], params["text"] = " ", " "
	}
	p.call("Input.dispatchKeyEvent", params, nil)
	params["type"] = "keyUp"
	delete(params, "text")
	p.call("Input.dispatchKeyEvent", params, nil)
}

// write writes into what has the focus.
func (p *tab) write(text string) {
	p.t.Helper()
	p.call("Input.insertText", map[string]any{"text": text}, nil)
}

// click clicks an element where it is, and fails if another one is above it.
func (p *tab) click(selector string) {
	p.t.Helper()
	var at struct {
		X, Y float64
		Hit  bool
	}
	p.eval(&at, `(() => {
		const e = document.querySelector($0);
		e.scrollIntoView({block: 'nearest'});
		const r = e.getBoundingClientRect();
		const x = r.x + r.width / 2, y = r.y + r.height / 2;
		const hit = document.elementFromPoint(x, y);
		return {x, y, hit: e.contains(hit)};
	})()`, selector)
	if !at.Hit {
		p.t.Fatalf("%s cannot be clicked at %v", selector, at)
	}
	for _, kind := range []string{"mouseMoved", "mousePressed", "mouseReleased"} {
		p.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1}, nil)
	}
}

// ask writes a message and sends it with Enter.
func (p *tab) ask(text string) {
	p.t.Helper()
	p.eval(nil, `document.getElementById('message').focus()`)
	p.write(text)
	p.key("Enter", 0)
}

// screenshot writes what the tab shows into a folder, which SPLASH_SCREENSHOTS may name.
func (p *tab) screenshot(name string) {
	p.t.Helper()
	dir := os.Getenv("SPLASH_SCREENSHOTS")
	if dir == "" {
		dir = p.t.TempDir()
	}
	var shot struct{ Data string }
	p.call("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	p.must(err)
	p.must(os.WriteFile(filepath.Join(dir, name+".png"), data, 0o644))
}
