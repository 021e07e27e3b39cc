//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"splash/dequant"
	"splash/planner"
)

// repackedTypes are those whose planes are made of the bits of a GGUF's rows.
var repackedTypes = []dequant.Type{
	dequant.Q4_0, dequant.Q4_1, dequant.Q5_0, dequant.Q5_1, dequant.Q8_0, dequant.Q2_K, dequant.Q3_K, dequant.Q4_K, dequant.Q5_K,
	dequant.Q6_K, dequant.IQ4NL, dequant.IQ4XS, dequant.MXFP4, dequant.PQ2_0, dequant.Q2_0, dequant.IQ1S, dequant.IQ1M,
	dequant.IQ2XXS, dequant.IQ2XS, dequant.IQ2S, dequant.IQ3XXS, dequant.IQ3S, dequant.BF16, dequant.F16,
}

// TestRepack holds planes that the device makes of any bytes to those of the planner's writer, bit for bit: rows in another order,
// and a tile that they do not fill.
func TestRepack(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(43, 1))
	b.kernel("repack") // by Repack
	for _, kind := range repackedTypes {
		const rows, cols = 100, 512
		m := anyBytes(rng, kind, rows, cols)
		got, err := Repack(b.Device, &m, func(n int) int { return (37*n + 5) % rows })
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		ordered := dequant.Matrix{Format: m.Format, Rows: 128, Cols: cols}
		size := len(m.Data) / rows
		for n := range rows {
			ordered.Data = append(ordered.Data, m.Data[(37*n+5)%rows*size:][:size]...)
		}
		ordered.Data = append(ordered.Data, make([]byte, 28*size)...)
		image := planes(t, map[string]dequant.Matrix{"w": ordered})
		in := image.Tensor("w")
		checkRepacked(t, got, image, in, rows)
		got.Memory.Free()
	}
	for _, kind := range []dequant.Type{dequant.NVFP4, dequant.F32} {
		m := anyBytes(rng, kind, 64, 256)
		if _, err := Repack(b.Device, &m, func(n int) int { return n }); err == nil || !strings.Contains(err.Error(), "planes") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// checkRepacked holds the units of the rows that the source has to the image's.
func checkRepacked(t *testing.T, p *Planes, image *planner.ImageFile, in *planner.ImageTensor, rows int) {
	t.Helper()
	f := p.Format
	for name, s := range map[string]struct {
		got, want planner.Section
		size      int
	}{"plane 0": {p.Plane0, in.Plane0, f.Plane0}, "plane 1": {p.Plane1, in.Plane1, f.Plane1}, "meta": {p.Meta, in.Meta, f.Meta}} {
		if s.got.Size != s.want.Size {
			t.Errorf("%s: %s has %d bytes, want %d", f.Name, name, s.got.Size, s.want.Size)
			continue
		}
		got, want := p.Bytes(s.got), image.Bytes(s.want)
		const tile = 64
		for at := 0; at < len(got); at += max(1, s.size) {
			unit := at / s.size
			row := unit/(tile*(len(got)/s.size/p.Rows))*tile + unit%tile
			if row < rows && !bytes.Equal(got[at:at+s.size], want[at:at+s.size]) {
				t.Errorf("%s: %s of row %d differs", f.Name, name, row)
				return
			}
		}
	}
}
