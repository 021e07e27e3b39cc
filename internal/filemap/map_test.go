package filemap

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestMap(t *testing.T) {
	want := bytes.Repeat([]byte("weights "), 1<<16)
	path := filepath.Join(t.TempDir(), "w")
	if err := os.WriteFile(path, want, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Map(f, int64(len(want)-3))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, evicted := range []bool{false, true} {
		if evicted {
			if err := Evict(b); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(b, want[:len(want)-3]) {
			t.Errorf("evicted %v: the mapping is not the file", evicted)
		}
	}
	if err := Unmap(b); err != nil {
		t.Fatal(err)
	}
	if _, err := Map(f, 1); err == nil {
		t.Error("a closed file was mapped")
	}
}
