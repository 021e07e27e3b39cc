//go:build cgo

package metal

// Grids of the operators, which their kernels state.

func rowGrid(rows int) grid { return grid{x: rows, y: 1, threads: 256, shared: 32} }

func copyGrid(rows, width int) grid { return grid{x: (width + 255) / 256, y: rows, threads: 256} }

func headGrid(heads, rows int) grid { return grid{x: heads, y: rows, threads: 32} }

func prepareGrid(heads, rows, dim int) grid {
	return grid{x: heads, y: rows, threads: 32, shared: 4 * dim}
}

func attentionGrid(heads, rows, dim int) grid {
	return grid{x: heads, y: rows, threads: 128, shared: 4 * 4 * (dim + 2)}
}

func convGrid(channels, segments int) grid {
	return grid{x: (channels + 255) / 256, y: segments, threads: 256}
}

func gdnGrid(heads, segments int) grid {
	return grid{x: gdnDim / 32, y: heads, z: segments, threads: 128}
}

// gdnChunkGrid is that of the chunked form, whose memory holds a chunk's keys, queries, products and parts.
func gdnChunkGrid(heads, segments int) grid {
	g := gdnGrid(heads, segments)
	g.shared = 4 * gdnChunk * (2*(gdnDim+gdnChunk) + 2 + 64)
	return g
}
