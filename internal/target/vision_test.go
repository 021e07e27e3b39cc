package target

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/media"
)

// TestVision opens a target beside its projector, and beside the shards of a checkpoint's tower; and refuses those of others.
func TestVision(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, g *fixtures.GGUF, err error) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err == nil {
			err = g.WriteFile(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	model := func(family string) string {
		g, err := (&fixtures.Recipe{Family: family, Seed: 1, Formats: fixtures.Uniform(dequant.Q8_0)}).GGUF()
		return write(family+".gguf", g, err)
	}
	projector := func(name, family string, change func(g *fixtures.GGUF)) string {
		g, err := (&fixtures.Tower{Family: family, Seed: 1, Type: dequant.BF16}).Projector()
		if err == nil {
			change(g)
		}
		return write(name, g, err)
	}
	none := func(*fixtures.GGUF) {}
	c := &fixtures.Checkpoint{Config: map[string]any{}}
	if err := (&fixtures.Tower{Family: "tiny-qwen35", Seed: 1}).AddTo(c, true); err != nil {
		t.Fatal(err)
	}
	shards := filepath.Join(dir, "vision")
	if err := c.WriteDir(shards, 2); err != nil {
		t.Fatal(err)
	}
	tiny, mmproj := model("tiny-qwen35"), projector("mmproj.gguf", "tiny-qwen35", none)
	for _, path := range []string{mmproj, shards} {
		m, err := Open(t.Context(), Options{Path: tiny, Vision: path, Backend: "cpu", Memory: 2 << 30})
		if err != nil {
			t.Fatal(err)
		}
		if m.Vision == nil || m.Vision.Width() != 256 || m.Engine.Hidden != 256 {
			t.Errorf("%s: %+v", path, m.Vision)
		}
		want := m.Vision.Bytes() + m.Vision.Scratch(media.MaxPixels)
		if m.Memory.Vision != want || m.Memory.Left() != 2<<30-m.Memory.Weights-want || !strings.Contains(m.Memory.String(), " + vision ") {
			t.Errorf("%s: %+v, the tower takes %d", path, m.Memory, want)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct{ name, target, vision, want string }{
		{"a family without a tower", "", mmproj, mmproj + ": pebble has no vision tower, so it takes no projector"},
		{"no file", tiny, filepath.Join(dir, "absent"), "absent"},
		{"a target as projector", tiny, tiny, "unsupported GGUF vision architecture: general.architecture qwen35"},
		{"a tower of another size", tiny, projector("other.gguf", "tiny-qwen35", func(g *fixtures.GGUF) { g.Set("clip.vision.block_count", uint32(3)) }),
			"vision metadata mismatch: clip.vision.block_count 3 (expected 2)"},
		{"a missing tensor", tiny, projector("less.gguf", "tiny-qwen35", func(g *fixtures.GGUF) { g.Drop("mm.0.bias") }), "mm.0.bias"},
		{"a weight that BF16 does not hold", tiny, projector("more.gguf", "tiny-qwen35", func(g *fixtures.GGUF) {
			g.Drop("v.post_ln.bias")
			values := make([]float32, 144)
			values[0] = 1.0000001
			g.AddFloats("v.post_ln.bias", values...)
		}), "more.gguf: v.post_ln.bias is not bf16-exact"},
	} {
		m, err := Open(t.Context(), Options{Path: c.target, Vision: c.vision, Backend: "cpu"})
		if err == nil {
			m.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v\nwant %s", c.name, err, c.want)
		}
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{Path: tiny, Vision: empty, Backend: "cpu"}); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty folder: %v", err)
	}
}
