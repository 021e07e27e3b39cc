package gguf

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
)

// FuzzParse: any bytes are parsed or refused, with a message of one line that names the file, by the same answer whatever
// the window; what is accepted lies within the file and is the same when it is written and parsed again.
func FuzzParse(f *testing.F) {
	for _, r := range loadRefusals(f) {
		if len(r.data) < 4096 {
			f.Add(r.data)
		}
	}
	f.Add(minimal(f))
	f.Add(encode(f, func(w *Writer) {
		for _, kv := range everyType {
			w.Set(kv.key, kv.value)
		}
		w.Set("arrays", [][]string{{"a"}, {}})
		w.Set("general.alignment", uint32(8))
		w.Set("split.no", uint16(0))
		w.Set("split.count", uint16(2))
		w.Set("split.tensors.count", int32(2))
		w.AddBytes("w.weight", dequant.NVFP4, []uint64{64}, make([]byte, 36))
		w.AddBytes("w.scale", dequant.F32, []uint64{1}, make([]byte, 4))
	}))
	f.Fuzz(func(t *testing.T, data []byte) {
		size := int64(len(data))
		h, err := Parse(bytes.NewReader(data), size, "f.gguf")
		_, small := Options{window: 11}.Parse(bytes.NewReader(data), size, "f.gguf")
		if message(err) != message(small) {
			t.Fatalf("by window: %v\n%v", err, small)
		}
		if err != nil {
			checkMessage(t, err)
			return
		}
		if _, err := (Options{SkipTokenizer: true}).Parse(bytes.NewReader(data), size, "f.gguf"); err != nil {
			t.Fatalf("refused without the tokenizer: %v", err)
		}
		checkHeader(t, h)
		checkRewritten(t, h, data)
	})
}

func checkMessage(t *testing.T, err error) {
	if text := err.Error(); !strings.HasPrefix(text, "f.gguf: ") || strings.ContainsAny(text, "\n\r") || len(text) > 1000 {
		t.Fatalf("message %q", text)
	}
}

func checkHeader(t *testing.T, h *Header) {
	for i := range h.Tensors {
		tensor := &h.Tensors[i]
		_, from, to := h.place(tensor)
		if from < h.DataStart || to < from || to > h.Size || h.Tensor(tensor.Name) != tensor {
			t.Fatalf("tensor %+v at %d to %d of %d", tensor, from, to, h.Size)
		}
		if int64(tensor.Rows())*int64(dequant.Lookup(tensor.Type).RowBytes(tensor.Cols())) != tensor.Bytes {
			t.Fatalf("tensor %+v is not its rows", tensor)
		}
	}
	for i := range h.Keys {
		if h.Key(h.Keys[i].Key) != &h.Keys[i] {
			t.Fatalf("key %+v", h.Keys[i])
		}
	}
	for _, err := range []error{h.CheckScales(), joinError(h), joinError(h, h)} {
		if err != nil {
			checkMessage(t, err)
		}
	}
}

func joinError(parts ...*Header) error {
	_, err := Join(parts)
	return err
}

// checkRewritten writes the header's keys and tensors to a new file and compares what is read of it.
func checkRewritten(t *testing.T, h *Header, data []byte) {
	var w Writer
	for i := range h.Keys {
		if kv := &h.Keys[i]; kv.Kept {
			w.Set(kv.Key, kv.Value())
		}
	}
	for i := range h.Tensors {
		_, from, to := h.place(&h.Tensors[i])
		w.AddBytes(h.Tensors[i].Name, h.Tensors[i].Type, h.Tensors[i].Dims, data[from:to])
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	again := mustParse(t, Options{}, b.Bytes())
	for i := range again.Tensors {
		was, is := h.Tensors[i], again.Tensors[i]
		_, from, to := h.place(&was)
		_, from2, to2 := again.place(&is)
		was.Offset, is.Offset = 0, 0
		if diff := cmp.Diff(was, is); diff != "" || !bytes.Equal(data[from:to], b.Bytes()[from2:to2]) {
			t.Fatalf("tensor: (-first +again)\n%s", diff)
		}
	}
	for i, j := 0, 0; i < len(h.Keys); i++ {
		if !h.Keys[i].Kept {
			continue
		}
		if !sameValue(&h.Keys[i], &again.Keys[j]) {
			t.Fatalf("key %+v is %+v again", h.Keys[i], again.Keys[j])
		}
		j++
	}
}

// sameValue compares the stored bytes, so that a NaN is itself, and bools by their values.
func sameValue(a, b *KeyValue) bool {
	if a.Key != b.Key || a.Type != b.Type || a.Elem != b.Elem || a.Len != b.Len {
		return false
	}
	if a.Type == TypeBool || a.Elem == TypeBool {
		return cmp.Equal(a.Value(), b.Value())
	}
	return bytes.Equal(a.data, b.data) && a.text == b.text && cmp.Equal(a.strings, b.strings)
}

// FuzzFindTarget: no list of file names makes FindTarget fail but by a message, and what it finds is there.
func FuzzFindTarget(f *testing.F) {
	f.Add("M-00001-of-00002.gguf\x00M-00002-of-00002.gguf")
	f.Add("M.gguf\x00mmproj.gguf\x00M-00001-of-00001.gguf")
	f.Add("a.gguf\x00b.gguf\x00M-99999-of-99999.gguf")
	f.Fuzz(func(t *testing.T, names string) {
		dir := t.TempDir()
		for _, name := range strings.Split(names, "\x00") {
			if len(name) < 100 && filepath.Base(name) == name && name != "." && name != ".." {
				os.WriteFile(filepath.Join(dir, name), nil, 0o644) // a name that the system refuses is not there
			}
		}
		paths, err := FindTarget(dir)
		if (err == nil) == (len(paths) == 0) {
			t.Fatalf("found %q, %v", paths, err)
		}
		for _, path := range paths {
			if _, err := os.Stat(path); err != nil {
				t.Fatal(err)
			}
		}
	})
}
