package planner

import (
	"fmt"
	"strings"
	"testing"

	"splash/dequant"
	"splash/internal/safetensors"
)

// fakeProjector is an mmproj GGUF as llama.cpp writes it (models.md 9.2, 9.3).
func fakeProjector(v *VisionLayout) *fakeGGUF {
	g := &fakeGGUF{}
	u := func(key string, n int) { g.set("clip.vision."+key, uint32(n)) }
	g.set("general.architecture", "clip")
	g.set("clip.projector_type", "qwen3vl_merger")
	g.set("clip.use_gelu", true)
	u("block_count", v.Depth)
	u("embedding_length", v.Hidden)
	u("attention.head_count", v.Heads)
	u("feed_forward_length", v.FFN)
	u("projection_dim", v.Out)
	u("patch_size", 16)
	u("spatial_merge_size", 2)
	u("image_size", 16*v.Side)
	g.set("clip.vision.attention.layer_norm_epsilon", float32(1e-6))
	g.set("clip.vision.image_mean", []float32{0.5, 0.5, 0.5})
	g.set("clip.vision.image_std", []float32{0.5, 0.5, 0.5})
	g.set("clip.vision.is_deepstack_layers", make([]bool, v.Depth))

	h, m, f := uint64(v.Hidden), uint64(4*v.Hidden), uint64(v.FFN)
	both := func(name string, rows uint64, cols ...uint64) {
		g.add(name+".weight", dequant.BF16, append(cols, rows)...)
		g.add(name+".bias", dequant.F32, rows)
	}
	g.add("v.patch_embd.weight", dequant.F32, 16, 16, 3, h)
	g.add("v.patch_embd.weight.1", dequant.F32, 16, 16, 3, h)
	g.add("v.patch_embd.bias", dequant.F32, h)
	g.add("v.position_embd.weight", dequant.F32, h, uint64(v.Side*v.Side))
	for i := range v.Depth {
		b := fmt.Sprintf("v.blk.%d.", i)
		both(b+"ln1", h)
		both(b+"ln2", h)
		both(b+"attn_qkv", 3*h, h)
		both(b+"attn_out", h, h)
		both(b+"ffn_up", f, h)
		both(b+"ffn_down", h, f)
	}
	both("v.post_ln", h)
	both("mm.0", m, m)
	both("mm.2", uint64(v.Out), m)
	return g
}

// fakeTower adds a tower in the names of MLX, or of transformers.
func fakeTower(v *VisionLayout, transformers bool) *fakeCheckpoint {
	c := &fakeCheckpoint{}
	prefix, patch := "vision_tower.", []int{v.Hidden, 2, 16, 16, 3}
	if transformers {
		prefix, patch = "model.visual.", []int{v.Hidden, 3, 2, 16, 16}
	}
	both := func(name string, rows int, cols ...int) {
		c.add(prefix+name+".weight", safetensors.BF16, append([]int{rows}, cols...)...)
		c.add(prefix+name+".bias", safetensors.BF16, rows)
	}
	h := v.Hidden
	c.add(prefix+"patch_embed.proj.weight", safetensors.BF16, patch...)
	c.add(prefix+"patch_embed.proj.bias", safetensors.BF16, h)
	c.add(prefix+"pos_embed.weight", safetensors.BF16, v.Side*v.Side, h)
	for i := range v.Depth {
		b := fmt.Sprintf("blocks.%d.", i)
		both(b+"norm1", h)
		both(b+"norm2", h)
		both(b+"attn.qkv", 3*h, h)
		both(b+"attn.proj", h, h)
		both(b+"mlp.linear_fc1", v.FFN, h)
		both(b+"mlp.linear_fc2", h, v.FFN)
	}
	both("merger.norm", h)
	both("merger.linear_fc1", 4*h, 4*h)
	both("merger.linear_fc2", v.Out, 4*h)
	c.add("lm_head.weight", safetensors.BF16, 1)
	return c
}

func TestTowers(t *testing.T) {
	for _, f := range Families() {
		if f.Vision == nil {
			continue
		}
		g := fakeProjector(f.Vision)
		h := g.header(t)
		p, err := PlanProjector(h, f.Vision)
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		if len(p.Tensors) != len(h.Tensors) || p.Tensor("mm.2.weight").Type != dequant.BF16 || p.Tensor("x") != nil {
			t.Errorf("%s: %d tensors of %d", f.Name, len(p.Tensors), len(h.Tensors))
		}
		config, err := DeriveConfig(fakeTarget(f).header(t), h)
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
		} else if err := CheckVisionConfig(config, f.Vision); err != nil {
			t.Errorf("%s: the configuration derived from its projector: %v", f.Name, err)
		}
		for _, transformers := range []bool{false, true} {
			c := fakeTower(f.Vision, transformers).checkpoint(t)
			p, err := PlanTower(c, f.Vision)
			if err != nil {
				t.Errorf("%s: %v", f.Name, err)
			} else if len(p.Tensors) != len(c.Tensors)-1 || (p.Format == "transformers") != transformers {
				t.Errorf("%s: %d tensors of %d, %s", f.Name, len(p.Tensors), len(c.Tensors)-1, p.Format)
			}
		}
	}
	v := family(t, "Qwen3.8-27B").Vision
	if v.HeadDim() != 72 || v.Merged() != 4608 {
		t.Errorf("heads of %d, %d merged", v.HeadDim(), v.Merged())
	}
}

func TestProjectorRefused(t *testing.T) {
	const key = "clip.vision."
	const kinds = "; expected clip, qwen3vl_merger and true"
	set := func(name string, value any) func(*fakeGGUF) { return func(g *fakeGGUF) { g.set(name, value) } }
	for _, test := range []struct {
		name   string
		change func(g *fakeGGUF)
		want   string
	}{
		{"a target", set("general.architecture", "qwen35"),
			"unsupported GGUF vision architecture: general.architecture qwen35, clip.projector_type qwen3vl_merger, clip.use_gelu true" + kinds},
		{"another projector", set("clip.projector_type", "mlp"),
			"unsupported GGUF vision architecture: general.architecture clip, clip.projector_type mlp, clip.use_gelu true" + kinds},
		{"another activation", func(g *fakeGGUF) { g.unset("clip.use_gelu"); g.unset("clip.projector_type") },
			"unsupported GGUF vision architecture: general.architecture clip, clip.projector_type none, clip.use_gelu false" + kinds},
		{"no image size", func(g *fakeGGUF) { g.unset(key + "image_size") },
			"missing or invalid GGUF metadata: clip.vision.image_size"},
		{"no patches", set(key+"patch_size", uint32(0)), "GGUF metadata must be positive: clip.vision.patch_size"},
		{"half a patch", set(key+"image_size", uint32(760)),
			"invalid GGUF vision position grid: clip.vision.image_size 760, clip.vision.patch_size 16"},
		{"a vast grid", set(key+"image_size", uint32(1<<24)),
			"invalid GGUF vision position grid: clip.vision.image_size 16777216, clip.vision.patch_size 16"},
		{"another grid", set(key+"image_size", uint32(512)),
			"vision metadata mismatch: clip.vision.image_size 512 (expected 768)"},
		{"several sizes", func(g *fakeGGUF) {
			g.set(key+"block_count", uint32(26))
			g.unset(key + "attention.head_count")
			g.set(key+"projection_dim", uint32(2048))
		}, "vision metadata mismatch: clip.vision.block_count 26 (expected 27), clip.vision.attention.head_count missing (expected 16), " +
			"clip.vision.projection_dim 2048 (expected 5120)"},
		{"width", set(key+"embedding_length", uint32(1024)),
			"vision metadata mismatch: clip.vision.embedding_length 1024 (expected 1152)"},
		{"FFN", set(key+"feed_forward_length", uint32(4096)),
			"vision metadata mismatch: clip.vision.feed_forward_length 4096 (expected 4304)"},
		{"merge", set(key+"spatial_merge_size", uint32(4)),
			"vision metadata mismatch: clip.vision.spatial_merge_size 4 (expected 2)"},
		{"epsilon", set(key+"attention.layer_norm_epsilon", float32(0.5)),
			"vision LayerNorm epsilon mismatch: clip.vision.attention.layer_norm_epsilon 0.5, expected 1e-06"},
		{"mean", set(key+"image_mean", []float32{0.5, 0.5, 0.25}),
			"vision image normalization mismatch: clip.vision.image_mean [0.5 0.5 0.25], expected [0.5 0.5 0.5]"},
		{"deviation", set(key+"image_std", []float32{0.5}),
			"vision image normalization mismatch: clip.vision.image_std [0.5], expected [0.5 0.5 0.5]"},
		{"no list of stacked layers", func(g *fakeGGUF) { g.unset(key + "is_deepstack_layers") },
			"vision metadata must list clip.vision.is_deepstack_layers per block: 27 bools, found 0"},
		{"a short list", set(key+"is_deepstack_layers", make([]bool, 26)),
			"vision metadata must list clip.vision.is_deepstack_layers per block: 27 bools, found 26"},
		{"stacked layers", set(key+"is_deepstack_layers", append(make([]bool, 26), true)),
			"vision deepstack layers are unsupported: clip.vision.is_deepstack_layers 26 is true"},
		{"missing and quantized", func(g *fakeGGUF) {
			g.drop("v.blk.3.ln1.bias", "mm.0.bias")
			g.retype("attn_qkv.weight", dequant.Q8_0)
		}, "vision tensors this build cannot load: attn_qkv.weight (Q8_0) in 27 layers, ln1.bias (missing) in layer 3, mm.0.bias (missing)"},
		{"one frame", func(g *fakeGGUF) { g.drop("v.patch_embd.weight.1") },
			"vision tensors this build cannot load: v.patch_embd.weight.1 (missing)"},
		{"another shape", func(g *fakeGGUF) { g.tensor("v.patch_embd.weight").dims = []uint64{16, 16, 1152, 3} },
			"vision tensor shape mismatch: v.patch_embd.weight is [3, 1152, 16, 16], expected [1152, 3, 16, 16]"},
		{"tensors of another tower", func(g *fakeGGUF) {
			g.add("v.class_embd", dequant.F32, 4)
			g.add("v.deepstack.5.norm.weight", dequant.F32, 4)
		}, "mmproj tensors the vision tower does not use: v.class_embd, v.deepstack.5.norm.weight"},
		{"many tensors of another tower", func(g *fakeGGUF) {
			for i := range 30 {
				g.add(fmt.Sprintf("x.%d", i), dequant.F32, 4)
			}
		}, "mmproj tensors the vision tower does not use: x.0, x.1, x.2, x.3, x.4, x.5, x.6, x.7, x.8, x.9, x.10, x.11, x.12, " +
			"x.13, x.14, x.15, x.16, x.17, x.18, x.19 and 10 more"},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := family(t, "Qwen3.8-27B").Vision
			g := fakeProjector(v)
			test.change(g)
			refused(t, test.want, func() error { _, err := PlanProjector(g.header(t), v); return err })
		})
	}
}

func TestDerivedVisionRefused(t *testing.T) {
	f := family(t, "Qwen3.8-27B")
	target := fakeTarget(f).header(t)
	for _, test := range []struct {
		name   string
		change func(g *fakeGGUF)
		want   string
	}{
		{"no depth", func(g *fakeGGUF) { g.unset("clip.vision.block_count") },
			"missing or invalid GGUF metadata: clip.vision.block_count"},
		{"a width of 0", func(g *fakeGGUF) { g.set("clip.vision.embedding_length", uint32(0)) },
			"GGUF metadata must be positive: clip.vision.embedding_length"},
		{"stacked layers", func(g *fakeGGUF) { g.set("clip.vision.is_deepstack_layers", []bool{true}) },
			"vision deepstack layers are unsupported: clip.vision.is_deepstack_layers 0 is true"},
	} {
		g := fakeProjector(f.Vision)
		test.change(g)
		refused(t, test.want, func() error { _, err := DeriveConfig(target, g.header(t)); return err })
	}
}

func TestTowerRefused(t *testing.T) {
	v := family(t, "Qwen3.8-27B").Vision
	for _, test := range []struct {
		name   string
		change func(c *fakeCheckpoint)
		want   string
	}{
		{"quantized", func(c *fakeCheckpoint) { c.add("vision_tower.blocks.3.attn.qkv.scales", safetensors.BF16, 4) },
			"the MLX vision tower is quantized (vision_tower.blocks.3.attn.qkv.scales)"},
		{"stacked layers", func(c *fakeCheckpoint) {
			c.add("vision_tower.deepstack_merger_list.0.norm.weight", safetensors.BF16, 4)
		},
			"vision deepstack layers are unsupported: vision_tower.deepstack_merger_list.0.norm.weight"},
		{"missing and of another type", func(c *fakeCheckpoint) {
			c.drop("vision_tower.blocks.26.norm2.bias")
			c.tensor("vision_tower.pos_embed.weight").dtype = safetensors.I32
		}, "vision tensors this build cannot load: pos_embed.weight (I32), norm2.bias (missing) in layer 26"},
		{"another width",
			func(c *fakeCheckpoint) { c.tensor("vision_tower.merger.linear_fc2.weight").shape = []int64{2048, 4608} },
			"vision tensor shape mismatch: vision_tower.merger.linear_fc2.weight is [2048, 4608], expected [5120, 4608]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := fakeTower(v, false)
			test.change(c)
			refused(t, test.want, func() error { _, err := PlanTower(c.checkpoint(t), v); return err })
		})
	}
}

func TestVisionConfigRefused(t *testing.T) {
	f := family(t, "Qwen3.6-35B-A3B")
	for _, test := range []struct {
		key   string
		value any
		want  string
	}{
		{"depth", 26, "vision config depth mismatch: MLX 26, runtime 27"},
		{"hidden_size", 1024, "vision config hidden_size mismatch: MLX 1024, runtime 1152"},
		{"out_hidden_size", 5120, "vision config out_hidden_size mismatch: MLX 5120, runtime 2048"},
		{"temporal_patch_size", 1, "vision config temporal_patch_size mismatch: MLX 1, runtime 2"},
		{"in_channels", 4, "vision config in_channels mismatch: MLX 4, runtime 3"},
		{"num_position_embeddings", 2305, "vision config num_position_embeddings mismatch: MLX 2305, runtime 2304"},
		{"num_heads", true, "vision config num_heads must be a number"},
		{"hidden_act", "gelu", "vision config hidden_act mismatch: MLX gelu, runtime gelu_pytorch_tanh"},
		{"deepstack_visual_indexes", []any{5, 11}, "vision deepstack layers are unsupported"},
		{"deepstack_visual_indexes", nil, "vision deepstack layers are unsupported"},
	} {
		o := fakeConfig(f)
		at(o, "vision_config")[test.key] = test.value
		refused(t, test.want, func() error { return CheckVisionConfig(encodeJSON(o), f.Vision) })
	}
	o := fakeConfig(f)
	delete(o, "vision_config")
	refused(t, "config.json has no vision_config; serve it with --language-only for text alone",
		func() error { return CheckVisionConfig(encodeJSON(o), f.Vision) })
}

func TestProcessor(t *testing.T) {
	good := func() jsonObject {
		return jsonObject{
			"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2, "image_mean": []any{0.5, 0.5, 0.5},
			"image_std": []any{0.5, 0.5, 0.5}, "size": jsonObject{"longest_edge": 16777216},
		}
	}
	if err := CheckProcessor(encodeJSON(good())); err != nil {
		t.Error(err)
	}
	if err := CheckProcessor(encodeJSON(jsonObject{"image_processor": good(), "patch_size": 14})); err != nil {
		t.Errorf("nested: %v", err)
	}
	for _, test := range []struct {
		key   string
		value any
		want  string
	}{
		{"patch_size", 14, "patch_size 14, expected 16"},
		{"temporal_patch_size", nil, "temporal_patch_size null, expected 2"},
		{"merge_size", true, "merge_size true, expected 2"},
		{"image_mean", []any{0.48145466, 0.4578275, 0.40821073},
			"image_mean [0.48145466, 0.4578275, 0.40821073], expected [0.5, 0.5, 0.5]"},
		{"image_std", []any{0.5, 0.5}, "image_std [0.5, 0.5], expected [0.5, 0.5, 0.5]"},
		{"image_std", 0.5, "image_std 0.5, expected [0.5, 0.5, 0.5]"},
	} {
		o := good()
		o[test.key] = test.value
		refused(t, "unsupported vision preprocessing configuration: "+test.want, func() error { return CheckProcessor(encodeJSON(o)) })
	}
}

func TestProjectorRank(t *testing.T) {
	for want, kinds := range map[string][]dequant.Type{
		"0 true": {dequant.F32, dequant.BF16}, "1 true": {dequant.F32}, "2 true": {dequant.BF16, dequant.F16, dequant.BF16}, "0 false": {dequant.Q8_0},
	} {
		g := &fakeGGUF{}
		g.set("general.architecture", "clip")
		for i, kind := range kinds {
			g.add(fmt.Sprint(i), kind, 32)
		}
		rank, ok := ProjectorRank(g.header(t))
		if got := fmt.Sprint(rank, ok); got != want {
			t.Errorf("%v: %s, want %s", kinds, got, want)
		}
	}
	if _, ok := ProjectorRank(fakeTarget(family(t, "tiny-qwen35")).header(t)); ok {
		t.Error("a target is a projector")
	}
	if !strings.HasPrefix(few([]string{"a"}), "a") {
		t.Error("one name")
	}
}
