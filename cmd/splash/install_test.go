package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/hub/hubtest"
)

const (
	pebbleModel = "owner/pebble-GGUF"
	pebbleDraft = "owner/pebble-DFlash2"
	question    = "What is the capital of France?"
	answerLine  = "The capital of France is Paris."
)

// TestMain keeps every test from the files of the person who runs them, and from the Hub.
func TestMain(m *testing.M) {
	becomeProgram()
	dir, err := os.MkdirTemp("", "splash")
	if err != nil {
		panic(err)
	}
	for name, value := range map[string]string{
		"SPLASH_DATA_DIR": filepath.Join(dir, "data"), "HF_HOME": filepath.Join(dir, "hf"), "HF_HUB_CACHE": "", "HF_HUB_OFFLINE": "1",
	} {
		os.Setenv(name, value)
	}
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// newHub starts a Hub and points the environment at it, an empty cache and an empty data directory.
func newHub(t *testing.T) *hubtest.Server {
	t.Helper()
	h, dir := hubtest.New(t), t.TempDir()
	for name, value := range map[string]string{
		"HF_ENDPOINT": h.URL(), "HF_HOME": filepath.Join(dir, "hf"), "HF_HUB_CACHE": "", "HF_TOKEN": "", "HF_TOKEN_PATH": "",
		"HF_HUB_OFFLINE": "", "SPLASH_DATA_DIR": filepath.Join(dir, "data"), "SPLASH_API_KEY": "", "SPLASH_PORT": "",
		"SPLASH_DEFAULT_REASONING_EFFORT": "",
	} {
		t.Setenv(name, value)
	}
	return h
}

func pebble(t *testing.T, format string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "fixtures", "pebble", "pebble-"+format+".gguf"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// publish commits the demonstration model in a format, and its draft.
func publish(t *testing.T, h *hubtest.Server, format string) (target, draft string) {
	target = h.Commit(pebbleModel, "main", map[string][]byte{"README.md": []byte("pebble"), "pebble.gguf": pebble(t, format)})
	draft = h.Commit(pebbleDraft, "main", map[string][]byte{
		"config.json": fixtures.PebbleDraftConfig, "model.safetensors": fixtures.PebbleDraft,
	})
	return target, draft
}

func splash(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	status = run(t.Context(), args, console{nil, &out, &err})
	return status, out.String(), err.String()
}

// mustSplash is splash with status 0.
func mustSplash(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	status, stdout, stderr := splash(t, args...)
	if status != 0 {
		t.Fatalf("%v: status %d: %s", args, status, stderr)
	}
	return stdout, stderr
}

// A watcher is what a command writes; it tells when a line is there.
type watcher struct {
	mu   sync.Mutex
	text bytes.Buffer
	want *regexp.Regexp
	seen chan []string // the match
}

func watch(want string) *watcher {
	return &watcher{want: regexp.MustCompile(want), seen: make(chan []string, 1)}
}

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if m := w.want.FindStringSubmatch(w.text.String()); m != nil && w.want != never {
		w.want = never
		w.seen <- m
	}
	return len(p), nil
}

var never = regexp.MustCompile(`a\bb`)

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// serve runs splash serve, calls do with its URL and stops it.
func serve(t *testing.T, do func(url string), args ...string) (status int, stdout, stderr string) {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	out := watch(`Ready · .* · (http://\S+)\n`)
	var errs bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, append([]string{"serve", "--port", freePort(t)}, args...), console{nil, out, &errs})
	}()
	select {
	case m := <-out.seen:
		do(m[1])
		stop(signalled{syscall.SIGTERM})
		status = <-ended
	case status = <-ended:
	}
	return status, out.String(), errs.String()
}

func ask(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(
		`{"messages":[{"role":"user","content":"`+question+`"}],"temperature":0}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%d %s %v", res.StatusCode, body, err)
	}
	return string(body)
}

// TestServeFromTheHub: a model that is named is installed and answers under its name; what is served is not removed; the
// next start makes no request offline, two where nothing moved, and follows what did.
func TestServeFromTheHub(t *testing.T) {
	h := newHub(t)
	target, _ := publish(t, h, "Q8_0")
	flags := []string{"--model", pebbleModel, "--draft-model", pebbleDraft}
	status, out, stderr := serve(t, func(url string) {
		body := ask(t, url)
		if !strings.Contains(body, `"content":"`+answerLine+`"`) || !strings.Contains(body, `"model":"`+pebbleModel+`"`) {
			t.Errorf("answered %s", body)
		}
		if status, _, stderr := splash(t, "remove", pebbleModel, "--files"); status != exitFailure ||
			stderr != "error: "+pebbleModel+" is being served; stop its server first\n" {
			t.Errorf("removed while it is served: status %d, %q", status, stderr)
		}
	}, flags...)
	if status != 0 || stderr != "" {
		t.Fatalf("status %d, %q", status, stderr)
	}
	want := []string{
		"Selected pebble.gguf from " + pebbleModel,
		"Installing " + pebbleModel + " as pebble (gguf); draft " + pebbleDraft + "; vision disabled.",
		"Fetching 1 file(s), 0.01 GB, from " + pebbleModel + "@" + target[:12],
		"Fetched 0.01 GB in", "Loading · " + pebbleModel, "Ready · " + pebbleModel,
	}
	inOrder(t, out, want...)

	h.Reset()
	answers := func() (stderr string) {
		t.Helper()
		stdout, stderr := mustSplash(t, append([]string{"run", "--greedy", question}, flags...)...)
		if stdout != answerLine+"\n" || !strings.Contains(stderr, "tokens a cycle") {
			t.Errorf("answered %q, %q", stdout, stderr)
		}
		return stderr
	}
	status, _, stderr = serve(t, func(url string) {
		if body := ask(t, url); !strings.Contains(body, answerLine) {
			t.Errorf("answered %s", body)
		}
	}, append(flags, "--offline")...)
	if n := h.Total(); status != 0 || stderr != "" || n != (hubtest.Count{}) {
		t.Errorf("offline: status %d, %q, %+v asked", status, stderr, n)
	}
	answers()
	if n := h.Total(); n != (hubtest.Count{Hub: 2}) {
		t.Errorf("%+v asked where nothing moved", n)
	}

	moved, _ := publish(t, h, "Q4_K_M")
	h.Reset()
	inOrder(t, answers(), pebbleModel+" moved from "+target[:12]+" to "+moved[:12]+".", "Fetching 1 file(s)")
	if n := h.Count(pebbleDraft, "model.safetensors"); n != (hubtest.Count{}) {
		t.Errorf("the draft that is there was fetched: %+v", n)
	}
}

// inOrder checks that a text has parts in an order.
func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			t.Errorf("no %q at its place in %q", part, text)
			return
		}
		rest = after
	}
}

// TestFallBack: what is installed is served, with one line that says why, where the Hub does not answer and where the new
// commit is refused. The refused one costs its header.
func TestFallBack(t *testing.T) {
	h := newHub(t)
	target, _ := publish(t, h, "Q4_K_M")
	mustSplash(t, "pull", pebbleModel, "--draft-model", pebbleDraft)
	answers := func(reason string) {
		t.Helper()
		stdout, stderr := mustSplash(t, "run", "--greedy", "--model", pebbleModel, "--draft-model", pebbleDraft, question)
		if stdout != answerLine+"\n" {
			t.Errorf("answered %q", stdout)
		}
		said := regexp.MustCompile(`(?m)^(Could not reach the Hub|Warning: ).*$`).FindAllString(stderr, -1)
		if len(said) != 1 || !strings.Contains(said[0], reason) {
			t.Errorf("no single line %q in %q", reason, stderr)
		}
	}
	h.Inject(hubtest.Fault{Place: hubtest.API, Path: pebbleModel, Status: http.StatusForbidden, Times: -1})
	answers("using the installed " + pebbleModel + "@" + target[:12] + ".")
	h.Heal()

	whole := h.Commit(pebbleModel, "main", map[string][]byte{"pebble.gguf": pebble(t, "BF16")})
	h.Reset()
	answers("Warning: keeping the installed " + pebbleModel + "@" + target[:12] + "; cannot install " + pebbleModel + "@" + whole + ": ")
	if n := h.Count(pebbleModel, "pebble.gguf"); n.Bytes > 1<<20 || n.Requests() > 2 {
		t.Errorf("%+v for a model that is refused", n)
	}
}

// TestPullListShowRemove walks a model through its life, as a script does.
func TestPullListShowRemove(t *testing.T) {
	h := newHub(t)
	target, draft := publish(t, h, "Q4_K_M")
	stdout, _ := mustSplash(t, "list")
	if want := "No model is installed; install one with: splash pull OWNER/REPO[:VARIANT]\n"; stdout != want {
		t.Errorf("an empty list is %q", stdout)
	}
	stdout, _ = mustSplash(t, "pull", pebbleModel, "--draft-model", pebbleDraft, "--json")
	var pulled modelJSON
	decode(t, stdout, &pulled)
	bytes := int64(len(pebble(t, "Q4_K_M")) + len(fixtures.PebbleDraft) + len(fixtures.PebbleDraftConfig))
	for i, f := range pulled.Files {
		if info, err := os.Stat(filepath.Join(pulled.Directory, f.Name)); err != nil || info.Size() != f.Bytes || len(f.Digest) < 40 {
			t.Errorf("file %d, %+v: %v", i, f, err)
		}
		if f.Name == "config.json" { // it is derived
			bytes += f.Bytes
		}
	}
	if pulled.Model != pebbleModel || pulled.Family != "pebble" || pulled.ChatFormat != "qwen" || pulled.TargetFormat != "gguf" ||
		pulled.VisionFormat != "none" || pulled.Target.Commit() != target || pulled.Draft.Commit() != draft || pulled.Bytes != bytes ||
		pulled.Fault != nil || len(pulled.Files) != 4 {
		t.Errorf("pulled %+v, want %d bytes", pulled, bytes)
	}
	for _, command := range [][]string{{"list", "--json"}, {"show", pebbleModel, "--json"}, {"show", pebbleModel, "--verify", "--json"}} {
		stdout, _ := mustSplash(t, command...)
		var got modelsJSON
		decode(t, stdout, &got)
		if d := cmp.Diff(modelsJSON{[]*modelJSON{&pulled}}, got); d != "" {
			t.Errorf("%v: %s", command, d)
		}
	}
	stdout, _ = mustSplash(t, "list")
	table := "^MODEL +FAMILY +FORMAT +VISION +DRAFT +COMMIT +SIZE +STATE\n" +
		pebbleModel + " +pebble +gguf +none +" + pebbleDraft + "@" + draft[:12] + " +" + target[:12] + ` +22\.0 MiB +ok\n$`
	if !regexp.MustCompile(table).MatchString(stdout) {
		t.Errorf("list is %q", stdout)
	}
	stdout, _ = mustSplash(t, "show", pebbleModel)
	inOrder(t, stdout, pebbleModel, "pebble", target[:12], draft[:12], pulled.Directory, "target/pebble.gguf")

	blob := pulled.Files[slices.IndexFunc(pulled.Files, func(f fileJSON) bool { return f.Name == "target/pebble.gguf" })].Path
	stdout, _ = mustSplash(t, "remove", pebbleModel)
	if !strings.HasPrefix(stdout, "Removed "+pebbleModel+"; its files stay in the Hub cache: ") {
		t.Errorf("removed: %q", stdout)
	}
	if _, err := os.Stat(blob); err != nil {
		t.Errorf("a file of the Hub cache: %v", err)
	}
	h.Reset()
	stdout, _ = mustSplash(t, "pull", pebbleModel, "--draft-model", pebbleDraft)
	line := pebbleModel + " is installed: pebble, gguf, 22.0 MiB, from " + pebbleModel + "@" + target[:12]
	if n := h.Files(); n != 0 || !strings.HasPrefix(stdout, line) {
		t.Errorf("%d files asked for again; %q", n, stdout)
	}
	stdout, _ = mustSplash(t, "remove", pebbleModel, "--files", "--json")
	var removed struct {
		Model   string
		Removed int
		Freed   int64 `json:"freed_bytes"`
	}
	decode(t, stdout, &removed)
	if removed.Model != pebbleModel || removed.Removed != 1 || removed.Freed < 20<<20 {
		t.Errorf("removed %+v", removed)
	}
	if _, err := os.Stat(blob); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that was removed: %v", err)
	}
	for _, command := range []string{"show", "remove"} {
		status, _, stderr := splash(t, command, pebbleModel)
		if status != exitFailure || stderr != "error: "+pebbleModel+" is not installed; splash list shows what is\n" {
			t.Errorf("%s: status %d, %q", command, status, stderr)
		}
	}
}

func decode(t *testing.T, text string, v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil || d.More() {
		t.Fatalf("%v: %s", err, text)
	}
}

// TestShowFaults: a file that changed is said, and one whose content alone changed by --verify.
func TestShowFaults(t *testing.T) {
	h := newHub(t)
	publish(t, h, "Q4_K_M")
	stdout, _ := mustSplash(t, "pull", pebbleModel, "--json")
	var m modelJSON
	decode(t, stdout, &m)
	at := slices.IndexFunc(m.Files, func(f fileJSON) bool { return f.Name == "target/pebble.gguf" })
	if err := os.WriteFile(m.Files[at].Path, []byte("other"), 0o644); err != nil {
		t.Fatal(err)
	}
	stdout, _ = mustSplash(t, "list")
	inOrder(t, stdout, pebbleModel, "resolved model file changed: target/pebble.gguf")
	status, stdout, stderr := splash(t, "show", pebbleModel, "--verify")
	if status != exitFailure || !strings.Contains(stdout, "fault") ||
		stderr != "error: "+pebbleModel+": resolved model file changed: target/pebble.gguf\n" {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
}

// TestInterrupted: Ctrl+C ends a download with 130, and the next one goes on from what is there.
func TestInterrupted(t *testing.T) {
	h := newHub(t)
	publish(t, h, "Q8_0")
	h.Inject(hubtest.Fault{Place: hubtest.CDN, Path: "pebble.gguf", Rate: 1 << 20, Times: -1})
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT) // a pull that ends early must not end the test
	defer signal.Stop(caught)
	stderr := watch(`Fetching 1 file\(s\).*` + pebbleModel)
	ended := make(chan int, 1)
	var stdout bytes.Buffer
	go func() { ended <- run(t.Context(), []string{"pull", pebbleModel}, console{nil, &stdout, stderr}) }()
	<-stderr.seen
	partial := func() (n int64) {
		found, err := filepath.Glob(filepath.Join(os.Getenv("HF_HOME"), "hub", "models--owner--pebble-GGUF", "blobs", "*.incomplete*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			if info, err := os.Stat(path); err == nil {
				n += info.Size()
			}
		}
		return n
	}
	for partial() == 0 {
		select {
		case status := <-ended:
			t.Fatalf("ended with %d: %s", status, stderr)
		case <-time.After(time.Millisecond):
		}
	}
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Signal(syscall.SIGINT)
	}
	if err != nil {
		t.Fatal(err)
	}
	if status := <-ended; status != 130 || strings.Contains(stderr.String(), "error") || stdout.Len() > 0 {
		t.Errorf("status %d, %q", status, stderr)
	}
	if partial() == 0 {
		t.Error("nothing is left to go on from")
	}
	if out, _ := mustSplash(t, "list"); !strings.HasPrefix(out, "No model is installed") {
		t.Errorf("a half model is listed: %q", out)
	}
	h.Heal()
	mustSplash(t, "run", "--greedy", "--model", pebbleModel, question)
	if partial() != 0 {
		t.Error("a partial file is left")
	}
}

// TestRefusedModels: every command answers alike, and no weight is downloaded.
func TestRefusedModels(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string][]byte
		args  []string
		says  string
	}{
		{"unquantized", map[string][]byte{"m.gguf": pebble(t, "BF16")}, nil, "this GGUF holds most of its values unquantized"},
		{"several", map[string][]byte{"M-Q8_0.gguf": pebble(t, "Q8_0"), "M-Q4_K_M.gguf": pebble(t, "Q4_K_M")}, nil,
			"select a GGUF with OWNER/REPO:VARIANT"},
		{"a draft of another model", map[string][]byte{"m.gguf": pebble(t, "Q8_0")}, []string{"--draft-model", "owner/other"},
			"draft configuration is incompatible with pebble: "},
		{"a package", map[string][]byte{
			"manifest.json": []byte(`{"format":{"name":"splash-packed-q4"}}`), "weights.bin": make([]byte, 1<<20),
		}, nil, pebbleModel + " is a Splash package, which Splash no longer loads; " +
			"serve the MLX model of its family instead: splash serve --model mlx-community/Qwen3.8-27B-4bit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHub(t)
			h.Commit(pebbleModel, "main", c.files)
			h.Commit("owner/other", "main", map[string][]byte{
				"config.json":       bytes.Replace(fixtures.PebbleDraftConfig, []byte(`"block_size": 8`), []byte(`"block_size": 4`), 1),
				"model.safetensors": fixtures.PebbleDraft,
			})
			for _, command := range [][]string{
				{"pull", pebbleModel}, {"model-check", pebbleModel}, {"serve", "--port", freePort(t), "--model", pebbleModel},
				{"run", "--model", pebbleModel, "hi"},
			} {
				h.Reset()
				status, _, stderr := splash(t, append(command, c.args...)...)
				lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
				last := lines[len(lines)-1]
				if status != exitFailure || !strings.HasPrefix(last, "error: ") || !strings.Contains(last, c.says) {
					t.Errorf("%s: status %d, %q", command[0], status, stderr)
				}
				for name := range c.files {
					if n := h.Count(pebbleModel, name); n.Bytes > 1<<20 || n.Requests() > 2 {
						t.Errorf("%s: %+v of %s", command[0], n, name)
					}
				}
				if n := h.Count("owner/other", "model.safetensors"); n != (hubtest.Count{}) {
					t.Errorf("%s: %+v of the draft's weights", command[0], n)
				}
			}
			cached, err := filepath.Glob(filepath.Join(os.Getenv("HF_HOME"), "hub", "*", "snapshots", "*", "*.gguf"))
			if err != nil || len(cached) > 0 {
				t.Errorf("%q are in the cache, %v", cached, err)
			}
		})
	}
}

// TestToken: a repository that needs a token says how to give one, and no output shows it.
func TestToken(t *testing.T) {
	h := newHub(t)
	h.Token = "hf_secret"
	publish(t, h, "Q4_K_M")
	status, _, stderr := splash(t, "pull", pebbleModel)
	if status != exitFailure || !strings.Contains(stderr, "set HF_TOKEN or run 'hf auth login' with access to this repository") {
		t.Errorf("without a token: status %d, %q", status, stderr)
	}
	t.Setenv("HF_TOKEN", "hf_other")
	status, _, stderr = splash(t, "pull", pebbleModel)
	if status != exitFailure || !strings.Contains(stderr, "[redacted]") || strings.Contains(stderr, "hf_other") {
		t.Errorf("with another token: status %d, %q", status, stderr)
	}
	t.Setenv("HF_TOKEN", "hf_secret")
	if stdout, stderr := mustSplash(t, "pull", pebbleModel); strings.Contains(stdout+stderr, "hf_secret") {
		t.Errorf("the token is shown: %q %q", stdout, stderr)
	}
}

// TestInstalledPackage: a package that an earlier release installed is answered with the folder of its files.
func TestInstalledPackage(t *testing.T) {
	h := newHub(t)
	folder := filepath.Join(os.Getenv("HF_HOME"), "hub", "models--incoai--Qwen3.8-27B-Splash")
	snapshot := filepath.Join(folder, "snapshots", strings.Repeat("a", 40))
	models := filepath.Join(os.Getenv("SPLASH_DATA_DIR"), "models", "incoai")
	for _, dir := range []string{snapshot, models} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(snapshot, "manifest.json"), []byte(`{"format":{"name":"splash-packed-q4"}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(snapshot, filepath.Join(models, "Qwen3.8-27B-Splash")); err != nil {
		t.Fatal(err)
	}
	status, _, stderr := splash(t, "run", "--model", "incoai/Qwen3.8-27B-Splash", "hi")
	want := "error: incoai/Qwen3.8-27B-Splash is a Splash package, which Splash no longer loads (its files in " + folder +
		" can be deleted); serve the MLX model of its family instead: splash serve --model mlx-community/Qwen3.8-27B-4bit\n"
	if status != exitFailure || stderr != want || h.Total() != (hubtest.Count{}) {
		t.Errorf("status %d, %q, want %q; %+v asked", status, stderr, want, h.Total())
	}
}

// TestModelCheckHub: a model is checked by its name for the price of its header and its draft's configuration.
func TestModelCheckHub(t *testing.T) {
	h := newHub(t)
	target, _ := publish(t, h, "Q8_0")
	stdout, stderr := mustSplash(t, "model-check", pebbleModel, "--draft-model", pebbleDraft, "--json")
	var got struct {
		Model, Family string
		Target        string `json:"target_format"`
		Vision        string `json:"vision_format"`
		Chat          string `json:"chat_format"`
		Source        struct{ Repo, Revision string }
		Files         []struct{ Name string }
		Download      int64 `json:"download_bytes"`
		Image         int64 `json:"image_bytes"`
		Formats       map[string]int64
		Experts       *int
		Draft         struct {
			Repo          string
			Layers, Block int
		}
		Warnings []string
		Memory   struct {
			Total int64 `json:"total_bytes"`
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	// The configuration of the draft is in the cache now.
	left := int64(len(fixtures.Pebble) + len(fixtures.PebbleDraft))
	if got.Model != pebbleModel || got.Family != "pebble" || got.Target != "gguf" || got.Vision != "none" || got.Chat != "qwen" ||
		got.Source.Repo != pebbleModel || got.Source.Revision != target || len(got.Files) != 3 || got.Download != left ||
		got.Image < 1<<20 || got.Formats["Q8_0"] < 1<<20 || got.Experts != nil || got.Draft.Repo != pebbleDraft || got.Draft.Layers != 2 ||
		got.Draft.Block != 8 || got.Memory.Total < got.Image || stderr != "" {
		t.Errorf("%+v, %d bytes left\n%s", got, left, stderr)
	}
	if n := h.Count(pebbleModel, "pebble.gguf"); n.Bytes > 1<<20 || n.Requests() != 2 {
		t.Errorf("%+v for the header", n)
	}
	if n := h.Count(pebbleDraft, "model.safetensors"); n != (hubtest.Count{}) {
		t.Errorf("%+v of the draft's weights", n)
	}
	if n := h.Count(pebbleModel, "README.md"); n != (hubtest.Count{}) {
		t.Errorf("%+v of another file", n)
	}
	stdout, _ = mustSplash(t, "model-check", pebbleModel, "--revision", target, "--draft-model", pebbleDraft)
	inOrder(t, stdout, pebbleModel+", from "+pebbleModel+"@"+target[:12]+"; 26.0 MiB to download",
		"family", "pebble", "draft", "from "+pebbleDraft)

	status, stdout, stderr := splash(t, "model-check", "owner/none", "--json")
	var refused struct {
		Error struct {
			Reason  string
			Tensors []string
		}
	}
	decode(t, stdout, &refused)
	if status != exitFailure || refused.Error.Reason == "" || stderr != "error: "+refused.Error.Reason+"\n" {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
	h.Reset()
	status, _, stderr = splash(t, "model-check", pebbleModel, "--offline")
	if status != exitFailure || !strings.Contains(stderr, "HF_HUB_OFFLINE is set") || h.Total() != (hubtest.Count{}) {
		t.Errorf("offline: status %d, %q, %+v asked", status, stderr, h.Total())
	}
	// A path that is there is a path, however it reads.
	t.Chdir(filepath.Join("..", "..", "fixtures"))
	stdout, _ = mustSplash(t, "model-check", "pebble/draft/../pebble-Q8_0.gguf")
	inOrder(t, stdout, "family", "pebble")
	if h.Total() != (hubtest.Count{}) {
		t.Errorf("%+v asked for a path", h.Total())
	}
}

// TestCheckpointFromTheHub: a checkpoint of safetensors is checked, installed in shards, and opened from its assembly.
func TestCheckpointFromTheHub(t *testing.T) {
	h := newHub(t)
	r := fixtures.Recipe{Family: "tiny-qwen35", Seed: 1, Formats: fixtures.Uniform(dequant.Affine(4, 64)), Rounded: true}
	c, err := r.Checkpoint(fixtures.MLX)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := c.WriteDir(dir, 2); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	const model = "owner/tiny-4bit"
	h.Commit(model, "main", files)
	stdout, _ := mustSplash(t, "model-check", model, "--language-only", "--json")
	if !strings.Contains(stdout, `"target_format": "safetensors"`) || !strings.Contains(stdout, `"memory": null`) {
		t.Errorf("checked: %s", stdout)
	}
	for name := range files {
		if n := h.Count(model, name); strings.HasSuffix(name, ".safetensors") && n != (hubtest.Count{}) {
			t.Errorf("%s: %+v to check it", name, n)
		}
	}
	mustSplash(t, "model-check", model, "--language-only")
	args := []string{"run", "--json", "--greedy", "--max-tokens", "3", "--language-only", "hi"}
	local, _ := mustSplash(t, append(args, "--model-dir", dir)...)
	installed, _ := mustSplash(t, append(args, "--model", model)...)
	if a, b := answerOf(t, local), answerOf(t, installed); a != b {
		t.Errorf("from the Hub %q, from its directory %q", b, a)
	}
}

// TestLocalFiles: files of --model-dir are linked, checked as a download is, and served under the name they are given,
// without a request.
func TestLocalFiles(t *testing.T) {
	h := newHub(t)
	dir := t.TempDir()
	target, draft := filepath.Join(dir, "my-model.gguf"), filepath.Join(dir, "draft")
	write := func(path string, data []byte) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(target, pebble(t, "Q4_K_M"))
	write(filepath.Join(draft, "config.json"), fixtures.PebbleDraftConfig)
	write(filepath.Join(draft, "model.safetensors"), fixtures.PebbleDraft)
	ask := func(args ...string) runResult {
		t.Helper()
		stdout, _ := mustSplash(t, append([]string{"run", "--json", "--greedy", "--model-dir", target, question}, args...)...)
		var r runResult
		decode(t, stdout, &r)
		return r
	}
	if r := ask("--draft-model", draft); r.Answer != answerLine || r.Model != "local/my-model" || r.TokensPerCycle == 0 {
		t.Errorf("answered %+v", r)
	}
	if r := ask("--no-draft", "--model", "owner/mine"); r.Answer != answerLine || r.Model != "owner/mine" || r.TokensPerCycle != 0 {
		t.Errorf("answered %+v", r)
	}
	stdout, _ := mustSplash(t, "list", "--json")
	var listed modelsJSON
	decode(t, stdout, &listed)
	if len(listed.Models) != 2 || listed.Models[0].Model != target || listed.Models[0].Target.Commit() != "" {
		t.Errorf("listed %s", stdout)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--mmproj", target}, target + ": pebble has no vision tower, so it takes no projector"},
		{[]string{"--draft-model", filepath.Join(dir, "none")}, filepath.Join(dir, "none") + ": local draft directory not found"},
	} {
		status, _, stderr := splash(t, append([]string{"run", "--model-dir", target, "hi"}, c.args...)...)
		if status != exitFailure || stderr != "error: "+c.says+"\n" {
			t.Errorf("%v: status %d, %q", c.args, status, stderr)
		}
	}
	write(target, pebble(t, "BF16"))
	if status, _, stderr := splash(t, "run", "--model-dir", target, "hi"); status != exitFailure ||
		!strings.HasPrefix(stderr, "error: "+target+": this GGUF holds most of its values unquantized") {
		t.Errorf("unquantized: status %d, %q", status, stderr)
	}
	mustSplash(t, "remove", target, "--files")
	if _, err := os.Stat(target); err != nil {
		t.Errorf("a local file after its removal: %v", err)
	}
	if h.Total() != (hubtest.Count{}) {
		t.Errorf("%+v asked", h.Total())
	}
}

func answerOf(t *testing.T, text string) string {
	t.Helper()
	var r runResult
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return r.Reasoning + r.Answer
}

func TestInstallUsage(t *testing.T) {
	h := newHub(t)
	for _, c := range []struct {
		args string
		says string
	}{
		{"pull", "accepts 1 arg(s)"},
		{"pull a b", "accepts 1 arg(s)"},
		{"pull owner", "model must be a full Hugging Face repository ID (owner/repo)"},
		{"pull owner/repo:", "model variant must be a short name"},
		{"pull owner/repo --draft-model x", "draft model must be a Hugging Face repository ID"},
		{"pull owner/repo --nonsense", "nonsense"},
		{"list x", "unknown command"},
		{"show", "accepts 1 arg(s)"},
		{"show nothing", "model must be a full Hugging Face repository ID"},
		{"remove", "accepts 1 arg(s)"},
		{"remove nothing", "model must be a full Hugging Face repository ID"},
		{"model-check owner/repo --mmproj x", "--mmproj needs a path"},
		{"model-check owner/repo --header-only", "--header-only needs a path"},
		{"model-check . --revision v1", "--revision needs a model of the Hub"},
		{"model-check . --language-only --mmproj x", "--mmproj cannot be combined with --language-only"},
		{"model-check", "one model is checked"},
		{"model-check a b", "at most 1 arg"},
		{"model-check a --model b/c", "2 are given"},
		{"model-check a --model-dir b", "2 are given"},
		{"model-check --model b", "model must be a full Hugging Face repository ID"},
		{"model-check a --config b", "--config needs --target-format"},
		{"model-check a --target-format gguf", "a model is named too"},
		{"model-check --target-format zip", "gguf and safetensors are known"},
		{"model-check --target-format gguf", "--target-format needs --config"},
		{"model-check --target-format gguf --config x", "--target-format gguf needs --header"},
		{"model-check --target-format safetensors --config x --header y", "--header is of a GGUF"},
		{"model-check --target-format gguf --config x --header y --vision-format z", "none, gguf and safetensors are known"},
		{"run hi --mmproj x", "--mmproj needs --model-dir"},
		{"serve --model a/b --mmproj x", "--mmproj needs --model-dir"},
		{"serve --model-dir x --mmproj x --language-only", "--mmproj cannot be combined with --language-only"},
		{"run hi --model owner", "model must be a full Hugging Face repository ID"},
		{"run hi --revision v1", "--revision needs --model"},
	} {
		status, stdout, stderr := splash(t, strings.Fields(c.args)...)
		lines := strings.Split(strings.TrimSpace(stderr), "\n")
		if last := lines[len(lines)-1]; status != exitUsage || !strings.HasPrefix(last, "error: ") || !strings.Contains(last, c.says) ||
			!strings.Contains(stderr, "Usage:") || stdout != "" {
			t.Errorf("%s: status %d, %q", c.args, status, last)
		}
	}
	if h.Total() != (hubtest.Count{}) {
		t.Errorf("%+v asked", h.Total())
	}
	t.Setenv("HF_ENDPOINT", "ftp://example.com")
	if status, _, stderr := splash(t, "pull", "a/b"); status != exitFailure || !strings.HasPrefix(stderr, "error: HF_ENDPOINT: ") {
		t.Errorf("a wrong HF_ENDPOINT: status %d, %q", status, stderr)
	}
}

// TestCompleteModels: installed models are completed, and well-known ones where they can be installed, without a request.
func TestCompleteModels(t *testing.T) {
	h := newHub(t)
	h.Commit(pebbleModel, "main", map[string][]byte{"pebble-Q4_K_M.gguf": pebble(t, "Q4_K_M")})
	mustSplash(t, "pull", pebbleModel+":Q4_K_M")
	mustSplash(t, "pull", pebbleModel+":Q4_K_M", "--language-only")
	h.Reset()
	for _, c := range []struct {
		args  []string
		known bool
	}{
		{[]string{"show", ""}, false}, {[]string{"remove", "own"}, false}, {[]string{"pull", ""}, true}, {[]string{"model-check", ""}, true},
		{[]string{"serve", "--model", ""}, true}, {[]string{"run", "--model", ""}, true},
	} {
		stdout, _ := mustSplash(t, append([]string{"__complete"}, c.args...)...)
		if strings.Count(stdout, pebbleModel+":Q4_K_M\n") != 1 || strings.Contains(stdout, knownModels[0]+"\n") != c.known {
			t.Errorf("%q completes %q", c.args, stdout)
		}
	}
	if stdout, _ := mustSplash(t, "__complete", "show", "x", ""); strings.Contains(stdout, pebbleModel) {
		t.Errorf("a second model is completed: %q", stdout)
	}
	if n := h.Total(); n != (hubtest.Count{}) {
		t.Errorf("%+v asked", n)
	}
}
