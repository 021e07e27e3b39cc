package target

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/engine"
	"splash/internal/model"
	"splash/internal/reference"
	"splash/metal"
)

func TestDemo(t *testing.T) {
	var lines []string
	var done, total int64
	m, err := Open(t.Context(), Options{
		Chat: true, Backend: "oracle", Engine: engine.Options{Context: 1000},
		Log: func(line string) { lines = append(lines, line) },
		Progress: func(d, of int64) {
			if d < done || d > of || total != 0 && of != total {
				t.Errorf("%d of %d bytes after %d of %d", d, of, done, total)
			}
			done, total = d, of
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != "splash/pebble" || m.Draft == nil || m.Engine.Proposer == nil || m.Engine.Context != 1000 || m.Engine.Vocab != 4096 {
		t.Errorf("%+v", m)
	}
	if done != total || total == 0 {
		t.Errorf("%d of %d bytes are loaded", done, total)
	}
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "Chat template · renders") || !strings.HasPrefix(lines[1], "Weights loaded in ") {
		t.Errorf("%q", lines)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestArchitectures opens a generated model of every chat format and container, and decodes with it.
func TestArchitectures(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ family, format string }{
		{"tiny-qwen35", "qwen"}, {"tiny-qwen35moe", "qwen"}, {"tiny-flint", "flint"},
	} {
		r := fixtures.Recipe{Family: c.family, Seed: 1, Formats: fixtures.Uniform(dequant.Q8_0)}
		g, err := r.GGUF()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, c.family+" (1).gguf")
		if err := g.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		decode(t, Options{Path: path, Chat: true, Backend: "oracle"}, "local/"+c.family+"--1", c.format)
	}
	r := fixtures.Recipe{Family: "tiny-qwen35", Seed: 1, Formats: fixtures.Uniform(dequant.Affine(4, 64)), Rounded: true}
	c, err := r.Checkpoint(fixtures.MLX)
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, "snapshot-4bit")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteDir(dir, 2); err != nil {
		t.Fatal(err)
	}
	decode(t, Options{Path: dir, Chat: true, Backend: "oracle"}, "local/snapshot-4bit", "qwen")
	decode(t, Options{Path: dir, Chat: true, Backend: "oracle", Name: "owner/name"}, "owner/name", "qwen")
	if err := os.Remove(filepath.Join(dir, "tokenizer.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{Path: dir}); err == nil || !strings.Contains(err.Error(), "tokenizer.json") {
		t.Errorf("without a tokenizer: %v", err)
	}
}

func decode(t *testing.T, o Options, name, format string) {
	t.Helper()
	m, err := Open(t.Context(), o)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	defer m.Close()
	if m.Name != name || m.Format.Name != format {
		t.Errorf("%s in the format %s, want %s in %s", m.Name, m.Format.Name, name, format)
	}
	e := engine.New(m.Network, m.Engine)
	defer e.Close()
	s, err := e.Submit(t.Context(), engine.Request{Prompt: m.Tokenizer.Encode("Hello", true), MaxTokens: 2})
	if err != nil {
		t.Fatal(err)
	}
	for more := true; more; _, more = s.Next(nil) {
	}
	if _, err := s.End(); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// TestMetal opens targets on the metal backend: the demonstration model and its draft, which no file holds, and a file twice,
// whose images are made once.
func TestMetal(t *testing.T) {
	if metal.Usable() != nil {
		if _, err := FindBackend("metal"); err == nil || !strings.Contains(err.Error(), "no device") {
			t.Errorf("a build without devices: %v", err)
		}
		return
	}
	decode(t, Options{Chat: true, Backend: "metal", Images: t.TempDir()}, "splash/pebble", "qwen")
	r := fixtures.Recipe{Family: "tiny-qwen35moe", Seed: 1, Formats: fixtures.Uniform(dequant.Q4_K)}
	g, err := r.GGUF()
	if err != nil {
		t.Fatal(err)
	}
	path, images := filepath.Join(t.TempDir(), "moe.gguf"), t.TempDir()
	if err := g.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	var kept []time.Time
	for range 2 {
		var done, total int64
		decode(t, Options{
			Path: path, Chat: true, Backend: "metal", Images: images, Progress: func(d, of int64) { done, total = d, of },
		}, "local/moe", "qwen")
		if done != total || total == 0 {
			t.Errorf("%d of %d bytes of images", done, total)
		}
		all, err := filepath.Glob(filepath.Join(images, "*", "layer-0.bin"))
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		info, err := os.Stat(all[0])
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, info.ModTime())
	}
	if !kept[0].Equal(kept[1]) {
		t.Error("the images were made anew")
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	_, err := Open(ctx, Options{Backend: "oracle", Progress: func(int64, int64) {
		if n++; n == 3 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || n != 3 {
		t.Errorf("%d tensors, %v", n, err)
	}
}

func TestBackends(t *testing.T) {
	open := func(_ context.Context, o *Opening) (model.Backend, error) {
		return reference.New(o.Plan, o.MaxRows), nil
	}
	all := []Backend{
		{Name: "gpu", Open: open, Usable: func() error { return errors.New("there is no GPU") }},
		{Name: "cpu", Open: open},
		{Name: "oracle", Open: open},
	}
	got := map[string]string{}
	for _, name := range []string{"", Auto, "cpu", "oracle", "gpu", "tpu"} {
		b, err := findBackend(all, name)
		if got[name] = b.Name; err != nil {
			got[name] = err.Error()
		}
	}
	want := map[string]string{
		"": "cpu", Auto: "cpu", "cpu": "cpu", "oracle": "oracle",
		"gpu": "backend gpu cannot run here: there is no GPU", "tpu": `backend "tpu" is none of auto, gpu, cpu, oracle`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := FindBackend(Auto); err != nil {
		t.Error(err)
	}
	if _, err := FindBackend("oracle"); err != nil {
		t.Error(err)
	}
}

func TestModelNames(t *testing.T) {
	want := map[string]string{
		"/m/Qwen3.8-27B-Q4_K_M.gguf": "Qwen3.8-27B-Q4_K_M", "M-00002-of-00003.gguf": "M", "/a b/ü x.gguf": "x", "..gguf": "model", ".": "model",
	}
	got := map[string]string{}
	for path := range want {
		got[path] = modelName(path)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
