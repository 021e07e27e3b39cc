package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"splash/fixtures"
	"splash/internal/cpu"
	"splash/internal/gguf"
)

// A guest is a server in this process.
type guest struct {
	url    string
	said   string // until it was ready
	stop   context.CancelFunc
	done   chan struct{}
	status int // when done
	stderr lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var readyLine = regexp.MustCompile(`Ready · .* · (http://\S+)\n`)

// host runs serve in this process, until it is ready.
func host(t *testing.T, args ...string) *guest {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s := &guest{stop: stop, done: make(chan struct{})}
	in, out := io.Pipe()
	port := freePort(t)
	go func() {
		defer close(s.done)
		s.status = run(ctx, append([]string{"serve", "--port", port}, args...), console{nil, out, &s.stderr})
		out.Close()
	}()
	var text []byte
	for line := make([]byte, 1000); s.url == ""; {
		n, err := in.Read(line)
		if text = append(text, line[:n]...); err != nil {
			t.Fatalf("not ready: %s%s", text, s.stderr.String())
		}
		if m := readyLine.FindSubmatch(text); m != nil {
			s.url, s.said = string(m[1]), string(text)
		}
	}
	go io.Copy(io.Discard, in)
	t.Cleanup(func() { s.end() })
	return s
}

// end stops the server and returns its status.
func (s *guest) end() int {
	s.stop()
	<-s.done
	return s.status
}

// TestNoDraftIsSaid: a draft that is not used was once said nowhere.
func TestNoDraftIsSaid(t *testing.T) {
	s := host(t, "--no-draft")
	if !strings.Contains(s.said, " No draft · splash/pebble is decoded one token a cycle\n") {
		t.Errorf("the console says %q", s.said)
	}
	res, err := http.Get(s.url + "/status")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); !bytes.Contains(body, []byte(`"draft":{"enabled":false}`)) {
		t.Errorf("/status says %s %v", body, err)
	}
}

// TestStatusNamesTheDevice reads what computes.
func TestStatusNamesTheDevice(t *testing.T) {
	s := host(t, "--backend", "cpu")
	res, err := http.Get(s.url + "/status")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var status struct {
		Backend struct {
			Name, Device string
			Features     []string
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&status); err != nil {
		t.Fatal(err)
	}
	levels := cpu.Levels()
	b := status.Backend
	if b.Name != "cpu" || b.Device != cpu.Processor() || len(b.Features) != 1 ||
		os.Getenv(cpu.LevelVariable) == "" && b.Features[0] != levels[len(levels)-1].String() {
		t.Errorf("/status says %+v", b)
	}
}

// TestServeAnyPart names the last part of a split beside strays of another count: all parts are found, and the metadata is
// the first one's. Without the second part the server does not start.
func TestServeAnyPart(t *testing.T) {
	f, err := gguf.FromBytes("pebble", fixtures.Pebble)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var w gguf.Writer
	for i := range f.Keys {
		w.Set(f.Keys[i].Key, f.Keys[i].Value())
	}
	for i := range f.Tensors {
		w.AddBytes(f.Tensors[i].Name, f.Tensors[i].Type, f.Tensors[i].Dims, f.Data(&f.Tensors[i]))
	}
	dir := t.TempDir()
	parts, err := w.WriteSplit(filepath.Join(dir, "M"), 0, 9, len(f.Tensors)-9)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, gguf.PartName("M", 2, 4)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := host(t, "--model", "local/x", "--model-dir", parts[2])
	if !strings.Contains(s.said, " Ready · local/x · ") {
		t.Errorf("the console says %q", s.said)
	}
	s.end()
	if err := os.Remove(parts[1]); err != nil {
		t.Fatal(err)
	}
	status, _, stderr := invoke(t, "serve", "--model", "local/x", "--model-dir", parts[2], "--port", freePort(t))
	want := fmt.Sprintf("error: %s: %s: part 2 of 3 of the split \"M\" is missing\n", parts[2], parts[1])
	if status != exitFailure || stderr != want {
		t.Errorf("status %d, %q, want %q", status, stderr, want)
	}
}

// TestNoFolderForItsOwnFiles: where nothing can be written, the server says what to do.
func TestNoFolderForItsOwnFiles(t *testing.T) {
	t.Setenv("SPLASH_DATA_DIR", filepath.Join(pebblePath("pebble-Q8_0.gguf"), "x"))
	status, _, stderr := invoke(t, "serve", "--port", freePort(t))
	if status != exitFailure || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "SPLASH_DATA_DIR names another") {
		t.Errorf("status %d, %q", status, stderr)
	}
}
