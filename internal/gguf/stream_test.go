package gguf

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"splash/dequant"
)

// released is the header of a model of a released size, with zeros for its weights: 64 layers of 16 tensors, and the
// 248,320 tokens and 247,587 merges of Qwen3.5's vocabulary in lengths like theirs.
func released(t testing.TB) []byte {
	t.Helper()
	tokens, merges, types := make([]string, 248320), make([]string, 247587), make([]int32, 248320)
	for i := range tokens {
		tokens[i], types[i] = fmt.Sprintf("\u0120t%x", i*2654435761%1000003), 1
	}
	for i := range merges {
		merges[i] = fmt.Sprintf("\u0120%x %x", i, i%977)
	}
	return encode(t, func(w *Writer) {
		w.Set("general.architecture", "qwen35")
		w.Set("tokenizer.ggml.model", "gpt2")
		w.Set("tokenizer.ggml.tokens", tokens)
		w.Set("tokenizer.ggml.token_type", types)
		w.Set("tokenizer.ggml.merges", merges)
		w.Set("tokenizer.chat_template", strings.Repeat("{{ message }}\n", 600))
		for layer := range 64 {
			for i := range 16 {
				w.AddBytes(fmt.Sprintf("blk.%d.tensor_%d.weight", layer, i), dequant.Q4_K, []uint64{256, 1}, make([]byte, 144))
			}
		}
	})
}

// A header is read in order, nothing twice, at most 1 MiB at once and at most 1 MiB too much.
func TestReadsInOrder(t *testing.T) {
	data := released(t)
	for _, o := range []Options{{}, {SkipTokenizer: true}} {
		src := &recorder{ReaderAt: bytes.NewReader(append(bytes.Clone(data), make([]byte, 4<<20)...))}
		h, err := o.Parse(src, int64(len(data)+4<<20), "m.gguf")
		if err != nil {
			t.Fatal(err)
		}
		if src.errs != nil || src.largest > 1<<20 || src.from > h.End+1<<20 {
			t.Errorf("%+v: header ends at %d, read to %d, at most %d bytes at once; %s", o, h.End, src.from, src.largest, src.errs)
		}
	}
}

// Numbers that are not kept are not read.
func TestSkipsWithoutReading(t *testing.T) {
	data := encode(t, func(w *Writer) {
		w.Set("numbers", make([]float32, 10<<20))
		w.Set("after", uint8(1))
	})
	src := &recorder{ReaderAt: bytes.NewReader(data)}
	if _, err := Parse(src, int64(len(data)), "m.gguf"); err != nil {
		t.Fatal(err)
	}
	if src.reads != 2 {
		t.Errorf("%d reads of a header of %d bytes, want 2", src.reads, len(data))
	}
}

// A source may hold the header alone, without the data that its size promises.
func TestHeaderAlone(t *testing.T) {
	data := minimal(t)
	h := mustParse(t, Options{}, data)
	alone, err := Parse(bytes.NewReader(data[:h.End]), int64(len(data)), "m.gguf")
	if err != nil || alone.Tensors[0].Bytes != 128 {
		t.Errorf("%v, %v", alone, err)
	}
}

func TestParseOverHTTP(t *testing.T) {
	data := released(t)
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		requests++
		http.ServeContent(w, req, "", noTime, bytes.NewReader(data))
	}))
	defer server.Close()
	h, err := Parse(ranger{server.Client(), server.URL}, int64(len(data)), "m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if most := int(h.End>>20) + 2; requests > most {
		t.Errorf("%d requests for a header of %d bytes, want at most %d", requests, h.End, most)
	}
	if n, _ := h.ArrayLen("tokenizer.ggml.merges"); n != 247587 || len(h.Tensors) != 1024 {
		t.Errorf("%d merges, %d tensors", n, len(h.Tensors))
	}
}

// What a header of a released model keeps in memory.
func TestHeaderIsLean(t *testing.T) {
	data := released(t)
	for _, test := range []struct {
		options     Options
		kept, spent uint64
	}{
		{Options{}, 24 << 20, 40 << 20},
		{Options{SkipTokenizer: true}, 1 << 20, 3 << 20},
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		h := mustParse(t, test.options, data)
		spent := totalAlloc() - before.TotalAlloc
		runtime.GC()
		runtime.ReadMemStats(&after)
		kept := after.HeapAlloc - min(before.HeapAlloc, after.HeapAlloc)
		t.Logf("%+v: header of %d bytes keeps %d and allocates %d", test.options, h.End, kept, spent)
		if kept > test.kept || spent > test.spent {
			t.Errorf("%+v: keeps %d bytes and allocates %d; want at most %d and %d", test.options, kept, spent, test.kept, test.spent)
		}
		runtime.KeepAlive(h)
	}
}

func totalAlloc() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func BenchmarkParse(b *testing.B) {
	data := released(b)
	for _, test := range []struct {
		name    string
		options Options
	}{{"all", Options{}}, {"without-tokenizer", Options{SkipTokenizer: true}}} {
		b.Run(test.name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := test.options.Parse(bytes.NewReader(data), int64(len(data)), "m.gguf"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
