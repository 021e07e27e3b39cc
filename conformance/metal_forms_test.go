//go:build cgo

package conformance_test

import (
	"bytes"
	"math/rand/v2"
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

// TestRepacked holds planes that the device makes of a GGUF's rows to those of the planner's writer.
func TestRepacked(t *testing.T) {
	if err := metal.Usable(); err != nil {
		t.Skip(err)
	}
	d, err := metalDevice()
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(47, 1))
	for _, kind := range []dequant.Type{dequant.Q4_K, dequant.Q6_K, dequant.Q5_0, dequant.IQ3S} {
		const rows, cols = 128, 512
		m := dequant.Matrix{Format: dequant.Lookup(kind), Rows: rows, Cols: cols}
		m.Data = make([]byte, rows*m.Format.RowBytes(cols))
		for i := range m.Data {
			m.Data[i] = byte(rng.Uint32())
		}
		got, err := metal.Repack(d, &m, func(row int) int { return row })
		if err != nil {
			t.Fatal(err)
		}
		tensor := planner.Tensor{Name: "w", Layer: -1, Role: planner.Linear, Rows: rows, Cols: cols, Type: kind}
		plan, err := planner.PlanImages(&planner.Plan{Tensors: []planner.Tensor{tensor}})
		if err != nil {
			t.Fatal(err)
		}
		images, err := planner.BuildImages(t.Context(), plan, given{m})
		if err != nil {
			t.Fatal(err)
		}
		in := &images.Files[0].Tensors[0]
		for _, s := range [][2]planner.Section{{got.Plane0, in.Plane0}, {got.Plane1, in.Plane1}, {got.Meta, in.Meta}} {
			if !bytes.Equal(got.Bytes(s[0]), images.Files[0].Bytes(s[1])) {
				t.Errorf("%s: planes differ", kind)
			}
		}
		got.Memory.Free()
	}
}
