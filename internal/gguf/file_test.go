package gguf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func writeMinimal(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, minimal(t), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenMissing(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "m.gguf")); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("an empty folder was opened")
	}
	if _, err := Open(os.DevNull); err == nil || !strings.HasSuffix(err.Error(), "not a regular file") {
		t.Errorf("a device: %v", err)
	}
}

// A single part of a split, under a name that says nothing of it, is no model.
func TestOpenIncomplete(t *testing.T) {
	dir := t.TempDir()
	paths := writeSplit(t, dir, "M")
	path := filepath.Join(dir, "alone.gguf")
	if err := os.Rename(paths[0], path); err != nil {
		t.Fatal(err)
	}
	_, err := Open(path)
	if want := path + `: an incomplete split: key "split.count" is 3, found this file alone`; message(err) != want {
		t.Errorf("got %q, want %q", message(err), want)
	}
	// A split whose parts are all there by name, two of them swapped.
	os.Rename(paths[1], paths[0])
	os.Rename(path, paths[1])
	_, err = Open(paths[0])
	if want := paths[0] + `: key "split.no" is 1; this is part 1 of 3, so 0 is accepted`; message(err) != want {
		t.Errorf("got %q, want %q", message(err), want)
	}
}

// A file that changes between the reading of its header and the end of Open is refused.
func TestChangedWhileOpening(t *testing.T) {
	for name, test := range map[string]struct {
		change func(path string) error
		want   string
	}{
		"cut":     {func(path string) error { return os.Truncate(path, 200) }, "200 bytes, was 224"},
		"longer":  {func(path string) error { return os.Truncate(path, 300) }, "300 bytes, was 224"},
		"removed": {os.Remove, "no such file or directory"},
		"written": {func(path string) error {
			return os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour))
		}, "it was written to"},
		"replaced": {func(path string) error {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path+".new", data, 0o644); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		}, "another file has its name"},
	} {
		path := writeMinimal(t)
		_, err := Options{}.open(path, func() {
			if err := test.change(path); err != nil {
				t.Fatal(err)
			}
		})
		got := message(err)
		if !strings.HasPrefix(got, path+": changed since it was opened: ") || !strings.HasSuffix(got, test.want) {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestUnchanged(t *testing.T) {
	path := writeMinimal(t)
	f := mustOpen(t, path)
	if err := f.Unchanged(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, append(minimal(t), 0), 0o644); err != nil {
		t.Fatal(err)
	}
	if want := path + ": changed since it was opened: 225 bytes, was 224"; message(f.Unchanged()) != want {
		t.Errorf("got %q, want %q", message(f.Unchanged()), want)
	}
}

func TestClose(t *testing.T) {
	f, err := Open(writeMinimal(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Data is a window on the mapping: it costs nothing, and does not reach past the tensor.
func TestDataInPlace(t *testing.T) {
	f := mustOpen(t, writeMinimal(t))
	tensor := f.Tensor("t")
	var data []byte
	if n := testing.AllocsPerRun(100, func() { data = f.Data(tensor) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if string(data) != string(ramp(128, 0)) || cap(data) != len(data) {
		t.Errorf("%d bytes of %d", len(data), cap(data))
	}
}

func TestOptionsOpen(t *testing.T) {
	f, err := Options{SkipTokenizer: true}.Open(fixtures + "tokenizer/vocab-qwen35-151k.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, _ := f.ArrayLen("tokenizer.ggml.tokens")
	if _, ok := f.Strings("tokenizer.ggml.tokens"); ok || n != 151669 {
		t.Errorf("%d tokens, kept %v", n, ok)
	}
}
