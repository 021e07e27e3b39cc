package model

// attention is the mixer of an attention layer (models.md 3): the query projection holds a gate beside every query where
// the layout is gated, which Attention applies to its result.
type attention struct {
	q, k, v, o     Matrix
	params         Attention
	qb, kb, vb, ob Buffer
	indexQ, indexK Matrix // NoMatrix where the layer is not sparse
}

func (a *attention) run(b Backend, dst, h Buffer, e Epilogue) {
	b.Project(a.qb, h, a.q, Store)
	b.Project(a.kb, h, a.k, Store)
	b.Project(a.vb, h, a.v, Store)
	if a.params.Index != nil {
		b.Project(a.params.Index.Q, h, a.indexQ, Store)
		b.Project(a.params.Index.K, h, a.indexK, Store)
	}
	b.Attention(a.ob, a.qb, a.kb, a.vb, &a.params)
	b.Project(dst, a.ob, a.o, e)
}

// gdn is the mixer of a gated delta net layer (models.md 4).
type gdn struct {
	qkv, z, beta, alpha, out              Matrix
	conv                                  Vector
	convState                             State
	params                                GDN
	norm                                  Vector
	sigmoid                               bool
	qkvBuf, zBuf, betaBuf, alphaBuf, oBuf Buffer
}

func (g *gdn) run(b Backend, dst, h Buffer, e Epilogue) {
	b.Project(g.qkvBuf, h, g.qkv, Store)
	b.Project(g.zBuf, h, g.z, Store)
	b.Project(g.betaBuf, h, g.beta, Store)
	b.Project(g.alphaBuf, h, g.alpha, Store)
	b.Conv(g.qkvBuf, g.qkvBuf, g.conv, g.convState)
	b.GDN(g.oBuf, g.qkvBuf, g.betaBuf, g.alphaBuf, &g.params)
	b.GatedNorm(g.oBuf, g.oBuf, g.zBuf, g.norm, g.sigmoid)
	b.Project(dst, g.oBuf, g.out, e)
}
