package planner

import "fmt"

// A want is one tensor the network reads, whatever the container: where it stands, its shape, and its names.
type want struct {
	name string // in a GGUF, with the layer's prefix

	// module and part name the tensor in a safetensors checkpoint: "layers.3.self_attn.q_proj" and "weight". An experts
	// tensor's module is the layer's MLP; expert is the projection's name in it. No module: GGUF only.
	module, part string
	expert       string

	layer      int // -1 outside the layers
	role       Role
	rows, cols int
	experts    int // 0: one matrix

	rowOrder, colOrder *HeadOrder // of a GGUF

	optional bool // a tied head
	plain    bool // a norm that transformers' checkpoints store as it multiplies
	hyper    bool // a hyper-connection projection: BF16 and F16 load as Q8_0
}

// inventory lists every tensor of the layout's network, in image order (formats.md 5.10): the layers, the head, the token
// table, the table of hashed n-grams.
func inventory(l *Layout) []want {
	b := builder{layout: l, layer: -1}
	for i := range l.Layers {
		b.layer = i
		b.mixer()
		b.ffn()
		if l.Arch == HyperMoE && i == l.PLE.Layer {
			b.ple()
		}
	}
	b.layer = -1
	b.head()
	return b.wants
}

// A builder appends wants of the layer at hand.
type builder struct {
	layout *Layout
	layer  int
	wants  []want
}

// add appends a tensor under its short names.
func (b *builder) add(name, module string, role Role, rows, cols int) *want {
	w := want{name: name, module: module, part: "weight", layer: b.layer, role: role, rows: rows, cols: cols}
	if b.layer >= 0 {
		w.name = fmt.Sprintf("blk.%d.%s", b.layer, name)
		if module != "" {
			w.module = fmt.Sprintf("layers.%d.%s", b.layer, module)
		}
	}
	b.wants = append(b.wants, w)
	return &b.wants[len(b.wants)-1]
}

func (b *builder) linear(name, module string, rows, cols int) *want {
	return b.add(name+".weight", module, Linear, rows, cols)
}

func (b *builder) norm(name, module string, width int) *want {
	return b.add(name+".weight", module, Norm, 1, width)
}

// mixer appends what stands before the FFN: an attention or GDN layer with its norm or mix.
func (b *builder) mixer() {
	l := b.layout
	if l.Arch == HyperMoE {
		b.mix("hc_attn")
	} else {
		b.norm("attn_norm", "input_layernorm", l.Hidden)
	}
	if l.Attends(b.layer) {
		b.attention()
	} else {
		b.gdn()
	}
}

// mix appends one mix of the hyper-connected streams: outside the layers the last, which injects nothing.
func (b *builder) mix(stem string) {
	l := b.layout
	wide := l.Hyper.Streams * l.Hidden
	b.norm(stem+"_norm", "", wide)
	b.linear(stem+"_down", "", l.Hyper.Rank, wide).hyper = true
	b.linear(stem+"_up", "", wide, l.Hyper.Rank).hyper = true
	if b.layer >= 0 {
		b.add(stem+"_inject.weight", "", Injection, l.Hyper.Streams, wide)
	}
}

func (b *builder) attention() {
	l := b.layout
	a := &l.Attention
	query, key := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	wide := query
	if a.Gated {
		wide = 2 * query
	}
	b.linear("attn_q", "self_attn.q_proj", wide, l.Hidden)
	b.linear("attn_k", "self_attn.k_proj", key, l.Hidden)
	b.linear("attn_v", "self_attn.v_proj", key, l.Hidden)
	if a.QKNorm {
		b.norm("attn_q_norm", "self_attn.q_norm", a.HeadDim)
		b.norm("attn_k_norm", "self_attn.k_norm", a.HeadDim)
	}
	if a.Sinks {
		b.add("attn_sinks.weight", "", Sinks, 1, a.Heads)
	}
	b.linear("attn_output", "self_attn.o_proj", l.Hidden, query)
	if s := &l.QSA; s.Heads > 0 {
		b.add("indexer.q_proj.weight", "", Indexer, s.Heads*s.HeadDim, l.Hidden)
		b.add("indexer.k_proj.weight", "", Indexer, s.HeadDim, l.Hidden)
		b.norm("indexer.q_norm", "", s.HeadDim)
		b.norm("indexer.k_norm", "", s.HeadDim)
	}
}

func (b *builder) gdn() {
	l := b.layout
	g := &l.GDN
	key, value := g.KeyHeads*g.HeadDim, g.ValueHeads*g.HeadDim
	b.linear("attn_qkv", "linear_attn.in_proj_qkv", 2*key+value, l.Hidden).rowOrder = g.order(2*key, g.HeadDim)
	b.linear("attn_gate", "linear_attn.in_proj_z", value, l.Hidden).rowOrder = g.order(0, g.HeadDim)
	b.add("ssm_beta.weight", "linear_attn.in_proj_b", AlphaBeta, g.ValueHeads, l.Hidden).rowOrder = g.order(0, 1)
	b.add("ssm_alpha.weight", "linear_attn.in_proj_a", AlphaBeta, g.ValueHeads, l.Hidden).rowOrder = g.order(0, 1)
	b.add("ssm_conv1d.weight", "linear_attn.conv1d", Convolution, 2*key+value, g.Kernel).rowOrder = g.order(2*key, g.HeadDim)
	decay := b.add("ssm_a", "linear_attn", Decay, 1, g.ValueHeads)
	decay.part, decay.colOrder = "A_log", g.order(0, 1)
	bias := b.add("ssm_dt.bias", "linear_attn", TimeBias, 1, g.ValueHeads)
	bias.part, bias.colOrder = "dt_bias", g.order(0, 1)
	b.norm("ssm_norm", "linear_attn.norm", g.HeadDim).plain = true
	b.linear("ssm_out", "linear_attn.out_proj", l.Hidden, value).colOrder = g.order(0, g.HeadDim)
}

// order is how a GGUF orders value heads, from an index on, each of so many elements; nil where tiled and grouped agree.
func (g *GDNLayout) order(from, size int) *HeadOrder {
	per := g.ValueHeads / g.KeyHeads
	if per == 1 {
		return nil
	}
	return &HeadOrder{From: from, Size: size, KeyHeads: g.KeyHeads, PerKey: per}
}

func (b *builder) ffn() {
	l := b.layout
	switch l.Arch {
	case HyperMoE:
		b.mix("hc_ffn")
	case FlintMoE:
		b.norm("ffn_norm", "", l.Hidden)
	default:
		b.norm("post_attention_norm", "post_attention_layernorm", l.Hidden)
	}
	if l.Routed(b.layer) {
		b.experts()
		return
	}
	b.linear("ffn_gate", "mlp.gate_proj", l.FFN, l.Hidden)
	b.linear("ffn_up", "mlp.up_proj", l.FFN, l.Hidden)
	b.linear("ffn_down", "mlp.down_proj", l.Hidden, l.FFN)
}

func (b *builder) experts() {
	l := b.layout
	m := &l.MoE
	b.add("ffn_gate_inp.weight", "mlp.gate", Router, m.Experts, l.Hidden)
	stack := func(name, projection string, rows, cols int) {
		w := b.add(name, "mlp", Experts, rows, cols)
		w.expert, w.experts = projection, m.Experts
	}
	stack("ffn_gate_exps.weight", "gate_proj", m.Width, l.Hidden)
	stack("ffn_up_exps.weight", "up_proj", m.Width, l.Hidden)
	stack("ffn_down_exps.weight", "down_proj", l.Hidden, m.Width)
	b.linear("ffn_gate_shexp", "mlp.shared_expert.gate_proj", m.SharedWidth, l.Hidden)
	b.linear("ffn_up_shexp", "mlp.shared_expert.up_proj", m.SharedWidth, l.Hidden)
	b.linear("ffn_down_shexp", "mlp.shared_expert.down_proj", l.Hidden, m.SharedWidth)
	if m.SharedGate {
		b.add("ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate", SharedGate, 1, l.Hidden)
	}
}

// ple appends the hashed n-gram embedding's tensors of its layer.
func (b *builder) ple() {
	l := b.layout
	wide, embedding := l.Hyper.Streams*l.Hidden, (l.PLE.NGram-1)*l.PLE.Heads*l.PLE.Width
	b.linear("ple_key", "", wide, embedding)
	b.linear("ple_value", "", l.Hidden, embedding)
	b.norm("ple_norm_key", "", wide)
	b.norm("ple_norm_query", "", wide)
	b.norm("ple_norm_conv", "", wide)
	b.add("ple_conv1d.weight", "", PLEConvolution, wide, l.PLE.Kernel)
}

// head appends what stands outside the layers.
func (b *builder) head() {
	l := b.layout
	if l.Arch == HyperMoE {
		b.mix("output_hc")
	} else {
		b.norm("output_norm", "norm", l.Hidden)
	}
	b.linear("output", "lm_head", l.Vocab, l.Hidden).optional = l.Tied
	b.add("token_embd.weight", "embed_tokens", TokenTable, l.Vocab, l.Hidden)
	if l.Arch == HyperMoE {
		b.add("per_layer_token_embd.weight", "", TokenTable, l.PLE.Rows, l.PLE.Width)
	}
}
