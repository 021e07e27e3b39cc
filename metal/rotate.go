//go:build cgo

package metal

import (
	"fmt"
	"unsafe"

	"splash/internal/model"
	"splash/planner"
)

// A rotation is the rotated input that stands in scratch: the projections of one input follow one another.
type rotation struct {
	signs *Buffer
	of    model.Buffer
	codes bool // there are codes of it
	at    int  // commands after the last projection
}

// keep says that a projection to dst was recorded.
func (r *rotation) keep(b *Backend, dst model.Buffer) {
	if r.signs == nil {
		return
	}
	r.at = b.commands.Len()
	if dst == r.of {
		r.signs = nil
	}
}

// rotation is the signs of a rotated tensor, as floats. Tensors of one width share them.
func (b *Backend) rotation(t *planner.Tensor) (*Buffer, error) {
	if len(t.Signs) != t.Cols || t.Cols%hadamardBlock != 0 {
		return nil, fmt.Errorf("metal: %s is rotated by %d signs over %d columns; the kernel takes one a column and blocks of %d",
			t.Name, len(t.Signs), t.Cols, hadamardBlock)
	}
	key := unsafe.String((*byte)(unsafe.Pointer(unsafe.SliceData(t.Signs))), len(t.Signs))
	if s := b.signs[key]; s != nil {
		return s, nil
	}
	s, err := b.device.NewBuffer(4 * len(t.Signs))
	if err != nil {
		return nil, err
	}
	for i, sign := range t.Signs {
		view[float32](s)[i] = float32(sign)
	}
	b.signs[string([]byte(key))] = s
	return s, nil
}

// rotate is H (D x) of n rows of x, in scratch until something else is recorded than projections of x.
func (b *Backend) rotate(x model.Buffer, signs *Buffer, n, width int) binding {
	to := b.scratchOf(scratchRotated, b.maxRows*width)
	if r := &b.rotated; r.signs != signs || r.of != x || r.at != b.commands.Len() {
		b.hadamard(to, b.at(x), signs, n, width, false)
		b.traffic.Activations += 4 * int64(n) * int64(width) // scratch
		*r = rotation{signs: signs, of: x}
	}
	return to
}

func (b *Backend) hadamard(dst, x binding, signs *Buffer, n, width int, inverse bool) {
	add(&b.commands, b.kernels.hadamard, grid{x: width / hadamardBlock, y: n, threads: 256, shared: 4 * hadamardBlock},
		hadamardParams{width: cUint(width), inverse: bit(inverse)}, x, signs.from(0), dst)
}

// Scratch of a pass, by what it holds.
const (
	scratchRotated = iota
	scratchOrder
	scratchTiles
	scratchWide
	scratchResults
	scratchNormed
	scratchLow
	scratchGates
	scratchNGram
	scratchConv
	scratchScores
	scratchBlocks
	scratchParts
	scratchCodes
	scratchScales
	scratchKinds
)

type scratchSet [scratchKinds]*Buffer

// scratchOf is room for n values of 4 bytes, which last until the next use of the same scratch.
func (b *Backend) scratchOf(kind, n int) binding {
	old := b.scratch[kind]
	if old != nil && old.Size() >= 4*n {
		return old.from(0)
	}
	if old != nil {
		n = max(n, old.Size()/2) // twice the room of before
	}
	larger, err := b.device.NewBuffer(4 * n)
	if err != nil {
		if b.err == nil {
			b.err = err
		}
		return b.freq.from(0) // nothing is run
	}
	if old != nil {
		b.moved()
		b.retired = append(b.retired, old) // commands of this pass may use it
	}
	b.scratch[kind] = larger
	return larger.from(0)
}

// release frees the scratch of passes before.
func (b *Backend) release() {
	for _, x := range b.retired {
		x.Free()
	}
	b.retired = b.retired[:0]
}
