package vision

import (
	"math"

	"splash/dequant"
	"splash/oracle"
)

// wideRows is how many rows of a matrix are widened at once.
const wideRows = 4

// apply writes W x + b for each row of x to dst.
func (a *affine) apply(w *worker, dst, x []float32) {
	n, cols := len(x)/a.cols, a.cols
	w.weights = grown(w.weights, wideRows*cols)
	for first := 0; first < a.rows; first += wideRows {
		count := min(wideRows, a.rows-first)
		for i, bits := range a.weight[first*cols : (first+count)*cols] {
			w.weights[i] = dequant.FromBF16(bits)
		}
		clear(w.weights[count*cols:])
		for r := range n {
			sums := dot4(x[r*cols:(r+1)*cols], w.weights)
			for i := range count {
				dst[r*a.rows+first+i] = sums[i] + a.bias[first+i]
			}
		}
	}
}

// dot4 is the products of x and four rows of its width, each summed in two parts, of even and of odd elements.
func dot4(x, rows []float32) (sums [wideRows]float32) {
	n := len(x)
	w0, w1, w2, w3 := rows[:n], rows[n:2*n], rows[2*n:3*n], rows[3*n:4*n]
	var a0, a1, a2, a3, b0, b1, b2, b3 float32
	i := 0
	for ; i+1 < n; i += 2 {
		x0, x1 := x[i], x[i+1]
		a0 += x0 * w0[i]
		a1 += x0 * w1[i]
		a2 += x0 * w2[i]
		a3 += x0 * w3[i]
		b0 += x1 * w0[i+1]
		b1 += x1 * w1[i+1]
		b2 += x1 * w2[i+1]
		b3 += x1 * w3[i+1]
	}
	for ; i < n; i++ {
		a0 += x[i] * w0[i]
		a1 += x[i] * w1[i]
		a2 += x[i] * w2[i]
		a3 += x[i] * w3[i]
	}
	return [wideRows]float32{a0 + b0, a1 + b1, a2 + b2, a3 + b3}
}

// dot is the product of a and b, summed in four parts.
func dot(a, b []float32) float32 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float32
	i := 0
	for ; i+3 < len(a); i += 4 {
		s0 += a[i] * b[i]
		s1 += a[i+1] * b[i+1]
		s2 += a[i+2] * b[i+2]
		s3 += a[i+3] * b[i+3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return (s0 + s2) + (s1 + s3)
}

// apply writes the LayerNorm of each row of x to dst, its statistics in float64.
func (n *norm) apply(dst, x []float32, eps float64) {
	width := len(n.weight)
	for at := 0; at < len(x); at += width {
		row := x[at : at+width]
		var mean, variance float64
		for _, v := range row {
			mean += float64(v)
		}
		mean /= float64(width)
		for _, v := range row {
			variance += (float64(v) - mean) * (float64(v) - mean)
		}
		inv := 1 / math.Sqrt(variance/float64(width)+eps)
		for i, v := range row {
			dst[at+i] = float32((float64(v)-mean)*inv*float64(n.weight[i]) + float64(n.bias[i]))
		}
	}
}

func frequencies(dim int) []float64 { return oracle.VisionFrequencies(dim) }

// angles finds how the heads of a patch are turned (oracle.VisionRope).
func (w *worker) angles(row, col int, freq []float64) {
	w.sin, w.cos = w.sin[:0], w.cos[:0]
	for _, place := range [2]int{row, col} {
		for _, f := range freq {
			sin, cos := math.Sincos(float64(place) * f)
			w.sin, w.cos = append(w.sin, sin), append(w.cos, cos)
		}
	}
}

// rotate turns a head by the angles.
func (w *worker) rotate(x []float32) {
	half := len(w.sin)
	for i, sin := range w.sin {
		cos := w.cos[i]
		a, b := float64(x[i]), float64(x[i+half])
		x[i], x[i+half] = float32(a*cos-b*sin), float32(b*cos+a*sin)
	}
}

// softmax replaces scores by their weights, which are summed in float64.
func softmax(s []float32) {
	most := float32(math.Inf(-1))
	for _, v := range s {
		most = max(most, v)
	}
	var sum float64
	for i, v := range s {
		e := math.Exp(float64(v) - float64(most))
		s[i] = float32(e)
		sum += e
	}
	inv := float32(1 / sum)
	for i := range s {
		s[i] *= inv
	}
}

func geluTanh(x float32) float32 { return float32(oracle.GELUTanh(float64(x))) }
func geluErf(x float32) float32  { return float32(oracle.GELUErf(float64(x))) }

func add(dst, x []float32) {
	for i := range dst {
		dst[i] += x[i]
	}
}
