package client

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"splash/internal/chat/ojson"
)

// pi configures Pi, which reads providers from a file alone.
func pi(ctx context.Context, l *launch) error {
	dir := l.env.Get("PI_CODING_AGENT_DIR")
	if dir == "" {
		dir = "~/.pi/agent"
	}
	dir, err := l.env.path(dir)
	if err != nil {
		return err
	}
	if err := edit(ctx, filepath.Join(dir, "models.json"), l.piModels); err != nil {
		return err
	}
	l.args = []string{"--provider", l.name(), "--model", l.Model}
	return nil
}

// piModels puts the server in the place of its provider in Pi's models.json.
func (l *launch) piModels(text string) (string, error) {
	config := &ojson.Object{}
	if text != "" {
		v, err := ojson.Decode(text, ojson.Options{RejectSurrogates: true})
		if err != nil {
			return "", fmt.Errorf("not the JSON of Pi's models: %w", err)
		}
		var ok bool
		if config, ok = v.(*ojson.Object); !ok {
			return "", errors.New("Pi's models must be a JSON object")
		}
	}
	v, ok := config.Get("providers")
	if !ok {
		v = &ojson.Object{}
		config.Set("providers", v)
	}
	providers, ok := v.(*ojson.Object)
	if !ok {
		return "", errors.New(`"providers" must be a JSON object`)
	}
	providers.Set(l.name(), l.piProvider())
	style := ojson.Style{ItemSep: ",", KeySep: ": ", Indent: "  "}
	out, err := ojson.String(config, style)
	return out + "\n", err
}

func (l *launch) piProvider() *ojson.Object {
	key := "local"
	if l.env.Get(keyVariable) != "" {
		key = "$" + keyVariable // Pi looks it up, so that the file does not hold it
	}
	input := []any{"text"}
	if l.images() {
		input = append(input, "image") // Pi knows no other
	}
	model := ojson.NewObject(
		"id", l.Model,
		"reasoning", true,
		"thinkingLevelMap", ojson.NewObject("off", "none"), // Pi would say nothing, which leaves it to the model
		"input", input,
		"contextWindow", l.Context,
		"maxTokens", min(mostOutput, max(1, l.Context/2))) // Pi asks for them all, beside any prompt
	return ojson.NewObject("baseUrl", l.endpoint(), "api", "openai-completions", "apiKey", key, "models", []any{model})
}
