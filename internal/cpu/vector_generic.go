package cpu

import "math"

// The elementwise loops in plain Go.

func sumSquaresGeneric(x []float32) float32 {
	var s [dotLanes]float32
	for ; len(x) >= dotLanes; x = x[dotLanes:] {
		in := (*[dotLanes]float32)(x)
		for i := range s {
			s[i] += in[i] * in[i]
		}
	}
	for i, v := range x {
		s[i] += v * v
	}
	return fold(&s)
}

func normGeneric(dst, x, w []float32, scale float32) {
	for i, v := range x {
		dst[i] = v * scale * w[i]
	}
}

func swishGeneric(dst, gate, up []float32) {
	for i, v := range gate {
		dst[i] = v / (1 + float32(math.Exp(-float64(v)))) * up[i]
	}
}

func gateGeneric(x, gate []float32) {
	for i, v := range gate {
		x[i] /= 1 + float32(math.Exp(-float64(v)))
	}
}

func scaleGeneric(x []float32, scale float32) {
	for i := range x {
		x[i] *= scale
	}
}

func addScaledGeneric(dst, x []float32, scale float32) {
	for i, v := range x {
		dst[i] += scale * v
	}
}

// convGeneric writes silu(sum_j w_j taps_j): w holds the taps stride apart.
func convGeneric(dst, w []float32, stride int, taps [][]float32) {
	for c := range dst {
		var sum float32
		for j, x := range taps {
			sum += w[j*stride+c] * x[c]
		}
		dst[c] = sum / (1 + float32(math.Exp(-float64(sum))))
	}
}
