package dequant

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkDecode decodes 64K elements of every format; the speed is that of the F32 output.
func BenchmarkDecode(b *testing.B) {
	for _, c := range decoders() {
		b.Run(c.name, func(b *testing.B) {
			dst := make([]float32, c.matrix.Cols)
			b.SetBytes(int64(4 * len(dst)))
			for b.Loop() {
				c.matrix.DecodeRow(dst, 0)
			}
		})
	}
}

type decoder struct {
	name   string
	matrix Matrix
}

// decoders is one row of every form that a matrix takes, with ordinary scales and random codes.
func decoders() []decoder {
	const cols = 1 << 16
	rng := rand.New(rand.NewPCG(1, 2))
	var all []decoder
	for _, f := range Formats() {
		if !f.Decodes() {
			continue
		}
		blocks := randomBytes(rng, f.RowBytes(cols))
		for at := 0; at < len(blocks); at += f.Bytes {
			tame(f, blocks[at:][:f.Bytes], rng)
		}
		all = append(all, decoder{f.Name, Matrix{Format: f, Rows: 1, Cols: cols, Data: blocks}})
		if f.apart == nil {
			continue
		}
		m := Matrix{Format: f, Rows: 1, Cols: cols, Data: randomBytes(rng, cols*f.apart.bits/8)}
		groups := cols / f.apart.group
		m.Scales = randomScales(rng, groups, f.apart.scaleBytes)
		m.Biases = randomScales(rng, groups, f.apart.biasBytes)
		if f.apart.global {
			m.Global = []float32{0.01}
		}
		all = append(all, decoder{f.Name + "/apart", m})
	}
	return all
}
