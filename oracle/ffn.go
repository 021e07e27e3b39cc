package oracle

// SwiGLU writes down(silu(gate x) * (up x)) to dst ([hidden]). gate and up are [width, hidden], down is [hidden, width].
//
// Source: Shazeer, GLU Variants Improve Transformer, 2020.
func SwiGLU(dst, x []float64, gate, up, down Matrix) {
	width, _ := gate.Dims()
	g, u := make([]float64, width), make([]float64, width)
	MatVec(g, gate, x)
	MatVec(u, up, x)
	for i := range g {
		g[i] = SiLU(g[i]) * u[i]
	}
	MatVec(dst, down, g)
}
