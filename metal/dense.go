//go:build cgo

package metal

import (
	"errors"
	"fmt"
	"math"

	"splash/internal/model"
)

// Embed gathers the table's rows, and puts those that are given in their places.
func (b *Backend) Embed(dst model.Buffer, table model.Matrix) {
	m := &b.matrices[table]
	p := gatherParams{cols: m.params.cols}
	b.traffic.Weights += int64(b.rows) * m.bytes / int64(m.params.outputs)
	if m.gather == nil {
		add(&b.commands, b.kernels.gatherF32, copyGrid(b.rows, int(p.cols)), p, m.planes.plane0, b.rowBuffer.from(0), b.at(dst))
	} else {
		add(&b.commands, m.gather, gatherGrid(b.rows, int(p.cols)), p, m.planes.plane0, m.planes.plane1, m.planes.meta,
			b.rowBuffer.from(0), b.at(dst))
	}
	if m.signs != nil {
		b.hadamard(b.at(dst), b.at(dst), m.signs, b.rows, int(p.cols), true)
	}
	b.placeEmbedded(dst)
}

// Outputs copies the rows whose logits are wanted.
func (b *Backend) Outputs(dst, x model.Buffer) { b.copyRows(dst, x, b.outputBuffer) }

// Copy copies every row.
func (b *Backend) Copy(dst, x model.Buffer) { b.copyRows(dst, x, b.everyRow) }

func (b *Backend) copyRows(dst, x model.Buffer, list *Buffer) {
	if n, width := b.count(dst), b.buffers[dst].width; n > 0 {
		add(&b.commands, b.kernels.copyRows, copyGrid(n, width), copyParams{width: cUint(width)}, b.at(x), list.from(0), b.at(dst))
	}
}

// RMSNorm normalizes rows.
func (b *Backend) RMSNorm(dst, x model.Buffer, w model.Vector, eps float64, _ []model.Matrix) {
	if n := b.count(x); n > 0 {
		p := normParams{width: cUint(b.buffers[x].width), epsilon: cFloat(eps)}
		add(&b.commands, b.kernels.rmsnorm, rowGrid(n), p, b.at(x), b.vectors[w].from(0), b.at(dst))
	}
}

// Project multiplies rows by W.
func (b *Backend) Project(dst, x model.Buffer, w model.Matrix, e model.Epilogue) {
	epilogue := cUint(epilogueStore)
	if e == model.Add {
		epilogue = epilogueAdd
	}
	b.project(dst, x, w, epilogue)
}

// ProjectAll multiplies rows by each W.
func (b *Backend) ProjectAll(x model.Buffer, all []model.Projection) {
	for _, p := range all {
		b.Project(p.Dst, x, p.W, model.Store)
	}
}

// GateUp writes silu(gate x) * (up x): at once where both are of one format and few rows meet as many outputs as fill a GPU, else by
// storing the one and multiplying by the other, to the same bits.
func (b *Backend) GateUp(dst, x model.Buffer, gate, up model.Matrix, _ []model.Matrix) {
	if g, u := &b.matrices[gate], &b.matrices[up]; b.gatesAtOnce(g, u, b.count(x)) {
		b.gateUp(dst, x, g, u)
		return
	}
	b.project(dst, x, gate, epilogueSiLU)
	b.project(dst, x, up, epilogueMultiply)
}

// gatesAtOnce reports whether one kernel takes both matrices: the inputs are the same, in one order, in one tile of rows, and the
// sums are not split.
func (b *Backend) gatesAtOnce(gate, up *matrix, rows int) bool {
	g, u := &gate.params, &up.params
	grid, wide := projectGrid(rows, int(g.outputs))
	split := columnParts(int(g.cols)) > 1 && grid.x*grid.y < splitBelow
	codes := b.int8Activations && gate.signs != nil && gate.codes != nil && b.decodes()
	return rows > 0 && !wide && !split && !codes && gate.small != nil && gate.small == up.small && gate.signs == up.signs &&
		g.cols == u.cols && g.outputs == u.outputs && g.head == 0 && u.head == 0
}

func (b *Backend) gateUp(dst, x model.Buffer, gate, up *matrix) {
	if gate.gate == nil {
		k, err := b.device.Kernel("gate_up_" + gate.format)
		if err != nil {
			b.err = errors.Join(b.err, err)
			return
		}
		gate.gate = k
	}
	n, p := b.count(x), &gate.params
	in := b.at(x)
	if gate.signs != nil {
		in = b.rotate(x, gate.signs, n, int(p.cols))
	}
	g, _ := projectGrid(n, int(p.outputs))
	b.traffic.Weights += int64(g.y) * (gate.bytes + up.bytes)
	b.traffic.Loads += 4 * int64(n) * int64(p.cols) * int64(g.x)
	add(&b.commands, gate.gate, g, gateParams{
		rows: cUint(n), cols: p.cols, outputs: p.outputs, gateFirst: p.first, upFirst: up.params.first,
	}, in, gate.planes.plane0, gate.planes.plane1, gate.planes.meta, up.planes.plane0, up.planes.plane1, up.planes.meta, b.at(dst))
	b.rotated.keep(b, dst)
}

func (b *Backend) project(dst, x model.Buffer, w model.Matrix, epilogue cUint) {
	m, n := &b.matrices[w], b.count(x)
	if n == 0 {
		return
	}
	in := b.at(x)
	if m.signs != nil {
		in = b.rotate(x, m.signs, n, int(m.params.cols))
	}
	if b.int8Activations && m.signs != nil && m.codes != nil && b.decodes() {
		b.multiplyCodes(b.at(dst), in, m, n, epilogue)
		b.rotated.keep(b, dst)
		return
	}
	b.multiply(b.at(dst), in, m, n, epilogue)
	b.rotated.keep(b, dst)
}

// multiply multiplies n rows by a matrix.
func (b *Backend) multiply(dst, x binding, m *matrix, n int, epilogue cUint) {
	p := m.params
	p.rows, p.epilogue = cUint(n), epilogue
	b.traffic.Loads += 4 * int64(n) * int64(p.cols) * int64((p.outputs+63)/64)
	if m.small == nil {
		b.traffic.Weights += int64(n) * m.bytes
		add(&b.commands, b.kernels.projectF32, grid{x: (int(p.outputs) + 7) / 8, y: n, threads: 256}, p, x, m.planes.plane0, dst)
		return
	}
	g, wide := projectGrid(n, int(p.outputs))
	k := m.small
	if wide {
		k = m.large
	}
	b.traffic.Weights += int64(g.y) * m.bytes
	split := columnParts(int(p.cols))
	if wide || split == 1 || g.x*g.y >= splitBelow {
		add(&b.commands, k, g, p, x, m.planes.plane0, m.planes.plane1, m.planes.meta, dst)
		return
	}
	p.split, g.z = 1, split
	sums := b.scratchOf(scratchParts, split*(wideRows-1)*int(p.outputs))
	b.traffic.Activations += 2 * 4 * int64(split*n) * int64(p.outputs) // scratch
	add(&b.commands, k, g, p, x, m.planes.plane0, m.planes.plane1, m.planes.meta, sums)
	add(&b.commands, b.kernels.projectSum, sumGrid(int(p.outputs), n),
		sumParams{rows: p.rows, outputs: p.outputs, parts: cUint(split), epilogue: epilogue}, sums, dst)
}

// Attention stores the keys and values of the rows and attends.
func (b *Backend) Attention(dst, q, k, v model.Buffer, a *model.Attention) {
	s, kv := a.Layout, &b.states[a.KV]
	b.attends = append(b.attends, a)
	p := prepareParams{
		heads: cUint(s.Heads), kvHeads: cUint(s.KVHeads), dim: cUint(s.HeadDim), gated: bit(s.Gated), qNorm: bit(a.QNorm != model.None),
		kNorm: bit(a.KNorm != model.None), tablePages: cUint(b.pages.width), epsilon: cFloat(b.layout.Epsilon),
	}
	if a.Rotate {
		p.pairs = cUint(s.RopeDim / 2)
	}
	keys, values, table, rows := kv.buffers[0].from(0), kv.buffers[1].from(0), b.pages.table.from(0), b.rowBuffer.from(0)
	add(&b.commands, b.kernels.prepare, prepareGrid(s.Heads+2*s.KVHeads, b.rows, s.HeadDim), p, b.at(q), b.at(k), b.at(v), b.vector(a.QNorm),
		b.vector(a.KNorm), b.freq.from(0), rows, table, keys, values)
	at := attentionParams{
		heads: p.heads, kvHeads: p.kvHeads, dim: p.dim, gated: p.gated, sinks: bit(a.Sinks != model.None), window: cUint(a.Window),
		tablePages: p.tablePages, scale: cFloat(1 / math.Sqrt(float64(s.HeadDim))),
	}
	blocks := table
	if a.Index != nil {
		blocks = b.choose(a.Index, &at)
	}
	add(&b.commands, b.kernels.attention, attentionGrid(s.Heads, b.rows, s.HeadDim), at, b.at(q), rows, table, keys, values,
		b.vector(a.Sinks), blocks, b.at(dst))
}

func bit(set bool) cUint {
	if set {
		return 1
	}
	return 0
}

// vector is a vector's values; for None, which the kernel's parameters say, any memory.
func (b *Backend) vector(v model.Vector) binding {
	if v == model.None {
		return b.freq.from(0)
	}
	return b.vectors[v].from(0)
}

// Conv convolves the rows of each segment.
func (b *Backend) Conv(dst, x model.Buffer, w model.Vector, s model.State) {
	channels := b.buffers[x].width
	b.traffic.States += 2 * int64(len(b.segments)) * int64(b.states[s].bytes[0])
	p := convParams{channels: cUint(channels), taps: cUint(b.vectors[w].Size() / 4 / channels)}
	add(&b.commands, b.kernels.conv, convGrid(channels, len(b.segments)), p, b.at(x), b.vectors[w].from(0), b.segmentBuffer.from(0),
		b.states[s].buffers[0].from(0), b.at(dst))
}

// chunks reports whether recurrent layers take some segment's rows in chunks.
func (b *Backend) chunks() bool { return b.chunked && b.longest() >= gdnChunk+gdnKept }

// GDN runs the gated delta rule over each segment.
func (b *Backend) GDN(dst, qkv, beta, alpha model.Buffer, g *model.GDN) {
	s := &b.states[g.State]
	b.traffic.States += int64(len(b.segments)) * int64(2*s.bytes[0]+s.bytes[1])
	p := gdnParams{
		keyHeads: cUint(g.Layout.KeyHeads), valueHeads: cUint(g.Layout.ValueHeads), epsilon: cFloat(b.layout.Epsilon),
	}
	heads := g.Layout.ValueHeads
	run := func(k *Kernel, grid grid) {
		add(&b.commands, k, grid, p, b.at(qkv), b.at(beta), b.at(alpha), b.vectors[g.Decay].from(0), b.vectors[g.Bias].from(0),
			b.segmentBuffer.from(0), s.buffers[0].from(0), s.buffers[1].from(0), b.at(dst))
	}
	if b.chunks() {
		p.chunked = 1
		run(b.kernels.gdnChunk, gdnChunkGrid(heads, len(b.segments)))
	}
	run(b.kernels.gdn, gdnGrid(heads, len(b.segments)))
}

// GatedNorm normalizes each head and gates it.
func (b *Backend) GatedNorm(dst, x, z model.Buffer, w model.Vector, sigmoid bool, _ []model.Matrix) {
	dim := b.vectors[w].Size() / 4
	heads := b.buffers[x].width / dim
	p := gatedNormParams{heads: cUint(heads), dim: cUint(dim), epsilon: cFloat(b.layout.Epsilon), sigmoid: bit(sigmoid)}
	add(&b.commands, b.kernels.gatedNorm, headGrid(heads, b.rows), p, b.at(x), b.at(z), b.vectors[w].from(0), b.at(dst))
}

// refuse makes the pass fail.
func (b *Backend) refuse(what string) {
	if b.err == nil {
		b.err = fmt.Errorf("metal: the metal backend does not run %s", what)
	}
}
