package vision

import (
	"math"

	"splash/dequant"
	"splash/oracle"
)

// wideRows is how many rows of a matrix are widened at once.
const wideRows = 4

// apply writes W x + b for each row of x to dst.
func (t *Tower) apply(a *affine, w *worker, dst, x []float32) {
	if t.host != nil {
		t.host.BF16(dst, a.weight, a.cols, x)
	} else {
		a.multiply(w, dst, x)
	}
	for ; len(dst) > 0; dst = dst[a.rows:] {
		add(dst[:a.rows], a.bias)
	}
}

// multiply writes W x for each row of x.
func (a *affine) multiply(w *worker, dst, x []float32) {
	w.weights = grown(w.weights, wideRows*a.cols)
	for first := 0; first < a.rows; first += wideRows {
		count := min(wideRows, a.rows-first)
		for i, bits := range a.weight[first*a.cols : (first+count)*a.cols] {
			w.weights[i] = dequant.FromBF16(bits)
		}
		multiply4(dst[first:], a.rows, w.weights, count, a.cols, x)
	}
}

// products writes W x for each row of x, of a matrix of float32 values.
func (t *Tower) products(dst, w []float32, cols int, x []float32) {
	if t.host != nil {
		t.host.Floats(dst, w, cols, x)
		return
	}
	rows := len(w) / cols
	for first := 0; first < rows; first += wideRows {
		multiply4(dst[first:], rows, w[first*cols:], min(wideRows, rows-first), cols, x)
	}
}

// multiply4 writes the products of up to four rows of weights and each row of x, stride apart.
func multiply4(dst []float32, stride int, w []float32, count, cols int, x []float32) {
	for r := range len(x) / cols {
		row := x[r*cols : (r+1)*cols]
		if count == wideRows {
			*(*[wideRows]float32)(dst[r*stride:]) = dot4(row, w)
			continue
		}
		for i := range count {
			dst[r*stride+i] = dot(row, w[i*cols:(i+1)*cols])
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

// soften replaces scores by their exponentials, less the largest, and returns the sum.
func (t *Tower) soften(s []float32) float32 {
	if t.host != nil {
		return t.host.Soften(s)
	}
	most := float32(math.Inf(-1))
	for _, v := range s {
		most = max(most, v)
	}
	var sum float64
	for i, v := range s {
		s[i] = float32(math.Exp(float64(v) - float64(most)))
		sum += float64(s[i])
	}
	return float32(sum)
}

func geluTanh(x float32) float32 { return float32(oracle.GELUTanh(float64(x))) }
func geluErf(x float32) float32  { return float32(oracle.GELUErf(float64(x))) }

func add(dst, x []float32) {
	for i := range dst {
		dst[i] += x[i]
	}
}
