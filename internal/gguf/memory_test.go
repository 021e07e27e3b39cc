package gguf

import (
	"bytes"
	"testing"
)

func TestFromBytes(t *testing.T) {
	data := minimal(t)
	f, err := FromBytes("demo", data)
	if err != nil {
		t.Fatal(err)
	}
	m, err := f.Matrix("t")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(m.Data, ramp(128, 0)) || f.Unchanged() != nil {
		t.Errorf("%d bytes, %v", len(m.Data), f.Unchanged())
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := FromBytes("demo", data[:len(data)-1]); message(err) != `demo: tensor "t" has 128 bytes at offset 0 of the data, which is 127 bytes long` {
		t.Error(err)
	}
	part := encode(t, func(w *Writer) { w.Set("split.count", uint16(2)) })
	if _, err := FromBytes("demo", part); message(err) != `demo: an incomplete split: key "split.count" is 2, found this file alone` {
		t.Error(err)
	}
}
