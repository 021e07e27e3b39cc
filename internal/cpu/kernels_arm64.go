package cpu

import ()

//go:generate go run ./gen/neon -kernels attention -out attention_arm64.s -stubs attention_stubs_arm64.go
//go:generate go run ./gen/neon -kernels dot -out dot_arm64.s -stubs dot_stubs_arm64.go
//go:generate go run ./gen/neon -kernels fused -out fused_arm64.s -stubs fused_stubs_arm64.go
//go:generate go run ./gen/neon -kernels gdn -out gdn_arm64.s -stubs gdn_stubs_arm64.go
//go:generate go run ./gen/neon -kernels peak -out peak_arm64.s -stubs peak_stubs_arm64.go
//go:generate go run ./gen/neon -kernels product -out product_arm64.s -stubs product_stubs_arm64.go
//go:generate go run ./gen/neon -kernels quantize -out quantize_arm64.s -stubs quantize_stubs_arm64.go
//go:generate go run ./gen/neon -kernels unpack -out unpack_arm64.s -stubs unpack_stubs_arm64.go
//go:generate go run ./gen/neon -kernels vector -out vector_arm64.s -stubs vector_stubs_arm64.go

var kernelsFor = [...]*kernels{Generic: &genericKernels, NEON: kernelsNEON()}

// machineRuns reports whether the processor and the system run a level.
func machineRuns(l Level) bool { return l == Generic || l == NEON && dotProducts() }

func kernelsNEON() *kernels {
	k := &kernels{
		level: NEON, lanes: lanesNEON, panels: []int{4, 2, 1}, form: formNEON,
		quantize: quantizeFloatsNEON, unpack: unpackTileNEON, product: productNEON, fused: fusedNEON, readsFloats: true,
		exact: func(acc []float32, t *tile, f *blockFormat, in *input, at int) {
			exactsNEON.run(acc, lanesNEON, t, f, in, at)
		},
		dot: func(acc []float32, w *floatRows, x []float32, stride, rows int) {
			dotFloats(&dotsNEON, acc, w, x, stride, rows)
		},
	}
	a := &floatAssembly{
		sumSquares: sumSquaresNEON, norm: normNEON, swish: swishNEON, gate: gateNEON, scale: scaleNEON, addScaled: addScaledNEON,
		conv: convNEON, gdnStep: gdnStepNEON, gdnReplay: gdnReplayNEON, most: mostNEON, soften: softenNEON,
	}
	k.peak = peak(peakFloatsNEON, peakIntsNEON, 16)
	a.scores[0], a.scores[1] = scoresNEONq4, scoresNEONq1
	a.values[0], a.values[1] = valuesNEONq4, valuesNEONq1
	a.floats(k)
	return k
}

func emulated(Level) bool { return false }
