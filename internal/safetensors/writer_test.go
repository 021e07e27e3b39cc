package safetensors

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// written adds three tensors.
func written() *Writer {
	w := &Writer{Metadata: map[string]string{"format": "pt"}}
	w.AddBytes("b.weight", BF16, []int64{2, 3}, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	w.AddBytes("a \"quoted\" name", U8, []int64{3}, []byte{13, 14, 15})
	w.AddBytes("scalar", F32, nil, []byte{16, 17, 18, 19})
	return w
}

// check reads the three tensors back.
func check(t *testing.T, c *Checkpoint) {
	t.Helper()
	for _, want := range []struct {
		name  string
		dtype DType
		shape []int64
		first byte
		n     int
	}{
		{"b.weight", BF16, []int64{2, 3}, 1, 12}, {"a \"quoted\" name", U8, []int64{3}, 13, 3}, {"scalar", F32, []int64{}, 16, 4},
	} {
		got := c.Tensor(want.name)
		if got == nil {
			t.Errorf("%s is missing", want.name)
			continue
		}
		data := c.Data(got)
		if got.DType != want.dtype || !cmp.Equal(got.Shape, want.shape) || len(data) != want.n || data[0] != want.first {
			t.Errorf("%s: %+v, %v", want.name, got, data)
		}
	}
	if len(c.Tensors) != 3 {
		t.Errorf("%d tensors", len(c.Tensors))
	}
}

func TestWriter(t *testing.T) {
	var b bytes.Buffer
	n, err := written().WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("%d of %d bytes, %v", n, b.Len(), err)
	}
	c, err := FromBytes("memory", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	check(t, c)
	if start := c.Files[0].DataStart; start%8 != 0 {
		t.Errorf("data begins at byte %d", start)
	}
}

func TestWriteShards(t *testing.T) {
	for files, want := range map[int][]string{
		1: {"model.safetensors"},
		3: {"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"},
	} {
		dir := t.TempDir()
		if err := written().WriteShards(dir, files); err != nil {
			t.Fatal(err)
		}
		c, err := OpenIndexed(dir)
		if err != nil {
			t.Fatal(err)
		}
		check(t, c)
		c.Close()
		found, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range found {
			found[i] = filepath.Base(found[i])
		}
		if d := cmp.Diff(want, found); d != "" {
			t.Error(d)
		}
	}
	if err := written().WriteShards(t.TempDir(), 5); err == nil {
		t.Error("three tensors were written to five files")
	}
}

func TestWriterRefuses(t *testing.T) {
	for _, test := range []struct {
		add  func(w *Writer)
		want string
	}{
		{func(w *Writer) { w.AddBytes("t", "F4", []int64{1}, nil) }, "tensor t: no element size of dtype F4"},
		{func(w *Writer) { w.AddBytes("t", U8, []int64{2}, []byte{1}) }, "tensor t: its data ends after 1 of 2 bytes"},
		{func(w *Writer) { w.AddBytes("t", U8, []int64{2}, []byte{1, 2, 3}) }, "tensor t: its data goes on after 2 bytes"},
	} {
		w := &Writer{}
		test.add(w)
		if _, err := w.WriteTo(&bytes.Buffer{}); err == nil || err.Error() != test.want {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
	path := filepath.Join(t.TempDir(), "twice.safetensors")
	w := written()
	w.AddBytes("scalar", U8, []int64{1}, []byte{1})
	if err := w.WriteFile(path); err == nil {
		t.Error("a name was written twice")
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("a refused file was left: %v", err)
	}
}
