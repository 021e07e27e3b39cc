package cpu

import "splash/dequant"

// genericKernels are those of plain Go.
var genericKernels = kernels{
	level:  Generic,
	lanes:  genericLanes,
	panels: []int{1},
	form:   func(*blockFormat, *dequant.Matrix) {},

	quantize: quantizeGeneric,
	unpack:   unpackGeneric,
	product:  productGeneric,
	dot:      dotGeneric,

	sumSquares: sumSquaresGeneric,
	norm:       normGeneric,
	swish:      swishGeneric,
	gate:       gateGeneric,
	scale:      scaleGeneric,
	addScaled:  addScaledGeneric,
	conv:       convGeneric,
	gdnStep: func(dst, src []float32, before *gdnUpdate, r *gdnRow, _ []float32) {
		gdnStepGeneric(dst, src, before, r)
	},
	gdnReplay: gdnReplayGeneric,
	scores:    scoresGeneric,
	values:    valuesGeneric,
	most:      mostGeneric,
	soften:    softenGeneric,
}
