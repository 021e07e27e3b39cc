//go:build cgo

package metal

import "splash/internal/model"

func quantizeGrid(width, rows int) grid {
	return grid{x: width / codeBlock, y: rows, threads: 256, shared: 32}
}

func ternaryGrid(outputs, rows int) grid {
	return grid{x: (outputs + 63) / 64, y: (rows + ternaryRows - 1) / ternaryRows, threads: 256, shared: 4 * 4 * ternaryRows * 64}
}

// decodes reports whether no segment has more rows than a cycle.
func (b *Backend) decodes() bool { return b.longest() <= model.RollbackRows }

// quantize makes codes of n rows of the rotated inputs that stand in scratch, in scratch too, once for all that multiply them.
func (b *Backend) quantize(x binding, n, width int) (codes, scales binding) {
	codes, scales = b.scratchOf(scratchCodes, b.maxRows*width/4), b.scratchOf(scratchScales, b.maxRows*width/codeBlock)
	if b.rotated.codes {
		return codes, scales
	}
	b.rotated.codes = true
	add(&b.commands, b.kernels.quantize, quantizeGrid(width, n), quantizeParams{width: cUint(width)}, x, codes, scales)
	b.traffic.Activations += 2 * int64(n) * int64(width) // scratch
	return codes, scales
}

// multiplyCodes multiplies n rows of rotated inputs by a matrix of PQ2_0, in codes.
func (b *Backend) multiplyCodes(dst, x binding, m *matrix, n int, epilogue cUint) {
	p := m.params
	p.rows, p.epilogue = cUint(n), epilogue
	codes, scales := b.quantize(x, n, int(p.cols))
	g := ternaryGrid(int(p.outputs), n)
	b.traffic.Weights += int64(g.y) * m.bytes
	b.traffic.Loads += int64(n) * int64(p.cols) * int64(g.x)
	add(&b.commands, m.codes, g, p, codes, scales, m.planes.plane0, m.planes.meta, dst)
}
