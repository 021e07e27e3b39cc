package cpu

import "splash/dequant"

// floatRows are rows of weights, one after another: float32 values, or as they are stored.
type floatRows struct {
	kind       floatKind
	values     []float32 // of decodedRows
	data       []byte    // of the other kinds
	rows, cols int
	lanes      int // of the accumulators
}

// dotLanes is the number of partial sums of a product of floats: column i goes to sum i mod dotLanes, in order. They are
// added in halves: l and l+8, l and l+4, l and l+2, l and l+1.
const dotLanes = 16

// floatProduct writes the products of rows of a matrix and all rows of an input to acc, [input rows][lanes].
func (b *Backend) floatProduct(w *worker, acc []float32, m *matrix, in *input, row, rows int) {
	r := &w.floats
	*r = floatRows{cols: m.cols, lanes: b.k.lanes}
	if m.floats != decodedRows && b.k.readsFloats {
		n := m.stored.Format.RowBytes(m.cols)
		r.kind, r.rows, r.data = m.floats, rows, m.stored.Data[row*n:(row+rows)*n]
		b.k.dot(acc, r, in.x, in.stride, in.rows)
		return
	}
	for at := 0; at < rows; at += decodedAtOnce {
		r.rows = min(decodedAtOnce, rows-at)
		r.values = w.rowOf(r.rows * m.cols)
		for i := range r.rows {
			b.k.decodeRow(r.values[i*m.cols:(i+1)*m.cols], &m.stored, row+at+i)
		}
		b.k.dot(acc[at:], r, in.x, in.stride, in.rows)
	}
}

func (k *kernels) decodeRow(dst []float32, m *dequant.Matrix, row int) {
	if k.decode == nil {
		m.DecodeRow(dst, row)
		return
	}
	k.decode(dst, m, row)
}

// decodedAtOnce is the number of rows of weights that a kernel multiplies together.
const decodedAtOnce = 4

// dotGeneric is the product of float32 values.
func dotGeneric(acc []float32, w *floatRows, x []float32, stride, rows int) {
	for r := range rows {
		in := x[r*stride : r*stride+w.cols]
		for j := range w.rows {
			acc[r*w.lanes+j] = w.dot(j, in)
		}
	}
}

func (w *floatRows) dot(j int, x []float32) float32 {
	var s [dotLanes]float32
	row := w.values[j*w.cols : (j+1)*w.cols]
	for ; len(x) >= dotLanes; x, row = x[dotLanes:], row[dotLanes:] {
		in, v := (*[dotLanes]float32)(x), (*[dotLanes]float32)(row)
		for i := range s {
			s[i] += v[i] * in[i]
		}
	}
	for i, v := range x {
		s[i] += row[i] * v
	}
	return fold(&s)
}

// fold adds partial sums in halves.
func fold(s *[dotLanes]float32) float32 {
	for n := dotLanes / 2; n > 0; n /= 2 {
		for i := range n {
			s[i] += s[i+n]
		}
	}
	return s[0]
}
