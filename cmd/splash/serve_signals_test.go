package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// itself is this test's own binary as the command, which needs no building.
func itself(t *testing.T) string {
	t.Helper()
	t.Setenv(programVariable, "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "splash")
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSecondSignal: the first Ctrl+C waits for a request that is still being sent, the second does not.
func TestSecondSignal(t *testing.T) {
	p := start(t, itself(t), "serve", "--no-draft", "--port", freePort(t))
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
	for status(t, p, "http", "requests", "active") != 1.0 {
		time.Sleep(time.Millisecond)
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for line := range p.lines {
		if strings.Contains(line, "Stopping") {
			break
		}
	}
	began := time.Now()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	p.cmd.Wait()
	// A machine that took seconds to send the second signal may have stopped in order meanwhile.
	if got := p.cmd.ProcessState.ExitCode(); got != 128+int(syscall.SIGINT) && !(got == 0 && time.Since(began) > 3*time.Second) {
		t.Errorf("status %d after %v", got, time.Since(began))
	}
}

// status reads a value of /status.
func status(t *testing.T, p *process, keys ...string) any {
	t.Helper()
	res, err := http.Get(p.url + "/status")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var v any
	if err := json.NewDecoder(res.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		o, _ := v.(map[string]any)
		v = o[key]
	}
	return v
}

// TestSecondServer: a port has one server, which the other's refusal names.
func TestSecondServer(t *testing.T) {
	data := t.TempDir()
	t.Setenv("SPLASH_DATA_DIR", data)
	port := freePort(t)
	p := start(t, itself(t), "serve", "--no-draft", "--port", port)
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"serve", "--host", "0.0.0.0", "--port", port}, console{nil, &stdout, &stderr})
	want := fmt.Sprintf("error: Splash is already serving (PID %d, model the demonstration model, port %s); stop it with Ctrl+C first\n", p.cmd.Process.Pid, port)
	if code != exitFailure || stderr.String() != want || stdout.Len() > 0 {
		t.Errorf("status %d, %q, want %q", code, stderr.String(), want)
	}
	// A server that is killed leaves its port.
	p.cmd.Process.Kill()
	p.cmd.Wait()
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	release, err := hold(filepath.Join(data, "runtime"), holder{PID: 1, Port: uint16(number)})
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// TestPromptsOutliveTheServer: what memory has no room for is read back from the disk (row 120), also by the server that is
// started after one was killed.
func TestPromptsOutliveTheServer(t *testing.T) {
	binary, dir := itself(t), t.TempDir()
	question := `{"temperature":0,"max_tokens":8,"messages":[{"role":"user","content":"` + strings.Repeat("Tell me of the fox and the sea. ", 20) + `"}]}`
	ask := func(p *process) (text string, prompt, cached float64) {
		t.Helper()
		res, err := http.Post(p.url+"/v1/chat/completions", "application/json", strings.NewReader(question))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		var answer struct {
			Choices []struct{ Message json.RawMessage }
			Usage   struct {
				Prompt  float64 `json:"prompt_tokens"`
				Details struct {
					Cached float64 `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal(body, &answer); err != nil || len(answer.Choices) != 1 {
			t.Fatalf("%v: %s", err, body)
		}
		return string(answer.Choices[0].Message), answer.Usage.Prompt, answer.Usage.Details.Cached
	}
	var first string
	for round := range 2 {
		p := start(t, binary, "serve", "--backend", "cpu", "--port", freePort(t), "--max-memory", "50M", "--max-cache-disk", "1G", "--persistent-cache", "--cache-dir", dir)
		for again := range 2 {
			text, prompt, cached := ask(p)
			if first == "" {
				first = text
			}
			if text != first {
				t.Errorf("round %d: it says %s, first %s", round, text, first)
			}
			if found := cached > prompt-48 && cached < prompt; found != (round+again > 0) {
				t.Errorf("round %d, request %d: %g of %g tokens are cached", round, again, cached, prompt)
			}
		}
		if used := status(t, p, "disk", "used_bytes"); used == nil || used == 0.0 {
			t.Errorf("round %d: %v", round, status(t, p, "disk"))
		}
		p.cmd.Process.Kill()
		p.cmd.Wait()
	}
}
