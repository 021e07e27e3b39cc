package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

const modelID = "unsloth/Qwen3.8-27B-GGUF:UD-Q4_K_M"

func testServer(port int) *Server {
	return &Server{
		URL: "http://127.0.0.1:" + strconv.Itoa(port), Port: port, Model: modelID, Context: 102400,
		Modalities: []string{"text", "image", "pdf"},
	}
}

func find(name string) *Client {
	i := slices.IndexFunc(Clients(), func(c *Client) bool { return c.Name == name })
	return Clients()[i]
}

// command configures a client whose program is not run.
func command(t *testing.T, name string, s *Server, env Environment, args ...string) *Command {
	t.Helper()
	before := slices.Clone(env)
	c, err := find(name).Command(t.Context(), "/bin/"+name, s, env, args)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, env); d != "" {
		t.Errorf("the environment given is changed: %s", d)
	}
	return c
}

func variables(env Environment) map[string]string {
	m := map[string]string{}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		m[name] = value
	}
	return m
}

func TestClaude(t *testing.T) {
	c := command(t, "claude", testServer(8000), Environment{
		"PATH=/bin", "ANTHROPIC_API_KEY=other", "CLAUDE_CODE_USE_VERTEX=1", "CLAUDE_CONFIG_DIR=/c"}, "--help", "--", "x")
	want := []string{"/bin/claude", "--disallowedTools", "WebSearch", "--model", modelID, "--permission-mode", "default", "--help", "--", "x"}
	if d := cmp.Diff(want, c.Args); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]string{
		"PATH": "/bin", "CLAUDE_CONFIG_DIR": "/c", "ANTHROPIC_BASE_URL": "http://127.0.0.1:8000", "ANTHROPIC_AUTH_TOKEN": "local",
		"ANTHROPIC_MODEL": modelID, "ANTHROPIC_DEFAULT_OPUS_MODEL": modelID, "ANTHROPIC_DEFAULT_SONNET_MODEL": modelID,
		"ANTHROPIC_DEFAULT_HAIKU_MODEL": modelID, "ANTHROPIC_SMALL_FAST_MODEL": modelID, "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "102400",
		"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "102400", "CLAUDE_CODE_USE_BEDROCK": "0", "CLAUDE_CODE_USE_VERTEX": "0", "CLAUDE_CODE_USE_FOUNDRY": "0",
	}, variables(c.Env)); d != "" {
		t.Error(d)
	}
	c = command(t, "claude", testServer(8001), Environment{"SPLASH_API_KEY=secret"})
	if got := variables(c.Env); got["ANTHROPIC_AUTH_TOKEN"] != "secret" || got["ANTHROPIC_BASE_URL"] != "http://127.0.0.1:8001" {
		t.Errorf("%v", got)
	}
}

func TestCodex(t *testing.T) {
	c := command(t, "codex", testServer(8001), Environment{"PATH=/bin"}, "exec", "-c", `a="1"`, "--config=b=2", "-cc=3", "-c=d=4", "--config", "e=5",
		"say -c", "--", "-c", "literal")
	want := []string{
		"/bin/codex", "-c", `model="` + modelID + `"`, "-c", `web_search="disabled"`, "-c", `model_provider="splash"`,
		"-c", `model_providers.splash={name="Splash",base_url="http://127.0.0.1:8001/v1",env_key="SPLASH_API_KEY",wire_api="responses"}`,
		"-c", "model_context_window=102400", "-c", "model_auto_compact_token_limit=92160",
		"-c", `a="1"`, "-c", "b=2", "-c", "c=3", "-c", "d=4", "-c", "e=5", "exec", "say -c", "--", "-c", "literal",
	}
	if d := cmp.Diff(want, c.Args); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]string{"PATH": "/bin", "SPLASH_API_KEY": "local"}, variables(c.Env)); d != "" {
		t.Error(d)
	}
	if c := command(t, "codex", testServer(8000), Environment{"SPLASH_API_KEY=secret"}); variables(c.Env)["SPLASH_API_KEY"] != "secret" ||
		strings.Contains(strings.Join(c.Args, " "), "secret") {
		t.Errorf("%v", c)
	}
	for _, args := range [][]string{{"exec", "-c"}, {"--config"}} {
		if _, err := find("codex").Command(t.Context(), "/bin/codex", testServer(8000), nil, args); err == nil || !strings.Contains(err.Error(), "KEY=VALUE") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// TestTOMLString holds strings to the grammar of TOML's basic strings, whose escapes are not all those of JSON.
func TestTOMLString(t *testing.T) {
	for s, want := range map[string]string{
		"owner/model":     `"owner/model"`,
		`a"b\c`:           `"a\"b\\c"`,
		"é 𝄞 ü":           `"é 𝄞 ü"`,
		"a\tb\nc\x00\x7f": `"a\u0009b\u000Ac\u0000\u007F"`,
		"":                `""`,
		"{x=1}#'=,]":      `"{x=1}#'=,]"`,
	} {
		if got := tomlString(s); got != want {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	}
}

func parse(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func TestOpenCode(t *testing.T) {
	c := command(t, "opencode", testServer(8000), Environment{"PATH=/bin"}, "run", "x")
	if d := cmp.Diff([]string{"/bin/opencode", "run", "x"}, c.Args); d != "" {
		t.Error(d)
	}
	served := `"splash/` + modelID + `"`
	want := `{"model":` + served + `,"small_model":` + served + `,"agent":{"build":{"model":` + served + `},"plan":{"model":` + served + `},"general":{"model":` + served +
		`},"explore":{"model":` + served + `},"title":{"model":` + served + `},"compaction":{"model":` + served + `}},
		"provider":{"splash":{"npm":"@ai-sdk/openai-compatible","name":"Splash","options":{"baseURL":"http://127.0.0.1:8000/v1","apiKey":"local"},
		"models":{"` + modelID + `":{"name":"` + modelID + `","reasoning":true,"variants":{"none":{"reasoningEffort":"none"},"low":{"reasoningEffort":"low"},
		"medium":{"reasoningEffort":"medium"},"high":{"reasoningEffort":"high"},"xhigh":{"reasoningEffort":"xhigh"}},"attachment":true,
		"modalities":{"input":["text","image","pdf"],"output":["text"]},"limit":{"context":102400,"input":76800,"output":25600}}}}}}`
	if d := cmp.Diff(parse(t, want), parse(t, c.Env.Get(openCodeVariable))); d != "" {
		t.Error(d)
	}
	s := testServer(8001)
	s.Modalities = []string{"text"}
	c = command(t, "opencode", s, Environment{"SPLASH_API_KEY=secret"})
	text := c.Env.Get(openCodeVariable)
	for _, want := range []string{`"attachment":false`, `"input":["text"]`, `"apiKey":"secret"`, `"baseURL":"http://127.0.0.1:8001/v1"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	for context, output := range map[int]int{3: 1, 4096: 1024, 262144: 32768} {
		s.Context = context
		text := command(t, "opencode", s, nil).Env.Get(openCodeVariable)
		want := `"limit":{"context":` + strconv.Itoa(context) + `,"input":` + strconv.Itoa(context-output) + `,"output":` + strconv.Itoa(output) + `}`
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

// TestOpenCodeKeeps: what the user has configured stays, in its order.
func TestOpenCodeKeeps(t *testing.T) {
	own := `{"permission":{"bash":"ask"},"provider":{"other":{"z":1.50,"a":[]},"splash":{"npm":1,"models":{"` + modelID +
		`":{"variants":{"low":{"temperature":0.2},"brief":{"reasoningEffort":"none"}}}}},"last":{}},"agent":{"reviewer":"custom","build":{"prompt":"é","model":"other/x"}},"model":"other/y"}`
	c := command(t, "opencode", testServer(8000), Environment{openCodeVariable + "=" + own})
	text := c.Env.Get(openCodeVariable)
	at := 0
	for _, want := range []string{`{"permission":{"bash":"ask"},"provider":{"other":{"z":1.50,"a":[]},"splash":{"npm":"@ai-sdk/openai-compatible"`,
		`"variants":{"none":{"reasoningEffort":"none"},"low":{"temperature":0.2},`, `"brief":{"reasoningEffort":"none"}}`, `"last":{}},"agent":{"reviewer":"custom","build":{"prompt":"é","model":"splash/`,
		`"compaction":{"model":"splash/`, `},"model":"splash/` + modelID + `","small_model":`} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("no %s in %s", want, text[at:])
		}
		at += i
	}
	for _, bad := range []string{
		"invalid", "[]", "null", `"x"`, `{} x`, `{"agent":[]}`, `{"agent":null}`, `{"agent":{"plan":"x"}}`, `{"provider":[]}`, `{"provider":{"splash":[]}}`,
		`{"provider":{"splash":{"models":1}}}`, `{"provider":{"splash":{"models":{"` + modelID + `":[]}}}}`,
		`{"provider":{"splash":{"models":{"` + modelID + `":{"variants":null}}}}}`,
	} {
		_, err := find("opencode").Command(t.Context(), "/bin/opencode", testServer(8000), Environment{openCodeVariable + "=" + bad}, nil)
		if err == nil || !strings.Contains(err.Error(), openCodeVariable) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestMajorVersion(t *testing.T) {
	for text, want := range map[string]int{
		"1.18.31\n": 1, "2.0.12": 2, "opencode v2.0.12\n": 2, "v2.0.12": 2, "opencode v2.0.12-beta.1\n": 2, "opencode 10.0.1 (build 7)\n": 10,
		"": 0, "unknown\n": 0, "2\n": 0, "warning: requires macOS 26.4\n": 0, "99999999999999999999.1": 0,
	} {
		if got := majorVersion(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func home(t *testing.T) (dir string, env Environment) {
	dir = t.TempDir()
	return dir, Environment{"HOME=" + dir, "PATH=/bin"}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func modeOf(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// entries are the names in a directory.
func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestPi(t *testing.T) {
	dir, env := home(t)
	c := command(t, "pi", testServer(8000), env, "--help")
	if d := cmp.Diff([]string{"/bin/pi", "--provider", "splash", "--model", modelID, "--help"}, c.Args); d != "" {
		t.Error(d)
	}
	path := filepath.Join(dir, ".pi", "agent", "models.json")
	provider := func(port, key, input string) string {
		return `{"baseUrl":"http://127.0.0.1:` + port + `/v1","api":"openai-completions","apiKey":"` + key + `","models":[{"id":"` + modelID +
			`","reasoning":true,"thinkingLevelMap":{"off":"none"},"input":[` + input + `],"contextWindow":102400,"maxTokens":32768}]}`
	}
	const images = `"text","image"`
	if d := cmp.Diff(parse(t, `{"providers":{"splash":`+provider("8000", "local", images)+`}}`), parse(t, read(t, path))); d != "" {
		t.Error(d)
	}
	if modeOf(t, path) != 0o600 || modeOf(t, filepath.Dir(path)) != 0o700 {
		t.Errorf("modes %v and %v", modeOf(t, path), modeOf(t, filepath.Dir(path)))
	}
	// Another server, and a key, which the file does not hold. What else is there stays, in its order.
	write(t, path, `{"future":{"z":1.50,"a":null},"providers":{"other":{"baseUrl":"x"},"splash-8001":{"stale":1},"splash":`+provider("8000", "local", images)+`},"last":"é"}`, 0o640)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	s := testServer(8001)
	s.Modalities = []string{"text"}
	c = command(t, "pi", s, append(env, "SPLASH_API_KEY=secret"))
	if c.Args[2] != "splash-8001" || c.Env.Get("SPLASH_API_KEY") != "secret" {
		t.Errorf("%v %v", c.Args, c.Env)
	}
	text := read(t, path)
	want := `{"future":{"z":1.50,"a":null},"providers":{"other":{"baseUrl":"x"},"splash-8001":` + provider("8001", "$SPLASH_API_KEY", `"text"`) +
		`,"splash":` + provider("8000", "local", images) + `},"last":"é"}`
	if got := strings.Join(strings.Fields(text), ""); got != want || !strings.HasPrefix(text, "{\n  \"future\": {\n    \"z\": 1.50,\n") {
		t.Errorf("%s", text)
	}
	if modeOf(t, path) != 0o640 {
		t.Errorf("mode %v", modeOf(t, path))
	}
	if d := cmp.Diff([]string{"models.json"}, entries(t, filepath.Dir(path))); d != "" {
		t.Error(d)
	}
	// Another directory.
	command(t, "pi", testServer(8000), append(env, "PI_CODING_AGENT_DIR=~/my agent"))
	if got := read(t, filepath.Join(dir, "my agent", "models.json")); !strings.Contains(got, modelID) {
		t.Error(got)
	}
}

func TestPiRefuses(t *testing.T) {
	dir, env := home(t)
	path := filepath.Join(dir, ".pi", "agent", "models.json")
	for _, text := range []string{"broken", "[]", "null", `{"providers":[]}`, `{"providers":null}`, "{\"providers\":{}} // mine\n", "\xff", strings.Repeat("[", 1000)} {
		write(t, path, text, 0o600)
		_, err := find("pi").Command(t.Context(), "/bin/pi", testServer(8000), env, nil)
		if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.20q: %v", text, err)
		}
		if got := read(t, path); got != text {
			t.Errorf("%.20q became %.50q", text, got)
		}
	}
	if d := cmp.Diff([]string{"models.json"}, entries(t, filepath.Dir(path))); d != "" {
		t.Error(d)
	}
}

// TestLinkedFile: a configuration that is a symbolic link is changed where it is.
func TestLinkedFile(t *testing.T) {
	dir, env := home(t)
	real := filepath.Join(dir, "dotfiles", "models.json")
	write(t, real, `{"providers":{}}`, 0o644)
	path := filepath.Join(dir, ".pi", "agent", "models.json")
	write(t, filepath.Join(filepath.Dir(path), "settings.json"), "{}", 0o600)
	if err := os.Symlink(real, path); err != nil {
		t.Fatal(err)
	}
	command(t, "pi", testServer(8000), env)
	if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeSymlink == 0 || !strings.Contains(read(t, real), modelID) {
		t.Errorf("%v %v", info, err)
	}
	if d := cmp.Diff([]string{"models.json"}, entries(t, filepath.Dir(real))); d != "" {
		t.Error(d)
	}
	if err := os.Remove(real); err != nil {
		t.Fatal(err)
	}
	_, err := find("pi").Command(t.Context(), "/bin/pi", testServer(8000), env, nil)
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a link that leads nowhere: %v", err)
	}
}

// TestConcurrentLaunches: of launches for several servers at once none loses another's provider.
func TestConcurrentLaunches(t *testing.T) {
	dir, env := home(t)
	const n = 8
	errs := make(chan error, n)
	for i := range n {
		go func() {
			_, err := find("pi").Command(t.Context(), "/bin/pi", testServer(9000+i), env, nil)
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	v := parse(t, read(t, filepath.Join(dir, ".pi", "agent", "models.json")))
	if got := len(v.(map[string]any)["providers"].(map[string]any)); got != n {
		t.Errorf("%d providers of %d", got, n)
	}
}

func parseYAML(t *testing.T, text string) (v any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func hermesModel(port int, key string, vision bool) map[string]any {
	return map[string]any{
		"default": modelID, "provider": "custom", "base_url": "http://127.0.0.1:" + strconv.Itoa(port) + "/v1", "api_key": key,
		"api_mode": "chat_completions", "supports_vision": vision, "context_length": 102400, "max_tokens": 25600,
	}
}

// TestHermes configures a profile that is there. That Hermes creates one is tested with a program.
func TestHermes(t *testing.T) {
	dir, env := home(t)
	profile := filepath.Join(dir, ".hermes", "profiles", "splash-8001")
	path := filepath.Join(profile, "config.yaml")
	write(t, path, "# mine\ndisplay:\n  interface: yes # on\nmodel:\n  reasoning_effort: low\n  default: old\n  max_tokens: 7\nmcp_servers: {a: {command: 'x'}}\n", 0o640)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	s := testServer(8001)
	s.Modalities = []string{"text"}
	c := command(t, "hermes", s, env, "chat", "-q", "hi")
	if d := cmp.Diff([]string{"/bin/hermes", "--provider", "custom", "--model", modelID, "chat", "-q", "hi"}, c.Args); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]string{
		"HOME": dir, "PATH": "/bin", "HERMES_HOME": profile, "CUSTOM_BASE_URL": "http://127.0.0.1:8001/v1", "OPENAI_BASE_URL": "http://127.0.0.1:8001/v1",
		"OPENAI_API_KEY": "local",
	}, variables(c.Env)); d != "" {
		t.Error(d)
	}
	text := read(t, path)
	model := hermesModel(8001, "local", false)
	model["reasoning_effort"] = "low"
	want := map[string]any{"display": map[string]any{"interface": "yes"}, "model": model, "mcp_servers": map[string]any{"a": map[string]any{"command": "x"}}}
	if d := cmp.Diff(any(want), parseYAML(t, text)); d != "" {
		t.Error(d)
	}
	for _, kept := range []string{"# mine\n", "  interface: yes # on\n", "mcp_servers: {a: {command: 'x'}}\n"} {
		if !strings.Contains(text, kept) {
			t.Errorf("no %q in %s", kept, text)
		}
	}
	if modeOf(t, path) != 0o640 || len(entries(t, profile)) != 1 {
		t.Errorf("mode %v, files %v", modeOf(t, path), entries(t, profile))
	}
	c = command(t, "hermes", testServer(8001), append(env, "SPLASH_API_KEY=secret"))
	if text := read(t, path); strings.Contains(text, "secret") || !strings.Contains(text, `api_key: "${SPLASH_API_KEY}"`) ||
		c.Env.Get("OPENAI_API_KEY") != "secret" || !strings.Contains(text, "supports_vision: true") {
		t.Errorf("%s", text)
	}
	for _, text := range []string{"", "~\n", "# all of it\n", "model:\n", "model: ~\nx: 1\n"} {
		write(t, path, text, 0o600)
		command(t, "hermes", testServer(8001), env)
		got := parseYAML(t, read(t, path)).(map[string]any)
		if d := cmp.Diff(any(hermesModel(8001, "local", true)), got["model"]); d != "" {
			t.Errorf("%q: %s", text, d)
		}
		if strings.HasPrefix(text, "#") && !strings.Contains(read(t, path), strings.TrimSpace(text)) {
			t.Errorf("%q became %q", text, read(t, path))
		}
	}
}

func TestHermesRefuses(t *testing.T) {
	dir, env := home(t)
	path := filepath.Join(dir, ".hermes", "profiles", "splash", "config.yaml")
	for _, text := range []string{"model: broken\n", "model: false\n", "- a list\n", "model: [\n", "a: 1\n---\nb: 2\n", "\xff\n", "model: *x\n", "text"} {
		write(t, path, text, 0o600)
		_, err := find("hermes").Command(t.Context(), "/bin/hermes", testServer(8000), env, nil)
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", text, err)
		}
		if got := read(t, path); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestHermesHome(t *testing.T) {
	dir, env := home(t)
	for configured, root := range map[string]string{
		"":                          ".hermes",
		"~/.hermes":                 ".hermes",
		"~/.hermes/profiles/work":   ".hermes",
		"$HOME/data/profiles/work/": "data",
		dir + "/data/hermes":        "data/hermes",
	} {
		l := &launch{Server: testServer(8000), env: append(slices.Clone(env), "HERMES_HOME="+configured)}
		got, err := l.hermesHome()
		if want := filepath.Join(dir, root, "profiles", "splash"); err != nil || got != want {
			t.Errorf("%s: %s %v, want %s", configured, got, err, want)
		}
	}
}

func TestProbe(t *testing.T) {
	const entry = `{"id":"m","owned_by":"splash","context_length":4096,"input_modalities":["text"]}`
	for _, c := range []struct {
		status int
		body   string
		says   string // of the error
	}{
		{200, `{"data":[` + entry + `,{"id":3}]}`, "Could not identify"},
		{200, `{"data":[` + entry + `]}`, ""},
		{200, `{"object":"list","data":[` + entry + `,{"id":"x","root":"m"}],"models":[]}`, ""},
		{401, `{}`, "Splash authentication failed; set SPLASH_API_KEY to the server's key"},
		{503, `{}`, "No ready Splash server at http://127.0.0.1:"},
		{404, `not found`, "Could not identify the local Splash server"},
		{302, ``, "Could not identify the local Splash server"},
		{200, `<html>`, "Could not identify the local Splash server"},
		{200, `[]`, "Could not identify"},
		{200, `{"data":[]}`, "Could not identify"},
		{200, `{"data":null}`, "Could not identify"},
		{200, `{"data":[` + strings.Replace(entry, "splash", "other", 1) + `]}`, "Could not identify"},
		{200, `{"data":[` + strings.Replace(entry, "4096", "0", 1) + `]}`, "Could not identify"},
		{200, `{"data":[` + strings.Replace(entry, "4096", "-1", 1) + `]}`, "Could not identify"},
		{200, `{"data":[` + strings.Replace(entry, "4096", "true", 1) + `]}`, "Could not identify"},
		{200, `{"data":[` + strings.Replace(entry, "4096", `"4096"`, 1) + `]}`, "Could not identify"},
		{200, `{"data":[` + strings.Replace(entry, `,"context_length":4096`, "", 1) + `]}`, "Could not identify"},
		{200, `{"data":[` + strings.Replace(entry, `"m"`, `""`, 1) + `]}`, "Could not identify"},
		{200, `{"data":[` + strings.Replace(entry, `["text"]`, "[]", 1) + `]}`, "restart it with this version of Splash"},
		{200, `{"data":[{"id":"` + strings.Repeat("x", 2<<20) + `"}]}`, "Could not identify"},
	} {
		var key string
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key = r.Header.Get("Authorization")
			if r.URL.Path != "/v1/models" {
				t.Errorf("asked for %s", r.URL)
			}
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(c.status)
			w.Write([]byte(c.body))
		}))
		port, err := strconv.Atoi(h.URL[strings.LastIndex(h.URL, ":")+1:])
		if err != nil {
			t.Fatal(err)
		}
		s, err := probe(t.Context(), port, "secret", time.Minute)
		h.Close()
		if key != "Bearer secret" {
			t.Errorf("the key is %q", key)
		}
		switch {
		case c.says != "":
			if err == nil || !strings.Contains(err.Error(), c.says) || errors.Is(err, ErrNotReady) != (c.status == 503) {
				t.Errorf("%d %.100s: %v", c.status, c.body, err)
			}
		case err != nil || s.Model != "m" || s.Context != 4096 || s.Port != port:
			t.Errorf("%d %.100s: %+v %v", c.status, c.body, s, err)
		default:
			if _, err := Probe(t.Context(), port, ""); !errors.Is(err, ErrNotReady) {
				t.Errorf("a server that has gone: %v", err)
			}
		}
	}
}

// TestProbeWaits: a server that accepts and says nothing is not waited for long.
func TestProbeWaits(t *testing.T) {
	done := make(chan struct{})
	h := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
	defer h.Close()
	defer close(done)
	port, err := strconv.Atoi(h.URL[strings.LastIndex(h.URL, ":")+1:])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := probe(t.Context(), port, "", 50*time.Millisecond); !errors.Is(err, ErrNotReady) {
		t.Errorf("%v", err)
	}
}

// FuzzFiles edits configurations of users. What cannot be read is an error; what can holds the server afterwards, and all
// that was there beside it.
func FuzzFiles(f *testing.F) {
	for _, text := range []string{
		"", "{}", `{"providers":{"x":{}}}`, `{"providers":[]}`, "a: 1\nmodel:\n  b: &c [1]\nd: *c\n", "model: {}\n", "? [a]\n: b\n", "--- |\n x\n", "\xff",
		"model: !!map\n", "<<: {a: 1}\n", "# c\n", "a: 'x'\n\n\n# end\n",
	} {
		f.Add(text)
	}
	l := &launch{Server: testServer(8000)}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return // which no file that is read has
		}
		if out, err := l.piModels(text); err == nil {
			var v struct {
				Providers map[string]struct{ BaseURL string }
			}
			if err := json.Unmarshal([]byte(out), &v); err != nil || v.Providers["splash"].BaseURL != "http://127.0.0.1:8000/v1" {
				t.Errorf("%q became %q: %v", text, out, err)
			}
			if again, err := l.piModels(out); err != nil || again != out {
				t.Errorf("%q became %q, and that %q: %v", text, out, again, err)
			}
		}
		if out, err := l.hermesProfile(text, false); err == nil {
			doc, err := yamlDocument(out)
			if err != nil {
				t.Fatalf("%q became %q: %v", text, out, err)
			}
			if got := yamlMember(yamlMember(doc.Content[0], "model"), "default").Value; got != modelID {
				t.Errorf("%q became %q, with the model %q", text, out, got)
			}
		}
	})
}

// TestPiOfSmallContext: Pi asks for the output limit it is told with every request, so a prompt must fit beside it.
func TestPiOfSmallContext(t *testing.T) {
	for context, output := range map[int]int{2: 1, 32768: 16384, 65536: 32768, 262144: 32768} {
		dir, env := home(t)
		s := testServer(8000)
		s.Context = context
		command(t, "pi", s, env)
		if want := fmt.Sprintf(`"maxTokens": %d`, output); !strings.Contains(read(t, filepath.Join(dir, ".pi", "agent", "models.json")), want) {
			t.Errorf("a context of %d: no %s", context, want)
		}
	}
}
