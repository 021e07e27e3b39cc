//go:build cgo

package metal

// targetGrid is that of kernels that choose from a row's logits, or a lane's, a threadgroup each.
func targetGrid(rows int) grid { return grid{x: rows, y: 1, threads: 256, shared: 4*256 + 12*8} }
