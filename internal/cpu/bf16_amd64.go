package cpu

// bf16Rounded rounds activations once. A product of two bfloat16 numbers is exact, and so is not what is lost.
var bf16Rounded = bf16Kernels{terms: 1, split: roundRows, product: dotRounded}

func roundRows(dst []uint16, x []float32, stride, rows, cols int) {
	for r := range rows {
		roundRowBF16(first(dst[r*cols:]), first(x[r*stride:]), cols/unit)
	}
}

// dotRounded multiplies as many rows at once as there are kernels for, but of weights one by one for a single row of
// activations: memory is read the fastest in one stream. A pair's product does not depend on how many.
func dotRounded(_ *worker, acc []float32, weights []byte, rows int, in *input) {
	size := len(weights) / rows
	cols := size / 2
	for j := 0; j < rows; {
		n, f := 1, dotBF16w1r1
		if rows-j >= 4 && in.rows > 1 {
			n, f = 4, dotBF16w4r1
		}
		for r := 0; r < in.rows; {
			f, m := f, 1
			if n == 4 && in.rows-r >= 4 {
				f, m = dotBF16w4r4, 4
			}
			f(first(acc[r*lanes512+j:]), lanes512, first(weights[j*size:]), size, first(in.halves[r*cols:]), size, cols/unit)
			r += m
		}
		j += n
	}
}

// bf16Split takes activations as they are, on tiles.
var bf16Split = bf16Kernels{terms: 3, exact: true, split: splitRows, product: dotSplit}

func splitRows(dst []uint16, x []float32, stride, rows, cols int) {
	for r := range rows {
		splitRowBF16(first(dst[2*r:]), first(x[r*stride:]), cols/unit, 4*rows, 2*rows*cols)
	}
}

// bf16Scratch is a worker's, of dotSplit.
type bf16Scratch struct {
	config       [64]byte
	sums, turned []float32
}

// dotSplit multiplies group after group. The weights are the rows of the products' tiles, which are then turned.
func dotSplit(w *worker, acc []float32, weights []byte, rows int, in *input) {
	s := &w.bf16
	if s.sums == nil {
		s.sums, s.turned = floats(tileRows*lanes512), floats(tileRows*lanes512)
	}
	size := len(weights) / rows
	cols := size / 2
	for at := 0; at < in.rows; at += tileRows {
		n := min(tileRows, in.rows-at)
		s.configure(rows, n)
		tilesBF16(first(s.sums), &s.config[0], first(weights), size, first(in.halves[3*at*cols:]), 4*n, 2*n*cols, cols/unit,
			len(weights))
		interleave512(bytesOf(s.turned), bytesOf(s.sums), 4*tileRows, tileRows, 0)
		copy(acc[at*lanes512:(at+n)*lanes512], s.turned)
	}
}

// configure sets the shapes of tiles 0 to 2, sums, 3 to 5, activations, and 6, weights, which LDTILECFG reads.
func (s *bf16Scratch) configure(weights, rows int) {
	s.config[0] = 1 // the palette
	for t := range 7 {
		bytes, height := 4*rows, weights
		switch {
		case t == 6:
			bytes = 2 * unit
		case t >= 3:
			height = unit / 2
		}
		s.config[16+2*t], s.config[48+t] = byte(bytes), byte(height)
	}
}
