//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPipesAreNotOpened: a pipe where a file is expected is refused; opening it would wait for a writer for ever.
func TestPipesAreNotOpened(t *testing.T) {
	pipe := func(path string) string {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	folder := func(files ...string) string { // the last is a pipe
		dir := t.TempDir()
		for _, name := range files[:len(files)-1] {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		pipe(filepath.Join(dir, files[len(files)-1]))
		return dir
	}
	target := pipe(filepath.Join(t.TempDir(), "m.gguf"))
	for _, args := range [][]string{
		{"model-check", target},
		{"plan", target},
		{"run", "--model-dir", target, "hi"},
		{"serve", "--model-dir", target, "--port", freePort(t)},
		{"model-check", pebblePath("pebble-Q8_0.gguf"), "--mmproj", pipe(filepath.Join(t.TempDir(), "mmproj.gguf"))},
		{"model-check", pebblePath("pebble-Q8_0.gguf"), "--draft-model", folder("config.json")},
		{"run", "--draft-model", folder("config.json"), "hi"},
		{"model-check", folder("config.json")},
		{"run", "--model-dir", folder("model.safetensors", "config.json"), "hi"},
		{"run", "--model-dir", folder("config.json", "model.safetensors", "tokenizer.json"), "hi"},
		{"run", "--model-dir", folder("config.json", "tokenizer.json", "model.safetensors.index.json"), "hi"},
		{"run", "--model-dir", folder("config.json", "tokenizer.json", "model.safetensors"), "hi"},
	} {
		status, _, stderr := invoke(t, args...)
		if status != exitFailure || !strings.HasPrefix(stderr, "error: ") || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: status %d, %q", args, status, stderr)
		}
	}
}
