package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splash/dequant"
	"splash/fixtures"
)

// TestTemplateThatCannotBeRead: a model whose template does not parse would be ready, and refuse every conversation. It is
// refused at the start instead, naming the line.
func TestTemplateThatCannotBeRead(t *testing.T) {
	r := fixtures.Recipe{Family: "tiny-qwen35", Formats: fixtures.Uniform(dequant.Affine(4, 64)), Rounded: true}
	c, err := r.Checkpoint(fixtures.MLX)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := c.WriteDir(dir, 1); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte("{{ 'a' }}\n{% for m in"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"serve", "--port", freePort(t)}, {"run", "hi"}} {
		status, _, stderr := invoke(t, append(args, "--language-only", "--model-dir", dir)...)
		if status != exitFailure || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "error: ") ||
			!strings.Contains(stderr, `the chat template "default" cannot be read: TemplateSyntaxError: `) || !strings.Contains(stderr, "line 2") {
			t.Errorf("%s: status %d, %q", args[0], status, stderr)
		}
	}
}
