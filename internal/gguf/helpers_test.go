package gguf

import (
	"bytes"
	"testing"
	"time"

	"splash/dequant"
)

var noTime time.Time

// encode returns the bytes of the file that fill describes.
func encode(t testing.TB, fill func(w *Writer)) []byte {
	t.Helper()
	var w Writer
	fill(&w)
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// mustParse parses bytes that must be a legal file.
func mustParse(t testing.TB, o Options, data []byte) *Header {
	t.Helper()
	h, err := o.Parse(bytes.NewReader(data), int64(len(data)), "m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// ramp is n bytes that tell their places.
func ramp(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*7 + seed
	}
	return b
}

// minimal is a file of one key and one tensor.
func minimal(t testing.TB) []byte {
	return encode(t, func(w *Writer) {
		w.Set("general.name", "minimal")
		w.AddBytes("t", dequant.F32, []uint64{32}, ramp(128, 0))
	})
}
