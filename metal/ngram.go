//go:build cgo

package metal

import (
	"fmt"

	"splash/dequant"
	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// The table of hashed n-grams is larger than all other weights together, and a row of a pass reads a few hundred bytes of it.
// It stays in its file: the CPU gathers its rows.
const (
	ngramImage = "ple.bin"
	ngramTable = "per_layer_token_embd.weight"
)

// hostRows is a table that the CPU gathers from: of an image, or as stored.
type hostRows struct {
	file   *planner.ImageFile
	in     *planner.ImageTensor
	stored dequant.Matrix
}

func newHostRows(w planner.Weights, t *planner.Tensor, img *image, in *planner.ImageTensor) (*hostRows, error) {
	if in != nil {
		return &hostRows{file: img.file, in: in}, nil
	}
	stored, err := w.Matrices(t)
	if err != nil {
		return nil, err
	}
	if len(stored) != 1 || stored[0].Rows != t.Rows || stored[0].Cols != t.Cols {
		return nil, fmt.Errorf("metal: %s is not one matrix of %d x %d", t.Name, t.Rows, t.Cols)
	}
	return &hostRows{stored: stored[0]}, nil
}

func (r *hostRows) row(dst []float32, i int) {
	if r.in != nil {
		r.file.DecodeRow(r.in, dst, i)
		return
	}
	r.stored.DecodeRow(dst, i)
}

// ngramSet is what the n-gram layer keeps between its calls.
type ngramSet struct {
	hash    oracle.PLEHash
	ids     []int32 // of a lane, its last tokens and those of its segment
	context []int32
	rows    []uint64
}

// NGramState declares the rows that an n-gram layer's convolution keeps. The tokens are the lane's own.
func (b *Backend) NGramState(p *planner.PLELayout, width int) model.State {
	b.ngram = &ngramSet{
		hash:    oracle.PLEHash{EOS: p.EOS, Multipliers: p.Multipliers, Vocab: p.Vocab, Offsets: p.Offsets},
		context: make([]int32, p.NGram), rows: make([]uint64, (p.NGram-1)*p.Heads),
	}
	return b.declare(state{bytes: [2]int{4 * ngramKept * width}})
}

// remembered is the number of tokens that a lane keeps for the contexts of its next rows, those that may be taken back
// included.
const remembered = 32

// remember adds a segment's tokens to those that the lane keeps.
func (b *Backend) remember(l *lane, first, rows int) {
	if b.ngram == nil {
		return
	}
	for _, r := range view[rowInfo](b.rowBuffer)[first : first+rows] {
		l.tokens = append(l.tokens, int32(r.token))
	}
	if n := len(l.tokens); n > 8*remembered {
		l.tokens = l.tokens[:copy(l.tokens, l.tokens[n-remembered:])]
	}
}

// An ngramGather is one of the CPU's: the table rows of each token's n-grams.
type ngramGather struct {
	dst  model.Buffer
	rows *hostRows
	n    *model.NGram
}

// NGramRows gathers the table rows of each token's n-grams. What it writes is there when the pass runs.
func (b *Backend) NGramRows(dst model.Buffer, table model.Matrix, n *model.NGram) {
	if b.device.isDry() {
		return
	}
	g := ngramGather{dst, b.matrices[table].host, n}
	if g.rows == nil {
		b.refuse("a table of n-grams on the device")
		return
	}
	b.gathers = append(b.gathers, g)
	b.gather(&g)
}

func (b *Backend) gather(x *ngramGather) {
	g, dst, rows := b.ngram, x.dst, x.rows
	width, out := x.n.Layout.Width, view[float32](b.buffers[dst].Buffer)
	at := 0
	for i, slot := range b.segments {
		tokens := b.lanes[slot].tokens
		g.ids = append(g.ids[:0], tokens[max(0, len(tokens)-len(g.context)):]...)
		for range b.pending[i] {
			g.ids = append(g.ids, int32(view[rowInfo](b.rowBuffer)[at].token))
			g.hash.Context(g.context, g.ids)
			g.hash.Rows(g.rows, g.context)
			for j, id := range g.rows {
				rows.row(out[at*b.buffers[dst].width+j*width:][:width], int(id))
			}
			at++
		}
	}
}

// NGramAdd adds the n-gram embedding to the streams.
func (b *Backend) NGramAdd(streams, key, value model.Buffer, n *model.NGram) {
	width, all := b.buffers[value].width, b.buffers[streams].width
	p := ngramParams{
		streams: cUint(all / width), width: cUint(width), taps: cUint(n.Layout.Kernel), dilation: cUint(n.Layout.Dilation),
		epsilon: cFloat(b.layout.Epsilon),
	}
	b.traffic.States += 2 * int64(len(b.segments)) * int64(b.states[n.State].bytes[0])
	b.traffic.Activations += 4 * 4 * int64(b.rows) * int64(all) // scratch
	y, z := b.scratchOf(scratchNGram, b.maxRows*all), b.scratchOf(scratchConv, b.maxRows*all)
	add(&b.commands, b.kernels.ngramGate, streamGrid(all/width, b.rows), p, b.at(streams), b.at(key), b.at(value),
		b.vectors[n.KeyNorm].from(0), b.vectors[n.QueryNorm].from(0), b.vectors[n.ConvNorm].from(0), y, z)
	add(&b.commands, b.kernels.ngramConv, convGrid(all, len(b.segments)), p, y, z, b.vectors[n.Conv].from(0),
		b.segmentBuffer.from(0), b.states[n.State].buffers[0].from(0), b.at(streams))
}
