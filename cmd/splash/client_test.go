package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/internal/client"
)

// programVariable makes a process of this test's executable the program that it is called by: splash itself, or a coding
// client that tells how it was started.
const programVariable = "SPLASH_TEST_PROGRAM"

// becomeProgram ends the process where it is to be a program.
func becomeProgram() {
	if os.Getenv(programVariable) == "" {
		return
	}
	name := filepath.Base(os.Args[0])
	switch {
	case name == "splash":
		main()
	case slices.Equal(os.Args[1:], []string{"--version"}):
		fmt.Println(os.Getenv("FAKE_VERSION"))
	case name == "hermes" && len(os.Args) > 2 && os.Args[1] == "profile":
		createFakeProfile(os.Args[2:])
	default:
		json.NewEncoder(os.Stdout).Encode(started{os.Getpid(), os.Args, os.Environ()})
	}
	os.Exit(0)
}

// createFakeProfile does what "hermes profile create NAME --no-alias" does: the profile starts with the user's own model.
func createFakeProfile(args []string) {
	if len(args) != 3 || args[0] != "create" || args[2] != "--no-alias" {
		os.Exit(2)
	}
	if os.Getenv("FAKE_FAILURE") != "" {
		fmt.Fprintln(os.Stderr, "a warning\nError: permission denied")
		os.Exit(1)
	}
	home := filepath.Join(os.Getenv("HOME"), ".hermes", "profiles", args[1])
	const config = "model:\n  default: cloud\n  api_key_env: CLOUD\ndisplay: {interface: tui}\n"
	if os.MkdirAll(home, 0o700) != nil || os.WriteFile(filepath.Join(home, "config.yaml"), []byte(config), 0o600) != nil {
		os.Exit(1)
	}
}

// started is how a fake client was started.
type started struct {
	PID  int
	Args []string
	Env  []string
}

// A shell runs splash as users do, in a home of its own with fake clients on PATH.
type shell struct {
	*testing.T
	home, bin string
	env       []string
}

func newShell(t *testing.T, clients ...string) *shell {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{T: t, home: t.TempDir(), bin: t.TempDir()}
	for _, name := range append(clients, "splash") {
		if err := os.Symlink(self, filepath.Join(s.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	s.env = []string{
		programVariable + "=1", "HOME=" + s.home, "PATH=" + s.bin, "FAKE_VERSION=1.0.0", "ANTHROPIC_API_KEY=other",
		"SPLASH_DATA_DIR=" + filepath.Join(s.home, "data"), "GOCOVERDIR=" + s.home,
	}
	return s
}

// run is runOnce, again where the server did not answer in the time that a launcher waits: the machine may be busy.
func (s *shell) run(env []string, args ...string) (status int, out, errs string, c *started) {
	for range 5 {
		status, out, errs, c = s.runOnce(env, args...)
		if !strings.Contains(errs, client.ErrNotReady.Error()) {
			break
		}
	}
	return status, out, errs, c
}

// runOnce runs splash, and returns its status, what it wrote, and how the client was started, if it was.
func (s *shell) runOnce(env []string, args ...string) (status int, out, errs string, c *started) {
	s.Helper()
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(s.Context(), filepath.Join(s.bin, "splash"), args...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Dir = append(slices.Clone(s.env), env...), &stdout, &stderr, s.home
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	cmd.Wait()
	line, rest, _ := strings.Cut(stdout.String(), "\n")
	if strings.HasPrefix(rest, "{") {
		c = &started{}
		if err := json.Unmarshal([]byte(rest), c); err != nil {
			s.Fatalf("%v: %s", err, rest)
		}
		if c.PID != cmd.Process.Pid {
			s.Errorf("the client is process %d, not %d: it did not take splash's place", c.PID, cmd.Process.Pid)
		}
	}
	return cmd.ProcessState.ExitCode(), line, stderr.String(), c
}

// TestClients starts every client against a server of the demonstration model.
func TestClients(t *testing.T) {
	const key, model = "the-key", `odd"`
	s := newShell(t, "claude", "codex", "opencode", "hermes", "pi")
	port := freePort(t)
	p := &process{cmd: exec.Command(filepath.Join(s.bin, "splash"), "serve", "--no-draft", "--port", port, "--served-model-name", model, "--announce-served-name")}
	p.cmd.Env = append(slices.Clone(s.env), "SPLASH_API_KEY="+key)
	p.wait(t)
	defer p.stop(t, syscall.SIGTERM)
	server := "splash-" + port
	url := "http://127.0.0.1:" + port
	withKey := []string{"SPLASH_API_KEY=" + key}
	for _, c := range []struct {
		name string
		args []string // before the user's own
		env  map[string]string
	}{
		{"claude", []string{"--disallowedTools", "WebSearch", "--model", model, "--permission-mode", "default"},
			map[string]string{"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": key, "ANTHROPIC_MODEL": model, "ANTHROPIC_API_KEY": ""}},
		{"codex", []string{"-c", `model="odd\""`, "-c", `web_search="disabled"`, "-c", `model_provider="splash"`, "-c",
			`model_providers.splash={name="Splash",base_url="` + url + `/v1",env_key="SPLASH_API_KEY",wire_api="responses"}`},
			map[string]string{"SPLASH_API_KEY": key}},
		{"opencode", nil, map[string]string{}},
		{"hermes", []string{"--provider", "custom", "--model", model}, map[string]string{
			"HERMES_HOME": filepath.Join(s.home, ".hermes", "profiles", server), "OPENAI_BASE_URL": url + "/v1", "OPENAI_API_KEY": key}},
		{"pi", []string{"--provider", server, "--model", model}, map[string]string{"SPLASH_API_KEY": key}},
	} {
		status, line, errs, got := s.run(withKey, c.name, "--port", port, "--", "--help", "--port", "4096", "--", "x")
		if status != 0 || got == nil || !strings.HasPrefix(line, "Starting "+c.name+": "+model+" · ") || !strings.HasSuffix(line, " context tokens") {
			t.Errorf("%s: status %d, %s, %s", c.name, status, line, errs)
			continue
		}
		want := append([]string{filepath.Join(s.bin, c.name)}, c.args...)
		n := len(got.Args) - 5
		if n < len(want) || !slices.Equal(want, got.Args[:len(want)]) || !slices.Equal(got.Args[n:], []string{"--help", "--port", "4096", "--", "x"}) {
			t.Errorf("%s: %q", c.name, got.Args)
		}
		if strings.Contains(strings.Join(got.Args, " "), key) {
			t.Errorf("%s: the key is on the command line", c.name)
		}
		env := client.Environment(got.Env)
		for name, value := range c.env {
			if env.Get(name) != value {
				t.Errorf("%s: %s is %q, not %q", c.name, name, env.Get(name), value)
			}
		}
		if env.Get("HOME") != s.home || env.Get("ANTHROPIC_API_KEY") == "other" == (c.name == "claude") {
			t.Errorf("%s: %q", c.name, env)
		}
		if config := env.Get("OPENCODE_CONFIG_CONTENT"); c.name == "opencode" && (!strings.Contains(config, url+"/v1") || !strings.Contains(config, `"attachment":false`)) {
			t.Errorf("opencode: %s", config)
		}
	}
	s.checkFiles(server, key)
	// What stands in the way.
	for _, c := range []struct {
		env  []string
		args []string
		says string
	}{
		{nil, []string{"claude", "--port", port}, "Splash authentication failed; set SPLASH_API_KEY to the server's key"},
		{[]string{"SPLASH_API_KEY=wrong", "SPLASH_PORT=" + port}, []string{"claude"}, "Splash authentication failed"},
		{append(withKey, "OPENCODE_CONFIG_CONTENT=[]"), []string{"opencode", "--port=" + port}, "OPENCODE_CONFIG_CONTENT must be a JSON object"},
		{append(withKey, "PI_CODING_AGENT_DIR="+s.broken("models.json", "{")), []string{"pi", "--port", port}, "broken/models.json"},
		{append(withKey, "HERMES_HOME="+s.home+"/empty", "FAKE_FAILURE=1"), []string{"hermes", "--port", port},
			"hermes profile create " + server + " failed: Error: permission denied"},
		{append(withKey, "PATH="+s.notExecutable("pi")+":"+s.bin, "HOME="+s.home), []string{"pi", "--port", port}, "cannot start "},
	} {
		status, _, errs, got := s.run(c.env, c.args...)
		if status != exitFailure || got != nil || !strings.HasPrefix(errs, "error: ") || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v %v: status %d, %s", c.env, c.args, status, errs)
		}
	}
	// The second generation of OpenCode, and the port of the environment.
	_, _, _, got := s.run(append(withKey, "FAKE_VERSION=opencode v2.0.12", "SPLASH_PORT="+port), "opencode", "run", "--", "x")
	if got == nil || !slices.Equal(got.Args[1:], []string{"run", "--standalone", "--", "x"}) {
		t.Errorf("opencode 2: %v", got)
	}
	_, _, _, got = s.run(append(withKey, "SPLASH_PORT=1"), "opencode", "run", "--port="+port)
	if got == nil || !slices.Equal(got.Args[1:], []string{"run"}) {
		t.Errorf("opencode: %v", got)
	}
}

// checkFiles holds the files of Hermes and Pi to what was there before.
func (s *shell) checkFiles(server, key string) {
	s.Helper()
	profile, err := os.ReadFile(filepath.Join(s.home, ".hermes", "profiles", server, "config.yaml"))
	if err != nil {
		s.Fatal(err)
	}
	for _, want := range []string{`default: "odd\""`, "supports_vision: false", "display: {interface: tui}", "${SPLASH_API_KEY}"} {
		if !strings.Contains(string(profile), want) {
			s.Errorf("no %s in %s", want, profile)
		}
	}
	models, err := os.ReadFile(filepath.Join(s.home, ".pi", "agent", "models.json"))
	if err != nil {
		s.Fatal(err)
	}
	if text := string(models) + string(profile); strings.Contains(text, key) || strings.Contains(text, "CLOUD") || strings.Contains(text, "image") {
		s.Errorf("%s", text)
	}
}

// broken is a directory with a file that cannot be read.
func (s *shell) broken(name, text string) string {
	s.Helper()
	dir := filepath.Join(s.home, "broken")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	return dir
}

// notExecutable is a directory with a program that no system runs.
func (s *shell) notExecutable(name string) string {
	s.Helper()
	dir := s.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("\x00\x01"), 0o700); err != nil {
		s.Fatal(err)
	}
	return dir
}

// TestClientRefusals: what needs no server of ours.
func TestClientRefusals(t *testing.T) {
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"object":"list","data":[{"id":"m","owned_by":"library","context_length":4096}]}`)
	}))
	defer foreign.Close()
	port := foreign.URL[strings.LastIndex(foreign.URL, ":")+1:]
	free := freePort(t)
	s := newShell(t, "claude")
	for _, c := range []struct {
		env    []string
		args   []string
		status int
		says   []string
	}{
		{nil, []string{"codex"}, exitFailure, []string{"codex is not installed or is not on PATH. Install it first: https://developers.openai.com/codex/cli/"}},
		{nil, []string{"pi", "--port", port}, exitFailure, []string{"pi is not installed or is not on PATH. Install it first: https://"}},
		{nil, []string{"claude", "--port", free}, exitFailure, []string{"No ready Splash server at http://127.0.0.1:" + free + ". Run 'splash serve --model <HF_REPO_ID>' in another terminal first.",
			"If --port was meant for claude itself, put it after --."}},
		{nil, []string{"claude", "--help", "--port=" + free}, exitFailure, []string{"No ready Splash server"}},
		{[]string{"SPLASH_PORT=" + free}, []string{"claude"}, exitFailure, []string{"in another terminal first.\n"}},
		{nil, []string{"claude", "--port", port}, exitFailure, []string{"Could not identify the local Splash server"}},
		{[]string{"SPLASH_API_KEY=a b"}, []string{"claude"}, exitFailure, []string{"SPLASH_API_KEY"}},
		{[]string{"SPLASH_PORT=0"}, []string{"claude"}, exitUsage, []string{`SPLASH_PORT is "0"`}},
		{nil, []string{"claude", "--port", "70000"}, exitUsage, []string{`--port is "70000"; 1 to 65535 are possible`}},
		{nil, []string{"claude", "--port"}, exitUsage, []string{"--port needs a port"}},
		{[]string{"SPLASH_PORT=x"}, []string{"claude", "--port", free}, exitFailure, []string{"No ready Splash server"}},
	} {
		status, _, errs, got := s.run(c.env, c.args...)
		if status != c.status || got != nil || !strings.Contains(errs, "error: ") {
			t.Errorf("%v %v: status %d, %s", c.env, c.args, status, errs)
		}
		for _, want := range c.says {
			if !strings.Contains(errs, want) {
				t.Errorf("%v %v: no %q in %s", c.env, c.args, want, errs)
			}
		}
	}
}

func TestClientPort(t *testing.T) {
	t.Setenv("SPLASH_PORT", "")
	for _, c := range []struct {
		args []string
		port int
		rest []string
	}{
		{nil, 8000, nil},
		{[]string{"--help"}, 8000, []string{"--help"}},
		{[]string{"--port", "8001", "--", "--port", "4096"}, 8001, []string{"--port", "4096"}},
		{[]string{"--", "--", "x"}, 8000, []string{"--", "x"}},
		{[]string{"run", "--port=8001", "x", "--", "--port", "1"}, 8001, []string{"run", "x", "--", "--port", "1"}},
		{[]string{"--port", "1", "--port", "2"}, 2, nil},
		{[]string{"--portable", "-p", "1"}, 8000, []string{"--portable", "-p", "1"}},
	} {
		port, _, rest, err := clientPort(c.args)
		if d := cmp.Diff(c.rest, rest); err != nil || port != c.port || d != "" {
			t.Errorf("%q: port %d, %v %s", c.args, port, err, d)
		}
	}
}

// TestClientHelp: the help and the completion of clients are Splash's, their arguments are not.
func TestClientHelp(t *testing.T) {
	for _, c := range client.Clients() {
		var out strings.Builder
		if status := run(t.Context(), []string{"help", c.Name}, console{nil, &out, &out}); status != 0 || !strings.Contains(out.String(), c.URL) ||
			!strings.Contains(out.String(), "--port") {
			t.Errorf("%s: %s", c.Name, out.String())
		}
		out.Reset()
		run(t.Context(), []string{"__complete", c.Name, "--po"}, console{nil, &out, &out})
		if strings.Count(out.String(), "--port") != 1 {
			t.Errorf("%s: %s", c.Name, out.String())
		}
	}
}
