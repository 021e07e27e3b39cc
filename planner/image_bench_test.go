package planner

import (
	"context"
	"math/rand/v2"
	"testing"

	"splash/dequant"
)

// discard is a file that keeps nothing.
type discard struct{}

func (discard) WriteAt(b []byte, at int64) (int, error) { return len(b), nil }

// BenchmarkWriteImage measures the writer on one worker, in bytes of the source.
func BenchmarkWriteImage(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, typ := range []dequant.Type{
		dequant.Q4_K, dequant.Q6_K, dequant.Q8_0, dequant.IQ3S, dequant.IQ2XXS, dequant.NVFP4, dequant.MXFP4, dequant.BF16,
	} {
		b.Run(typ.String(), func(b *testing.B) {
			m := randomMatrix(rng, typ, 512, 4096)
			tensor := Tensor{Name: "x", Role: Linear, Rows: 512, Cols: 4096, Type: typ}
			image := &Image{Name: "layer-0.bin"}
			if err := placeTensors(image, []*Tensor{&tensor}, &forms{wideNorms: true}); err != nil {
				b.Fatal(err)
			}
			w, err := newImageWriter(image, memoryWeights{"x": {m}}, discard{})
			if err != nil {
				b.Fatal(err)
			}
			w.workers = w.workers[:1]
			jobs := image.jobs(jobBytes)
			b.SetBytes(int64(len(m.Data)))
			for b.Loop() {
				if err := w.run(context.Background(), jobs, func(int64) {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
