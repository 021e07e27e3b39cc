package planner

import (
	"fmt"
	"slices"
	"strings"

	"splash/internal/gguf"
)

// Bounds of an open family's sizes: far above any model, far below what could exhaust memory.
const (
	maxLayers = 1024
	maxWidth  = 1 << 20
	maxHeads  = 1 << 12
)

// Values of expert_gating_func (llama.cpp's llama_expert_gating_func_type).
const (
	gatingSoftmax = 1
	gatingSigmoid = 2
)

// flint holds what only Flint's headers state to the layout.
func (m *metadata) flint(l *Layout) {
	if slices.Contains(l.Attention.Sliding, true) {
		m.uint("attention.sliding_window", l.Attention.Window)
	}
	m.uint("leading_dense_block_count", l.MoE.LeadingDense)
	gating := gatingSoftmax
	if l.MoE.Sigmoid {
		gating = gatingSigmoid
	}
	m.uint("expert_gating_func", gating)
	if v, _ := m.h.Bool(m.prefix + "expert_weights_norm"); v != l.MoE.Normalize {
		found := ""
		if m.has("expert_weights_norm") {
			found = m.found("expert_weights_norm")
		}
		m.fault("expert_weights_norm", found, l.MoE.Normalize)
	}
	if m.scale() != orOne(l.MoE.Scale) {
		m.float("expert_weights_scale", orOne(l.MoE.Scale))
	}
}

// scale is the factor of the experts' weights: 1 where it is absent or 0.
func (m *metadata) scale() float64 {
	v, _ := m.h.Float(m.prefix + "expert_weights_scale")
	return orOne(v)
}

func orOne(v float64) float64 {
	if v == 0 {
		return 1
	}
	return v
}

// openFlint takes every size of an open Flint from its header, and holds it to the structure the network needs
// (models.md 8.4).
func openFlint(h *gguf.Header, d *derived) (Layout, error) {
	r := rules{metadata: metadata{h: h, prefix: d.kind.gguf + ".", blocks: d.blocks}}
	l := Layout{Arch: FlintMoE, Layers: d.blocks - d.mtp, Vocab: int(d.sizes[2]), Context: int(d.sizes[3])}
	if l.Layers > maxLayers || d.blocks > maxLayers {
		r.broken("block_count", fmt.Sprintf("at most %d", maxLayers))
		return l, r.err()
	}
	l.Hidden = r.size("embedding_length", maxWidth, 256)
	l.Epsilon = r.number("attention.layer_norm_rms_epsilon")
	if !(l.Epsilon > 0 && l.Epsilon <= 1e-3) {
		r.broken("attention.layer_norm_rms_epsilon", "above 0 and at most 0.001")
	}
	l.Attention = r.attention(l.Layers)
	l.MoE = r.moe(l.Layers)
	if l.MoE.LeadingDense > 0 {
		l.FFN = r.size("feed_forward_length", maxWidth, 64)
	}
	if v, ok := h.String(r.prefix + "rope.scaling.type"); r.has("rope.scaling.type") && (!ok || v != "none") {
		r.fault("rope.scaling.type", r.found("rope.scaling.type"), "none")
	}
	return l, r.err()
}

// rules gathers the header's breaches of an open family's structure.
type rules struct{ metadata }

func (r *rules) err() error {
	if len(r.faults) == 0 {
		return nil
	}
	return fmt.Errorf("GGUF metadata does not match the target: %s", strings.Join(r.faults, ", "))
}

// broken notes a key that breaks a rule.
func (r *rules) broken(key, rule string) {
	found := ""
	if r.has(key) {
		found = r.found(key)
	}
	r.fault(key, found, rule)
}

// size reads a positive multiple of unit, at most most.
func (r *rules) size(key string, most, unit int64) int {
	v, ok := r.h.Int(r.prefix + key)
	if ok && v > 0 && v <= most && v%unit == 0 {
		return int(v)
	}
	switch {
	case unit > 1 && v > most:
		r.broken(key, fmt.Sprintf("a multiple of %d up to %d", unit, most))
	case unit > 1:
		r.broken(key, fmt.Sprintf("a multiple of %d", unit))
	default:
		r.broken(key, fmt.Sprintf("1 to %d", most))
	}
	return 0
}

func (r *rules) number(key string) float64 {
	v, _ := r.h.Float(r.prefix + key)
	return v
}

func (r *rules) attention(layers int) AttentionLayout {
	a := AttentionLayout{Interval: 1, Sinks: true}
	a.Heads = r.size("attention.head_count", maxHeads, 1)
	a.KVHeads = r.size("attention.head_count_kv", maxHeads, 1)
	if a.KVHeads > 0 && a.Heads%a.KVHeads != 0 {
		r.broken("attention.head_count", fmt.Sprintf("a multiple of %d KV heads", a.KVHeads))
	}
	a.HeadDim = r.size("attention.key_length", maxWidth, 1)
	if a.HeadDim != 64 && a.HeadDim != 128 && a.HeadDim != 256 {
		r.broken("attention.key_length", "64, 128 or 256")
	} else {
		r.uint("attention.value_length", a.HeadDim)
	}
	a.RopeDim = r.size("rope.dimension_count", maxWidth, 2)
	if a.RopeDim > a.HeadDim {
		r.broken("rope.dimension_count", fmt.Sprintf("at most %d", a.HeadDim))
	}
	if a.RopeBase = r.number("rope.freq_base"); !(a.RopeBase > 0 && a.RopeBase < 1e30) {
		r.broken("rope.freq_base", "a positive number")
	}
	a.Sliding = r.flags("attention.sliding_window_pattern", layers)
	if slices.Contains(a.Sliding, true) {
		a.Window = r.size("attention.sliding_window", 1<<31-1, 1)
	}
	if rotates := r.flags("attention.rope_pattern", layers); rotates != nil {
		a.NoRope = not(rotates)
	}
	return a
}

// flags reads one bool a layer; nil where the key is absent.
func (r *rules) flags(key string, layers int) []bool {
	if !r.has(key) {
		return nil
	}
	v, ok := r.layerFlags(key)
	if !ok || len(v) != layers && len(v) != r.blocks {
		r.fault(key, r.found(key), fmt.Sprintf("%d bools", layers))
		return nil
	}
	return v[:layers]
}

func (r *rules) moe(layers int) MoELayout {
	var e MoELayout
	e.Experts = r.size("expert_count", 1024, 1)
	e.Taken = r.size("expert_used_count", 1024, 1)
	if e.Experts > 0 && e.Taken > e.Experts {
		r.broken("expert_used_count", fmt.Sprintf("at most %d", e.Experts))
	}
	e.Width = r.size("expert_feed_forward_length", maxWidth, 64)
	e.SharedWidth = r.shared(e.Width)
	lead, ok := r.h.Int(r.prefix + "leading_dense_block_count")
	if !ok || lead < 0 || lead >= int64(layers) {
		r.broken("leading_dense_block_count", fmt.Sprintf("0 to %d", layers-1))
		lead = 0
	}
	e.LeadingDense = int(lead)
	switch v, _ := r.h.Int(r.prefix + "expert_gating_func"); v {
	case gatingSoftmax:
	case gatingSigmoid:
		e.Sigmoid = true
	default:
		r.broken("expert_gating_func", "1 (softmax) or 2 (sigmoid)")
	}
	e.Normalize, _ = r.h.Bool(r.prefix + "expert_weights_norm")
	e.Scale = r.number("expert_weights_scale")
	if !(e.Scale >= 0 && e.Scale < 1e30) {
		r.broken("expert_weights_scale", "a number, not negative")
	}
	return e
}

// shared is the width of the shared expert: its own key, or so many times an expert's.
func (r *rules) shared(width int) int {
	if r.has("expert_shared_feed_forward_length") {
		return r.size("expert_shared_feed_forward_length", maxWidth, 64)
	}
	return width * r.size("expert_shared_count", 64, 1)
}

// flintStops are the texts that end Flint's answers.
var flintStops = [...]string{"<|end_of_text|>", "<|user|>", "<|observation|>", "<|developer|>"}

// tokenControl is the type of control tokens in tokenizer.ggml.token_type.
const tokenControl = 3

// stopTokens reads the tokens that end Flint's answers: the header's own list, or the ids of Flint's stop tokens in its
// vocabulary, each a control token, one of them its EOS.
func stopTokens(h *gguf.Header, vocab int) ([]int32, error) {
	const key = "tokenizer.ggml.eog_token_ids"
	if h.Key(key) != nil {
		ids, ok := h.Ints(key)
		if !ok || len(ids) == 0 || len(ids) > 64 {
			return nil, fmt.Errorf("missing or invalid GGUF metadata: %s", key)
		}
		stops := make([]int32, len(ids))
		for i, id := range ids {
			if id < 0 || id >= int64(vocab) {
				return nil, fmt.Errorf("GGUF metadata %s holds %d, outside the vocabulary of %d tokens", key, id, vocab)
			}
			stops[i] = int32(id)
		}
		return stops, nil
	}
	tokens, _ := h.Strings("tokenizer.ggml.tokens")
	types, _ := h.Ints("tokenizer.ggml.token_type")
	eos, _ := h.Int("tokenizer.ggml.eos_token_id")
	var stops []int32
	for _, text := range flintStops {
		id := slices.Index(tokens, text)
		switch {
		case id < 0:
			return nil, fmt.Errorf("the GGUF's vocabulary has no token %s, and its header no %s", text, key)
		case id >= len(types) || types[id] != tokenControl:
			return nil, fmt.Errorf("the GGUF's stop token %s is not a control token", text)
		}
		stops = append(stops, int32(id))
	}
	if !slices.Contains(stops, int32(eos)) || int64(int32(eos)) != eos {
		return nil, fmt.Errorf("the GGUF's tokenizer.ggml.eos_token_id %d is none of its stop tokens %v", eos, stops)
	}
	return stops, nil
}
