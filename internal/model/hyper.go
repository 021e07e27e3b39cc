package model

// hyper is the network of hyper-connected streams (models.md 7).
type hyper struct {
	b     Backend
	table Matrix
	// ngram is added to the streams before layer ngramLayer.
	ngram      *ngram
	ngramLayer int
	layers     []hyperLayer
	last       HyperMix
	head       Matrix

	x, h, y, streams Buffer
	inject           Buffer
	out              Buffer
	logits           Buffer
	taps             []tap
}

type hyperLayer struct {
	mixerMix HyperMix
	mixer    block
	ffnMix   HyperMix
	ffn      block
}

// ngram adds the hashed n-gram embedding (models.md 7.4).
type ngram struct {
	table                  Matrix
	in                     []Projection // keys and values
	params                 NGram
	rows, keyBuf, valueBuf Buffer
}

func (n *ngram) run(b Backend, streams Buffer) {
	b.NGramRows(n.rows, n.table, &n.params)
	b.ProjectAll(n.rows, n.in)
	b.NGramAdd(streams, n.keyBuf, n.valueBuf, &n.params)
}

func (n *hyper) Forward(p *Pass) error {
	if err := begin(n.b, p, n); err != nil {
		return err
	}
	return end(n.b, p, n.logits)
}

func (n *hyper) steps(Kind) {
	b := n.b
	b.Embed(n.x, n.table)
	b.Expand(n.streams, n.x)
	for i := range n.layers {
		l := &n.layers[i]
		if n.ngram != nil && i == n.ngramLayer {
			n.ngram.run(b, n.streams)
		}
		b.HyperRead(n.h, n.inject, n.streams, &l.mixerMix)
		l.mixer.run(b, n.y, n.h, Store)
		b.HyperWrite(n.streams, n.y, n.inject)
		b.HyperRead(n.h, n.inject, n.streams, &l.ffnMix)
		l.ffn.run(b, n.y, n.h, Store)
		b.HyperWrite(n.streams, n.y, n.inject)
		for _, t := range n.taps {
			if t.layer == i {
				b.StreamMean(t.to, n.streams)
			}
		}
	}
	b.HyperRead(n.h, n.inject, n.streams, &n.last)
	b.Outputs(n.out, n.h)
	b.Project(n.logits, n.out, n.head, Store)
}

func (n *hyper) Logits(i int) []float32     { return n.b.Read(n.logits, i) }
func (n *hyper) Tap(tap, row int) []float32 { return n.b.Read(n.taps[tap].to, row) }
func (n *hyper) Backend() Backend           { return n.b }

func (n *hyper) Ends() (table, head Matrix, taps []Buffer) { return n.table, n.head, buffers(n.taps) }

// hyperMoE is the network of Qwen3.8-Flash-Next (models.md 7): the mixers and experts of the MoE hybrid, between reads and
// writes of four streams in place of the residual and the norms.
func (l *loader) hyperMoE(o Options) Network {
	s := l.layout
	n := &hyper{
		b:       l.backend,
		table:   l.matrix("token_embd.weight"),
		layers:  make([]hyperLayer, s.Layers),
		x:       l.buffer(s.Hidden, AllRows),
		h:       l.buffer(s.Hidden, AllRows),
		y:       l.buffer(s.Hidden, AllRows),
		streams: l.buffer(s.Hyper.Streams*s.Hidden, AllRows),
		inject:  l.buffer(s.Hyper.Streams, AllRows),
		out:     l.buffer(s.Hidden, OutputRows),
		logits:  l.buffer(s.Vocab, OutputRows),
		taps:    l.taps(o.Taps),
	}
	attend, recur, ffn := l.attention(), l.gdn(), l.moeFFN()
	for i := range n.layers {
		layer := &n.layers[i]
		layer.mixerMix = l.mix("blk.%d.hc_attn", i)
		if s.Attends(i) {
			layer.mixer = attend(i)
		} else {
			layer.mixer = recur(i)
		}
		layer.ffnMix = l.mix("blk.%d.hc_ffn", i)
		layer.ffn = ffn(i)
	}
	if s.PLE.Heads > 0 {
		n.ngram, n.ngramLayer = l.ngram(), s.PLE.Layer
	}
	n.last = HyperMix{
		Layout: &s.Hyper, Norm: l.vector("output_hc_norm.weight"),
		Down: l.matrix("output_hc_down.weight"), Up: l.matrix("output_hc_up.weight"), Inject: NoMatrix,
	}
	n.head = l.head(n.table)
	return n
}

func (l *loader) mix(format string, layer int) HyperMix {
	return HyperMix{
		Layout: &l.layout.Hyper, Norm: l.vector(format+"_norm.weight", layer),
		Down: l.matrix(format+"_down.weight", layer), Up: l.matrix(format+"_up.weight", layer),
		Inject: l.matrix(format+"_inject.weight", layer),
	}
}

func (l *loader) ngram() *ngram {
	s, width := &l.layout.PLE, l.layout.Hyper.Streams*l.layout.Hidden
	embedding := (s.NGram - 1) * s.Heads * s.Width
	layer := s.Layer
	l.block()
	rows, key, value := l.scratch(embedding), l.scratch(width), l.scratch(l.layout.Hidden)
	return &ngram{
		table: l.matrix("per_layer_token_embd.weight"),
		in: []Projection{
			{key, l.matrix("blk.%d.ple_key.weight", layer)}, {value, l.matrix("blk.%d.ple_value.weight", layer)},
		},
		rows: rows, keyBuf: key, valueBuf: value,
		params: NGram{
			Layout: s, State: l.backend.NGramState(s, width),
			KeyNorm:   l.vector("blk.%d.ple_norm_key.weight", layer),
			QueryNorm: l.vector("blk.%d.ple_norm_query.weight", layer),
			ConvNorm:  l.vector("blk.%d.ple_norm_conv.weight", layer),
			Conv:      l.vector("blk.%d.ple_conv1d.weight", layer),
		},
	}
}
