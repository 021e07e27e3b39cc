//go:build cgo

package metal

import (
	"splash/internal/model"
	"splash/planner"
)

// Route chooses each row's experts.
func (b *Backend) Route(routes, logits model.Buffer, m *planner.MoELayout) {
	p := routeParams{
		experts: cUint(m.Experts), taken: cUint(m.Taken), sigmoid: bit(m.Sigmoid), normalize: bit(m.Normalize), scale: 1,
	}
	if m.Scale != 0 {
		p.scale = cFloat(m.Scale)
	}
	add(&b.commands, b.kernels.route, grid{x: b.rows, y: 1, threads: 32}, p, b.at(logits), b.rowBuffer.from(0), b.at(routes))
}

// expertTiles is room for the tiles of so many slots: every expert may have a tile that is not full.
func expertTiles(slots, experts int) int {
	return min(slots, slots/expertRows+min(experts, slots))
}

// groupGrid is the grid of moe_group.
func groupGrid(experts int) grid {
	return grid{x: 1, y: 1, threads: 256, shared: (8*experts + 15) / 16 * 16}
}

// expertGrid is that of a projection of experts.
func expertGrid(outputs, tiles int) grid {
	return grid{x: (outputs + 63) / 64, y: tiles, threads: 256, shared: 512 * expertRows}
}

// Experts sums the results of each row's experts.
func (b *Backend) Experts(dst, x, routes model.Buffer, gate, up, down model.Experts, e model.Epilogue) {
	taken, hidden := b.buffers[routes].width/2, b.buffers[dst].width
	experts, slots := b.layout.MoE.Experts, b.rows*taken
	tiles := expertTiles(slots, experts)
	most := b.maxRows * taken
	order, list := b.scratchOf(scratchOrder, most), b.scratchOf(scratchTiles, 3*expertTiles(most, experts))
	width := int(b.experts[gate].params.outputs)
	wide, results := b.scratchOf(scratchWide, most*width), b.scratchOf(scratchResults, most*hidden)
	add(&b.commands, b.kernels.group, groupGrid(experts),
		groupParams{rows: cUint(b.rows), experts: cUint(experts), taken: cUint(taken), tiles: cUint(tiles)},
		b.at(routes), order, list)
	for _, step := range []struct {
		m        model.Experts
		x, dst   binding
		share    int
		epilogue cUint
	}{
		{gate, b.at(x), wide, taken, epilogueSiLU}, {up, b.at(x), wide, taken, epilogueMultiply}, {down, wide, results, 1, epilogueStore},
	} {
		m := &b.experts[step.m]
		p := m.params
		b.traffic.Weights += int64(min(slots, experts)) * m.bytes
		b.traffic.Activations += 4 * int64(slots) * int64(p.cols+p.outputs)
		p.share, p.epilogue = cUint(step.share), step.epilogue
		add(&b.commands, m.kernel, expertGrid(int(p.outputs), tiles), p, step.x, m.planes.plane0, m.planes.plane1, m.planes.meta,
			order, list, step.dst)
	}
	add(&b.commands, b.kernels.combine, copyGrid(b.rows, hidden),
		combineParams{width: cUint(hidden), taken: cUint(taken), add: bit(e == model.Add)}, results, b.at(routes), b.at(dst))
}

// AddGated adds the shared expert's result.
func (b *Backend) AddGated(dst, y, x model.Buffer, gate model.Vector) {
	add(&b.commands, b.kernels.addGated, rowGrid(b.rows),
		sharedParams{width: cUint(b.buffers[dst].width), gated: bit(gate != model.None)},
		b.at(y), b.at(x), b.vector(gate), b.rowBuffer.from(0), b.at(dst))
}
