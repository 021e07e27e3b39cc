package planner

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"splash/dequant"
	"splash/internal/gguf"
)

// releasedHeader is the header of a released file of that size: a whole vocabulary, its merges and types.
func releasedHeader(f *Family) ([]byte, int64) {
	g := fakeTarget(f)
	tokens, merges, types := make([]string, 248320), make([]string, 247587), make([]int32, 248320)
	for i := range tokens {
		tokens[i] = fmt.Sprintf("token%05x", i)
		types[i] = 1
	}
	for i := range merges {
		merges[i] = fmt.Sprintf("tok%d en%d", i/500, i)
	}
	g.set("tokenizer.ggml.tokens", tokens)
	g.set("tokenizer.ggml.token_type", types)
	g.set("tokenizer.ggml.merges", merges)
	for i := range 200 {
		g.set(fmt.Sprintf("quantize.note.%d", i), "x")
	}
	return g.bytes()
}

func planBytes(tb testing.TB, b []byte, size int64) *Plan {
	tb.Helper()
	h, err := gguf.Parse(bytes.NewReader(b), size, "f")
	if err != nil {
		tb.Fatal(err)
	}
	p, err := PlanGGUF(h)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// TestPlanAllocates bounds what reading and planning the header of the largest target takes.
func TestPlanAllocates(t *testing.T) {
	b, size := releasedHeader(family(t, "Qwen3.5-122B-A10B"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p := planBytes(t, b, size)
	runtime.ReadMemStats(&after)
	const limit = 150 << 20
	if n := after.TotalAlloc - before.TotalAlloc; n > limit {
		t.Errorf("%d bytes allocated for a header of %d, limit %d", n, len(b), limit)
	}
	if len(p.Tensors) < 800 {
		t.Errorf("%d tensors", len(p.Tensors))
	}
}

// TestPlanAloneAllocates bounds what planning takes beside the header: no copy of its arrays.
func TestPlanAloneAllocates(t *testing.T) {
	b, size := releasedHeader(family(t, "Qwen3.5-122B-A10B"))
	h, err := gguf.Parse(bytes.NewReader(b), size, "f")
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := PlanGGUF(h); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
		t.Errorf("%d bytes allocated, limit 4 MiB", n)
	}
}

func BenchmarkPlan(b *testing.B) {
	for _, name := range []string{"Qwen3.8-27B", "Qwen3.5-122B-A10B", "Qwen3.8-Flash-Next"} {
		header, size := releasedHeader(family(b, name))
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				planBytes(b, header, size)
			}
		})
	}
}

// BenchmarkPlanExperts plans a checkpoint that names every expert of the 35B.
func BenchmarkPlanExperts(b *testing.B) {
	f := family(b, "Qwen3.6-35B-A3B")
	for name, test := range map[string]struct {
		config jsonObject
		c      *fakeCheckpoint
	}{
		"modelopt":           {modelOptConfig(f), fakeModelOpt(f.Layout)},
		"compressed-tensors": {compressedConfig(f), fakeCompressed(f.Layout)},
	} {
		config, c := encodeJSON(test.config), test.c.checkpoint(b)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if _, err := PlanSafetensors(config, c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestAffineTypes holds the planner's MLX formats to the decoders there are.
func TestAffineTypes(t *testing.T) {
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, group := range []int{32, 64, 128} {
			if f := dequant.Lookup(dequant.Affine(bits, group)); f == nil || !f.Decodes() {
				t.Errorf("affine %d bits in groups of %d is not decoded", bits, group)
			}
		}
	}
}
