//go:build amd64 || arm64

package cpu

import (
	"encoding/binary"
	"math"
	"unsafe"

	"splash/dequant"
)

// A dotAssembly multiplies rows of weights by rows of activations, both a number of bytes apart, in blocks of 16 columns.
type dotAssembly func(acc *float32, lanes int, w *byte, stride int, x *float32, xStride, blocks int)

// dotKernels are those of one kind of weights: of one row of each, of four rows of weights, and of four of both, which may
// be nil.
type dotKernels struct{ one, four, square dotAssembly }

// dotFloats multiplies as many rows at once as there are kernels for, but short ones of weights one by one for a single row
// of activations: memory is read the fastest in one stream, and long ones are. A pair's product does not depend on how many.
func dotFloats(kernels *[4]dotKernels, acc []float32, w *floatRows, x []float32, stride, rows int) {
	k, size, blocks := &kernels[w.kind], elementBytes[w.kind], w.cols/16
	data := unsafe.Pointer(unsafe.SliceData(w.data))
	if w.kind == decodedRows {
		data = unsafe.Pointer(unsafe.SliceData(w.values))
	}
	for j := 0; j < w.rows; {
		n := 1
		if w.rows-j >= 4 && (rows > 1 || w.cols*size > streamBytes) {
			n = 4
		}
		at := (*byte)(unsafe.Add(data, j*w.cols*size))
		for r := 0; r < rows; {
			f, m := k.one, 1
			switch {
			case n == 4 && rows-r >= 4 && k.square != nil:
				f, m = k.square, 4
			case n == 4:
				f = k.four
			}
			if blocks > 0 {
				f(first(acc[r*w.lanes+j:]), w.lanes, at, w.cols*size, first(x[r*stride:]), 4*stride, blocks)
			}
			r += m
		}
		j += n
	}
	if w.cols%16 != 0 {
		dotRest(acc, w, x, stride, rows)
	}
}

// dotRest adds the columns after the last sixteen.
func dotRest(acc []float32, w *floatRows, x []float32, stride, rows int) {
	from := w.cols &^ 15
	for r := range rows {
		for j := range w.rows {
			var sum float32
			for i := from; i < w.cols; i++ {
				sum += w.at(j*w.cols+i) * x[r*stride+i]
			}
			if to := &acc[r*w.lanes+j]; from > 0 {
				*to += sum
			} else {
				*to = sum
			}
		}
	}
}

// at is weight i.
func (w *floatRows) at(i int) float32 {
	switch w.kind {
	case storedF32:
		return math.Float32frombits(binary.LittleEndian.Uint32(w.data[4*i:]))
	case storedF16:
		return dequant.FromF16(binary.LittleEndian.Uint16(w.data[2*i:]))
	case storedBF16:
		return dequant.FromBF16(binary.LittleEndian.Uint16(w.data[2*i:]))
	}
	return w.values[i]
}

// elementBytes is the size of a weight.
var elementBytes = [...]int{decodedRows: 4, storedF32: 4, storedF16: 2, storedBF16: 2}
