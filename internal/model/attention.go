package model

// attention is the mixer of an attention layer (models.md 3): the query projection holds a gate beside every query where
// the layout is gated, which Attention applies to its result.
type attention struct {
	in             []Projection // queries, keys and values, and the index's where the layer is sparse
	first          []Matrix     // of in
	o              Matrix
	params         Attention
	qb, kb, vb, ob Buffer
}

func (a *attention) inputs() []Matrix { return a.first }

func (a *attention) run(b Backend, dst, h Buffer, e Epilogue) {
	b.ProjectAll(h, a.in)
	b.Attention(a.ob, a.qb, a.kb, a.vb, &a.params)
	b.Project(dst, a.ob, a.o, e)
}

// gdn is the mixer of a gated delta net layer (models.md 4).
type gdn struct {
	in                                    []Projection // the convolution's channels, z, beta and alpha
	out                                   Matrix
	first, second                         []Matrix // of in, and out
	conv                                  Vector
	convState                             State
	params                                GDN
	norm                                  Vector
	sigmoid                               bool
	qkvBuf, zBuf, betaBuf, alphaBuf, oBuf Buffer
}

func (g *gdn) inputs() []Matrix { return g.first }

func (g *gdn) run(b Backend, dst, h Buffer, e Epilogue) {
	b.ProjectAll(h, g.in)
	b.Conv(g.qkvBuf, g.qkvBuf, g.conv, g.convState)
	b.GDN(g.oBuf, g.qkvBuf, g.betaBuf, g.alphaBuf, &g.params)
	b.GatedNorm(g.oBuf, g.oBuf, g.zBuf, g.norm, g.sigmoid, g.second)
	b.Project(dst, g.oBuf, g.out, e)
}
