//go:build cgo

package metal

import (
	"splash/internal/model"
)

// streamParams are those of a buffer of streams, of rows so wide.
func (b *Backend) streamParams(streams model.Buffer, width int) hyperParams {
	return hyperParams{
		streams: cUint(b.buffers[streams].width / width), width: cUint(width), epsilon: cFloat(b.layout.Epsilon), scale: 1,
	}
}

// Expand writes x to every stream.
func (b *Backend) Expand(streams, x model.Buffer) {
	width := b.buffers[x].width
	add(&b.commands, b.kernels.expand, copyGrid(b.rows, width), b.streamParams(streams, width), b.at(x), b.at(streams))
}

// HyperRead reads the streams. The mean's 1 / streams, a power of two, is in what is normalized.
func (b *Backend) HyperRead(h, inject, streams model.Buffer, m *model.HyperMix) {
	width, all := b.buffers[h].width, b.buffers[streams].width
	p := b.streamParams(streams, width)
	p.scale = 1 / cFloat(p.streams)
	normed := b.scratchOf(scratchNormed, b.maxRows*all)
	low := b.scratchOf(scratchLow, b.maxRows*int(b.matrices[m.Down].params.outputs))
	gates := b.scratchOf(scratchGates, b.maxRows*all)
	b.traffic.Activations += 4 * int64(b.rows) * int64(6*all+2*int(b.matrices[m.Down].params.outputs)) // scratch
	add(&b.commands, b.kernels.groupedNorm, streamGrid(int(p.streams), b.rows), p, b.at(streams), b.vectors[m.Norm].from(0), normed)
	b.multiply(low, normed, &b.matrices[m.Down], b.rows, epilogueSiLU)
	b.multiply(gates, low, &b.matrices[m.Up], b.rows, epilogueStore)
	if m.Inject != model.NoMatrix {
		p.injects = 1
		b.multiply(b.at(inject), normed, &b.matrices[m.Inject], b.rows, epilogueStore)
	}
	add(&b.commands, b.kernels.mix, copyGrid(b.rows, width), p, normed, gates, b.at(inject), b.at(h))
}

// HyperWrite writes to the streams.
func (b *Backend) HyperWrite(streams, y, inject model.Buffer) {
	width := b.buffers[y].width
	add(&b.commands, b.kernels.write, copyGrid(b.rows, width), b.streamParams(streams, width), b.at(y), b.at(inject), b.at(streams))
}

// StreamMean writes the mean of the streams.
func (b *Backend) StreamMean(dst, streams model.Buffer) {
	width := b.buffers[dst].width
	add(&b.commands, b.kernels.mean, copyGrid(b.rows, width), b.streamParams(streams, width), b.at(streams), b.at(dst))
}

// streamGrid is that of kernels that take a stream of a row a threadgroup.
func streamGrid(streams, rows int) grid { return grid{x: streams, y: rows, threads: 256, shared: 128} }
