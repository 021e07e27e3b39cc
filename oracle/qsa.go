package oracle

import "math"

// IndexerQuery makes a row's indexer queries of their projection, in place: q is [heads*dim], each head normalized by w
// ([dim]) and its first 2 len(freq) values rotated at the row's own position.
func IndexerQuery(q, w []float64, p Position, freq []float32, eps float64) {
	for at := 0; at < len(q); at += len(w) {
		head := q[at : at+len(w)]
		RMSNorm(head, head, w, eps)
		Rope(head, p, freq)
	}
}

// IndexerKey writes the key of one block to dst ([dim]): the mean of the block's raw keys, normalized by w, rotated at
// the position of the block's first token. raw holds the raw keys of the block's tokens one after another, as projected.
func IndexerKey(dst, raw, w []float64, first Position, freq []float32, eps float64) {
	HyperMean(dst, raw)
	RMSNorm(dst, dst, w, eps)
	Rope(dst, first, freq)
}

// IndexerScore is the score of a block with key ([dim]) for a row with queries q ([heads*dim]):
// sum_h max(q_h . key, 0) / sqrt(dim).
//
// Source: the lightning indexer of DeepSeek-V3.2, over pooled blocks as in transformers' Qwen4Exp (models.md 7.3).
func IndexerScore(q, key []float64) float64 {
	var sum float64
	for at := 0; at < len(q); at += len(key) {
		sum += math.Max(Dot(q[at:at+len(key)], key), 0)
	}
	return sum / math.Sqrt(float64(len(key)))
}

// SparseBlocks is the number of complete blocks that a row at index may choose from, (index+1)/block. Up to a budget of
// as many the row attends to everything before it and needs no scores.
func SparseBlocks(index, block int) int { return (index + 1) / block }

// SparseSeen says in seen ([index+1]) which tokens the row at index attends to: all where it has at most budget complete
// blocks; else the budget complete blocks with the largest scores ([SparseBlocks]), equal scores to the earlier block and
// NaN below every number, and the tail after the last complete block. The row's own block, when complete, has to win its
// place as any other. The result serves as [Mask.Seen].
func SparseSeen(seen []bool, scores []float64, index, block, budget int) {
	complete := SparseBlocks(index, block)
	dense := complete <= budget
	for i := range seen {
		seen[i] = dense || i >= complete*block
	}
	if dense {
		return
	}
	for _, b := range byScore(scores[:complete])[:budget] {
		for i := range block {
			seen[b*block+i] = true
		}
	}
}
