package planner

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"splash/dequant"
)

// released lists the families that load from safetensors.
func released() []*Family {
	var all []*Family
	for _, f := range Families() {
		if !f.GGUFOnly {
			all = append(all, f)
		}
	}
	return all
}

// TestConfigs takes each family's configuration as it is published, in the three quantizations.
func TestConfigs(t *testing.T) {
	for _, f := range released() {
		for name, config := range map[string]jsonObject{
			"MLX": fakeConfig(f), "Model Optimizer": modelOptConfig(f), "compressed-tensors": compressedConfig(f),
		} {
			p, err := CheckConfig(encodeJSON(config))
			if err != nil {
				t.Errorf("%s, %s: %v", f.Name, name, err)
				continue
			}
			if p.Family.Name != f.Name || p.Format != "safetensors" {
				t.Errorf("%s, %s: planned as %s of %s", f.Name, name, p.Family.Name, p.Format)
			}
			if f.Vision == nil {
				continue
			}
			if err := CheckVisionConfig(encodeJSON(config), f.Vision); err != nil {
				t.Errorf("%s: %v", f.Name, err)
			}
		}
	}
}

// TestConfigVariants takes configurations that say the same in another way.
func TestConfigVariants(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(o jsonObject)
	}{
		{"whole numbers as floats", func(o jsonObject) {
			at(o, "text_config")["hidden_size"] = json.Number("5120.0")
			at(o, "text_config")["linear_conv_kernel_dim"] = json.Number("4e0")
		}},
		{"the rotation's type by its older name", func(o jsonObject) {
			rope := at(o, "text_config", "rope_parameters")
			delete(rope, "rope_type")
			rope["type"] = "default"
		}},
		{"no sections", func(o jsonObject) { delete(at(o, "text_config", "rope_parameters"), "mrope_section") }},
		{"a tied head stated at the top alone", func(o jsonObject) { delete(at(o, "text_config"), "tie_word_embeddings") }},
		{"a tied head stated inside alone", func(o jsonObject) { delete(o, "tie_word_embeddings") }},
		{"another outer type", func(o jsonObject) { o["model_type"] = "whatever" }},
		{"modules of their own", func(o jsonObject) {
			q := at(o, "quantization")
			q["language_model.model.layers.0.linear_attn.in_proj_qkv"] = jsonObject{"bits": 6, "group_size": 128}
			q["model.language_model.layers.1.mlp.up_proj"] = jsonObject{"mode": "mxfp4"}
			q["language_model.lm_head"] = jsonObject{"mode": "nvfp4", "bits": 4, "group_size": 16}
			q["language_model.model.layers.2.mlp.up_proj"] = jsonObject{}
			q["language_model.model.embed_tokens"] = false
			q["language_model.model.layers.0.linear_attn.in_proj_a"] = false
			q["vision_tower.blocks.0.attn.qkv"] = false
		}},
		{"layers quantized one by one", func(o jsonObject) {
			delete(o, "quantization")
			o["quantization_config"] = jsonObject{"quant_method": "modelopt", "quantized_layers": quantizedLayers("Qwen3.8-27B")}
		}},
		{"modules excluded by their older name", func(o jsonObject) {
			delete(o, "quantization")
			o["quantization_config"] = jsonObject{"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": []any{"*visual*"}}
		}},
		{"ignore before exclude_modules", func(o jsonObject) {
			delete(o, "quantization")
			o["quantization_config"] = jsonObject{
				"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4", "group_size": 16, "ignore": []any{},
				"exclude_modules": []any{"*"},
			}
		}},
		{"nothing ignored", func(o jsonObject) {
			delete(o, "quantization")
			o["quantization_config"] = jsonObject{"quant_method": "modelopt", "quant_algo": "FP8", "ignore": nil, "exclude_modules": nil}
		}},
		{"MLX before another", func(o jsonObject) { o["quantization_config"] = jsonObject{"quant_method": "gptq"} }},
		{"the class of every projection", func(o jsonObject) {
			delete(o, "quantization")
			o["quantization_config"] = jsonObject{"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
				"config_groups": jsonObject{"g": jsonObject{"targets": []any{"Linear"}, "weights": jsonObject{
					"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": true, "actorder": "static",
				}}}, "ignore": nil}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := fakeConfig(family(t, "Qwen3.8-27B"))
			test.change(o)
			if _, err := CheckConfig(encodeJSON(o)); err != nil {
				t.Error(err)
			}
		})
	}
}

// quantizedLayers names every projection of a dense family.
func quantizedLayers(name string) jsonObject {
	layers := jsonObject{"lm_head": jsonObject{"quant_algo": "FP8"}}
	for i := range FamilyByName(name).Layout.Layers {
		parts := []string{"linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.out_proj"}
		if i%4 == 3 {
			parts = []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"}
		}
		for _, p := range append(parts, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj") {
			layers[fmt.Sprintf("model.language_model.layers.%d.%s", i, p)] = jsonObject{"quant_algo": "NVFP4", "group_size": 16}
		}
	}
	return layers
}

// TestConfigKeysHeld changes and removes every key of every family's text and vision configuration: the error names the
// key, what was found and what is expected.
func TestConfigKeysHeld(t *testing.T) {
	free := map[string]bool{"mtp_num_hidden_layers": true, "eos_token_id": true, "output_gate_type": true, "mrope_interleaved": true}
	optional := map[string]bool{"mrope_section": true}
	for _, f := range released() {
		if f.Test {
			continue // its neighbours are other families
		}
		paths := [][]string{{"text_config"}, {"text_config", "rope_parameters"}}
		if f.Vision != nil {
			paths = append(paths, []string{"vision_config"})
		}
		check := func(o jsonObject) error {
			if _, err := CheckConfig(encodeJSON(o)); err != nil {
				return err
			}
			if f.Vision == nil {
				return nil
			}
			return CheckVisionConfig(encodeJSON(o), f.Vision)
		}
		for _, path := range paths {
			for key, was := range at(fakeConfig(f), path...) {
				o := fakeConfig(f)
				now, shown := otherJSON(was)
				at(o, path...)[key] = now
				err := check(o)
				switch {
				case free[key]:
					if err != nil {
						t.Errorf("%s: %s is free: %v", f.Name, key, err)
					}
					continue
				case err == nil:
					t.Errorf("%s: %s %v in place of %v is accepted", f.Name, key, now, was)
				case key == "deepstack_visual_indexes" || key == "model_type" || key == "rope_parameters":
				case !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), shown):
					t.Errorf("%s: %s: %v", f.Name, key, err)
				}
				o = fakeConfig(f)
				delete(at(o, path...), key)
				if err := check(o); err == nil && !optional[key] && key != "tie_word_embeddings" {
					t.Errorf("%s: without %s it is accepted", f.Name, key)
				} else if err != nil && !strings.Contains(err.Error(), key) && key != "deepstack_visual_indexes" {
					t.Errorf("%s: without %s: %v", f.Name, key, err)
				}
				o = fakeConfig(f)
				at(o, path...)[key] = true
				if was == true {
					at(o, path...)[key] = 1
				}
				if err := check(o); err == nil {
					t.Errorf("%s: %s of another kind is accepted", f.Name, key)
				}
			}
		}
	}
}

// otherJSON is another value of the kind, and what the refusal of it shows.
func otherJSON(v any) (any, string) {
	switch v := v.(type) {
	case bool:
		return !v, fmt.Sprintf("must be %v", v)
	case int:
		return v + 1, fmt.Sprint(v + 1)
	case float64:
		return v * 2, number(v * 2)
	case string:
		return v + "_x", v + "_x"
	case []any:
		if len(v) == 0 {
			return []any{8}, ""
		}
		c := append([]any(nil), v...)
		c[0] = "other"
		return c, ""
	}
	return "other", ""
}

func TestConfigRefused(t *testing.T) {
	const none = "no supported model has this architecture "
	needs := "; an MLX, Model Optimizer or compressed-tensors checkpoint or a GGUF is needed"
	text := func(key string, value any) func(jsonObject) {
		return func(o jsonObject) { at(o, "text_config")[key] = value }
	}
	rope := func(key string, value any) func(jsonObject) {
		return func(o jsonObject) { at(o, "text_config", "rope_parameters")[key] = value }
	}
	mlx := func(key string, value any) func(jsonObject) {
		return func(o jsonObject) { at(o, "quantization")[key] = value }
	}
	types := func(n int) []any {
		list := fakeConfig(FamilyByName("Qwen3.6-35B-A3B"))["text_config"].(jsonObject)["layer_types"].([]any)
		return append([]any(nil), append(list, "full_attention")[:n]...)
	}
	wrong := types(40)
	wrong[3] = "linear_attention"
	for _, test := range []struct {
		name   string
		change func(o jsonObject)
		want   string
	}{
		{"no text", func(o jsonObject) { delete(o, "text_config") },
			none + "(its config has no text_config); " + supported},
		{"a text of text", func(o jsonObject) { o["text_config"] = "x" },
			none + "(its config has no text_config); " + supported},
		{"no type", func(o jsonObject) { delete(at(o, "text_config"), "model_type") },
			none + "(its text_config has no model_type); " + supported},
		{"another type", text("model_type", "llama"), none + "(text model type llama); " + supported},
		{"the outer type inside", text("model_type", "qwen3_5_moe"), none + "(text model type qwen3_5_moe); " + supported},
		{"Flint's type inside", text("model_type", "flint"), none + "(text model type flint); " + supported},
		{"Flash-Next", text("model_type", "qwen4_exp_text"), "Qwen3.8-Flash-Next loads from a GGUF only"},
		{"Flint", func(o jsonObject) { o["model_type"] = "flint" }, "Flint loads from a GGUF only"},
		{"a width of no number", text("hidden_size", "2048"), "text config hidden_size must be a number"},
		{"a width of true", text("hidden_size", true), "text config hidden_size must be a number"},
		{"a fraction of a width", text("hidden_size", 2048.5),
			none + "(text config hidden_size: MLX 2048.5, Qwen3.6-35B-A3B 2048); " + supported},
		{"another width", text("hidden_size", 3072),
			none + "(text config hidden_size: MLX 3072, Qwen3.6-35B-A3B 2048); " + supported},
		{"another vocabulary", text("vocab_size", 151936),
			none + "(text config vocab_size: MLX 151936, Qwen3.6-35B-A3B 248320); " + supported},
		{"key heads", text("linear_num_key_heads", 8), "text config linear_num_key_heads mismatch: MLX 8, runtime 16"},
		{"no key heads", func(o jsonObject) { delete(at(o, "text_config"), "linear_num_key_heads") },
			"text config linear_num_key_heads must be a number"},
		{"value heads", text("linear_num_value_heads", 64),
			"text config linear_num_value_heads mismatch: MLX 64, runtime 32"},
		{"key width", text("linear_key_head_dim", 64), "text config linear_key_head_dim mismatch: MLX 64, runtime 128"},
		{"value width", text("linear_value_head_dim", 256),
			"text config linear_value_head_dim mismatch: MLX 256, runtime 128"},
		{"kernel", text("linear_conv_kernel_dim", 3), "text config linear_conv_kernel_dim mismatch: MLX 3, runtime 4"},
		{"interval", text("full_attention_interval", 6), "text config full_attention_interval mismatch: MLX 6, runtime 4"},
		{"epsilon", text("rms_norm_eps", 1e-5), "text config rms_norm_eps mismatch: MLX 1e-05, runtime 1e-06"},
		{"epsilon of a float32", text("rms_norm_eps", float64(float32(1e-6))),
			"text config rms_norm_eps mismatch: MLX 9.999999974752427e-07, runtime 1e-06"},
		{"fewer experts", text("num_experts", 128), "text config num_experts mismatch: MLX 128, runtime 256"},
		{"experts a token", text("num_experts_per_tok", 10), "text config num_experts_per_tok mismatch: MLX 10, runtime 8"},
		{"expert width", text("moe_intermediate_size", 768),
			"text config moe_intermediate_size mismatch: MLX 768, runtime 512"},
		{"shared width", text("shared_expert_intermediate_size", 0),
			"text config shared_expert_intermediate_size mismatch: MLX 0, runtime 512"},
		{"biases", text("attention_bias", true), "text config attention_bias must be false"},
		{"biases of 0", text("attention_bias", 0), "text config attention_bias must be false"},
		{"no gate", text("attn_output_gate", false), "text config attn_output_gate must be true"},
		{"a tied head", text("tie_word_embeddings", true), "text config tie_word_embeddings must be false"},
		{"a tied head at the top", func(o jsonObject) { o["tie_word_embeddings"] = true },
			"config tie_word_embeddings must be false"},
		{"a head of no kind", func(o jsonObject) {
			delete(o, "tie_word_embeddings")
			delete(at(o, "text_config"), "tie_word_embeddings")
		}, "text config tie_word_embeddings must be false"},
		{"activation", text("hidden_act", "gelu"), "text config hidden_act mismatch: MLX gelu, runtime silu"},
		{"no activation", text("hidden_act", nil), "text config hidden_act must be a string"},
		{"39 layers", text("layer_types", types(39)), "text config layer_types count mismatch: MLX 39, runtime 40"},
		{"41 layers", text("layer_types", types(41)), "text config layer_types count mismatch: MLX 41, runtime 40"},
		{"another layer", text("layer_types", wrong), "text config layer_types 3 must be full_attention"},
		{"no layers", text("layer_types", nil), "text config layer_types must be an array"},
		{"no rotation", text("rope_parameters", nil), "text config rope_parameters must be an object"},
		{"rotary base", rope("rope_theta", 10000),
			"text config rope_parameters rope_theta mismatch: MLX 10000, runtime 10000000"},
		{"rotated part", rope("partial_rotary_factor", 0.5),
			"text config rope_parameters partial_rotary_factor mismatch: MLX 0.5, runtime 0.25"},
		{"no rotated part", rope("partial_rotary_factor", nil),
			"text config rope_parameters partial_rotary_factor must be a number"},
		{"scaled rotation", rope("rope_type", "yarn"),
			"text config rope_parameters rope_type mismatch: MLX yarn, runtime default"},
		{"no rotation type", func(o jsonObject) { delete(at(o, "text_config", "rope_parameters"), "rope_type") },
			"text config rope_parameters rope_type must be a string"},
		{"sections", rope("mrope_section", []any{16, 24, 24}),
			"text config rope_parameters mrope_section mismatch: MLX [16, 24, 24], runtime [11, 11, 10]"},
		{"sections of true", rope("mrope_section", true),
			"text config rope_parameters mrope_section mismatch: MLX true, runtime [11, 11, 10]"},

		// Quantization.
		{"none", func(o jsonObject) { delete(o, "quantization") }, "config.json declares no quantization" + needs},
		{"another method", func(o jsonObject) {
			delete(o, "quantization")
			o["quantization_config"] = jsonObject{"quant_method": "gptq"}
		}, "quantization_config quant_method is gptq" + needs},
		{"no method", func(o jsonObject) {
			delete(o, "quantization")
			o["quantization_config"] = jsonObject{"bits": 4}
		}, "quantization_config names no quant_method" + needs},
		{"no bits", func(o jsonObject) { delete(at(o, "quantization"), "bits") },
			"quantization bits must be a whole number"},
		{"bits of true", mlx("bits", true), "quantization bits must be a whole number"},
		{"a fraction of a group", mlx("group_size", 64.5), "quantization group_size must be a whole number"},
		{"a number of a mode", mlx("mode", 4), "quantization mode must be a string"},
		{"7 bits", mlx("bits", 7), "quantization is affine 7-bit in groups of 64; " + mlxAccepts},
		{"groups of 16", mlx("group_size", 16), "quantization is affine 4-bit in groups of 16; " + mlxAccepts},
		{"mxfp8", mlx("language_model.model.layers.3.self_attn.o_proj", jsonObject{"mode": "mxfp8", "bits": 8, "group_size": 32}),
			"quantization language_model.model.layers.3.self_attn.o_proj is mxfp8 8-bit in groups of 32; " + mlxAccepts},
		{"mxfp8 by its defaults", mlx("x", jsonObject{"mode": "mxfp8"}),
			"quantization x is mxfp8 8-bit in groups of 32; " + mlxAccepts},
		{"mxfp4 in groups of 64", mlx("x", jsonObject{"mode": "mxfp4", "group_size": 64}),
			"quantization x is mxfp4 4-bit in groups of 64; " + mlxAccepts},
		{"an entry's mode is its own", func(o jsonObject) {
			o["quantization"] = jsonObject{"mode": "nvfp4", "bits": 4, "group_size": 16, "x": jsonObject{"group_size": 16}}
		}, "quantization x is affine 4-bit in groups of 16; " + mlxAccepts},
		{"bits of an entry", mlx("x", jsonObject{"bits": "4"}), "quantization x bits must be a whole number"},
		{"a projection in floats", mlx("language_model.model.layers.0.mlp.switch_mlp.up_proj", false),
			"quantization language_model.model.layers.0.mlp.switch_mlp.up_proj is unquantized; Splash loads quantized MLX projections"},
		{"a projection in floats, spelled as the checkpoint", mlx("model.language_model.layers.0.linear_attn.in_proj_qkv", false),
			"quantization model.language_model.layers.0.linear_attn.in_proj_qkv is unquantized; Splash loads quantized MLX projections"},
		{"the head in floats", mlx("language_model.lm_head", false),
			"quantization language_model.lm_head is unquantized; Splash loads quantized MLX projections"},
		{"the head in floats, by its short name", mlx("lm_head", false),
			"quantization lm_head is unquantized; Splash loads quantized MLX projections"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := fakeConfig(family(t, "Qwen3.6-35B-A3B"))
			test.change(o)
			refused(t, test.want, func() error { _, err := CheckConfig(encodeJSON(o)); return err })
		})
	}
	for _, test := range []struct{ name, json, want string }{
		{"an array", `[]`, "config.json is not a JSON object"},
		{"cut", `{"a":`, "config.json: unexpected EOF"},
		{"two", `{} {}`, "config.json: something follows the object"},
		{"a key twice", `{"a":{"b":1,"b":2}}`, "config.json: b appears twice"},
		{"deep", strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70),
			"config.json: values nested more than 64 deep"},
		{"long", `{"a":"` + strings.Repeat("x", MaxConfig) + `"}`, "config.json is 1048584 bytes, at most 1048576"},
		{"not a number", `{"a":NaN}`, "config.json: invalid character 'N' looking for beginning of value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			refused(t, test.want, func() error { _, err := CheckConfig([]byte(test.json)); return err })
		})
	}
}

func TestModelOptRefused(t *testing.T) {
	const layer = "model.language_model.layers.0."
	leaves := func(name string) string {
		return "quantization_config leaves " + name + " unquantized; Splash loads quantized projections"
	}
	layers := func(change func(o jsonObject)) jsonObject {
		o := quantizedLayers("tiny-qwen35")
		for i := range 4 {
			if i < 4 {
				o[fmt.Sprintf("model.language_model.layers.%d.mlp.experts", i)] = jsonObject{"quant_algo": "NVFP4"}
				for _, p := range []string{"gate_proj", "up_proj", "down_proj"} {
					o[fmt.Sprintf("model.language_model.layers.%d.mlp.shared_expert.%s", i, p)] = jsonObject{"quant_algo": "NVFP4"}
				}
			}
		}
		change(o)
		return jsonObject{"quantized_layers": o}
	}
	ignore := func(patterns ...any) jsonObject { return jsonObject{"quant_algo": "NVFP4", "ignore": patterns} }
	for _, test := range []struct {
		name string
		q    jsonObject
		want string
	}{
		{"all layers", layers(func(jsonObject) {}), ""},
		{"a layer in int8", layers(func(o jsonObject) { o[layer+"mlp.experts"] = jsonObject{"quant_algo": "W8A8_SQ"} }),
			"quantization_config quantized_layers " + layer + "mlp.experts is W8A8_SQ; " + modelOptAccepts},
		{"a layer of no algorithm", layers(func(o jsonObject) { o["lm_head"] = jsonObject{} }),
			"quantization_config quantized_layers lm_head is null; " + modelOptAccepts},
		{"a layer of a text", layers(func(o jsonObject) { o["lm_head"] = "FP8" }),
			"quantization_config quantized_layers lm_head is FP8; " + modelOptAccepts},
		{"a layer in groups of 32", layers(func(o jsonObject) { o["lm_head"] = jsonObject{"quant_algo": "NVFP4", "group_size": 32} }),
			"quantization_config quantized_layers lm_head is NVFP4 in groups of 32; " + modelOptAccepts + " in groups of 16"},
		{"no head", layers(func(o jsonObject) { delete(o, "lm_head") }), leaves("lm_head")},
		{"no experts", layers(func(o jsonObject) { delete(o, "model.language_model.layers.2.mlp.experts") }),
			leaves("model.language_model.layers.2.mlp.experts")},
		{"a projection left out", layers(func(o jsonObject) { delete(o, layer+"linear_attn.out_proj") }),
			leaves(layer + "linear_attn.out_proj")},
		{"no algorithm", jsonObject{}, "quantization_config is null; " + modelOptAccepts},
		{"another algorithm", jsonObject{"quant_algo": "INT4_AWQ"}, "quantization_config is INT4_AWQ; " + modelOptAccepts},
		{"layers of a list", jsonObject{"quantized_layers": []any{}, "quant_algo": true},
			"quantization_config is true; " + modelOptAccepts},
		{"an ignored head", ignore("lm_head"), leaves("lm_head")},
		{"an ignored kind", ignore("*self_attn*"), leaves("model.language_model.layers.3.self_attn.q_proj")},
		{"ignored experts", ignore("*.experts"), leaves(layer + "mlp.experts")},
		{"an ignored last expert", ignore("*.experts.15.*"), leaves(layer + "mlp.experts.15.gate_proj")},
		{"an ignored first expert", ignore("*experts.0.up_proj"), leaves(layer + "mlp.experts.0.up_proj")},
		{"a class", ignore("*.layers.[0-2].linear_attn.in_proj_[!abz]*"), leaves(layer + "linear_attn.in_proj_qkv")},
		{"a question", ignore("lm?head"), leaves("lm_head")},
		{"everything", ignore("*"), leaves(layer + "linear_attn.in_proj_qkv")},
		{"a list of numbers", jsonObject{"quant_algo": "FP8", "ignore": []any{1}},
			"quantization_config ignore must be an array of strings"},
		{"a text of patterns", jsonObject{"quant_algo": "FP8", "exclude_modules": "x"},
			"quantization_config exclude_modules must be an array of strings"},
		{"a long pattern", ignore(strings.Repeat("*", 4097)),
			"quantization_config ignore holds a pattern of 4097 bytes, at most 4096"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := fakeConfig(family(t, "tiny-qwen35moe"))
			delete(o, "quantization")
			test.q["quant_method"] = "modelopt"
			o["quantization_config"] = test.q
			if test.want == "" {
				if _, err := CheckConfig(encodeJSON(o)); err != nil {
					t.Error(err)
				}
				return
			}
			refused(t, test.want, func() error { _, err := CheckConfig(encodeJSON(o)); return err })
		})
	}
}

func TestCompressedRefused(t *testing.T) {
	const group = "quantization_config config_groups group_1 "
	leaves := func(name string) string {
		return "quantization_config leaves " + name + " unquantized; Splash loads quantized projections"
	}
	weights := func(key string, value any) func(jsonObject) {
		return func(q jsonObject) { at(q, "config_groups", "group_1", "weights")[key] = value }
	}
	targets := func(v ...any) func(jsonObject) {
		return func(q jsonObject) { at(q, "config_groups", "group_1")["targets"] = v }
	}
	ignore := func(v ...any) func(jsonObject) { return func(q jsonObject) { q["ignore"] = v } }
	is := func(s string) string {
		return "quantization_config config_groups group_1 is " + s + "; " + compressedAccepts
	}
	for _, test := range []struct {
		name   string
		change func(q jsonObject)
		want   string
	}{
		{"no groups", func(q jsonObject) { delete(q, "config_groups") },
			"quantization_config config_groups must be an object of at least one group"},
		{"empty groups", func(q jsonObject) { q["config_groups"] = jsonObject{} },
			"quantization_config config_groups must be an object of at least one group"},
		{"a group of a text", func(q jsonObject) { at(q, "config_groups")["group_1"] = "x" },
			"quantization_config config_groups group_1 must be an object"},
		{"no weights", func(q jsonObject) { at(q, "config_groups", "group_1")["weights"] = nil },
			group + "weights must be an object"},
		{"no type", weights("type", nil), group + "weights type must be a string"},
		{"no strategy", weights("strategy", nil), group + "weights strategy must be a string"},
		{"no bits", weights("num_bits", true), group + "weights num_bits must be a whole number"},
		{"a text of a group", weights("group_size", "16"), group + "weights group_size must be a whole number"},
		{"integers", weights("type", "int"), is("nvfp4-pack-quantized: int 4-bit by tensor_group in groups of 16")},
		{"8 bits", weights("num_bits", 8), is("nvfp4-pack-quantized: float 8-bit by tensor_group in groups of 16")},
		{"groups of 32", weights("group_size", 32),
			is("nvfp4-pack-quantized: float 4-bit by tensor_group in groups of 32")},
		{"no groups of values", weights("group_size", nil), is("nvfp4-pack-quantized: float 4-bit by tensor_group")},
		{"by tensor", weights("strategy", "tensor"), is("nvfp4-pack-quantized: float 4-bit by tensor in groups of 16")},
		{"another format", func(q jsonObject) { at(q, "config_groups", "group_1")["format"] = "pack-quantized" },
			is("pack-quantized: float 4-bit by tensor_group in groups of 16")},
		{"the configuration's format", func(q jsonObject) { delete(at(q, "config_groups", "group_1"), "format") },
			is("mixed-precision: float 4-bit by tensor_group in groups of 16")},
		{"asymmetric", weights("symmetric", false),
			group + "is asymmetric; compressed-tensors weights load symmetric and in their stored column order"},
		{"reordered", weights("actorder", "group"),
			group + "has actorder group; compressed-tensors weights load symmetric and in their stored column order"},
		{"reordered by true", weights("actorder", true),
			group + "has actorder true; compressed-tensors weights load symmetric and in their stored column order"},
		{"no targets", func(q jsonObject) { delete(at(q, "config_groups", "group_1"), "targets") },
			group + "targets must be an array of strings"},
		{"targets of numbers", targets(1), group + "targets must be an array of strings"},
		{"an ignore of a text", func(q jsonObject) { q["ignore"] = "lm_head" },
			"quantization_config ignore must be an array of strings"},
		{"a long expression", targets("re:" + strings.Repeat("x", 510)),
			group + "targets holds an expression of 513 bytes, at most 512"},
		{"a look-ahead", targets(`re:(?!x).*`),
			group + "targets: re:(?!x).* is no regular expression that Splash reads (invalid or unsupported Perl syntax)"},
		{"an open group", targets(`re:(`),
			group + "targets: re:( is no regular expression that Splash reads (missing closing ))"},
		{"a group that the anchor would close", targets(`re:a)|(.*`),
			group + "targets: re:a)|(.* is no regular expression that Splash reads (unexpected ))"},
		{"a back-reference", ignore(`re:(x)\1`),
			`quantization_config ignore: re:(x)\1 is no regular expression that Splash reads (invalid escape sequence)`},
		{"too many expressions", ignore(many(257)...), "quantization_config holds more than 256 expressions"},
		{"an ignored head", ignore("lm_head"), leaves("lm_head")},
		{"every projection ignored", ignore("Linear"), leaves("model.language_model.layers.0.linear_attn.in_proj_qkv")},
		{"an ignored kind", ignore(`re:.*down_proj$`), leaves("model.language_model.layers.0.mlp.experts.0.down_proj")},
		{"an ignored last expert", ignore("model.language_model.layers.2.mlp.experts.15.up_proj"),
			leaves("model.language_model.layers.2.mlp.experts.15.up_proj")},
		{"an untargeted kind", targets(`re:.*mlp.*`), leaves("model.language_model.layers.0.linear_attn.in_proj_qkv")},
		{"matched from the start", targets(`re:linear_attn.*`, `re:.*mlp.*`),
			leaves("model.language_model.layers.0.linear_attn.in_proj_qkv")},
		{"an exact name is whole", ignore("model.language_model.layers.0.mlp"), ""},
		{"a match need not reach the end", ignore(`re:model\.language_model\.layers\.0\.linear_attn\.out`),
			leaves("model.language_model.layers.0.linear_attn.out_proj")},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := compressedConfig(family(t, "tiny-qwen35moe"))
			test.change(at(o, "quantization_config"))
			if test.want == "" {
				if _, err := CheckConfig(encodeJSON(o)); err != nil {
					t.Error(err)
				}
				return
			}
			refused(t, test.want, func() error { _, err := CheckConfig(encodeJSON(o)); return err })
		})
	}
}

func many(n int) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = fmt.Sprintf("re:x%d", i)
	}
	return all
}

// TestGlob compares the matcher with values of fnmatch(3) without flags.
func TestGlob(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "a.b/c", true}, {"a*", "ab.c", true}, {"*c", "ab.c", true},
		{"a*c*e", "abcde", true}, {"a*c*e", "abcdef", false}, {"?", "/", true}, {"?", "", false}, {"a?c", "abc", true},
		{"[abc]x", "bx", true}, {"[!abc]x", "bx", false}, {"[^abc]x", "dx", true}, {"[a-c]", "b", true}, {"[a-c]",
			"d", false},
		{"[]]", "]", true}, {"[!]]", "]", false}, {"[a-]", "-", true}, {"[", "[", true}, {"[a", "[a", true}, {`\*`,
			"*", true},
		{`\*`, "a", false}, {`[\]]`, "]", true}, {"*[ab]", "xxb", true}, {"***a", "bba", true}, {"a**", "a", true},
		{"*a*a*a*a*a*a*a*a*a*a*b", strings.Repeat("a", 200), false},
	} {
		if got := globMatch(test.pattern, test.name); got != test.want {
			t.Errorf("%q matches %q: %v, want %v", test.pattern, test.name, got, test.want)
		}
	}
}

// TestTwoGroups is the configuration of a published checkpoint in which two groups claim one layer's MLP: its tensors
// decide, whatever the order of the groups.
func TestTwoGroups(t *testing.T) {
	for _, names := range [][2]string{{"group_0", "group_1"}, {"group_1", "group_0"}} {
		f := family(t, "tiny-qwen35")
		o := compressedConfig(f)
		groups := at(o, "quantization_config", "config_groups")
		fp8, fp4 := at(groups, "group_0"), at(groups, "group_1")
		fp8["targets"] = []any{"re:.*self_attn.*", `re:.*layers\.3\.mlp\.(gate|up|down)_proj$`, "lm_head"}
		fp4["targets"] = []any{`re:.*mlp\.(gate|up|down)_proj$`, `re:.*linear_attn\..*`}
		at(o, "quantization_config")["config_groups"] = jsonObject{names[0]: fp8, names[1]: fp4}

		c := fakeCompressed(f.Layout)
		const mlp = "model.language_model.layers.3.mlp."
		for name, shape := range map[string][2]int{"gate_proj": {512, 256}, "up_proj": {512, 256}, "down_proj": {256, 512}} {
			c.drop(mlp+name+".weight_packed", mlp+name+".weight_scale", mlp+name+".weight_global_scale")
			c.add(mlp+name+".weight", "F8_E4M3", shape[0], shape[1])
			c.add(mlp+name+".weight_scale", "BF16", shape[0], 1)
		}
		p, err := PlanSafetensors(encodeJSON(o), c.checkpoint(t))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]dequant.Type{
			"blk.3.ffn_up.weight": dequant.FP8Rows, "blk.2.ffn_up.weight": dequant.NVFP4Rows, "output.weight": dequant.FP8Rows,
		} {
			if got := p.Tensor(name).Type; got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}

		// In BF16 the layer is of neither group; in NVFP4 the head is not of the one that claims it.
		for _, name := range []string{"gate_proj", "up_proj", "down_proj"} {
			c.tensor(mlp + name + ".weight").dtype = "BF16"
			c.drop(mlp + name + ".weight_scale")
		}
		claimed := " (unquantized BF16, claimed by group_0 (FP8) and group_1 (NVFP4)) in layer 3"
		if names[0] == "group_1" {
			claimed = " (unquantized BF16, claimed by group_0 (NVFP4) and group_1 (FP8)) in layer 3"
		}
		refused(t, "safetensors tensors this build cannot load: mlp.gate_proj.weight"+claimed+", mlp.up_proj.weight"+claimed+
			", mlp.down_proj.weight"+claimed,
			func() error { _, err := PlanSafetensors(encodeJSON(o), c.checkpoint(t)); return err })
		c = fakeCompressed(f.Layout)
		c.drop("lm_head.weight", "lm_head.weight_scale")
		c.add("lm_head.weight_packed", "U8", 2048, 128)
		c.add("lm_head.weight_scale", "F8_E4M3", 2048, 16)
		c.add("lm_head.weight_global_scale", "F32", 1)
		refused(t, "lm_head is stored as NVFP4, but claimed by "+names[0]+" (FP8)",
			func() error { _, err := PlanSafetensors(encodeJSON(o), c.checkpoint(t)); return err })
	}
}
