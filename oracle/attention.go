package oracle

import "math"

// A Cache holds the keys and values an attention layer has stored, by index in the sequence: [token][KV heads * head
// dimension]. Keys are normalized and rotated already.
type Cache struct {
	KVHeads, Dim int
	Keys, Values []float64
}

// Append stores one token's keys and values.
func (c *Cache) Append(k, v []float64) {
	c.Keys = append(c.Keys, k...)
	c.Values = append(c.Values, v...)
}

// Len is the number of stored tokens.
func (c *Cache) Len() int { return len(c.Keys) / (c.KVHeads * c.Dim) }

// Truncate forgets the tokens from index n on.
func (c *Cache) Truncate(n int) {
	c.Keys = c.Keys[:n*c.KVHeads*c.Dim]
	c.Values = c.Values[:n*c.KVHeads*c.Dim]
}

// Mask says which stored tokens a row sees. The zero value sees every token up to the row's own index.
type Mask struct {
	Window int    // tokens seen, the row's own included; 0: all
	Seen   []bool // by index; nil: every one. Rows of sparse attention name theirs
}

// Attention is one row of causal attention over c: for every query head h of q ([heads * dim], rotated), scores
// q_h . k_i / sqrt(dim) of the seen tokens i <= index, softmax (with the head's sink where sinks is not nil), and the
// weighted sum of the values of KV head h / (heads / KVHeads) to the head's part of dst ([heads * dim]).
//
// Source: Vaswani et al., 2017; grouped queries Ainslie et al., 2023; sinks as in the public GGUF runtime's soft_max.
func Attention(dst, q []float64, c *Cache, index int, sinks []float64, m Mask) {
	heads := len(q) / c.Dim
	first := 0
	if m.Window > 0 {
		first = max(0, index-m.Window+1)
	}
	scores := make([]float64, 0, index+1-first)
	for h := range heads {
		qh, out := q[h*c.Dim:(h+1)*c.Dim], dst[h*c.Dim:(h+1)*c.Dim]
		at := h / (heads / c.KVHeads) * c.Dim
		scores = scores[:0]
		for i := first; i <= index; i++ {
			s := math.Inf(-1)
			if m.Seen == nil || m.Seen[i] {
				row := i*c.KVHeads*c.Dim + at
				s = Dot(qh, c.Keys[row:row+c.Dim]) / math.Sqrt(float64(c.Dim))
			}
			scores = append(scores, s)
		}
		if sinks != nil {
			SoftmaxSink(scores, sinks[h])
		} else {
			Softmax(scores)
		}
		clear(out)
		for i, p := range scores {
			row := (first+i)*c.KVHeads*c.Dim + at
			for d, v := range c.Values[row : row+c.Dim] {
				out[d] += p * v
			}
		}
	}
}

// OutputGate multiplies o by Sigmoid(gate), element by element, in place (models.md 3, step 6).
func OutputGate(o, gate []float64) {
	for i, g := range gate {
		o[i] *= Sigmoid(g)
	}
}

// SplitGated parts the rows of a gated query projection: u holds, head after head, dim query values and dim gate values.
// q and gate get [heads * dim] each.
func SplitGated(q, gate, u []float64, dim int) {
	for h := range len(u) / (2 * dim) {
		copy(q[h*dim:(h+1)*dim], u[2*h*dim:])
		copy(gate[h*dim:(h+1)*dim], u[(2*h+1)*dim:])
	}
}
