package model

import "splash/planner"

// dense is a SwiGLU (models.md 2.5).
type dense struct {
	gate, up, down Matrix
	wide           Buffer

	first, second []Matrix // gate and up, and down
}

func newDense(gate, up, down Matrix, wide Buffer) dense {
	return dense{gate, up, down, wide, []Matrix{gate, up}, []Matrix{down}}
}

func (f *dense) inputs() []Matrix { return f.first }

func (f *dense) run(b Backend, dst, h Buffer, e Epilogue) {
	b.GateUp(f.wide, h, f.gate, f.up, f.second)
	b.Project(dst, f.wide, f.down, e)
}

// moe is a layer of routed experts beside a shared one (models.md 5 and 8.2).
type moe struct {
	layout         *planner.MoELayout
	router         Matrix
	gate, up, down Experts
	shared         dense
	sharedGate     Vector // None: the shared expert's output is added as it is
	logits, routes Buffer
	sharedOut      Buffer
}

func (m *moe) inputs() []Matrix { return nil }

func (m *moe) run(b Backend, dst, h Buffer, e Epilogue) {
	b.Project(m.logits, h, m.router, Store)
	b.Route(m.routes, m.logits, m.layout)
	b.Experts(dst, h, m.routes, m.gate, m.up, m.down, e)
	m.shared.run(b, m.sharedOut, h, Store)
	b.AddGated(dst, m.sharedOut, h, m.sharedGate)
}

// matricesOf are those of projections.
func matricesOf(all []Projection) []Matrix {
	var m []Matrix
	for _, p := range all {
		m = append(m, p.W)
	}
	return m
}
