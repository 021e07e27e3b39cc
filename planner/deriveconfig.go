package planner

import (
	"encoding/json"
	"fmt"
	"slices"

	"splash/internal/gguf"
)

// DeriveConfig is the config.json that a GGUF's header states (models.md 8.3, 14.2), with the vision_config of the
// projector beside it unless that is nil. An installation keeps it, and every start checks it again with the header.
func DeriveConfig(h, projector *gguf.Header) ([]byte, error) {
	d, err := deriveSizes(h)
	if err != nil {
		return nil, err
	}
	text := map[string]any{"model_type": d.kind.text}
	for i, key := range sizeKeys {
		text[key] = int64(d.sizes[i])
	}
	if d.kind.arch != DenseHybrid {
		for key, name := range map[string]string{"expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"} {
			if text[name], err = positive(h, d.kind.gguf+"."+key); err != nil {
				return nil, err
			}
		}
	}
	config := text
	if d.kind.flat {
		if err := deriveFlint(h, d, text); err != nil {
			return nil, err
		}
	} else {
		config = map[string]any{"model_type": d.kind.outer, "text_config": text}
	}
	if projector != nil {
		if config["vision_config"], err = deriveVision(projector); err != nil {
			return nil, err
		}
	}
	return json.MarshalIndent(config, "", "  ")
}

// deriveFlint adds what Flint's header states of its network, in the keys of its flat configuration.
func deriveFlint(h *gguf.Header, d *derived, o map[string]any) error {
	l, err := openFlint(h, d)
	if err != nil {
		return err
	}
	stops, err := stopTokens(h, l.Vocab)
	if err != nil {
		return err
	}
	o["eos_token_id"] = stops
	if l.FFN > 0 {
		o["intermediate_size"] = l.FFN
	}
	o["mlp_only_layers"] = firstLayers(l.MoE.LeadingDense)
	o["moe_intermediate_size"] = l.MoE.Width
	o["shared_expert_intermediate_size"] = l.MoE.SharedWidth
	o["router_score_function"] = "softmax"
	if l.MoE.Sigmoid {
		o["router_score_function"] = "sigmoid"
	}
	o["norm_topk_prob"] = l.MoE.Normalize
	o["rms_norm_eps"] = roundTrip(h, d.kind.gguf+".attention.layer_norm_rms_epsilon", l.Epsilon)
	o["rope_theta"] = roundTrip(h, d.kind.gguf+".rope.freq_base", l.Attention.RopeBase)
	o["partial_rotary_factor"] = float64(l.Attention.RopeDim) / float64(l.Attention.HeadDim)
	if l.Attention.Window > 0 {
		o["sliding_window"] = l.Attention.Window
	}
	types, still := make([]string, l.Layers), []int{}
	for i := range types {
		types[i] = "full_attention"
		if l.Attention.Sliding != nil && l.Attention.Sliding[i] {
			types[i] = "sliding_attention"
		}
		if l.Attention.NoRope != nil && l.Attention.NoRope[i] {
			still = append(still, i)
		}
	}
	o["layer_types"], o["no_rope_layer_indices"] = types, still
	return nil
}

func firstLayers(n int) []int {
	layers := make([]int, n)
	for i := range layers {
		layers[i] = i
	}
	return layers
}

// roundTrip is the decimal that a float32 of the header stands for.
func roundTrip(h *gguf.Header, key string, v float64) json.Number {
	kv := h.Key(key)
	if kv != nil && kv.Type == gguf.TypeFloat32 {
		b, err := json.Marshal(float32(v))
		if err == nil {
			return json.Number(b)
		}
	}
	return json.Number(number(v))
}

// deriveVision is the vision_config that a projector's header states (serving.md 2.11).
func deriveVision(h *gguf.Header) (map[string]any, error) {
	if err := checkProjectorKind(h); err != nil {
		return nil, err
	}
	if deep, _ := h.Bools(clipPrefix + "is_deepstack_layers"); slices.Contains(deep, true) {
		return nil, fmt.Errorf("vision deepstack layers are unsupported: %sis_deepstack_layers %d is true",
			clipPrefix, slices.Index(deep, true))
	}
	side, err := positionSide(h)
	if err != nil {
		return nil, err
	}
	o := map[string]any{
		"temporal_patch_size": 2, "in_channels": 3, "num_position_embeddings": side * side,
		"hidden_act": visionAct, "deepstack_visual_indexes": []int{},
	}
	for _, n := range new(VisionLayout).numbers() {
		if n.gguf == "" {
			continue
		}
		if o[n.key], err = positive(h, clipPrefix+n.gguf); err != nil {
			return nil, err
		}
	}
	return o, nil
}
