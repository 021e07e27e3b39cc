package planner

import (
	"bytes"
	"testing"

	"splash/internal/gguf"
	"splash/internal/safetensors"
)

// FuzzPlanGGUF plans whatever header parses: a plan's tensors are all the network reads, and lie in the file.
func FuzzPlanGGUF(f *testing.F) {
	for _, family := range Families() {
		if family.Test {
			g := fakeTarget(family)
			g.set("tokenizer.ggml.tokens", make([]string, family.Layout.Vocab))
			b, _ := g.bytes()
			f.Add(b)
		}
	}
	g := fakeTarget(FamilyByName("Flint"))
	g.set("tokenizer.ggml.tokens", []string{"a"})
	g.set("tokenizer.ggml.eog_token_ids", []int32{0})
	b, _ := g.bytes()
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := gguf.Parse(bytes.NewReader(b), 1<<40, "f")
		if err != nil {
			return
		}
		RequireQuantized(h)
		DeriveConfig(h, h)
		PlanProjector(h, FamilyByName("tiny-qwen35").Vision)
		p, err := PlanGGUF(h)
		if err != nil {
			return
		}
		for i := range p.Tensors {
			n := &p.Tensors[i]
			source := h.Tensor(n.Source[0].Name)
			if source == nil || int64(n.Rows)*int64(n.Cols)*int64(max(n.Experts, 1)) > source.Elements() {
				t.Fatalf("%s is not in the file as planned", n.Name)
			}
		}
	})
}

// FuzzConfig checks whatever is given as a model's JSON records.
func FuzzConfig(f *testing.F) {
	dense := FamilyByName("tiny-qwen35")
	target := &Plan{Family: dense, Layout: dense.Layout}
	f.Add(encodeJSON(fakeConfig(dense)))
	f.Add(encodeJSON(modelOptConfig(dense)))
	f.Add(encodeJSON(compressedConfig(FamilyByName("tiny-qwen35moe"))))
	f.Add(encodeJSON(fakeDraft(target)))
	f.Add([]byte(`{"image_processor":{"patch_size":16,"image_mean":[0.5,0.5,0.5]}}`))
	c := &fakeCheckpoint{}
	b, size := c.bytes()
	h, err := safetensors.Parse(bytes.NewReader(b), size, "f")
	if err != nil {
		f.Fatal(err)
	}
	empty, err := safetensors.Join([]*safetensors.Header{h})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		CheckConfig(b)
		CheckVisionConfig(b, dense.Vision)
		CheckProcessor(b)
		PlanDraft(b, target)
		if p, err := PlanSafetensors(b, empty); err == nil {
			t.Fatalf("a checkpoint of no tensors plans as %s", p.Family.Name)
		}
	})
}

// FuzzGlob holds the matcher to a plain one, which backtracks.
func FuzzGlob(f *testing.F) {
	f.Add("*.layers.[0-9].*", "model.layers.3.x")
	f.Add(`a\*[!b]?*`, "a*cd")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 12 || len(name) > 12 {
			return
		}
		if got, want := globMatch(pattern, name), globSlow(pattern, name); got != want {
			t.Errorf("%q matches %q: %v, want %v", pattern, name, got, want)
		}
	})
}

func globSlow(pattern, name string) bool {
	if pattern == "" {
		return name == ""
	}
	if pattern[0] == '*' {
		return globSlow(pattern[1:], name) || name != "" && globSlow(pattern, name[1:])
	}
	if name == "" {
		return false
	}
	size, ok := globOne(pattern, name[0])
	return ok && globSlow(pattern[size:], name[1:])
}
