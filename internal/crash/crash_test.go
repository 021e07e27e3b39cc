package crash

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splash/internal/engine"
)

func TestRecord(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "crash")
	r := New(dir)
	if r.Last() != "" {
		t.Errorf("%q before any", r.Last())
	}
	for range maxLines + 3 {
		r.Log("a line")
	}
	fault := &engine.Fault{Err: errors.New("a device is lost"), Stack: []byte("goroutine 1"), Requests: []engine.FaultRequest{
		{Prompt: []int32{1, 2, 3}, Processed: 3, Generated: 2, Inputs: []int32{7, 8}, Seed: 9},
		{Prompt: make([]int32, maxTokens)},
	}}
	path, err := r.Record(fault)
	if err != nil || path != r.Last() {
		t.Fatalf("%q %v", path, err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || len(data) > maxBundle {
		t.Errorf("mode %v, %d bytes, %v", info.Mode(), len(data), err)
	}
	var b bundle
	if err := json.Unmarshal(data, &b); err != nil {
		t.Fatal(err)
	}
	if b.Error != "a device is lost" || b.Stack != "goroutine 1" || len(b.Log) != maxLines || len(b.Requests) != 2 ||
		b.Requests[0].Inputs[1] != 8 || b.Requests[0].Seed != 9 || b.Requests[1].Omitted != maxTokens/2 {
		t.Errorf("%.300s", data)
	}
}

// TestPrune: the newest four stay, and files of others.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "notes.json")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := New(dir)
	var paths []string
	for range 7 {
		path, err := r.Record(&engine.Fault{Err: errors.New("again")})
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != maxBundles+1 || strings.Join(left[:maxBundles], " ") != strings.Join(paths[3:], " ") || left[maxBundles] != other {
		t.Errorf("%q left, %v", left, err)
	}
}

func TestDir(t *testing.T) {
	env := map[string]string{"HOME": "/home/x"}
	getenv := func(name string) string { return env[name] }
	if got := Dir(getenv); !strings.HasPrefix(got, "/home/x/") || filepath.Base(got) != "crash" {
		t.Error(got)
	}
}

// TestUnwritable: a folder that cannot be made is an error, and nothing else.
func TestUnwritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := New(filepath.Join(file, "crash"))
	if _, err := r.Record(&engine.Fault{Err: errors.New("x")}); err == nil || r.Last() != "" {
		t.Errorf("%v, last %q", err, r.Last())
	}
}
