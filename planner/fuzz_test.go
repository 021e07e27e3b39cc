package planner

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"splash/dequant"
	"splash/internal/gguf"
	"splash/internal/safetensors"
)

// FuzzPlanGGUF edits the headers of the test families: no edit makes a check panic, and what plans is all in the file.
func FuzzPlanGGUF(f *testing.F) {
	f.Add(uint8(0), []byte{0, 3, 1, 2, 4, 7, 9, 0})
	f.Add(uint8(1), []byte{5, 17, 0, 0, 6, 40, 8, 0})
	f.Add(uint8(2), []byte{3, 30, 255, 255})
	f.Add(uint8(3), []byte{2, 12, 1, 0, 1, 5, 200, 1})
	f.Add(uint8(5), []byte{0, 9, 0, 64})
	var families []*Family
	for _, family := range Families() {
		if family.Test || family.Open {
			families = append(families, family)
		}
	}
	f.Fuzz(func(t *testing.T, family uint8, edits []byte) {
		g := fakeTarget(families[int(family)%len(families)])
		if len(edits) > 40 {
			return
		}
		for ; len(edits) >= 4; edits = edits[4:] {
			edit(g, edits[0], int(edits[1]), edits[2], edits[3])
		}
		b, size := g.bytes()
		h, err := gguf.Parse(bytes.NewReader(b), size, "f")
		if err != nil {
			return
		}
		RequireQuantized(h)
		DeriveConfig(h, h)
		PlanProjector(h, FamilyByName("tiny-qwen35").Vision)
		p, err := PlanGGUF(h)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("the refusal %q has several lines", err)
			}
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

// edit changes one key or tensor.
func edit(g *fakeGGUF, op byte, i int, a, b byte) {
	if len(g.keys) == 0 || len(g.tensors) == 0 {
		return
	}
	key, tensor := &g.keys[i%len(g.keys)], &g.tensors[i%len(g.tensors)]
	v := uint32(a)<<8 | uint32(b)
	switch op % 12 {
	case 0:
		key.value = v
	case 1:
		key.value = int32(int8(a)) << (b % 32)
	case 2:
		key.value = math.Float32frombits(v << 16)
	case 3:
		key.value = uint64(v) << (b % 64)
	case 4:
		key.value = string([]byte{a, b, '\n'})
	case 5:
		key.value = []int32{int32(a), int32(int8(b)), 0, 4}[:a%5]
	case 6:
		key.value = make([]bool, b)
	case 7:
		key.name += "x"
	case 8:
		tensor.dims[int(a)%len(tensor.dims)] = uint64(b) * 32
	case 9:
		tensor.kind = dequant.Type(a)
		if f := dequant.Lookup(tensor.kind); f == nil || tensor.dims[0]%uint64(f.Block) != 0 {
			tensor.kind = dequant.F32
		}
	case 10:
		tensor.name = g.tensors[int(a)%len(g.tensors)].name + string([]byte{'.', b})
	case 11:
		g.keys = append(g.keys, fakeKey{"prism.hadamard." + rotationKeys[int(a)%len(rotationKeys)].key, []int32{1, 1024, 1}[:b%4]})
	}
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
