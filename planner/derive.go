package planner

import (
	"fmt"

	"splash/internal/gguf"
)

// derived is the text configuration that a GGUF's header states (models.md 14.2).
type derived struct {
	kind  *modelType
	sizes [len(sizeKeys)]float64
	// blocks are the layers the header counts, mtp those of them that predict further tokens and are not loaded.
	blocks, mtp int
}

// deriveSizes reads the configuration's sizes from the header.
func deriveSizes(h *gguf.Header) (*derived, error) {
	arch, ok := h.String("general.architecture")
	if !ok {
		return nil, fmt.Errorf("missing or invalid GGUF metadata: general.architecture")
	}
	d := &derived{}
	for i := range modelTypes {
		if modelTypes[i].gguf == arch {
			d.kind = &modelTypes[i]
		}
	}
	if d.kind == nil {
		return nil, fmt.Errorf("unsupported GGUF model architecture: %s", plain(arch))
	}
	var err error
	get := func(key string) int {
		if err != nil {
			return 0
		}
		var v int
		v, err = positive(h, arch+"."+key)
		return v
	}
	d.blocks = get("block_count")
	if err == nil {
		d.mtp, err = predictionLayers(h, arch, d.blocks)
	}
	hidden, context := get("embedding_length"), get("context_length")
	heads, kv, dim := get("attention.head_count"), get("attention.head_count_kv"), get("attention.key_length")
	if err != nil {
		return nil, err
	}
	vocab, ok := h.ArrayLen("tokenizer.ggml.tokens")
	if !ok || h.Key("tokenizer.ggml.tokens").Elem != gguf.TypeString {
		return nil, fmt.Errorf("missing or invalid GGUF metadata: tokenizer.ggml.tokens")
	}
	if vocab == 0 {
		return nil, fmt.Errorf("GGUF metadata must be positive: tokenizer.ggml.tokens")
	}
	for i, v := range [...]int{hidden, d.blocks - d.mtp, vocab, context, heads, kv, dim} {
		d.sizes[i] = float64(v)
	}
	return d, nil
}

// positive reads an integer from 1 to 2^31 - 1.
func positive(h *gguf.Header, key string) (int, error) {
	v, ok := h.Int(key)
	switch {
	case !ok || v > 1<<31-1:
		return 0, fmt.Errorf("missing or invalid GGUF metadata: %s", key)
	case v <= 0:
		return 0, fmt.Errorf("GGUF metadata must be positive: %s", key)
	}
	return int(v), nil
}

// predictionLayers is the number of appended layers that predict further tokens: absent, or less than all.
func predictionLayers(h *gguf.Header, arch string, blocks int) (int, error) {
	key := arch + ".nextn_predict_layers"
	kv := h.Key(key)
	if kv == nil {
		return 0, nil
	}
	n, ok := h.Int(key)
	if !ok || n < 0 || n >= int64(blocks) {
		return 0, fmt.Errorf("invalid GGUF MTP layer count: %s %s, of %s.block_count %d",
			key, plain(fmt.Sprint(kv.Value())), arch, blocks)
	}
	return int(n), nil
}
