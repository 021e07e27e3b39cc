package client

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"splash/internal/chat/ojson"
)

// openCodeVariable is where OpenCode reads a configuration that outranks its files.
const openCodeVariable = "OPENCODE_CONFIG_CONTENT"

// openCode configures OpenCode by its environment.
func openCode(ctx context.Context, l *launch) error {
	config, err := l.openCodeConfig()
	if err != nil {
		return err
	}
	// The second generation reads configurations in a server, which may have been started long ago with another one.
	if openCodeVersion(ctx, l.path, l.env) >= 2 && !choosesServer(l.user) {
		at := slices.Index(l.user, "--")
		if at < 0 {
			at = len(l.user)
		}
		l.user = slices.Insert(slices.Clone(l.user), at, "--standalone")
	}
	l.env.Set(openCodeVariable, config)
	return nil
}

// openCodeConfig is the user's configuration with the server in it.
func (l *launch) openCodeConfig() (string, error) {
	config := &ojson.Object{}
	if text := l.env.Get(openCodeVariable); text != "" {
		v, err := ojson.Decode(text, ojson.Options{})
		if err != nil {
			return "", fmt.Errorf("%s must be a JSON object: %w", openCodeVariable, err)
		}
		var ok bool
		if config, ok = v.(*ojson.Object); !ok {
			return "", fmt.Errorf("%s must be a JSON object", openCodeVariable)
		}
	}
	served := "splash/" + l.Model
	config.Set("model", served)
	config.Set("small_model", served)
	agents, err := member(config, "agent")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"build", "plan", "general", "explore", "title", "compaction"} {
		agent, err := member(agents, name)
		if err != nil {
			return "", err
		}
		agent.Set("model", served)
	}
	providers, err := member(config, "provider")
	if err != nil {
		return "", err
	}
	variants, err := l.openCodeVariants(providers)
	if err != nil {
		return "", err
	}
	providers.Set("splash", l.openCodeProvider(variants))
	return ojson.String(config, ojson.Compact)
}

// member is the object that o has under a key, where there may be none yet.
func member(o *ojson.Object, key string) (*ojson.Object, error) {
	v, ok := o.Get(key)
	if !ok {
		v = &ojson.Object{}
		o.Set(key, v)
	}
	inner, ok := v.(*ojson.Object)
	if !ok {
		return nil, fmt.Errorf("%s: %q must be a JSON object", openCodeVariable, key)
	}
	return inner, nil
}

// openCodeVariants are the efforts of reasoning, and what the user has made of them for this model.
func (l *launch) openCodeVariants(providers *ojson.Object) (*ojson.Object, error) {
	variants := &ojson.Object{}
	for _, effort := range []string{"none", "low", "medium", "high", "xhigh"} {
		variants.Set(effort, ojson.NewObject("reasoningEffort", effort))
	}
	own := providers
	for _, key := range []string{"splash", "models", l.Model, "variants"} {
		var err error
		if own, err = member(own, key); err != nil {
			return nil, err
		}
	}
	for name, v := range own.All() {
		variants.Set(name, v)
	}
	return variants, nil
}

func (l *launch) openCodeProvider(variants *ojson.Object) *ojson.Object {
	modalities := make([]any, len(l.Modalities))
	for i, m := range l.Modalities {
		modalities[i] = m
	}
	output := l.reserve()
	model := ojson.NewObject(
		"name", l.Model,
		"reasoning", true,
		"variants", variants,
		"attachment", !slices.Equal(l.Modalities, []string{"text"}),
		"modalities", ojson.NewObject("input", modalities, "output", []any{"text"}),
		"limit", ojson.NewObject("context", l.Context, "input", max(1, l.Context-output), "output", output))
	return ojson.NewObject(
		"npm", "@ai-sdk/openai-compatible",
		"name", "Splash",
		"options", ojson.NewObject("baseURL", l.endpoint(), "apiKey", l.key()),
		"models", ojson.NewObject(l.Model, model))
}

// choosesServer reports whether the user's arguments say which server of OpenCode's own is used.
func choosesServer(args []string) bool {
	for _, arg := range args {
		switch {
		case arg == "--":
			return false
		case arg == "--standalone", arg == "--server", strings.HasPrefix(arg, "--server="):
			return true
		}
	}
	return false
}

// openCodeVersion is the major version of an installed OpenCode, 0 where it does not say.
func openCodeVersion(ctx context.Context, path string, env Environment) int {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = env
	cmd.WaitDelay = time.Second // for what it started and left
	out, err := cmd.Output()
	if err != nil {
		return 0
	}
	return majorVersion(string(out))
}

// majorVersion reads what a client says of its version; 0 is none.
func majorVersion(text string) int {
	m := regexp.MustCompile(`^(?:opencode\s+)?v?(\d+)\.\d+(?:\.\d+)?(?:[-+\s]|$)`).FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return 0
	}
	return n
}
