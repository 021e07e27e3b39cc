//go:build cgo

package metal

// topShard is the number of logits that a threadgroup chooses candidates from.
const topShard = 8192

// topShards is the number of shards of so many items.
func topShards(items int) int { return (items + topShard - 1) / topShard }

// topGrid is that of the first candidates of each shard of rows, or of the merging of them with one shard.
func topGrid(shards, rows int) grid { return grid{x: shards, y: rows, threads: 256, shared: 64} }

func edgesGrid(positions, lanes int) grid { return grid{x: positions, y: lanes, threads: 256} }

func walkGrid(lanes, candidates int) grid {
	return grid{x: lanes, y: 1, threads: 32, shared: (4*candidates + 15) &^ 15}
}
