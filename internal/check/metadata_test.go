package check_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"splash/internal/check"
	"splash/internal/gguf"
	"splash/planner"
)

// metadataOf writes the header of a GGUF and the configuration derived from it.
func metadataOf(t *testing.T, path string) (config, header string) {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	derived, err := planner.DeriveConfig(f.Header, nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config, header = filepath.Join(dir, "config.json"), filepath.Join(dir, filepath.Base(path))
	for name, data := range map[string][]byte{config: derived, header: data[:f.End]} {
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return config, header
}

// TestMetadata: the metadata of a file tell the same as the file.
func TestMetadata(t *testing.T) {
	for _, path := range []string{fixture("tiny", "tiny-qwen35moe-Q4_K_M.gguf"), fixture("pebble", "pebble-Q8_0.gguf")} {
		config, header := metadataOf(t, path)
		m := check.Metadata{Target: "gguf", Vision: "none", Config: config, Headers: []string{header}}
		want, err := check.Model(path, check.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Check()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmpopts.IgnoreFields(check.Report{}, "Files", "FileBytes", "Plan")); d != "" {
			t.Errorf("%s: %s", path, d)
		}
	}
}

func TestMetadataOfDraft(t *testing.T) {
	config, header := metadataOf(t, fixture("pebble", "pebble-Q8_0.gguf"))
	m := check.Metadata{
		Target: "gguf", Vision: "none", Config: config, Headers: []string{header}, Draft: fixture("pebble", "draft", "config.json"),
	}
	r, err := m.Check()
	if err != nil || r.Draft.Layers != 2 {
		t.Errorf("%+v %v", r, err)
	}
}

func TestMetadataRefusals(t *testing.T) {
	config, header := metadataOf(t, fixture("tiny", "tiny-qwen35-Q8_0.gguf"))
	other, _ := metadataOf(t, fixture("pebble", "pebble-Q8_0.gguf"))
	long := filepath.Join(t.TempDir(), "long.json")
	if err := os.WriteFile(long, make([]byte, 1<<20+1), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		m    check.Metadata
		want string
	}{
		{check.Metadata{Target: "gguf", Vision: "none", Config: "nowhere.json", Headers: []string{header}}, "nowhere.json"},
		{check.Metadata{Target: "gguf", Vision: "none", Config: long, Headers: []string{header}}, "more than 1048576 bytes"},
		{check.Metadata{Target: "gguf", Vision: "none", Config: config}, "none is given"},
		{check.Metadata{Target: "gguf", Vision: "none", Config: other, Headers: []string{header}}, other},
		{check.Metadata{Target: "safetensors", Vision: "none", Config: header}, header},
		{check.Metadata{Target: "gguf", Vision: "gguf", Config: config, Headers: []string{header}}, "vision"},
		{check.Metadata{Target: "gguf", Vision: "none", Config: config, Headers: []string{header}, Draft: fixture("pebble", "draft", "config.json")},
			"vocab_size mismatch"},
	} {
		if _, err := c.m.Check(); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v, want %s", c.m, err, c.want)
		}
	}
}
