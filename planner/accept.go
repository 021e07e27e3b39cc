package planner

import "splash/dequant"

// linearBlocks reports whether linear weights may be stored in the type's blocks (formats.md 8.3).
func linearBlocks(t dequant.Type) bool {
	switch t {
	case dequant.Q2_K, dequant.Q3_K, dequant.Q4_K, dequant.Q5_K, dequant.Q6_K, dequant.Q8_0,
		dequant.Q4_0, dequant.Q4_1, dequant.Q5_0, dequant.Q5_1,
		dequant.IQ1S, dequant.IQ1M, dequant.IQ2XXS, dequant.IQ2XS, dequant.IQ2S, dequant.IQ3XXS, dequant.IQ3S,
		dequant.IQ4XS, dequant.IQ4NL, dequant.MXFP4, dequant.NVFP4, dequant.PQ2_0, dequant.Q2_0:
		return true
	}
	return false
}

// accepts reports whether a GGUF may store a tensor of the role in the type.
func (r Role) accepts(t dequant.Type) bool {
	half := t == dequant.BF16 || t == dequant.F16
	switch r {
	case Linear, Experts, TokenTable:
		return linearBlocks(t) || half
	case Norm:
		return t == dequant.F32 || half
	case Router:
		return linearBlocks(t) || t == dequant.F32 || t == dequant.BF16
	case SharedGate:
		return t == dequant.F32 || t == dequant.BF16 || t == dequant.Q8_0
	case AlphaBeta, Indexer:
		return linearBlocks(t) || half || t == dequant.F32
	case Injection:
		return t == dequant.F32 || half || t == dequant.Q8_0
	case Convolution, Decay, TimeBias, Sinks, PLEConvolution:
		return t == dequant.F32
	}
	return false
}
