package gguf

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splash/dequant"
)

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.gguf")
	for _, name := range []string{"first", "second"} { // the second replaces the first
		var w Writer
		w.Set("general.name", "draft")
		w.Set("general.name", name)
		w.Add("a", dequant.Q8_0, []uint64{64, 3}, bytes.NewReader(ramp(204, 1)))
		w.AddBytes("b", dequant.F32, []uint64{2}, ramp(8, 2))
		if err := w.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		f := mustOpen(t, path)
		if got, _ := f.String("general.name"); got != name || len(f.Keys) != 1 {
			t.Errorf("%q, %d keys", got, len(f.Keys))
		}
		if !bytes.Equal(f.Data(f.Tensor("a")), ramp(204, 1)) || !bytes.Equal(f.Data(f.Tensor("b")), ramp(8, 2)) {
			t.Error("data differs")
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%s", files)
	}
}

// Tensors without data make files of a model's real sizes, which take next to no room.
func TestSparse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	var w Writer
	w.Set("general.name", "sparse")
	w.Add("a", dequant.Q4_K, []uint64{5120, 248320}, nil)
	w.AddBytes("b", dequant.F32, []uint64{2}, ramp(8, 2))
	w.Add("c", dequant.Q4_K, []uint64{5120, 17408}, nil)
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	const a, c = 5120 / 256 * 144 * 248320, 5120 / 256 * 144 * 17408
	f := mustOpen(t, path)
	if f.Tensor("a").Bytes != a || f.Size != f.DataStart+a+32+c {
		t.Errorf("%d bytes in %d", f.Tensor("a").Bytes, f.Size)
	}
	if !bytes.Equal(f.Data(f.Tensor("b")), ramp(8, 2)) {
		t.Error("data between holes differs")
	}
	if data := f.Data(f.Tensor("c")); data[0] != 0 || data[c-1] != 0 {
		t.Error("a hole is not zero")
	}
}

func TestWriterRefuses(t *testing.T) {
	broken := errors.New("disk on fire")
	for name, test := range map[string]struct {
		fill func(*Writer)
		want string
	}{
		"int":     {func(w *Writer) { w.Set("k", 1) }, `key "k": int has no GGUF value type; sized integers, floats, bool, string and slices of them do`},
		"slice":   {func(w *Writer) { w.Set("k", [][]int{}) }, `key "k": [][]int has no GGUF value type; sized integers, floats, bool, string and slices of them do`},
		"nil":     {func(w *Writer) { w.Set("k", nil) }, `key "k": nil is no GGUF value`},
		"type":    {func(w *Writer) { w.Add("t", 99, []uint64{1}, nil) }, `tensor "t": dimensions [1] are no whole blocks of type-99`},
		"columns": {func(w *Writer) { w.Add("t", dequant.Q8_0, []uint64{33}, nil) }, `tensor "t": dimensions [33] are no whole blocks of Q8_0`},
		"rank":    {func(w *Writer) { w.Add("t", dequant.F32, nil, nil) }, `tensor "t": dimensions [] are no whole blocks of F32`},
		"short":   {func(w *Writer) { w.AddBytes("t", dequant.F32, []uint64{2}, ramp(7, 0)) }, `tensor "t": its data ends after 7 of 8 bytes`},
		"long":    {func(w *Writer) { w.AddBytes("t", dequant.F32, []uint64{2}, ramp(9, 0)) }, `tensor "t": its data goes on after 8 bytes`},
		"source": {func(w *Writer) {
			w.Add("t", dequant.F32, []uint64{2}, io.MultiReader(bytes.NewReader(ramp(4, 0)), failingReader{broken}))
		}, `tensor "t": disk on fire`},
		"what Parse refuses": {func(w *Writer) {
			w.AddBytes("t", dequant.F32, []uint64{1}, ramp(4, 0))
			w.AddBytes("t", dequant.F32, []uint64{1}, ramp(4, 0))
		}, `tensor "t" at byte 57 is there twice`},
		"a part alone": {func(w *Writer) { w.Set("split.count", uint16(2)) }, `an incomplete split: key "split.count" is 2, found this file alone`},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "m.gguf")
		var w Writer
		test.fill(&w)
		err := w.WriteFile(path)
		if got := strings.ReplaceAll(message(err), path, "PATH"); got != "PATH: "+test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
		if files, _ := os.ReadDir(dir); len(files) > 0 {
			t.Errorf("%s: %s was left behind", name, files)
		}
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }
