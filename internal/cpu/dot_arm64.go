package cpu

import "unsafe"

var dotsNEON = [4]dotKernels{
	decodedRows: {dotNEONF32w1r1, dotNEONF32w4r1, squareOf(dotNEONF32w2r2)},
	storedF32:   {dotNEONF32w1r1, dotNEONF32w4r1, squareOf(dotNEONF32w2r2)},
	storedF16:   {dotNEONF16w1r1, dotNEONF16w4r1, squareOf(dotNEONF16w2r2)},
	storedBF16:  {dotNEONBF16w1r1, dotNEONBF16w4r1, squareOf(dotNEONBF16w2r2)},
}

// squareOf multiplies four rows by four, two by two: the sums of more are not in registers all at once.
func squareOf(two dotAssembly) dotAssembly {
	return func(acc *float32, lanes int, w *byte, stride int, x *float32, xStride, blocks int) {
		for r := range 2 {
			for j := range 2 {
				to := (*float32)(unsafe.Add(unsafe.Pointer(acc), 4*(2*r*lanes+2*j)))
				in := (*float32)(unsafe.Add(unsafe.Pointer(x), 2*r*xStride))
				two(to, lanes, (*byte)(unsafe.Add(unsafe.Pointer(w), 2*j*stride)), stride, in, xStride, blocks)
			}
		}
	}
}

// streamBytes is the size of rows that are multiplied one by one: none, until it is measured.
const streamBytes = 0
