package planner

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splash/dequant"
	"splash/internal/safetensors"

	"github.com/google/go-cmp/cmp"
)

// fakeDraft is the configuration of the target's draft as it is published (draft.md 12.2).
func fakeDraft(target *Plan) jsonObject {
	l, f := &target.Layout, target.Family
	taps := []any{}
	for _, tap := range f.Taps {
		taps = append(taps, tap)
	}
	if len(taps) == 0 {
		taps = []any{0, 1}
	}
	return jsonObject{
		"architectures": []any{"DFlash2DraftModel"}, "model_type": "qwen3", "dtype": "bfloat16", "num_hidden_layers": 2,
		"hidden_size": l.Hidden, "intermediate_size": 512, "vocab_size": l.Vocab, "num_attention_heads": 32,
		"num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu", "is_causal": false, "attention_bias": false,
		"tie_word_embeddings": false, "rms_norm_eps": 1e-6, "sliding_window": 2048,
		"layer_types": []any{"sliding_attention", "sliding_attention"}, "num_target_layers": l.Layers,
		"max_position_embeddings": 4096, "rope_parameters": jsonObject{"rope_type": "default", "rope_theta": 10000000},
		"dflash_config": jsonObject{
			"block_size": 8, "conv_group_size": 16, "conv_kernel_size": 2, "selector_rank": 256, "selector_top_k": 16,
			"mask_token_id": int(f.Mask.Last), "target_layer_ids": taps,
		},
	}
}

// planned is the plan of a family's own target.
func planned(t testing.TB, name string) *Plan {
	t.Helper()
	p, err := PlanGGUF(fakeTarget(family(t, name)).header(t))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDrafts(t *testing.T) {
	for _, f := range Families() {
		target := planned(t, f.Name)
		d, err := PlanDraft(encodeJSON(fakeDraft(target)), target)
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		if d.Hidden != target.Layout.Hidden || d.Mask != f.Mask.Last || d.StreamMean != (target.Layout.Arch == HyperMoE) {
			t.Errorf("%s: %+v", f.Name, d)
		}
	}
	target := planned(t, "tiny-qwen35")
	want := &Draft{
		Layers: 2, Hidden: 256, FFN: 512, Vocab: 2048, RopeBase: 1e7, Epsilon: 1e-6, Block: 8, Mask: 2047, Taps: []int{0, 2, 3},
	}
	got, err := PlanDraft(encodeJSON(fakeDraft(target)), target)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("draft (-want +got):\n%s", diff)
	}
}

// TestDraftVariants takes configurations that leave out or state what they may.
func TestDraftVariants(t *testing.T) {
	for _, test := range []struct {
		name, target string
		change       func(o jsonObject)
	}{
		{"the least", "tiny-qwen35", func(o jsonObject) {
			for _, key := range []string{"layer_types", "num_target_layers", "model_type", "dtype", "max_position_embeddings"} {
				delete(o, key)
			}
		}},
		{"trained to fill 16 rows", "Qwen3.5-122B-A10B", func(o jsonObject) { at(o, "dflash_config")["block_size"] = 16 }},
		{"windows stated", "tiny-qwen35", func(o jsonObject) { o["use_sliding_window"] = true }},
		{"no reduction", "tiny-qwen35", func(o jsonObject) { at(o, "dflash_config")["target_hidden_reduction"] = "none" }},
		{"a reduction of null", "tiny-qwen4exp",
			func(o jsonObject) { at(o, "dflash_config")["target_hidden_reduction"] = nil }},
		{"the mean of the streams", "tiny-qwen4exp",
			func(o jsonObject) { at(o, "dflash_config")["target_hidden_reduction"] = "stream_mean" }},
		{"multipliers of 1", "tiny-qwen35", func(o jsonObject) {
			d := at(o, "dflash_config")
			d["output_multiplier"], d["input_embedding_scale"], d["final_logit_softcapping"] = 1.0, 1, 0.0
		}},
		{"no cap", "tiny-qwen35", func(o jsonObject) { at(o, "dflash_config")["final_logit_softcapping"] = nil }},
		{"another of Flint's reserved tokens", "Flint",
			func(o jsonObject) { at(o, "dflash_config")["mask_token_id"] = 150019 }},
		{"a mask token of its own", "Qwen3.5-9B", func(o jsonObject) { at(o, "dflash_config")["mask_token_id"] = 248100 }},
		{"another base", "tiny-qwen35", func(o jsonObject) { at(o, "rope_parameters")["rope_theta"] = 1e6 }},
		{"one tap", "tiny-qwen35", func(o jsonObject) { at(o, "dflash_config")["target_layer_ids"] = []any{3} }},
		{"a key at the top does not count", "tiny-qwen35", func(o jsonObject) { o["block_size"] = 4 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			target := planned(t, test.target)
			o := fakeDraft(target)
			test.change(o)
			if _, err := PlanDraft(encodeJSON(o), target); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDraftRefused(t *testing.T) {
	const dense, hyper, flint = "tiny-qwen35", "tiny-qwen4exp", "Flint"
	top := func(key string, value any) func(jsonObject) { return func(o jsonObject) { o[key] = value } }
	inner := func(key string, value any) func(jsonObject) {
		return func(o jsonObject) { at(o, "dflash_config")[key] = value }
	}
	taps := func(v ...any) func(jsonObject) { return inner("target_layer_ids", append([]any{}, v...)) }
	const notTaps = "draft config dflash_config target_layer_ids must be 1 to 8 ascending layers below 4, not "
	for _, test := range []struct {
		name, target string
		change       func(o jsonObject)
		want         string
	}{
		{"the first version", dense, top("architectures", []any{"DFlashDraftModel"}),
			"draft is not a DFlash2 model: architectures [DFlashDraftModel], runtime [DFlash2DraftModel]"},
		{"two architectures", dense, top("architectures", []any{"DFlash2DraftModel", "X"}),
			"draft is not a DFlash2 model: architectures [DFlash2DraftModel, X], runtime [DFlash2DraftModel]"},
		{"no architecture", dense, func(o jsonObject) { delete(o, "architectures") },
			"draft is not a DFlash2 model: architectures null, runtime [DFlash2DraftModel]"},
		{"no layers", dense, top("num_hidden_layers", 0), "draft config num_hidden_layers must be a positive integer; " +
			"draft config layer_types [sliding_attention, sliding_attention] must be 0 times sliding_attention"},
		{"many layers", dense, func(o jsonObject) { delete(o, "layer_types"); o["num_hidden_layers"] = 65 },
			"draft config num_hidden_layers 65 is above the 64 layers a draft may have"},
		{"another width", dense, top("hidden_size", 512), "draft config hidden_size mismatch: checkpoint 512, runtime 256"},
		{"another vocabulary", dense, top("vocab_size", 2047),
			"draft config vocab_size mismatch: checkpoint 2047, runtime 2048"},
		{"no FFN", dense, top("intermediate_size", nil), "draft config intermediate_size must be a positive integer"},
		{"half an FFN", dense, top("intermediate_size", 512.5),
			"draft config intermediate_size must be a positive integer"},
		{"heads", dense, top("num_attention_heads", 16),
			"draft config num_attention_heads mismatch: checkpoint 16, runtime 32"},
		{"KV heads", dense, top("num_key_value_heads", 32),
			"draft config num_key_value_heads mismatch: checkpoint 32, runtime 8"},
		{"head dimension", dense, top("head_dim", 64), "draft config head_dim mismatch: checkpoint 64, runtime 128"},
		{"window", dense, top("sliding_window", 4096),
			"draft config sliding_window mismatch: checkpoint 4096, runtime 2048"},
		{"window of true", dense, top("sliding_window", true), "draft config sliding_window must be a positive integer"},
		{"epsilon", dense, top("rms_norm_eps", 1e-5),
			"draft config rms_norm_eps mismatch: checkpoint 1e-05, runtime 1e-06"},
		{"causal", dense, top("is_causal", true), "draft config is_causal must be false"},
		{"causal of nothing", dense, func(o jsonObject) { delete(o, "is_causal") }, "draft config is_causal must be false"},
		{"biases", dense, top("attention_bias", 0), "draft config attention_bias must be false"},
		{"a tied head", dense, top("tie_word_embeddings", true), "draft config tie_word_embeddings must be false"},
		{"activation", dense, top("hidden_act", "gelu"), "draft config hidden_act mismatch: checkpoint gelu, runtime silu"},
		{"no rotation", dense, top("rope_parameters", nil), "draft config rope_parameters must be an object"},
		{"scaled rotation", dense, func(o jsonObject) { at(o, "rope_parameters")["rope_type"] = "yarn" },
			"draft config rope_parameters rope_type mismatch: checkpoint yarn, runtime default"},
		{"a base of 0", dense, func(o jsonObject) { at(o, "rope_parameters")["rope_theta"] = 0 },
			"draft config rope_parameters rope_theta 0 must be a positive number"},
		{"a base beyond floats", dense,
			func(o jsonObject) { at(o, "rope_parameters")["rope_theta"] = json.Number("1e999") },
			"draft config rope_parameters rope_theta 1e999 must be a positive number"},
		{"full attention", dense, top("layer_types", []any{"sliding_attention", "full_attention"}),
			"draft config layer_types [sliding_attention, full_attention] must be 2 times sliding_attention"},
		{"one type of layer", dense, top("layer_types", []any{"sliding_attention"}),
			"draft config layer_types [sliding_attention] must be 2 times sliding_attention"},
		{"no windows", dense, top("use_sliding_window", false), "draft config use_sliding_window must be true"},
		{"another target", dense, top("num_target_layers", 64),
			"draft config num_target_layers mismatch: checkpoint 64, runtime 4"},
		{"nothing of its own", dense, top("dflash_config", nil), "draft config dflash_config must be an object"},
		{"short blocks", dense, inner("block_size", 4),
			"draft config dflash_config block_size 4 is below the 8 rows a cycle drafts"},
		{"no blocks", dense, inner("block_size", "8"), "draft config dflash_config block_size must be a positive integer"},
		{"wide groups", dense, inner("conv_group_size", 32),
			"draft config dflash_config conv_group_size mismatch: checkpoint 32, runtime 16"},
		{"three taps", dense, inner("conv_kernel_size", 3),
			"draft config dflash_config conv_kernel_size mismatch: checkpoint 3, runtime 2"},
		{"selector rank", dense, inner("selector_rank", 128),
			"draft config dflash_config selector_rank mismatch: checkpoint 128, runtime 256"},
		{"candidates", dense, inner("selector_top_k", 8),
			"draft config dflash_config selector_top_k mismatch: checkpoint 8, runtime 16"},
		{"another mask", dense, inner("mask_token_id", 7),
			"draft config dflash_config mask_token_id mismatch: checkpoint 7, runtime 2047"},
		{"a mask of no token", dense, inner("mask_token_id", -1),
			"draft config dflash_config mask_token_id must be a token id"},
		{"not Flint's", flint, inner("mask_token_id", 7),
			"draft config dflash_config mask_token_id 7 is not one of Flint's reserved tokens 150019 to 150143"},
		{"outside", "Qwen3.5-9B", inner("mask_token_id", 248320),
			"draft config dflash_config mask_token_id 248320 is outside the vocabulary of 248320 tokens"},
		{"a tap twice", dense, taps(3, 3), notTaps + "[3, 3]"},
		{"taps that fall", dense, taps(3, 2), notTaps + "[3, 2]"},
		{"a tap beyond", dense, taps(1, 4), notTaps + "[1, 4]"},
		{"a tap below", dense, taps(-1, 2), notTaps + "[-1, 2]"},
		{"no taps", dense, taps(), notTaps + "[]"},
		{"nine taps", "tiny-qwen35", taps(0, 1, 2, 3, 4, 5, 6, 7, 8), notTaps + "[0, 1, 2, 3, 4, 5, 6, 7, 8]"},
		{"taps of true", dense, taps(true), notTaps + "[true]"},
		{"half a tap", dense, taps(1.5), notTaps + "[1.5]"},
		{"taps of a number", dense, inner("target_layer_ids", 3), notTaps + "3"},
		{"the mean of one stream", dense, inner("target_hidden_reduction", "stream_mean"),
			"draft config dflash_config target_hidden_reduction mismatch: checkpoint stream_mean, runtime none"},
		{"four streams as they are", hyper, inner("target_hidden_reduction", "none"),
			"draft config dflash_config target_hidden_reduction mismatch: checkpoint none, runtime stream_mean"},
		{"another reduction", hyper, inner("target_hidden_reduction", 1),
			"draft config dflash_config target_hidden_reduction mismatch: checkpoint 1, runtime stream_mean"},
		{"scaled logits", dense, inner("output_multiplier", 0.5),
			"draft config dflash_config output_multiplier 0.5 is not supported"},
		{"scaled embeddings", dense, inner("input_embedding_scale", 16),
			"draft config dflash_config input_embedding_scale 16 is not supported"},
		{"capped logits", dense, inner("final_logit_softcapping", 30),
			"draft config dflash_config final_logit_softcapping 30 is not supported"},
		{"several at once", dense, func(o jsonObject) {
			o["architectures"] = []any{}
			o["head_dim"] = 64
			at(o, "dflash_config")["block_size"] = 7
			at(o, "dflash_config")["mask_token_id"] = 1
		}, "draft is not a DFlash2 model: architectures [], runtime [DFlash2DraftModel]; " +
			"draft config head_dim mismatch: checkpoint 64, runtime 128; " +
			"draft config dflash_config block_size 7 is below the 8 rows a cycle drafts; " +
			"draft config dflash_config mask_token_id mismatch: checkpoint 1, runtime 2047"},
	} {
		t.Run(test.name, func(t *testing.T) {
			target := planned(t, test.target)
			o := fakeDraft(target)
			test.change(o)
			refused(t, test.want, func() error { _, err := PlanDraft(encodeJSON(o), target); return err })
		})
	}
	t.Run("a width of no groups", func(t *testing.T) {
		target := planned(t, dense)
		target.Layout.Hidden = 2056
		refused(t, "draft config hidden_size 2056 is not a whole number of 16-channel convolution groups",
			func() error { _, err := PlanDraft(encodeJSON(fakeDraft(target)), target); return err })
	})
	t.Run("no object", func(t *testing.T) {
		refused(t, "draft config.json is not a JSON object", func() error { _, err := PlanDraft([]byte("3"), planned(t, dense)); return err })
	})
}

// TestDraftKeysHeld removes each key of a draft's configuration: what it may leave out is listed.
func TestDraftKeysHeld(t *testing.T) {
	optional := map[string]bool{"model_type": true, "dtype": true, "layer_types": true, "num_target_layers": true, "max_position_embeddings": true}
	target := planned(t, "tiny-qwen35")
	for _, path := range [][]string{nil, {"rope_parameters"}, {"dflash_config"}} {
		for key := range at(fakeDraft(target), path...) {
			o := fakeDraft(target)
			delete(at(o, path...), key)
			if _, err := PlanDraft(encodeJSON(o), target); (err == nil) != optional[key] {
				t.Errorf("without %s: %v", key, err)
			} else if err != nil && !strings.Contains(err.Error(), key) {
				t.Errorf("without %s: %v", key, err)
			}
		}
	}
}

// TestPebbleDraft plans the draft of the repository, and reads its tensors.
func TestPebbleDraft(t *testing.T) {
	dir := filepath.Join("..", "fixtures", "pebble", "draft")
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	target := planned(t, "pebble")
	d, err := PlanDraft(config, target)
	if err != nil {
		t.Fatal(err)
	}
	c, err := OpenDraft(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tensors, err := PlanDraftTensors(d, c)
	if err != nil {
		t.Fatal(err)
	}
	if len(tensors) != len(c.Tensors) || len(tensors) != 2*15+6 {
		t.Errorf("%d tensors planned of %d", len(tensors), len(c.Tensors))
	}
	w := OpenSafetensors(c, target)
	for i := range tensors {
		all, err := w.Matrices(&tensors[i])
		if err != nil {
			t.Error(err)
		} else if all[0].Rows != tensors[i].Rows || all[0].Cols != tensors[i].Cols || all[0].Format.Type != dequant.BF16 {
			t.Errorf("%s: %d x %d", tensors[i].Name, all[0].Rows, all[0].Cols)
		}
	}
	if _, err := PlanDraftImages(d.Layers, tensors); err != nil {
		t.Errorf("its images: %v", err)
	}
}

func TestDraftTensorsRefused(t *testing.T) {
	d := &Draft{Layers: 2, Hidden: 256, FFN: 512, Vocab: 2048, Taps: []int{0, 2, 3}}
	fake := func() *fakeCheckpoint {
		c := &fakeCheckpoint{}
		for _, w := range d.inventory() {
			c.tensors = append(c.tensors, fakeShard{w.Name, safetensors.BF16, w.shape})
		}
		return c
	}
	if got, err := PlanDraftTensors(d, fake().checkpoint(t)); err != nil || len(got) != 37 {
		t.Errorf("%d tensors with the mask embedding, %v", len(got), err)
	}
	for _, test := range []struct {
		name   string
		change func(c *fakeCheckpoint)
		want   string
	}{
		{"missing", func(c *fakeCheckpoint) { c.drop("fc.weight", "layers.1.mlp.up_proj.weight") },
			"draft tensor layers.1.mlp.up_proj.weight is missing; draft tensor fc.weight is missing"},
		{"another type and shape", func(c *fakeCheckpoint) {
			c.tensor("candidate_selector.hidden_projection.weight").dtype = safetensors.F16
			c.tensor("candidate_selector.hidden_projection.weight").shape = []int64{64, 256}
		}, "draft tensor candidate_selector.hidden_projection.weight is F16 [64, 256], want BF16 [256, 256]"},
		{"a mask embedding of another width",
			func(c *fakeCheckpoint) { c.tensor("mask_embedding").shape = []int64{1, 256} },
			"draft tensor mask_embedding is BF16 [1, 256], want BF16 [256]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := fake()
			test.change(c)
			refused(t, test.want, func() error { _, err := PlanDraftTensors(d, c.checkpoint(t)); return err })
		})
	}
	odd := &Draft{Layers: 1, Hidden: 2064, FFN: 512, Vocab: 64, Taps: []int{0}}
	c := &fakeCheckpoint{}
	for _, w := range odd.inventory() {
		c.tensors = append(c.tensors, fakeShard{w.Name, safetensors.BF16, w.shape})
	}
	_, err := PlanDraftTensors(odd, c.checkpoint(t))
	if err == nil || !strings.HasPrefix(err.Error(), "draft tensor layers.0.attention_conv.kernel_projection.weight has rows of 2064 values, not a multiple of 64; ") {
		t.Errorf("rows of no groups: %v", err)
	}
}

// TestMaskFile opens a draft with the mask embedding its release ships, which must stand alone in its file.
func TestMaskFile(t *testing.T) {
	d := &Draft{Layers: 1, Hidden: 64, FFN: 64, Vocab: 64, Taps: []int{0}}
	c, mask := &fakeCheckpoint{}, &fakeCheckpoint{}
	for _, w := range d.inventory() {
		if w.Name != "mask_embedding" {
			c.tensors = append(c.tensors, fakeShard{w.Name, safetensors.BF16, w.shape})
		}
	}
	mask.add("mask_embedding", safetensors.BF16, 64)
	dir := t.TempDir()
	write := func(name string, c *fakeCheckpoint) {
		t.Helper()
		header, size := c.bytes()
		if err := os.WriteFile(filepath.Join(dir, name), append(header, make([]byte, int(size)-len(header))...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	plan := func() (tensors []Tensor, err error) {
		opened, err := OpenDraft(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer opened.Close()
		return PlanDraftTensors(d, opened)
	}
	write("model.safetensors", c)
	if tensors, err := plan(); err != nil || len(tensors) != 21 {
		t.Errorf("without: %d tensors, %v", len(tensors), err)
	}
	write("mask_embedding.safetensors", mask)
	tensors, err := plan()
	if err != nil || len(tensors) != 22 || tensors[21].Name != "mask_embedding" {
		t.Errorf("with: %d tensors, %v", len(tensors), err)
	}
	mask.add("more", safetensors.BF16, 1)
	write("mask_embedding.safetensors", mask)
	refused(t, "mask_embedding.safetensors holds more, want mask_embedding alone", func() error { _, err := plan(); return err })
}

// TestDraftInventory holds the draft's parameters to the counts of the published ones (draft.md 2.4, 12.2).
func TestDraftInventory(t *testing.T) {
	for _, test := range []struct {
		d    Draft
		want int
	}{
		{Draft{Layers: 5, Hidden: 5120, FFN: 17408, Vocab: 248320, Taps: make([]int, 5)}, 1924404480},
		{Draft{Layers: 6, Hidden: 2048, FFN: 6144, Vocab: 248320, Taps: make([]int, 8)}, 526251520},
		{Draft{Layers: 2, Hidden: 256, FFN: 512, Vocab: 2048, Taps: make([]int, 3)}, 7411712},
	} {
		n := 0
		for _, w := range test.d.inventory() {
			if w.Name != "mask_embedding" {
				n += w.Rows * w.Cols
			}
		}
		if n != test.want {
			t.Errorf("a draft of %d layers and %d wide has %d parameters, want %d", test.d.Layers, test.d.Hidden, n, test.want)
		}
	}
	if s := fmt.Sprint(&DraftError{[]string{"a", "b"}}); s != "a; b" {
		t.Errorf("two faults print as %q", s)
	}
}
