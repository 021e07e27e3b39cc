package gguf_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"splash/internal/gguf"
)

// TestHeaderOnly parses the header of a file that ends where its data would begin, which is refused as a file.
func TestHeaderOnly(t *testing.T) {
	data, err := os.ReadFile("../../fixtures/tiny/tiny-qwen35-MIX.gguf")
	if err != nil {
		t.Fatal(err)
	}
	whole, err := gguf.FromBytes("whole", data)
	if err != nil {
		t.Fatal(err)
	}
	header := data[:whole.End]
	if _, err := gguf.Parse(bytes.NewReader(header), int64(len(header)), "cut"); err == nil || !strings.Contains(err.Error(), "of the data, which is 0 bytes long") {
		t.Errorf("as a file: %v", err)
	}
	h, err := gguf.Options{HeaderOnly: true}.Parse(bytes.NewReader(header), int64(len(header)), "cut")
	if err != nil || len(h.Tensors) != len(whole.Tensors) {
		t.Errorf("as a header: %v", err)
	}
	header = header[:len(header)-1]
	if _, err := (gguf.Options{HeaderOnly: true}).Parse(bytes.NewReader(header), int64(len(header)), "cut"); err == nil || !strings.Contains(err.Error(), "truncated") {
		t.Errorf("a byte short: %v", err)
	}
}
