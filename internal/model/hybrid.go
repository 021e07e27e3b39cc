package model

// denseHybrid is the network of Qwen3.5's dense models (models.md 6): three gated delta net layers to one of gated
// attention, each before a SwiGLU.
func (l *loader) denseHybrid(o Options) Network {
	return l.hybrid(o, l.denseFFN("ffn"))
}

// moeHybrid is the network of Qwen3.5's MoE models: the same mixers, each before routed experts and a gated shared one.
func (l *loader) moeHybrid(o Options) Network {
	return l.hybrid(o, l.moeFFN())
}

func (l *loader) hybrid(o Options, ffn func(layer int) block) Network {
	n := l.residual(o)
	attend, recur := l.attention(), l.gdn()
	for i := range n.layers {
		layer := &n.layers[i]
		layer.mixerNorm = l.vector("blk.%d.attn_norm.weight", i)
		if l.layout.Attends(i) {
			layer.mixer = attend(i)
		} else {
			layer.mixer = recur(i)
		}
		layer.ffnNorm = l.vector("blk.%d.post_attention_norm.weight", i)
		layer.ffn = ffn(i)
	}
	return n
}

// flint is the network of Flint (models.md 8): attention with sinks in every layer, some of them windows, some without
// rotation; leading layers before a SwiGLU, the others before routed experts and an ungated shared one.
func (l *loader) flint(o Options) Network {
	n := l.residual(o)
	attend, dense := l.attention(), l.denseFFN("ffn")
	routed := l.moeFFN()
	for i := range n.layers {
		layer := &n.layers[i]
		layer.mixerNorm = l.vector("blk.%d.attn_norm.weight", i)
		layer.mixer = attend(i)
		layer.ffnNorm = l.vector("blk.%d.ffn_norm.weight", i)
		if l.layout.Routed(i) {
			layer.ffn = routed(i)
		} else {
			layer.ffn = dense(i)
		}
	}
	return n
}

// residual makes what every network with one residual stream has around its layers.
func (l *loader) residual(o Options) *residual {
	s := l.layout
	n := &residual{
		b:      l.backend,
		eps:    s.Epsilon,
		table:  l.matrix("token_embd.weight"),
		norm:   l.vector("output_norm.weight"),
		layers: make([]residualLayer, s.Layers),
		x:      l.buffer(s.Hidden, AllRows),
		h:      l.buffer(s.Hidden, AllRows),
		out:    l.buffer(s.Hidden, OutputRows),
		logits: l.buffer(s.Vocab, OutputRows),
		taps:   l.taps(o.Taps),
	}
	n.head = l.head(n.table)
	n.ends = []Matrix{n.head}
	return n
}

// attention returns a maker of attention layers, which share their buffers.
func (l *loader) attention() func(layer int) block {
	s := &l.layout.Attention
	query := s.Heads * s.HeadDim
	wide := query
	if s.Gated {
		wide = 2 * query
	}
	l.block()
	qb, kb, vb := l.scratch(wide), l.scratch(s.KVHeads*s.HeadDim), l.scratch(s.KVHeads*s.HeadDim)
	ob := l.scratch(query)
	index := l.indexer()
	return func(i int) block {
		a := &attention{
			in: []Projection{
				{qb, l.matrix("blk.%d.attn_q.weight", i)}, {kb, l.matrix("blk.%d.attn_k.weight", i)},
				{vb, l.matrix("blk.%d.attn_v.weight", i)},
			},
			o:  l.matrix("blk.%d.attn_output.weight", i),
			qb: qb, kb: kb, vb: vb, ob: ob,
			params: Attention{
				Layout: s, KV: l.backend.KVState(s.KVHeads, s.HeadDim),
				QNorm: None, KNorm: None, Sinks: None,
				Rotate: s.NoRope == nil || !s.NoRope[i],
			},
		}
		if s.QKNorm {
			a.params.QNorm = l.vector("blk.%d.attn_q_norm.weight", i)
			a.params.KNorm = l.vector("blk.%d.attn_k_norm.weight", i)
		}
		if s.Sinks {
			a.params.Sinks = l.vector("blk.%d.attn_sinks.weight", i)
		}
		if s.Sliding != nil && s.Sliding[i] {
			a.params.Window = s.Window
		}
		if index != nil {
			index(i, a)
		}
		a.first = matricesOf(a.in)
		return a
	}
}

// indexer returns what makes an attention layer sparse, or nil where the architecture has no sparse layers.
func (l *loader) indexer() func(layer int, a *attention) {
	s := &l.layout.QSA
	if s.Heads == 0 {
		return nil
	}
	q, k := l.scratch(s.Heads*s.HeadDim), l.scratch(s.HeadDim)
	return func(i int, a *attention) {
		a.in = append(a.in, Projection{q, l.matrix("blk.%d.indexer.q_proj.weight", i)},
			Projection{k, l.matrix("blk.%d.indexer.k_proj.weight", i)})
		a.params.Index = &Indexer{
			Layout: s, Q: q, K: k,
			QNorm: l.vector("blk.%d.indexer.q_norm.weight", i),
			KNorm: l.vector("blk.%d.indexer.k_norm.weight", i),
			State: l.backend.IndexState(s.HeadDim),
		}
	}
}

// gdn returns a maker of gated delta net layers, which share their buffers.
func (l *loader) gdn() func(layer int) block {
	s := &l.layout.GDN
	key, value := s.KeyHeads*s.HeadDim, s.ValueHeads*s.HeadDim
	channels := 2*key + value
	l.block()
	qkv, z, o := l.scratch(channels), l.scratch(value), l.scratch(value)
	beta, alpha := l.scratch(s.ValueHeads), l.scratch(s.ValueHeads)
	return func(i int) block {
		g := &gdn{
			in: []Projection{
				{qkv, l.matrix("blk.%d.attn_qkv.weight", i)}, {z, l.matrix("blk.%d.attn_gate.weight", i)},
				{beta, l.matrix("blk.%d.ssm_beta.weight", i)}, {alpha, l.matrix("blk.%d.ssm_alpha.weight", i)},
			},
			out:  l.matrix("blk.%d.ssm_out.weight", i),
			conv: l.vector("blk.%d.ssm_conv1d.weight", i), convState: l.backend.ConvState(channels, s.Kernel),
			params: GDN{
				Layout: s, State: l.backend.GDNState(s.ValueHeads, s.HeadDim, s.HeadDim),
				Decay: l.vector("blk.%d.ssm_a", i), Bias: l.vector("blk.%d.ssm_dt.bias", i),
			},
			norm: l.vector("blk.%d.ssm_norm.weight", i), sigmoid: s.SigmoidGate,
			qkvBuf: qkv, zBuf: z, betaBuf: beta, alphaBuf: alpha, oBuf: o,
		}
		g.first, g.second = matricesOf(g.in), []Matrix{g.out}
		return g
	}
}

// denseFFN returns a maker of SwiGLUs, which share their buffer.
func (l *loader) denseFFN(stem string) func(layer int) block {
	l.block()
	wide := l.scratch(l.layout.FFN)
	return func(i int) block {
		f := newDense(l.matrix("blk.%d.%s_gate.weight", i, stem), l.matrix("blk.%d.%s_up.weight", i, stem),
			l.matrix("blk.%d.%s_down.weight", i, stem), wide)
		return &f
	}
}

// moeFFN returns a maker of MoE layers, which share their buffers.
func (l *loader) moeFFN() func(layer int) block {
	s := &l.layout.MoE
	l.block()
	logits, routes := l.scratch(s.Experts), l.scratch(2*s.Taken)
	wide, sharedOut := l.scratch(s.SharedWidth), l.scratch(l.layout.Hidden)
	return func(i int) block {
		m := &moe{
			layout: s, logits: logits, routes: routes, sharedOut: sharedOut, sharedGate: None,
			router: l.matrix("blk.%d.ffn_gate_inp.weight", i),
			gate:   l.experts("blk.%d.ffn_gate_exps.weight", i),
			up:     l.experts("blk.%d.ffn_up_exps.weight", i),
			down:   l.experts("blk.%d.ffn_down_exps.weight", i),
			shared: newDense(l.matrix("blk.%d.ffn_gate_shexp.weight", i), l.matrix("blk.%d.ffn_up_shexp.weight", i),
				l.matrix("blk.%d.ffn_down_shexp.weight", i), wide),
		}
		if s.SharedGate {
			m.sharedGate = l.vector("blk.%d.ffn_gate_inp_shexp.weight", i)
		}
		return m
	}
}
