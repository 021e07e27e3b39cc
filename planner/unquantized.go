package planner

import (
	"fmt"

	"splash/dequant"
	"splash/internal/gguf"
)

// RequireQuantized refuses a GGUF most of whose values are BF16, F16 or F32, counted over every tensor of every part
// (formats.md 8.5). The installer asks before anything else about the model, and no one else does: a model that is here is
// served.
func RequireQuantized(h *gguf.Header) error {
	var plain, blocks float64
	for i := range h.Tensors {
		t := &h.Tensors[i]
		switch t.Type {
		case dequant.F32, dequant.F16, dequant.BF16:
			plain += float64(t.Elements())
		default:
			blocks += float64(t.Elements())
		}
	}
	if plain <= blocks {
		return nil
	}
	return fmt.Errorf("this GGUF holds most of its values unquantized (%s of %s in BF16, F16 or F32);"+
		" choose a quantized variant", count(plain), count(plain+blocks))
}

// count prints a number of values: 12.3 B, 4.8 M, 512.
func count(n float64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f B", n/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f M", n/1e6)
	}
	return fmt.Sprintf("%.0f", n)
}
