//go:build cgo

package conformance_test

import (
	"bytes"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"splash/dequant"
	"splash/internal/model"
	"splash/metal"
	"splash/planner"
)

// chunkedBackends are rows of the metal backend whose recurrent layers take long segments in chunks, codedBackends those whose
// rotated inputs are codes of 8 bits.
func chunkedBackends() []operatorBackend { return formOf(" chunked", metal.Options{ChunkedGDN: true}) }
func codedBackends() []operatorBackend   { return formOf(" codes", metal.Options{Int8Activations: true}) }

// formOf is the first row of the metal backend with other options.
func formOf(name string, o metal.Options) []operatorBackend {
	all := metalBackends()
	if len(all) == 0 {
		return nil
	}
	b := all[0]
	b.name += name
	b.open = func(p *planner.Plan, maxRows int) (model.Backend, error) {
		o.MaxRows = maxRows
		return openMetal(p, o)
	}
	return []operatorBackend{b}
}

// TestRepacked holds images whose planes the device makes to those of the planner's writer: of a GGUF's rows, of NVFP4 with the
// scales that its tensors beside it have, of MLX's codes with scales and biases apart.
func TestRepacked(t *testing.T) {
	if err := metal.Usable(); err != nil {
		t.Skip(err)
	}
	d, err := metalDevice()
	if err != nil {
		t.Fatal(err)
	}
	r, err := metal.NewRepacker(d)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rng := rand.New(rand.NewPCG(47, 1))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			if b[i] = byte(rng.Uint32()); rng.IntN(16) == 0 {
				b[i] = 0x7f
			}
		}
		return b
	}
	const rows, cols = 128, 512
	stored := func(kind dequant.Type) dequant.Matrix {
		f := dequant.Lookup(kind)
		return dequant.Matrix{Format: f, Rows: rows, Cols: cols, Data: random(rows * f.RowBytes(cols))}
	}
	apart := func(kind dequant.Type, data, scales, biases int) dequant.Matrix {
		m := dequant.Matrix{Format: dequant.Lookup(kind), Rows: rows, Cols: cols, Data: random(rows * data), Scales: random(rows * scales)}
		if biases > 0 {
			m.Biases = random(rows * biases)
		}
		return m
	}
	scaled := func(m dequant.Matrix) dequant.Matrix {
		m.Global = []float32{0.25, -3}
		return m
	}
	for _, m := range []dequant.Matrix{
		stored(dequant.Q4_K), stored(dequant.Q6_K), stored(dequant.Q5_0), stored(dequant.IQ3S), stored(dequant.BF16), stored(dequant.NVFP4),
		scaled(stored(dequant.NVFP4)), scaled(apart(dequant.NVFP4Rows, cols/2, cols/16, 0)), apart(dequant.MXFP4, cols/2, cols/32, 0),
		apart(dequant.Affine(3, 32), cols*3/8, cols/32*2, cols/32*2), apart(dequant.Affine(6, 64), cols*6/8, cols/64*2, cols/64*2),
		{Format: dequant.Lookup(dequant.FP8Rows), Rows: rows, Cols: cols, Data: random(rows * cols), Global: []float32{2, 0.5}},
	} {
		tensor := planner.Tensor{Name: "w", Layer: -1, Role: planner.Linear, Rows: rows, Cols: cols, Type: m.Format.Type}
		plan, err := planner.PlanImages(&planner.Plan{Tensors: []planner.Tensor{tensor}})
		if err != nil {
			t.Fatal(err)
		}
		want, err := planner.BuildImages(t.Context(), plan, given{m})
		if err != nil {
			t.Fatal(err)
		}
		packed := &packedAll{Packer: r}
		got, err := (&planner.ImageMaker{Packer: packed}).Build(t.Context(), plan, given{m})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Files[0].Data, want.Files[0].Data) || packed.left.Load() != 0 {
			t.Errorf("%s: planes differ, or %d were left to the writer", m.Format.Name, packed.left.Load())
		}
	}
}

// packedAll counts what a packer leaves to the writer.
type packedAll struct {
	planner.Packer
	left atomic.Int32
}

func (p *packedAll) Pack(x *planner.Packing) (bool, error) {
	packed, err := p.Packer.Pack(x)
	if !packed {
		p.left.Add(1)
	}
	return packed, err
}
