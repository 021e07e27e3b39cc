package oracle

import "math"

// A PLEHash turns a token's n-gram context into rows of the table of per-layer embeddings. A file's own arrays are its
// values; [DerivePLEHash] says where they come from.
type PLEHash struct {
	EOS         int32
	Multipliers []uint64 // one per context token; products with a token id stay below 2^63
	Vocab       []uint64 // rows of each head's part of the table, a prime: heads for 2-grams, then for 3-grams, ..
	Offsets     []uint64 // first row of each head's part
}

// Context writes the ids that the newest token of ids hashes to u ([n-gram size]): its own id, then those before it,
// the nearest first. From the first that is missing or equals EOS on, going back, every one reads as EOS. The token's own
// id does not cut its context.
func (h *PLEHash) Context(u, ids []int32) {
	last := len(ids) - 1
	u[0] = ids[last]
	cut := false
	for i := 1; i < len(u); i++ {
		cut = cut || i > last || ids[last-i] == h.EOS
		if cut {
			u[i] = h.EOS
		} else {
			u[i] = ids[last-i]
		}
	}
}

// Rows writes the table row of every head to rows ([heads]) for the context u ([n-gram size]): for n-grams of g tokens
// mix_g = u_0 m_0 xor .. xor u_{g-1} m_{g-1}, and head j of that size takes row mix_g mod vocab_j + offset_j.
//
// Source: the n-gram embedding of transformers' Qwen4Exp (models.md 7.4).
func (h *PLEHash) Rows(rows []uint64, u []int32) {
	perSize := len(h.Vocab) / (len(u) - 1)
	mix := uint64(u[0]) * h.Multipliers[0]
	for g := 1; g < len(u); g++ {
		mix ^= uint64(u[g]) * h.Multipliers[g]
		for j := (g - 1) * perSize; j < g*perSize; j++ {
			rows[j] = mix%h.Vocab[j] + h.Offsets[j]
		}
	}
}

// pleSeed is the seed that the released models' multipliers are drawn with.
const pleSeed = 1234

// DerivePLEHash makes the arrays of the model's first PLE layer from its configuration: vocabulary size of the
// tokenizer, n-gram size, heads per n-gram size, and the base of the heads' vocabularies. Head j's vocabulary is the
// (j+1)-th prime from base on, its offset the sum of those before, and multiplier i is 2 (r_i mod half) + 1, r_i an
// output of SplitMix64 seeded with 1234 and half = max(1, (2^63-1)/vocabulary/2).
func DerivePLEHash(vocabulary, ngram, headsPerSize int, base uint64, eos int32) PLEHash {
	h := PLEHash{EOS: eos}
	half := max(1, math.MaxInt64/uint64(vocabulary)/2)
	for i := range ngram {
		r := splitMix64(pleSeed + uint64(i+2)*splitMixGamma)
		h.Multipliers = append(h.Multipliers, 2*(r%half)+1)
	}
	var rows uint64
	for p := base; len(h.Vocab) < (ngram-1)*headsPerSize; p++ {
		if !isPrime(p) {
			continue
		}
		h.Vocab = append(h.Vocab, p)
		h.Offsets = append(h.Offsets, rows)
		rows += p
	}
	return h
}

// TableRows is the number of rows of the table: the heads' vocabularies, rounded up to a multiple of 128.
func (h *PLEHash) TableRows() uint64 {
	last := len(h.Vocab) - 1
	return (h.Offsets[last] + h.Vocab[last] + 127) / 128 * 128
}

func isPrime(n uint64) bool {
	for d := uint64(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

const splitMixGamma = 0x9E3779B97F4A7C15

// splitMix64 is the finalizer of SplitMix64, for a state that has its increment already.
//
// Source: Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014; constants of Vigna's splitmix64.c.
func splitMix64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// A PLE adds hashed n-gram embeddings to n residual streams of H values.
type PLE struct {
	KeyNorm, QueryNorm, ConvNorm []float64 // [n*H] each
	Conv                         []float64 // [n*H][taps]
	Dilation                     int
}

// minGate keeps the square root in the gate away from zero (transformers' Qwen4Exp).
const minGate = 1e-6

// Add adds one token's n-gram embedding to streams ([n*H], stream after stream), in place. key ([n*H]) and value ([H])
// are the projections of the token's table rows, head 0 first. history holds the (taps-1)*Dilation rows [n*H] of Z of the
// tokens before, oldest first (zeros before the sequence), and is advanced:
//
//	K = grouped rms(key);  Q = grouped rms(streams);  t_s = K_s . Q_s / sqrt(H)
//	Y_s = PLEGate(t_s) value;  Z = grouped rms(Y)
//	streams += Y + silu(sum_j conv_j Z(p - Dilation (taps-1-j)))
//
// Source: transformers' Qwen4Exp (models.md 7.4).
func (p *PLE) Add(streams, history, key, value []float64, eps float64) {
	hidden := len(value)
	n := len(streams) / hidden
	k, q := make([]float64, len(streams)), make([]float64, len(streams))
	GroupedRMSNorm(k, key, p.KeyNorm, n, eps)
	GroupedRMSNorm(q, streams, p.QueryNorm, n, eps)

	y, z := make([]float64, len(streams)), make([]float64, len(streams))
	for s := range n {
		at := s * hidden
		gate := PLEGate(Dot(k[at:at+hidden], q[at:at+hidden]) / math.Sqrt(float64(hidden)))
		for i, v := range value {
			y[at+i] = gate * v
		}
	}
	GroupedRMSNorm(z, y, p.ConvNorm, n, eps)
	DilatedConv(z, history, z, p.Conv, p.Dilation)
	for i := range streams {
		streams[i] += y[i] + z[i]
	}
}

// PLEGate is sigmoid(sign(t) sqrt(max(|t|, 1e-6))), with sign(0) = 0.
func PLEGate(t float64) float64 {
	if t == 0 {
		return 0.5
	}
	return Sigmoid(math.Copysign(math.Sqrt(math.Max(math.Abs(t), minGate)), t))
}

// DilatedConv is one row of [Conv] whose taps lie dilation rows apart: dst_c = silu(sum_j w[c][j] x_c(p - dilation
// (taps-1-j))). history holds the (taps-1)*dilation rows before the newest, oldest first, and is advanced by x. dst may
// be x.
func DilatedConv(dst, history, x, w []float64, dilation int) {
	channels := len(x)
	taps := len(history)/channels/dilation + 1
	sum := make([]float64, channels)
	for c, newest := range x {
		for j := range taps - 1 {
			sum[c] += w[c*taps+j] * history[j*dilation*channels+c]
		}
		sum[c] += w[c*taps+taps-1] * newest
	}
	copy(history, history[channels:])
	copy(history[len(history)-channels:], x)
	for c, v := range sum {
		dst[c] = SiLU(v)
	}
}
