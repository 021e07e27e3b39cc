//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"splash/oracle"
)

// TestIndex runs two lanes' rows through the index in passes, and holds queries, blocks' keys, scores and chosen blocks to the
// oracle. Chosen blocks are held to those of the scores that the kernel made, so that no rounding changes the choice.
func TestIndex(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(35, 1))
	const heads, dim, pairs, block, budget, tablePages, lanes, eps = 4, 128, 32, 4, 5, 3, 2, 1e-6
	qNorm, kNorm, freq := normals(rng, dim), normals(rng, dim), oracle.RopeFrequencies(1e7, 2*pairs)
	table := []uint32{5, 0, 3, 1, 4, 2}
	raw := empty[float32](b, len(table)*pageTokens*(dim+indexPlace))
	pooled := empty[float32](b, len(table)*pageTokens/block*dim)
	tb, qn, kn, fb := filled(b, table), filled(b, qNorm), filled(b, kNorm), filled(b, freq)
	var keys [lanes][]float64
	var positions [lanes][]oracle.Position
	var queries, pools, scored ratio
	for _, sizes := range [][lanes]int{{3, 1}, {1, 7}, {40, 2}, {8, 30}, {1, 8}, {5, 5}} {
		var rows []rowInfo
		for lane, n := range sizes {
			for range n {
				i := len(positions[lane])
				p := oracle.Position{T: int32(100 + i), H: int32(2 * i), W: int32(3 * i)}
				positions[lane] = append(positions[lane], p)
				rows = append(rows, rowInfo{lane: cUint(lane), index: cUint(i), t: cInt(p.T), h: cInt(p.H), w: cInt(p.W)})
			}
		}
		n := len(rows)
		q, k := normals(rng, n*heads*dim), normals(rng, n*dim)
		p := indexParams{
			heads: heads, dim: dim, pairs: pairs, block: block, budget: budget, tablePages: tablePages, stride: 24, epsilon: eps,
		}
		qb, rb, scores, blocks := filled(b, q), filled(b, rows), empty[float32](b, n*24), empty[uint32](b, n*budget)
		add(&b.commands, b.kernel("index_prepare"), indexGrid(heads+1, n, dim), p, qb.from(0), filled(b, k).from(0), qn.from(0),
			fb.from(0), rb.from(0), tb.from(0), raw.from(0))
		add(&b.commands, b.kernel("index_pool"), indexGrid(1, n, dim), p, raw.from(0), kn.from(0), fb.from(0), rb.from(0), tb.from(0), pooled.from(0))
		add(&b.commands, b.kernel("index_score"), grid{x: 3, y: n, threads: 256}, p, qb.from(0), pooled.from(0), rb.from(0), tb.from(0), scores.from(0))
		add(&b.commands, b.kernel("index_select"), selectGrid(n), p, scores.from(0), rb.from(0), blocks.from(0))
		b.run()
		for i, row := range rows {
			lane, at := int(row.lane), int(row.index)
			keys[lane] = append(keys[lane], wide(k[i*dim:(i+1)*dim])...)
			query := wide(q[i*heads*dim : (i+1)*heads*dim])
			size := slices.Clone(query)
			oracle.IndexerQuery(query, wide(qNorm), positions[lane][at], freq, eps)
			got := view[float32](qb)[i*heads*dim : (i+1)*heads*dim]
			for h := range heads {
				checkTurned(&queries, got[h*dim:(h+1)*dim], query[h*dim:(h+1)*dim], size[h*dim:(h+1)*dim], qNorm, pairs, 16)
			}
			if (at+1)%block == 0 {
				first := at + 1 - block
				key, mean, magnitudes := make([]float64, dim), make([]float64, dim), make([]float64, dim)
				oracle.IndexerKey(key, keys[lane][first*dim:], wide(kNorm), positions[lane][first], freq, eps)
				oracle.HyperMean(mean, keys[lane][first*dim:])
				for j, v := range keys[lane][first*dim:] {
					magnitudes[j%dim] += math.Abs(v) / block
				}
				// The mean cancels: it strays by its terms' sizes, which a share of the norm's mean square is.
				checkTurned(&pools, poolOf(pooled, table[lane*tablePages:], first, block, dim), key, magnitudes, kNorm, pairs,
					16+8*norm2(magnitudes)/norm2(mean))
			}
		}
		for i, row := range rows {
			lane, at := int(row.lane), int(row.index)
			complete := oracle.SparseBlocks(at, block)
			if complete <= budget {
				continue
			}
			made := view[float32](scores)[i*24 : i*24+complete]
			query := wide(view[float32](qb)[i*heads*dim : (i+1)*heads*dim])
			for c := range complete {
				key := wide(poolOf(pooled, table[lane*tablePages:], c*block, block, dim))
				bound := 0.0
				for h := range heads {
					for j := range dim {
						bound += math.Abs(query[h*dim+j]*key[j]) / math.Sqrt(dim)
					}
				}
				scored.check(made[c], oracle.IndexerScore(query, key), (dim/32+12)*u*bound, "row %d, block %d", at, c)
			}
			seen := make([]bool, at+1)
			oracle.SparseSeen(seen, wide(made), at, block, budget)
			var want []uint32
			for c := range complete {
				if seen[c*block] {
					want = append(want, uint32(c))
				}
			}
			if got := view[uint32](blocks)[i*budget : (i+1)*budget]; !slices.Equal(got, want) {
				t.Fatalf("row %d chooses %v, want %v", at, got, want)
			}
		}
	}
	queries.report(t, "index_prepare")
	pools.report(t, "index_pool")
	scored.report(t, "index_score")
}

func norm2(x []float64) float64 { return math.Sqrt(oracle.Dot(x, x)) }

// poolOf is the key of the block that begins at token first.
func poolOf(pooled *Buffer, table []uint32, first, block, dim int) []float32 {
	at := (int(table[first/pageTokens])*pageTokens/block + first%pageTokens/block) * dim
	return view[float32](pooled)[at : at+dim]
}

// checkTurned holds a normalized and rotated head to the oracle: an element strays by units of itself and of its partner. size
// is that of the head before, normalized by its own length.
func checkTurned(r *ratio, got []float32, want, size []float64, norm []float32, pairs int, units float64) {
	length := norm2(size) / math.Sqrt(float64(len(size)))
	for i, v := range want {
		m := math.Abs(size[i] / length * float64(norm[i]))
		if i < 2*pairs {
			j := (i + pairs) % (2 * pairs)
			m += math.Abs(size[j] / length * float64(norm[j]))
		}
		r.check(got[i], v, units*u*(m+math.Abs(v))+1e-30, "element %d", i)
	}
}

// TestIndexTies chooses among scores many of which are equal, or no numbers.
func TestIndexTies(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(35, 2))
	const block, budget, stride, rows = 4, 7, 700, 12
	scores, list := make([]float32, rows*stride), make([]rowInfo, rows)
	for i := range scores {
		scores[i] = float32(rng.IntN(4))
		if rng.IntN(9) == 0 {
			scores[i] = float32(math.NaN())
		}
	}
	for i := range list {
		list[i].index = cUint(block*(budget+1+i*i*5) - 1 + i%4)
	}
	for i := range stride {
		scores[i] = float32(math.NaN())
	}
	blocks := empty[uint32](b, rows*budget)
	add(&b.commands, b.kernel("index_select"), selectGrid(rows), indexParams{block: block, budget: budget, stride: stride},
		filled(b, scores).from(0), filled(b, list).from(0), blocks.from(0))
	b.run()
	for i, row := range list {
		seen := make([]bool, row.index+1)
		oracle.SparseSeen(seen, wide(scores[i*stride:(i+1)*stride]), int(row.index), block, budget)
		var want []uint32
		for c := range oracle.SparseBlocks(int(row.index), block) {
			if seen[c*block] {
				want = append(want, uint32(c))
			}
		}
		if got := view[uint32](blocks)[i*budget : (i+1)*budget]; !slices.Equal(got, want) {
			t.Errorf("index %d chooses %v, want %v", row.index, got, want)
		}
	}
}
