package reference

import (
	"splash/internal/model"
	"splash/oracle"
)

// Attention stores the rows' keys and values, then attends.
func (b *Backend) Attention(dst, q, k, v model.Buffer, a *model.Attention) {
	s, eps := a.Layout, b.layout.Epsilon
	queries := make([][]float64, len(b.rows))
	gates := make([][]float64, len(b.rows))
	for i, r := range b.rows {
		query := b.row(q, i)
		if s.Gated {
			n := len(query) / 2
			queries[i], gates[i] = make([]float64, n), make([]float64, n)
			oracle.SplitGated(queries[i], gates[i], query, s.HeadDim)
		} else {
			queries[i] = query
		}
		b.prepare(queries[i], a.QNorm, a.Rotate, s.HeadDim, r.pos, eps)
		key := b.row(k, i)
		b.prepare(key, a.KNorm, a.Rotate, s.HeadDim, r.pos, eps)
		kv := r.lane.states[a.KV].(*kvState)
		value := b.row(v, i)
		if b.Keep != nil {
			b.Keep(key, value, s.HeadDim)
		}
		kv.Append(key, value)
		kv.positions = append(kv.positions, r.pos)
		if a.Index != nil {
			store := r.lane.states[a.Index.State].(*keys)
			store.raw = append(store.raw, b.row(a.Index.K, i)...)
		}
	}
	var sinks []float64
	if a.Sinks != model.None {
		sinks = b.vectors[a.Sinks]
	}
	b.each(dst, func(i int) {
		r := &b.rows[i]
		kv := r.lane.states[a.KV].(*kvState)
		mask := oracle.Mask{Window: a.Window}
		if a.Index != nil {
			mask.Seen = b.seen(i, a)
		}
		oracle.Attention(b.row(dst, i), queries[i], &kv.Cache, r.index, sinks, mask)
		if s.Gated {
			oracle.OutputGate(b.row(dst, i), gates[i])
		}
	})
}

// prepare normalizes and rotates every head of x in place.
func (b *Backend) prepare(x []float64, norm model.Vector, rotate bool, dim int, pos oracle.Position, eps float64) {
	for at := 0; at < len(x); at += dim {
		head := x[at : at+dim]
		if norm != model.None {
			oracle.RMSNorm(head, head, b.vectors[norm], eps)
		}
		if rotate {
			oracle.Rope(head, pos, b.freq)
		}
	}
}

// seen says which tokens row i of a sparse layer attends to.
func (b *Backend) seen(i int, a *model.Attention) []bool {
	x, r, eps := a.Index, &b.rows[i], b.layout.Epsilon
	n, dim := x.Layout.Block, x.Layout.HeadDim
	seen := make([]bool, r.index+1)
	blocks := oracle.SparseBlocks(r.index, n)
	var scores []float64
	if blocks > x.Layout.Budget {
		query := append([]float64(nil), b.row(x.Q, i)...)
		oracle.IndexerQuery(query, b.vectors[x.QNorm], r.pos, b.freq, eps)
		raw := r.lane.states[x.State].(*keys).raw
		positions := r.lane.states[a.KV].(*kvState).positions
		key := make([]float64, dim)
		for block := range blocks {
			oracle.IndexerKey(key, raw[block*n*dim:(block+1)*n*dim], b.vectors[x.KNorm], positions[block*n], b.freq, eps)
			scores = append(scores, oracle.IndexerScore(query, key))
		}
	}
	oracle.SparseSeen(seen, scores, r.index, n, x.Layout.Budget)
	return seen
}
