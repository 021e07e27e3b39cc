package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// build makes the command.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "splash")
	cmd := exec.Command("go", "build", "-o", path, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// A process is a server that was started.
type process struct {
	cmd    *exec.Cmd
	url    string
	stderr bytes.Buffer
	lines  chan string // of standard output, after the one that says Ready
}

// start runs a command that becomes a server, and waits until it says that it is ready.
func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(name, args...)}
	p.cmd.Env = append(os.Environ(), "SPLASH_API_KEY=", "SPLASH_PORT=")
	p.wait(t)
	return p
}

// wait starts the process, and waits until it says that it is ready.
func (p *process) wait(t *testing.T) {
	t.Helper()
	p.lines = make(chan string, 100)
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill() })
	ready := make(chan string, 1)
	go func() {
		defer close(p.lines)
		scan := bufio.NewScanner(out)
		for scan.Scan() {
			if line := scan.Text(); strings.Contains(line, "Ready · ") {
				ready <- line[strings.LastIndex(line, " · ")+len(" · "):]
			}
			p.lines <- scan.Text()
		}
		close(ready)
	}()
	if p.url = <-ready; p.url == "" {
		p.cmd.Wait()
		t.Fatalf("not ready: %s", p.stderr.String())
	}
}

// stop sends a signal, and returns the status and the last line.
func (p *process) stop(t *testing.T, s os.Signal) (status int, last string) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	for last = range p.lines {
		if line := last; strings.Contains(line, "Stopping") {
			break
		}
	}
	p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode(), last
}

// readmeRequest is the body of the README's example.
func readmeRequest(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?s)curl -s http://127\.0\.0\.1:8000/v1/chat/completions .*? -d '(.*?)'`).FindSubmatch(text)
	if m == nil || !bytes.Contains(text, []byte("go run ./cmd/splash serve\n")) {
		t.Fatal("the README has no example")
	}
	return string(m[1])
}

// TestServe starts the server as the README does, asks it what the README asks, and stops it.
func TestServe(t *testing.T) {
	path := build(t)
	for _, c := range []struct {
		name   string
		args   []string
		signal os.Signal
	}{
		{path, []string{"serve", "--port", freePort(t)}, syscall.SIGTERM},
		// As a shell starts what it runs in the background.
		{"sh", []string{"-c", `trap "" INT; exec "$0" "$@"`, path, "serve", "--no-draft", "--port", freePort(t)}, syscall.SIGINT},
	} {
		p := start(t, c.name, c.args...)
		res, err := http.Post(p.url+"/v1/chat/completions", "application/json", strings.NewReader(readmeRequest(t)))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !bytes.Contains(body, []byte(`"content":"The capital of France is Paris."`)) {
			t.Errorf("%d %s %v", res.StatusCode, body, err)
		}
		status, last := p.stop(t, c.signal)
		if status != 0 || !strings.HasSuffix(last, " Stopping · releasing engine resources") || p.stderr.Len() > 0 {
			t.Errorf("status %d, last line %q, stderr %q", status, last, p.stderr.String())
		}
	}
}

// TestStopWhileStreaming: a stream that is under way does not keep the server.
func TestStopWhileStreaming(t *testing.T) {
	p := start(t, build(t), "serve", "--no-draft", "--port", freePort(t))
	res, err := http.Post(p.url+"/v1/completions", "application/json",
		strings.NewReader(`{"prompt":"x","max_tokens":3000,"ignore_eos":true,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadAtLeast(res.Body, make([]byte, 1000), 200); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	status, _ := p.stop(t, syscall.SIGTERM)
	if took := time.Since(began); status != 0 || took > 20*time.Second {
		t.Errorf("status %d after %v", status, took)
	}
	rest, _ := io.ReadAll(res.Body)
	if !bytes.Contains(rest, []byte(`"code":"server_shutdown"`)) || !bytes.HasSuffix(rest, []byte("data: [DONE]\n\n")) {
		t.Errorf("the stream ends with %q", rest[max(0, len(rest)-300):])
	}
}

// TestStoppedBeforeReady: the status is the signal's.
func TestStoppedBeforeReady(t *testing.T) {
	for signal, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(signalled{signal})
		var stderr bytes.Buffer
		if status := run(ctx, []string{"serve", "--port", freePort(t)}, console{nil, io.Discard, &stderr}); status != want {
			t.Errorf("%v: status %d, want %d: %s", signal, status, want, stderr.String())
		}
	}
}

func TestServeUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		env  string
		says string
	}{
		{[]string{"--port", "0"}, "", "--port is 0"},
		{[]string{"--port", "70000"}, "", "70000"},
		{nil, "SPLASH_PORT=x", "SPLASH_PORT"},
		{nil, "SPLASH_DEFAULT_REASONING_EFFORT=much", "SPLASH_DEFAULT_REASONING_EFFORT"},
		{nil, "SPLASH_API_KEY=a b", "visible ASCII"},
		{[]string{"--api-key", ""}, "", "--api-key is empty"},
		{[]string{"--api-key", "ä"}, "", "visible ASCII"},
		{[]string{"--host", "example.com"}, "", "--host"},
		{[]string{"--host", "::1"}, "", "--host"},
		{[]string{"--announce-served-name"}, "", "--announce-served-name needs --served-model-name"},
		{[]string{"--served-model-name", "a b"}, "", "--served-model-name"},
		{[]string{"--served-model-name", "a/../b"}, "", "--served-model-name"},
		{[]string{"--allowed-origin", "http://x/y"}, "", "http://x/y is not an origin: expected a scheme and a host"},
		{[]string{"--allowed-origin", "http://*.x"}, "", "only a bare '*' admits every origin"},
		{[]string{"--default-reasoning-effort", "much"}, "", "much"},
		{[]string{"--max-request-size", "0"}, "", "must be a positive byte count such as 32G"},
		{[]string{"--max-context", "257K"}, "", "must be 'auto' or a token count up to 256K, such as 100K"},
		{[]string{"--request-timeout", "-1s"}, "", "must be a positive duration such as 30m, 2h or 3600"},
		{[]string{"--queue-size", "0"}, "", "--queue-size is 0"},
		{[]string{"--max-image-pixels", "65535"}, "", "--max-image-pixels is 65535; 65536 to 4194304 are possible"},
		{[]string{"--max-image-pixels", "4194305"}, "", "--max-image-pixels is 4194305; 65536 to 4194304 are possible"},
		{[]string{"--model", "a"}, "", "model must be a full Hugging Face repository ID (owner/repo)"},
		{[]string{"--model", "a/b:"}, "", "model variant must be a short name"},
		{[]string{"--model", "a/b", "--draft-model", "x"}, "", "draft model must be a Hugging Face repository ID"},
		{[]string{"--revision", "v1"}, "", "--revision needs --model"},
		{[]string{"--model", "a/b", "--model-dir", "x", "--revision", "v1"}, "", "--revision cannot be combined with --model-dir"},
		{[]string{"--backend", "gpu"}, "", "gpu"},
		{[]string{"--verify-rows", "some"}, "", "some"},
		{[]string{"--no-draft", "--draft-model", "x"}, "", "--no-draft cannot be combined"},
		{[]string{"--nonsense"}, "", "nonsense"},
		{[]string{"extra"}, "", "extra"},
		{[]string{"--", "x"}, "", "arguments after -- are only supported for coding clients"},
	} {
		t.Run(strings.Join(append(c.args, c.env), " "), func(t *testing.T) {
			if name, value, ok := strings.Cut(c.env, "="); ok {
				t.Setenv(name, value)
			}
			var stderr bytes.Buffer
			status := run(t.Context(), append([]string{"serve"}, c.args...), console{nil, io.Discard, &stderr})
			lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
			last := lines[len(lines)-1]
			if status != exitUsage || !strings.HasPrefix(last, "error: ") || !strings.Contains(last, c.says) || !strings.Contains(stderr.String(), "Usage:") {
				t.Errorf("status %d: %s", status, last)
			}
		})
	}
}

// TestPortInUse: that is found before the model is loaded, also where the other listener has another address.
func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, host := range []string{"127.0.0.1", "0.0.0.0"} {
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), []string{"serve", "--host", host, "--port", port}, console{nil, &stdout, &stderr})
		if status != exitFailure || !strings.HasPrefix(stderr.String(), "error: cannot bind "+host+":"+port+": ") ||
			!strings.HasSuffix(stderr.String(), "; --port names another port\n") || stdout.Len() > 0 {
			t.Errorf("status %d, %q %q", status, stderr.String(), stdout.String())
		}
	}
}

func TestTooMuchContext(t *testing.T) {
	var stderr bytes.Buffer
	status := run(t.Context(), []string{"run", "--max-context", "8K", "hi"}, console{nil, io.Discard, &stderr})
	if status != exitFailure || !strings.Contains(stderr.String(), "8192") || !strings.Contains(stderr.String(), "4096") {
		t.Errorf("status %d: %s", status, stderr.String())
	}
}

func TestRun(t *testing.T) {
	ask := func(in string, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, errs bytes.Buffer
		if status := run(t.Context(), append([]string{"run"}, args...), console{strings.NewReader(in), &out, &errs}); status != 0 {
			t.Fatalf("%v: status %d: %s", args, status, errs.String())
		}
		return out.String(), errs.String()
	}
	const question, answer = "What is the capital of France?", "The capital of France is Paris."
	out, stats := ask("", "--greedy", question)
	if out != answer+"\n" || !regexp.MustCompile(`^20 tokens · first after .* · [0-9.]+ tokens/s · [0-9.]+ tokens a cycle\n$`).MatchString(stats) {
		t.Errorf("%q, %q", out, stats)
	}
	if out, stats := ask(question+"\n", "--greedy", "--no-draft", "--reasoning-effort", "none", "-"); out != answer+"\n" || strings.Contains(stats, "a cycle") {
		t.Errorf("%q, %q", out, stats)
	}
	if _, stats := ask("", "--greedy", "--max-tokens", "3", question); !strings.Contains(stats, "cut at the token limit") {
		t.Errorf("%q", stats)
	}
	out, stats = ask("", "--json", "--greedy", question)
	var got struct {
		Model, Answer, Reasoning string
		Finish                   string `json:"finish_reason"`
		Tokens                   int
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Answer != answer || !strings.Contains(got.Reasoning, "Paris") ||
		got.Finish != "stop" || got.Tokens != 20 || got.Model != "splash/pebble" || stats != "" {
		t.Errorf("%s %v %q", out, err, stats)
	}
	first, _ := ask("", "--seed", "3", "Tell me a short story.")
	if again, _ := ask("", "--seed", "3", "Tell me a short story."); again != first {
		t.Errorf("the same seed gives %q and %q", first, again)
	}
}

func TestValues(t *testing.T) {
	sizes := map[string]int64{
		"1": 1, "28G": 28 << 30, "28GB": 28 << 30, "28GiB": 28 << 30, "28g": 28 << 30, "3k": 3 << 10, "5MIB": 5 << 20,
		"": -1, "0": -1, "-1": -1, "+1": -1, "1.5G": -1, "G": -1, "1T": -1, "1BG": -1, "9223372036854775807": 9223372036854775807, "8589934592G": -1,
	}
	for text, want := range sizes {
		var v sizeValue
		got := int64(-1)
		if v.Set(text) == nil {
			got = int64(v)
		}
		if got != want {
			t.Errorf("size %q is %d, want %d", text, got, want)
		}
	}
	tokens := map[string]int{"100K": 102400, "256k": 262144, "262144": 262144, "auto": 0, "AUTO": 0, "1": 1, "262145": -1, "0": -1, "K": -1, "": -1, "-1": -1, "99999999999K": -1}
	for text, want := range tokens {
		var v tokensValue
		got := -1
		if v.Set(text) == nil {
			got = int(v)
		}
		if got != want {
			t.Errorf("tokens %q are %d, want %d", text, got, want)
		}
	}
	durations := map[string]time.Duration{
		"90": 90 * time.Second, "90s": 90 * time.Second, "30m": 30 * time.Minute, "1.5h": 90 * time.Minute, ".5": 500 * time.Millisecond,
		"0": -1, "-1": -1, "inf": -1, "nan": -1, "1d": -1, "": -1, "1e3": -1, "99999999999999h": -1,
	}
	for text, want := range durations {
		var v durationValue
		got := time.Duration(-1)
		if v.Set(text) == nil {
			got = time.Duration(v)
		}
		if got != want {
			t.Errorf("duration %q is %v, want %v", text, got, want)
		}
	}
	contexts := map[int]string{4096: "4K", 262144: "256K", 1000: "1,000", 1234567: "1,234,567", 999: "999"}
	got := map[int]string{}
	for n := range contexts {
		got[n] = contextSize(n)
	}
	if d := cmp.Diff(contexts, got); d != "" {
		t.Error(d)
	}
}

// TestHelp: every command says what it does, every flag what it is for, and flags with known values complete them.
func TestHelp(t *testing.T) {
	for _, command := range []string{"serve", "run"} {
		var out bytes.Buffer
		if status := run(t.Context(), []string{command, "--help"}, console{nil, &out, io.Discard}); status != 0 {
			t.Errorf("%s --help: status %d", command, status)
		}
		for _, s := range []string{"Usage:", "Examples:", "--model-dir file", "--backend backend", "--max-context tokens"} {
			if !strings.Contains(out.String(), s) {
				t.Errorf("%s --help has no %q:\n%s", command, s, out.String())
			}
		}
	}
	for flag, want := range map[string]string{"--backend": "oracle", "--default-reasoning-effort": "xhigh", "--verify-rows": "all"} {
		var out bytes.Buffer
		run(t.Context(), []string{"__complete", "serve", flag, ""}, console{nil, &out, io.Discard})
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("%s does not complete %s: %s", flag, want, out.String())
		}
	}
}
