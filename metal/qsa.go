//go:build cgo

package metal

import (
	"splash/internal/model"
)

// IndexState declares the raw keys of a sparse attention layer and those of its blocks, in pages.
func (b *Backend) IndexState(dim int) model.State {
	block := max(1, b.layout.QSA.Block)
	return b.declare(state{paged: true, bytes: [2]int{4 * pageTokens * (dim + indexPlace), 4 * pageTokens / block * dim}})
}

// choose keeps the rows' raw keys and makes the blocks' that they complete; where a row has more blocks than it may see, it
// scores them and chooses. It tells the attention.
func (b *Backend) choose(x *model.Indexer, a *attentionParams) (blocks binding) {
	s, state := x.Layout, &b.states[x.State]
	scored := b.scoredBlocks(s)
	p := indexParams{
		heads: cUint(s.Heads), dim: cUint(s.HeadDim), pairs: cUint(b.freq.Size() / 4), block: cUint(s.Block), budget: cUint(s.Budget),
		tablePages: cUint(b.pages.width), stride: cUint(scored), epsilon: cFloat(b.layout.Epsilon),
	}
	raw, pooled := state.buffers[0].from(0), state.buffers[1].from(0)
	rows, table, freq := b.rowBuffer.from(0), b.pages.table.from(0), b.freq.from(0)
	add(&b.commands, b.kernels.indexPrepare, indexGrid(s.Heads+1, b.rows, s.HeadDim), p, b.at(x.Q), b.at(x.K),
		b.vectors[x.QNorm].from(0), freq, rows, table, raw)
	add(&b.commands, b.kernels.indexPool, indexGrid(1, b.rows, s.HeadDim), p, raw, b.vectors[x.KNorm].from(0), freq, rows, table,
		pooled)
	if scored == 0 {
		return table
	}
	a.block, a.budget = p.block, p.budget
	scores := b.scratchOf(scratchScores, b.rows*scored)
	blocks = b.scratchOf(scratchBlocks, b.maxRows*s.Budget)
	add(&b.commands, b.kernels.indexScore, grid{x: (scored + 7) / 8, y: b.rows, threads: 256}, p, b.at(x.Q), pooled, rows, table, scores)
	add(&b.commands, b.kernels.indexSelect, selectGrid(b.rows), p, scores, rows, blocks)
	return blocks
}

func indexGrid(heads, rows, dim int) grid {
	return grid{x: heads, y: rows, threads: 32, shared: 4 * dim}
}

func selectGrid(rows int) grid { return grid{x: rows, y: 1, threads: 256, shared: 32 + 8*256} }
