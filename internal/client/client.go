// Package client starts installed coding clients with a Splash server as their model.
//
// A client is configured by what it reads anyway: its environment, its command line, and, where it reads no other, a file
// of its own, in which only what tells of the server is written. Its tools, prompts and permissions stay the client's.
package client

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// A Client is a coding client that can be installed.
type Client struct {
	Name string // of the program
	URL  string // says how it is installed

	configure func(context.Context, *launch) error
}

// Clients returns the clients that are known. Where they are configured is from their own documentation, to which the URLs
// lead.
func Clients() []*Client {
	return []*Client{
		{"claude", "https://code.claude.com/docs/en/overview", claude},
		{"codex", "https://developers.openai.com/codex/cli/", codex},
		{"opencode", "https://opencode.ai/docs/", openCode},
		{"hermes", "https://hermes-agent.nousresearch.com/docs/getting-started/installation/", hermes},
		{"pi", "https://pi.dev/", pi},
	}
}

// Find returns the path of the client's program.
func (c *Client) Find() (string, error) {
	path, err := exec.LookPath(c.Name)
	if err != nil {
		return "", fmt.Errorf("%s is not installed or is not on PATH. Install it first: %s", c.Name, c.URL)
	}
	return path, nil
}

// A Command is a program as it is to be started.
type Command struct {
	Path string
	Args []string // the program's own name first
	Env  Environment
}

// Command configures the client, whose program is at path, for a server. The arguments are the user's; env is not changed.
func (c *Client) Command(ctx context.Context, path string, s *Server, env Environment, args []string) (*Command, error) {
	l := &launch{Server: s, env: slices.Clone(env), path: path, user: args}
	if err := c.configure(ctx, l); err != nil {
		return nil, err
	}
	return &Command{path, append(append([]string{path}, l.args...), l.user...), l.env}, nil
}

// A launch is a client about to be started.
type launch struct {
	*Server
	path string
	env  Environment
	args []string // before the user's
	user []string
}

// key is what the client sends as the server's key, which asks for none where the user has none.
func (l *launch) key() string {
	if key := l.env.Get(keyVariable); key != "" {
		return key
	}
	return "local"
}

// keyVariable is where the user keeps the server's key.
const keyVariable = "SPLASH_API_KEY"

// mostOutput is the tokens that an answer may have where a client wants to know.
const mostOutput = 32768

// reserve is the part of the context that clients which compact their conversations leave to the answer.
func (s *Server) reserve() int { return min(mostOutput, max(1, s.Context/4)) }

// endpoint is the base URL of OpenAI's interfaces.
func (s *Server) endpoint() string { return s.URL + "/v1" }

// name tells the server from those on other ports.
func (s *Server) name() string {
	if s.Port == DefaultPort {
		return "splash"
	}
	return "splash-" + strconv.Itoa(s.Port)
}

// images reports whether the model takes them.
func (s *Server) images() bool { return slices.Contains(s.Modalities, "image") }

// claude configures Claude Code by its environment.
func claude(_ context.Context, l *launch) error {
	context := strconv.Itoa(l.Context)
	l.env.Set("ANTHROPIC_BASE_URL", l.URL)
	l.env.Set("ANTHROPIC_AUTH_TOKEN", l.key())
	for _, name := range []string{
		"ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL",
		"ANTHROPIC_SMALL_FAST_MODEL",
	} {
		l.env.Set(name, l.Model)
	}
	l.env.Set("CLAUDE_CODE_MAX_CONTEXT_TOKENS", context)
	l.env.Set("CLAUDE_CODE_AUTO_COMPACT_WINDOW", context)
	// A shell may be set up for a cloud, or hold a key of the vendor's, which would go before the token.
	l.env.Unset("ANTHROPIC_API_KEY")
	for _, cloud := range []string{"BEDROCK", "VERTEX", "FOUNDRY"} {
		l.env.Set("CLAUDE_CODE_USE_"+cloud, "0")
	}
	l.args = []string{"--disallowedTools", "WebSearch", "--model", l.Model, "--permission-mode", "default"}
	return nil
}

// codex configures Codex by settings on its command line, which outrank those of its file.
func codex(_ context.Context, l *launch) error {
	l.env.Set(keyVariable, l.key())
	settings := []string{
		"model=" + tomlString(l.Model),
		`web_search="disabled"`,
		`model_provider="splash"`,
		fmt.Sprintf(`model_providers.splash={name="Splash",base_url=%s,env_key=%s,wire_api="responses"}`,
			tomlString(l.endpoint()), tomlString(keyVariable)),
		"model_context_window=" + strconv.Itoa(l.Context),
		"model_auto_compact_token_limit=" + strconv.Itoa(l.Context*9/10),
	}
	own, rest, err := codexSettings(l.user)
	if err != nil {
		return err
	}
	for _, s := range append(settings, own...) {
		l.args = append(l.args, "-c", s)
	}
	l.user = rest
	return nil
}

// codexSettings tells the settings among arguments from the rest. Those after a subcommand would replace the ones before
// it, so all of them go first.
func codexSettings(args []string) (settings, rest []string, err error) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		long, isLong := strings.CutPrefix(arg, "--config=")
		short, isShort := strings.CutPrefix(arg, "-c")
		switch {
		case arg == "--":
			return settings, append(rest, args[i:]...), nil
		case arg == "-c", arg == "--config":
			if i++; i == len(args) {
				return nil, nil, fmt.Errorf("%s needs a setting, KEY=VALUE", arg)
			}
			settings = append(settings, args[i])
		case isLong:
			settings = append(settings, long)
		case isShort:
			settings = append(settings, strings.TrimPrefix(short, "="))
		default:
			rest = append(rest, arg)
		}
	}
	return settings, rest, nil
}

// tomlString is s as a basic string of TOML (toml.io, v1.0.0).
func tomlString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
