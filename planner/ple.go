package planner

import (
	"fmt"
	"math"

	"splash/internal/gguf"
)

// readPLE reads the arrays of the hashed n-gram embedding (models.md 7.4). Their values are the file's; each head's rows
// must lie in the table.
func readPLE(h *gguf.Header, prefix string, vocab int, l *PLELayout) error {
	heads := (l.NGram - 1) * l.Heads
	var err error
	read := func(key string, n int) []uint64 {
		v, ok := h.Uints(prefix + key)
		if err == nil && !ok {
			err = fmt.Errorf("GGUF PLE metadata is missing: %s", key)
		} else if err == nil && len(v) < n {
			err = fmt.Errorf("GGUF PLE metadata holds an invalid value: %s has %d entries, at least %d", key, len(v), n)
		}
		if err != nil {
			return nil
		}
		return v[:n:n]
	}
	l.Multipliers = read("ple.layer_multipliers", l.NGram)
	l.Offsets = read("ple.head_offsets", heads)
	l.Vocab = read("ple.head_vocab_sizes", heads)
	if err != nil {
		return err
	}
	// The hash is defined by products of 63 bits.
	for i, m := range l.Multipliers {
		if limit := uint64(math.MaxInt64) / uint64(vocab); m > limit {
			return fmt.Errorf("GGUF PLE metadata holds an invalid value: ple.layer_multipliers %d is %d, at most %d",
				i, m, limit)
		}
	}
	for i := range heads {
		if l.Vocab[i] == 0 {
			return fmt.Errorf("GGUF PLE metadata holds an invalid value: ple.head_vocab_sizes %d is 0", i)
		}
		if rows := uint64(l.Rows); l.Offsets[i] > rows || l.Vocab[i] > rows-l.Offsets[i] {
			return fmt.Errorf("a PLE head's rows lie outside per_layer_token_embd: head %d has %d rows (ple.head_vocab_sizes)"+
				" from %d (ple.head_offsets) of %d", i, l.Vocab[i], l.Offsets[i], l.Rows)
		}
	}
	return readPLETokens(h, prefix, l)
}

// readPLETokens holds the tokens that the hash treats apart to the layout.
func readPLETokens(h *gguf.Header, prefix string, l *PLELayout) error {
	eos, ok := h.Int(prefix + "ple.eos_token_id")
	if !ok {
		return fmt.Errorf("GGUF PLE metadata is missing: ple.eos_token_id")
	}
	if eos != int64(l.EOS) {
		return fmt.Errorf("GGUF PLE metadata holds an invalid value: ple.eos_token_id %d, expected %d", eos, l.EOS)
	}
	const image = "ple.image_token_id"
	if h.Key(prefix+image) == nil {
		return nil
	}
	if v, ok := h.Int(prefix + image); !ok || v != int64(l.Image) {
		return fmt.Errorf("GGUF PLE metadata holds an invalid value: %s %d, expected %d", image, v, l.Image)
	}
	return nil
}
