package main

import (
	"path/filepath"
	"strings"
	"testing"

	"splash/dequant"
	"splash/internal/gguf"
)

// TestAppendedPrediction: a layer of a prediction head behind the model's own was once looked for what it does not have. It
// is left unread, and the answer is that of the file without it; a file of such layers alone is refused.
func TestAppendedPrediction(t *testing.T) {
	source := filepath.Join("..", "..", "fixtures", "tiny", "tiny-qwen35moe-Q4_K_M.gguf")
	f, err := gguf.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	appended := func(layers uint32) string {
		var w gguf.Writer
		for i := range f.Keys {
			w.Set(f.Keys[i].Key, f.Keys[i].Value())
		}
		w.Set("qwen35moe.block_count", uint32(5))
		w.Set("qwen35moe.nextn_predict_layers", layers)
		for i := range f.Tensors {
			w.AddBytes(f.Tensors[i].Name, f.Tensors[i].Type, f.Tensors[i].Dims, f.Data(&f.Tensors[i]))
		}
		for _, name := range []string{"eh_proj", "enorm", "hnorm", "shared_head_norm"} {
			w.Add("blk.4.nextn."+name+".weight", dequant.F32, []uint64{256}, nil)
		}
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := w.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	answer := func(path string) string {
		status, out, stderr := invoke(t, "run", "--model-dir", path, "--backend", "cpu", "--greedy", "--max-tokens", "8", "Hello")
		if status != 0 {
			t.Errorf("status %d, %q", status, stderr)
		}
		return out
	}
	if got, want := answer(appended(1)), answer(source); got != want {
		t.Errorf("answers %q, without the layer %q", got, want)
	}
	for _, command := range [][]string{{"model-check"}, {"run", "hi", "--model-dir"}} {
		status, _, stderr := invoke(t, append(command, appended(5))...)
		if status != exitFailure || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "qwen35moe.nextn_predict_layers 5, of qwen35moe.block_count 5") {
			t.Errorf("%s: status %d, %q", command[0], status, stderr)
		}
	}
}
