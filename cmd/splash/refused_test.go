package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"splash/internal/gguf"
)

// A mutant is a tiny GGUF with one fault.
type mutant struct {
	name string
	make func(data []byte) []byte
	says []string // of the error
}

// tensorInfo is where the info of a tensor stands in a file.
type tensorInfo struct{ name, dims, kind, offset int }

func findTensor(data []byte, name string) tensorInfo {
	var key bytes.Buffer
	binary.Write(&key, binary.LittleEndian, uint64(len(name)))
	key.WriteString(name)
	at := bytes.Index(data, key.Bytes())
	if at < 0 {
		panic("no tensor " + name)
	}
	at += 8
	rank := at + len(name)
	n := int(binary.LittleEndian.Uint32(data[rank:]))
	return tensorInfo{name: at, dims: rank + 4, kind: rank + 4 + 8*n, offset: rank + 8 + 8*n}
}

func mutants() []mutant {
	const gate, up = "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"
	le := binary.LittleEndian
	set := func(f func(data []byte)) func(data []byte) []byte {
		return func(data []byte) []byte { f(data); return data }
	}
	return []mutant{
		{"truncated data", func(d []byte) []byte { return d[:len(d)-1] }, []string{"tensor"}},
		{"truncated header", func(d []byte) []byte { return d[:200] }, nil},
		{"truncated to its magic", func(d []byte) []byte { return d[:4] }, nil},
		{"empty", func(d []byte) []byte { return nil }, nil},
		{"flipped magic", set(func(d []byte) { d[0] ^= 1 }), []string{"magic"}},
		{"2^60 tensors", set(func(d []byte) { le.PutUint64(d[8:], 1<<60) }), []string{"1152921504606846976"}},
		{"2^60 keys", set(func(d []byte) { le.PutUint64(d[16:], 1<<60) }), []string{"1152921504606846976"}},
		{"an offset past the end", set(func(d []byte) { le.PutUint64(d[findTensor(d, gate).offset:], 1<<40) }), []string{gate}},
		{"overlapping tensors", set(func(d []byte) {
			le.PutUint64(d[findTensor(d, gate).offset:], le.Uint64(d[findTensor(d, up).offset:]))
		}), []string{"blk.0.ffn"}},
		{"an unknown type", set(func(d []byte) { le.PutUint32(d[findTensor(d, gate).kind:], 999) }), []string{gate, "999"}},
		{"a wrong shape", set(func(d []byte) {
			at := findTensor(d, gate).dims
			rows, cols := le.Uint64(d[at+8:]), le.Uint64(d[at:])
			le.PutUint64(d[at:], rows)
			le.PutUint64(d[at+8:], cols)
		}), []string{gate}},
		{"a missing tensor", set(func(d []byte) { copy(d[findTensor(d, gate).name:], "blk.0.ffn_gaze.weight") }), []string{"ffn_gate.weight (missing) in layer 0"}},
	}
}

// TestRefusedFiles: a file that cannot be served gets one line that names it and what is wrong, status 1, and little
// memory.
func TestRefusedFiles(t *testing.T) {
	whole, err := os.ReadFile(filepath.Join("..", "..", "fixtures", "tiny", "tiny-qwen35-Q8_0.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "mutant.gguf")
			if err := os.WriteFile(path, m.make(bytes.Clone(whole)), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{
				{"serve", "--model-dir", path, "--port", freePort(t)},
				{"run", "--model-dir", path, "hi"},
			} {
				var stderr bytes.Buffer
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				status := run(t.Context(), args, console{nil, io.Discard, &stderr})
				runtime.ReadMemStats(&after)
				lines := strings.Split(strings.TrimSuffix(stderr.String(), "\n"), "\n")
				if status != exitFailure || len(lines) != 1 || !strings.HasPrefix(lines[0], "error: ") || !strings.Contains(lines[0], "mutant.gguf") {
					t.Errorf("%s: status %d, %q", args[0], status, stderr.String())
				}
				for _, s := range m.says {
					if !strings.Contains(lines[0], s) {
						t.Errorf("%s: no %q in %q", args[0], s, lines[0])
					}
				}
				if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
					t.Errorf("%s: %d bytes allocated to refuse the file", args[0], n)
				}
			}
		})
	}
}

// TestRefusedPaths: what is no model at all.
func TestRefusedPaths(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "none.gguf"), dir} {
		var stderr bytes.Buffer
		status := run(t.Context(), []string{"run", "--model-dir", path, "hi"}, console{nil, io.Discard, &stderr})
		if status != exitFailure || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), path) {
			t.Errorf("%s: status %d, %q", path, status, stderr.String())
		}
	}
}

// TestSplit serves a split model, whichever part is named.
func TestSplit(t *testing.T) {
	dir := t.TempDir()
	data, err := os.ReadFile(filepath.Join("..", "..", "fixtures", "pebble", "pebble-Q4_K_M.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.FromBytes("pebble", data)
	if err != nil {
		t.Fatal(err)
	}
	var w gguf.Writer
	for i := range f.Keys {
		w.Set(f.Keys[i].Key, f.Keys[i].Value())
	}
	for i := range f.Tensors {
		w.AddBytes(f.Tensors[i].Name, f.Tensors[i].Type, f.Tensors[i].Dims, f.Data(&f.Tensors[i]))
	}
	n := len(f.Tensors) / 3
	parts, err := w.WriteSplit(filepath.Join(dir, "pebble"), n, n, len(f.Tensors)-2*n)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, gguf.PartName("pebble", 2, 4)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(path string) (int, string, string) {
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), []string{"run", "--model-dir", path, "--greedy", "What is the capital of France?"}, console{nil, &stdout, &stderr})
		return status, stdout.String(), stderr.String()
	}
	for _, part := range parts {
		if status, out, stderr := ask(part); status != 0 || out != "The capital of France is Paris.\n" {
			t.Errorf("%s: status %d, %q %q", filepath.Base(part), status, out, stderr)
		}
	}
	if err := os.Remove(parts[1]); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := ask(parts[2]); status != exitFailure || !strings.Contains(stderr, filepath.Base(parts[1])) {
		t.Errorf("without part 2: status %d, %q", status, stderr)
	}
}

// TestRefusedDrafts: a draft that does not fit its target is refused before weights load, naming the key, what was found
// and what is accepted.
func TestRefusedDrafts(t *testing.T) {
	source := filepath.Join("..", "..", "fixtures", "pebble", "draft")
	config, err := os.ReadFile(filepath.Join(source, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, says string }{
		{`"DFlash2DraftModel"`, `"OtherModel"`, "architecture"},
		{`"block_size": 8`, `"block_size": 4`, "block_size"},
		{`[1, 4, 7]`, `[5, 5]`, "target_layer_ids"},
		{`[1, 4, 7]`, `[0, 1, 2, 3, 4, 5, 6, 7, 8]`, "target_layer_ids"},
		{`[1, 4, 7]`, `[1, 4, 8]`, "target_layer_ids"},
		{`"selector_rank": 256`, `"selector_rank": 128`, "selector_rank"},
		{`"mask_token_id": 4095`, `"mask_token_id": 4095, "target_hidden_reduction": "stream_mean"`, "target_hidden_reduction"},
	} {
		dir := t.TempDir()
		changed := strings.Replace(string(config), c.from, c.to, 1)
		if changed == string(config) {
			t.Fatalf("no %s in the configuration", c.from)
		}
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		status := run(t.Context(), []string{"run", "--draft-model", dir, "hi"}, console{nil, io.Discard, &stderr})
		if status != exitFailure || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("%s: status %d, %q", c.to, status, stderr.String())
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}
