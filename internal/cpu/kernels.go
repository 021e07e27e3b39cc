package cpu

import (
	"unsafe"

	"splash/dequant"
)

// kernels are the loops of one level. Every one has its truth in plain Go, in a file of its stem that ends in _generic.go;
// tables of tests run both.
type kernels struct {
	level Level

	// lanes is the number of rows of weights in a tile, which its accumulators lie side by side for.
	lanes int
	// panels are the numbers of rows of activations that product multiplies at once, falling to 1.
	panels []int

	// form completes a format's form for the level.
	form func(f *blockFormat, m *dequant.Matrix)
	// quantize rounds a panel of rows of activations to 8 bits (quantize_generic.go).
	quantize func(p *panel, x []float32, stride int)
	// unpack fills the worker's tile with columns of up to lanes rows of a matrix (unpack_generic.go).
	unpack func(w *worker, m *matrix, row, rows, unit, units int)
	// product adds the products of a tile's columns and those of a panel to acc, [panel rows][lanes] (product_generic.go).
	product func(acc []float32, t *tile, p *panel, unit int)

	// fused adds the products of lanes rows of a matrix and one row of activations to acc, with the bits of unpack and
	// product, and reports whether it has a way to; nil: it never has.
	fused func(w *worker, acc []float32, m *matrix, in *input, row int) bool
	// piped adds the products of tiles of lanes rows of a matrix and a panel of pipedRows rows to acc, [tiles][rows][lanes],
	// likewise.
	piped func(w *worker, acc []float32, m *matrix, in *input, row, tiles int) bool
	// together adds the products of a tile's columns and those of panels of tileRows rows, all at once, to acc,
	// [panels][tileRows][lanes]; nil: the level has no such panels.
	together func(acc []float32, t *tile, panels []panel, unit int)
	// exact adds the products of a tile's columns and those of an input's rows as they are to acc, [rows][lanes]; nil: the
	// level decodes rows and multiplies them by dot.
	exact func(acc []float32, t *tile, f *blockFormat, in *input, unit int)

	// dot writes the products of float32 weights and rows of activations to acc, [rows][lanes] (dot_generic.go).
	dot func(acc []float32, w *floatRows, x []float32, stride, rows int)
	// decode is Matrix.DecodeRow, bit for bit, for the formats whose rows are decoded before dot; nil: that itself.
	decode func(dst []float32, m *dequant.Matrix, row int)
	// bf16 are products of BF16 weights with activations in bfloat16 numbers; nil: dot makes them.
	bf16 *bf16Kernels
	// readsFloats says that dot reads weights of every floatKind as they are stored, and not decoded ones alone.
	readsFloats bool

	// put writes the results of tiles, [tiles][rows][lanes], to rows of dst, or adds them; nil: the level does it in Go.
	put func(dst []float32, width int, acc []float32, rows, tiles int, add bool)

	// sumSquares is the sum of x_i^2; norm writes x_i scale w_i (norm_generic.go).
	sumSquares func(x []float32) float32
	norm       func(dst, x, w []float32, scale float32)
	// swish writes silu(gate_i) up_i; gate multiplies x_i by sigmoid(gate_i) (activation_generic.go).
	swish func(dst, gate, up []float32)
	gate  func(x, gate []float32)
	// scale multiplies x, addScaled adds scale times x to dst (vector_generic.go).
	scale     func(x []float32, scale float32)
	addScaled func(dst, x []float32, scale float32)

	// conv is the convolution of channels of one row (conv_generic.go).
	conv func(dst, w []float32, stride int, taps [][]float32)

	// gdnStep is a row of the gated delta rule for a strip of values, gdnReplay an update alone; what step fetches is where
	// the next strip begins (gdn_generic.go).
	gdnStep   func(dst, src []float32, before *gdnUpdate, r *gdnRow, ahead []float32)
	gdnReplay func(dst, src []float32, u *gdnUpdate)
	// fetch fetches what is read soon; nil: the level leaves that to gdnStep.
	fetch func(x []float32)

	// scores writes those of queries for the first tokens of a page, values adds their weighted values to folds; most is
	// the largest of some scores, soften turns them into weights and sums these (attention_generic.go).
	scores func(scores, q []float32, queries int, keys []uint16, dim, tokens int)
	values func(folds, weights []float32, queries int, values []uint16, dim, tokens int)
	most   func(x []float32) float32
	soften func(x []float32, most float32) float32

	// peak multiplies in registers and returns how many numbers it did: what kernels are measured beside. nil: no vectors.
	peak func(rounds int, integers bool) int
}

// pipedRows is the number of rows of activations that piped takes: those that a cycle verifies.
const pipedRows = 8

// cacheLine is the alignment of what kernels read.
const cacheLine = 64

// floats returns n values of zero that begin on a cache line.
func floats(n int) []float32 { return aligned[float32](n) }

func aligned[T float32 | int8 | uint8 | int32 | uint16](n int) []T {
	var zero T
	size := int(unsafe.Sizeof(zero))
	all := make([]T, n+cacheLine/size)
	skip := 0
	if off := int(uintptr(unsafe.Pointer(unsafe.SliceData(all))) % cacheLine); off != 0 {
		skip = (cacheLine - off) / size
	}
	return all[skip : skip+n : skip+n]
}

// grown returns x with room for n values, whose contents are lost when it has none.
func grown[T float32 | int8 | uint8 | int32 | uint16](x []T, n int) []T {
	if cap(x) < n {
		return aligned[T](n)
	}
	return x[:n]
}
