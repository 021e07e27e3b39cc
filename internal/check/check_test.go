package check_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/internal/check"
	"splash/internal/gguf"
)

func fixture(parts ...string) string {
	return filepath.Join(append([]string{"..", "..", "fixtures"}, parts...)...)
}

func TestModel(t *testing.T) {
	r, err := check.Model(fixture("tiny", "tiny-qwen35moe-Q4_K_M.gguf"), check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Family != "tiny-qwen35moe" || r.TargetFormat != "gguf" || *r.Experts != 16 || r.Layers != 4 || len(r.Warnings) != 0 {
		t.Errorf("%+v", r)
	}
	// The tensor types that the README of the fixture lists.
	formats := map[string][]string{}
	for _, role := range r.Roles {
		formats[role.Role] = role.Formats
	}
	want := map[string][]string{
		"linear": {"Q4_K", "Q6_K"}, "experts": {"Q4_K", "Q6_K"}, "router": {"F32"}, "shared gate": {"F32"}, "norm": {"F32"},
		"alpha, beta": {"Q4_K"}, "convolution": {"F32"}, "decay": {"F32"}, "time bias": {"F32"}, "token table": {"Q4_K"},
	}
	if d := cmp.Diff(want, formats); d != "" {
		t.Error(d)
	}
	var bytes int64
	for _, n := range r.Formats {
		bytes += n
	}
	if bytes > r.FileBytes || bytes < r.FileBytes*9/10 {
		t.Errorf("%d bytes of tensors in a file of %d", bytes, r.FileBytes)
	}
}

func TestDraft(t *testing.T) {
	r, err := check.Model(fixture("pebble", "pebble-Q8_0.gguf"), check.Options{Draft: fixture("pebble", "draft")})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{1, 4, 7}, r.Draft.Taps); d != "" || r.Draft.Layers != 2 || r.Draft.Block != 8 || r.Draft.ImageBytes == 0 {
		t.Errorf("%+v", r.Draft)
	}
	if _, err := check.Model(fixture("tiny", "tiny-qwen35-Q8_0.gguf"), check.Options{Draft: fixture("pebble", "draft")}); err == nil ||
		!strings.Contains(err.Error(), "vocab_size mismatch") {
		t.Errorf("the draft of another model: %v", err)
	}
}

// TestHeaderAlone checks a header without the data behind it, as one is copied before a download.
func TestHeaderAlone(t *testing.T) {
	path := fixture("tiny", "tiny-qwen35-MIX.gguf")
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	end := f.End
	f.Close()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(cut, data[:end], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := check.Model(cut, check.Options{}); err == nil || !strings.Contains(err.Error(), "of the data, which is 0 bytes long") {
		t.Errorf("as a file: %v", err)
	}
	whole, err := check.Model(path, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := check.Model(cut, check.Options{HeaderOnly: true})
	if err != nil || r.ImageBytes != whole.ImageBytes || r.Family != whole.Family {
		t.Errorf("as a header: %+v, %v", r, err)
	}
}

func TestUnquantizedModelIsWarnedOf(t *testing.T) {
	r, err := check.Model(fixture("tiny", "tiny-qwen35-BF16.gguf"), check.Options{})
	if err != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "choose a quantized variant") {
		t.Errorf("%v, %v", r, err)
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.gguf")
	if err := os.WriteFile(text, []byte("not a model"), 0o644); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "checkpoint")
	if err := os.Mkdir(config, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(config, "config.json"), []byte(`{"model_type": "llama"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path string
		o    check.Options
		want string
	}{
		"nothing":   {path: filepath.Join(dir, "none.gguf"), want: "no such file"},
		"text":      {path: text, want: "text.gguf"},
		"empty":     {path: t.TempDir(), want: "GGUF"},
		"no family": {path: config, want: "no supported model has this architecture"},
		"projector": {path: config, o: check.Options{Projector: text}, want: "a projector belongs to a GGUF"},
		"no tower":  {path: fixture("pebble", "pebble-Q8_0.gguf"), o: check.Options{Projector: text}, want: "has no vision tower"},
		"no draft":  {path: fixture("pebble", "pebble-Q8_0.gguf"), o: check.Options{Draft: dir}, want: "config.json"},
	} {
		if _, err := check.Model(c.path, c.o); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}
