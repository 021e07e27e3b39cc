package install

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"splash/planner"
)

// adapter names the derivation of files from a GGUF: it goes up whenever the files derived from one header change.
const adapter = 1

// modelTypes are the model types of a configuration, the outer one and the text model's, by architecture (models.md 1.1).
// Flint's configuration is flat.
var modelTypes = map[planner.Architecture][2]string{
	planner.DenseHybrid: {"qwen3_5", "qwen3_5_text"},
	planner.MoEHybrid:   {"qwen3_5_moe", "qwen3_5_moe_text"},
	planner.HyperMoE:    {"qwen4_exp", "qwen4_exp_text"},
	planner.FlintMoE:    {"flint", "flint"},
}

// deriveConfig writes the config.json that a GGUF's header states, in the keys of the releases' configurations. The plan
// holds the header's values, each checked.
func deriveConfig(p *planner.Plan, vision bool) ([]byte, error) {
	l, types := &p.Layout, modelTypes[p.Layout.Arch]
	text := map[string]any{
		"model_type":              types[1],
		"hidden_size":             l.Hidden,
		"max_position_embeddings": l.Context,
		"num_attention_heads":     l.Attention.Heads,
		"num_key_value_heads":     l.Attention.KVHeads,
		"head_dim":                l.Attention.HeadDim,
		"num_hidden_layers":       l.Layers,
		"vocab_size":              l.Vocab,
	}
	if l.MoE.Experts > 0 {
		text["num_experts"], text["num_experts_per_tok"] = l.MoE.Experts, l.MoE.Taken
	}
	config := map[string]any{"model_type": types[0], "text_config": text}
	if l.Arch == planner.FlintMoE {
		flintConfig(text, p)
		config = text
	}
	if v := p.Family.Vision; vision && v != nil {
		config["vision_config"] = visionConfig(v)
	}
	data, err := json.MarshalIndent(config, "", "  ")
	return append(data, '\n'), err
}

// flintConfig adds what only Flint's configuration states (models.md 8.3).
func flintConfig(config map[string]any, p *planner.Plan) {
	l := &p.Layout
	config["rms_norm_eps"], config["rope_theta"] = l.Epsilon, l.Attention.RopeBase
	if l.Attention.HeadDim > 0 {
		config["partial_rotary_factor"] = float64(l.Attention.RopeDim) / float64(l.Attention.HeadDim)
	}
	config["intermediate_size"] = l.FFN
	config["moe_intermediate_size"], config["shared_expert_intermediate_size"] = l.MoE.Width, l.MoE.SharedWidth
	config["norm_topk_prob"], config["softmax_type"] = l.MoE.Normalize, "learnable"
	config["router_score_function"] = "softmax"
	if l.MoE.Sigmoid {
		config["router_score_function"] = "sigmoid"
	}
	config["eos_token_id"] = slices.Clone(p.Stop)
	config["sliding_window"] = l.Attention.Window
	dense, types, still := []int{}, []string{}, []int{}
	for i := range l.Layers {
		if i < l.MoE.LeadingDense {
			dense = append(dense, i)
		}
		kind := "full_attention"
		if i < len(l.Attention.Sliding) && l.Attention.Sliding[i] {
			kind = "sliding_attention"
		}
		types = append(types, kind)
		if i < len(l.Attention.NoRope) && l.Attention.NoRope[i] {
			still = append(still, i)
		}
	}
	config["mlp_only_layers"], config["layer_types"], config["no_rope_layer_indices"] = dense, types, still
}

func visionConfig(v *planner.VisionLayout) map[string]any {
	return map[string]any{
		"depth":                    v.Depth,
		"hidden_size":              v.Hidden,
		"num_heads":                v.Heads,
		"intermediate_size":        v.FFN,
		"out_hidden_size":          v.Out,
		"patch_size":               v.Patch,
		"spatial_merge_size":       v.Merge,
		"temporal_patch_size":      v.Temporal,
		"num_position_embeddings":  v.Side * v.Side,
		"in_channels":              3,
		"hidden_act":               "gelu_pytorch_tanh",
		"deepstack_visual_indexes": []int{},
	}
}

// metadataKey names what is derived from GGUF files: by their sizes and digests, the target's parts in order and then the
// projector, and by the derivation.
func metadataKey(linked map[string]Linked) string {
	type source struct {
		Bytes  int64  `json:"bytes"`
		Digest string `json:"digest"`
	}
	sources := []source{}
	for _, folder := range []string{"target", "vision"} {
		for _, name := range slices.Sorted(maps.Keys(linked)) {
			if filepath.Dir(name) == folder && filepath.Ext(name) == ".gguf" {
				sources = append(sources, source{linked[name].Bytes, linked[name].Digest})
			}
		}
	}
	text, err := json.Marshal(map[string]any{"sources": sources, "adapter": adapter, "library": "splash"})
	if err != nil {
		panic(err) // numbers and strings have a form in JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

const sumsFile = "files.json"

// derived returns the folder of an entry of derived files, written unless it is there and undamaged. The caller holds the
// installation lock.
func (s *store) derived(key string, files map[string][]byte) (string, error) {
	dir := filepath.Join(s.metadata(), key)
	sums := map[string]string{}
	whole := true
	for name, data := range files {
		sum := sha256.Sum256(data)
		sums[name] = hex.EncodeToString(sum[:])
		now, err := os.ReadFile(filepath.Join(dir, name))
		whole = whole && err == nil && sha256.Sum256(now) == sum
	}
	list, err := json.MarshalIndent(sums, "", "  ")
	if err != nil {
		return "", err
	}
	list = append(list, '\n')
	if now, err := os.ReadFile(filepath.Join(dir, sumsFile)); whole && err == nil && string(now) == string(list) {
		return dir, nil
	}
	if err := os.MkdirAll(s.metadata(), 0o777); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(s.metadata(), loading)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	for name, data := range files {
		if err := writeSynced(filepath.Join(tmp, name), data); err != nil {
			return "", err
		}
	}
	if err := writeSynced(filepath.Join(tmp, sumsFile), list); err != nil {
		return "", err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	if err := s.discard(dir); err != nil {
		return "", err
	}
	return dir, os.Rename(tmp, dir)
}
