package oracle

import "math"

// GDNBeta is the write strength of a value head, sigmoid(b).
func GDNBeta(b float64) float64 { return Sigmoid(b) }

// GDNDecay is the decay of a value head's state, exp(decay * softplus(a + bias)), with decay = -exp(A_log) < 0 as GGUF
// stores it in ssm_a.
func GDNDecay(a, bias, decay float64) float64 { return math.Exp(decay * Softplus(a+bias)) }

// GDNStep is one row of the gated delta rule for one value head. The state S is [dk][dv], key by value, row-major, and
// is replaced: S <- g S; delta = beta (v - S^T k); S <- S + k delta^T; o = S^T q. k and q are l2-normalized, q divided
// by sqrt(dk). The decay comes before the read by k, and o reads the updated state. delta ([dv]) is kept for [GDNReplay].
//
// Source: Yang, Kautz and Hatamizadeh, Gated Delta Networks, 2024; order of operations as transformers' Qwen3.5.
func GDNStep(o, delta, state, q, k, v []float64, beta, g float64) {
	dv := len(v)
	copy(delta, v)
	for i, ki := range k {
		row := state[i*dv : (i+1)*dv]
		for j := range row {
			row[j] *= g
			delta[j] -= ki * row[j]
		}
	}
	for j := range delta {
		delta[j] *= beta
	}
	clear(o)
	for i, ki := range k {
		row, qi := state[i*dv:(i+1)*dv], q[i]
		for j := range row {
			row[j] += ki * delta[j]
			o[j] += qi * row[j]
		}
	}
}

// GDNReplay brings a state over one row of which k, delta and g are kept, with the very operations of [GDNStep], so that
// a state replayed from a checkpoint equals, bit for bit, the one stepped through.
func GDNReplay(state, k, delta []float64, g float64) {
	dv := len(delta)
	for i, ki := range k {
		row := state[i*dv : (i+1)*dv]
		for j := range row {
			row[j] *= g
			row[j] += ki * delta[j]
		}
	}
}

// GatedNorm is the norm behind the recurrence, for one value head: RMSNorm(o, w) times gate(z), where gate is SiLU, or
// Sigmoid for the hyper-connected architecture. dst may be o.
func GatedNorm(dst, o, z, w []float64, eps float64, gate func(float64) float64) {
	RMSNorm(dst, o, w, eps)
	for i := range dst {
		dst[i] *= gate(z[i])
	}
}
