//go:build cgo

package metal

import (
	"errors"
	"fmt"
	"math"

	"splash/dequant"
	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// draftSet is what a backend with a draft has beside its target's.
type draftSet struct {
	rows, taps, conv, heads, store, attention *Kernel

	sources *Buffer // of each row of a context pass, its row in the target's pass
	freq    *Buffer
	theta   float64 // that freq is of
}

// LoadDraft gives the backend a draft's images, which stay open until Close. It comes before model.NewDraft.
func (b *Backend) LoadDraft(images *planner.Images) error {
	if b.draft.sources != nil {
		return errors.New("metal: a second draft")
	}
	for name, k := range map[string]**Kernel{
		"draft_rows": &b.draft.rows, "draft_taps": &b.draft.taps, "draft_conv": &b.draft.conv, "draft_heads": &b.draft.heads,
		"draft_store": &b.draft.store, "draft_attention": &b.draft.attention,
	} {
		var err error
		if *k, err = b.device.Kernel(name); err != nil {
			return err
		}
	}
	return errors.Join(b.wrap(images), allocate[uint32](b, &b.draft.sources, b.maxRows),
		allocate[float32](b, &b.draft.freq, draftDim/2))
}

// rounded reports whether an image holds a tensor in 4 bits that was asked for as it is stored.
func rounded(t *planner.Tensor, in *planner.ImageTensor) bool {
	return t.Type == dequant.BF16 && t.Conversion != planner.ToAffine4 && in.Type == dequant.Affine(4, 64)
}

// DraftState declares a layer's rings.
func (b *Backend) DraftState(window, kvHeads, dim int) model.State {
	if dim != draftDim {
		b.refuse(fmt.Sprintf("a draft's heads of %d", dim))
	}
	bytes := 2 * window * kvHeads * dim
	return b.declare(state{ring: window, bytes: [2]int{bytes, bytes}})
}

// longest is the number of rows of the longest segment.
func (b *Backend) longest() (rows int) {
	for _, n := range b.pending {
		rows = max(rows, n)
	}
	return rows
}

// DraftRows gathers the table's rows of a block and rounds them, or puts the mask's embedding in their place.
func (b *Backend) DraftRows(dst model.Buffer, table model.Matrix, mask model.Vector) {
	b.Embed(dst, table)
	width := b.buffers[dst].width
	add(&b.commands, b.draft.rows, segmentGrid(width, len(b.segments)),
		draftRowsParams{width: cUint(width), mask: bit(mask != model.None)}, b.at(dst), b.vector(mask), b.segmentBuffer.from(0))
}

// DraftTaps puts the rows of the taps beside each other.
func (b *Backend) DraftTaps(dst model.Buffer, taps []model.Buffer) {
	offset := 0
	for _, tap := range taps {
		width := b.buffers[tap].width
		add(&b.commands, b.draft.taps, copyGrid(b.rows, width),
			draftTapsParams{width: cUint(width), stride: cUint(b.buffers[dst].width), offset: cUint(offset)},
			b.at(tap), b.draft.sources.from(0), b.at(dst))
		offset += width
	}
}

// draftHeads are the parameters of a draft's attention.
func (b *Backend) draftHeads(a *model.DraftAttention) draftHeadsParams {
	if a.Dim != draftDim || a.Heads != draftPerKV*a.KVHeads {
		b.refuse(fmt.Sprintf("a draft's %d heads of %d over %d", a.Heads, a.Dim, a.KVHeads))
	}
	if b.draft.theta != a.Theta {
		copy(view[float32](b.draft.freq), oracle.RopeFrequencies(a.Theta, a.Dim))
		b.draft.theta = a.Theta
	}
	return draftHeadsParams{
		kvHeads: cUint(a.KVHeads), window: cUint(a.Window), epsilon: cFloat(a.Epsilon), scale: cFloat(1 / math.Sqrt(float64(a.Dim))),
	}
}

// DraftStore fills the rings.
func (b *Backend) DraftStore(k, v model.Buffer, a *model.DraftAttention) {
	s := &b.states[a.State]
	add(&b.commands, b.draft.store, grid{x: 2 * a.KVHeads, y: b.longest(), z: len(b.segments), threads: 32}, b.draftHeads(a),
		b.at(k), b.at(v), b.vectors[a.KNorm].from(0), b.draft.freq.from(0), b.segmentBuffer.from(0), s.buffers[0].from(0),
		s.buffers[1].from(0))
}

// DraftConv convolves each segment.
func (b *Backend) DraftConv(dst, x, kernel model.Buffer, base model.Vector, side, group int, e model.Epilogue) {
	hidden := b.buffers[x].width
	p := draftConvParams{hidden: cUint(hidden), group: cUint(group), side: cUint(side), add: bit(e == model.Add)}
	add(&b.commands, b.draft.conv, segmentGrid(hidden, len(b.segments)), p, b.at(x), b.at(kernel), b.vectors[base].from(0),
		b.segmentBuffer.from(0), b.at(dst))
}

// DraftAttention attends in each segment.
func (b *Backend) DraftAttention(dst, q, k, v model.Buffer, a *model.DraftAttention) {
	p, s := b.draftHeads(a), &b.states[a.State]
	add(&b.commands, b.draft.heads, headGrid(a.Heads+a.KVHeads, b.rows), p, b.at(q), b.at(k), b.vectors[a.QNorm].from(0),
		b.vectors[a.KNorm].from(0), b.draft.freq.from(0), b.rowBuffer.from(0))
	add(&b.commands, b.draft.attention, draftAttentionGrid(a.KVHeads, b.longest(), len(b.segments)), p, b.at(q), b.at(k), b.at(v),
		b.segmentBuffer.from(0), s.buffers[0].from(0), s.buffers[1].from(0), b.at(dst))
}

// segmentGrid is that of kernels that take a channel of a segment a thread.
func segmentGrid(channels, segments int) grid {
	return grid{x: (channels + 255) / 256, y: segments, threads: 256}
}

func draftAttentionGrid(kvHeads, rows, segments int) grid {
	return grid{x: kvHeads, y: rows, z: segments, threads: 128, shared: 4 * 4 * draftPerKV * (draftDim + 2)}
}
