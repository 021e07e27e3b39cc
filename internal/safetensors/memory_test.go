package safetensors

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestFromBytes(t *testing.T) {
	path := filepath.Join("..", "..", "fixtures", "pebble", "draft", "model.safetensors")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := FromBytes("demo draft", data)
	if err != nil {
		t.Fatal(err)
	}
	file, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if len(c.Tensors) != len(file.Tensors) || len(c.Tensors) == 0 {
		t.Fatalf("%d tensors in memory, %d in the file", len(c.Tensors), len(file.Tensors))
	}
	for i := range c.Tensors {
		got, want := &c.Tensors[i], file.Tensor(c.Tensors[i].Name)
		if want == nil || !bytes.Equal(c.Data(got), file.Data(want)) {
			t.Errorf("tensor %s differs from the file's", got.Name)
		}
	}
	if err := c.Changed(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := FromBytes("short", data[:100]); err == nil {
		t.Error("a cut file passes")
	}
}
