package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"splash/dequant"
)

// randomMatrix fills a matrix of the format with random blocks whose values are all finite.
func randomMatrix(t testing.TB, f *dequant.Format, rows, cols int, r *rand.Rand) dequant.Matrix {
	t.Helper()
	m := dequant.Matrix{Format: f, Rows: rows, Cols: cols, Data: make([]byte, rows*f.RowBytes(cols))}
	values := make([]float32, f.Block)
	for at := 0; at < len(m.Data); at += f.Bytes {
		b := m.Data[at : at+f.Bytes]
		for ok := false; !ok; {
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			f.Decode(values, b)
			ok = true
			for _, v := range values {
				ok = ok && math.Abs(float64(v)) < 1e6 && !(v != 0 && math.Abs(float64(v)) < 1e-12)
			}
		}
	}
	return m
}

// apartMatrix is a matrix of codes with scales and biases apart.
func apartMatrix(f *dequant.Format, rows, cols int, r *rand.Rand) dequant.Matrix {
	bytes := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	halves := func(n int) []byte { // BF16 near 1
		b := make([]byte, 2*n)
		for i := range n {
			v := dequant.ToBF16(float32(r.NormFloat64()))
			b[2*i], b[2*i+1] = byte(v), byte(v>>8)
		}
		return b
	}
	m := dequant.Matrix{Format: f, Rows: rows, Cols: cols}
	if bits, group, ok := f.Type.Affine(); ok {
		m.Data, m.Scales, m.Biases = bytes(rows*cols*bits/8), halves(rows*cols/group), halves(rows*cols/group)
		return m
	}
	group := 16
	if f.Type == dequant.MXFP4 {
		group = 32
	}
	m.Data, m.Scales = bytes(rows*cols/2), bytes(rows*cols/group)
	for i := range m.Scales {
		m.Scales[i] = 100 + m.Scales[i]%50
	}
	if f.Type == dequant.NVFP4Rows {
		m.Global = []float32{0.75, 1.5}
	}
	return m
}

// blockMatrices is a matrix of every format that is multiplied in integers, in every form it comes in.
func blockMatrices(t testing.TB, rows, cols int, r *rand.Rand) []dequant.Matrix {
	var all []dequant.Matrix
	for _, f := range dequant.Formats() {
		if f.Decodes() && f.Block > 1 && f.Type != dequant.FP8Rows {
			all = append(all, randomMatrix(t, f, rows, cols, r))
		}
		if _, _, ok := f.Type.Affine(); ok || f.Type == dequant.MXFP4 || f.Type == dequant.NVFP4Rows {
			all = append(all, apartMatrix(f, rows, cols, r))
		}
	}
	scaled := randomMatrix(t, dequant.Lookup(dequant.NVFP4), rows, cols, r)
	scaled.Global = []float32{0.75, 1.5}
	return append(all, scaled)
}

// TestBlocks holds the codes, scales and minima of every format to package dequant: code scale - min is the value, to the
// bit where the format has no minimum, and to the rounding of one F32 sum where it has.
func TestBlocks(t *testing.T) {
	const rows, cols = 4, 768
	r := rand.New(rand.NewPCG(1, 2))
	for _, m := range blockMatrices(t, rows, cols, r) {
		f := blocksOf(&m)
		if f == nil {
			t.Errorf("%s is not multiplied in integers", m.Format)
			continue
		}
		want, n := make([]float32, cols), &natural{}
		for row := range rows {
			m.DecodeRow(want, row)
			for at := 0; at < cols/unit; at += spanUnits {
				units := min(spanUnits, cols/unit-at)
				f.unpack(n, &m, row, at, units)
				for i := range units * unit {
					g := i / f.group
					product := float32(int8(n.codes[i])) * n.scales[g]
					got, bound := product, float32(0)
					if f.minima {
						got = product - n.mins[g]
						bound = 0x1p-23 * float32(math.Abs(float64(product))+2*math.Abs(float64(n.mins[g])))
					}
					if d := got - want[at*unit+i]; !(d <= bound && d >= -bound) {
						t.Fatalf("%s (apart %t) row %d element %d: %v, want %v", m.Format, m.Scales != nil, row, at*unit+i, got, want[at*unit+i])
					}
				}
			}
		}
	}
}
