package planner

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"splash/dequant"
	"splash/internal/gguf"
	"splash/internal/safetensors"
)

// A fakeGGUF is a GGUF to be written as a header alone: its tensors have no data, but places for it.
type fakeGGUF struct {
	keys    []fakeKey
	tensors []fakeTensor
}

type fakeKey struct {
	name  string
	value any
}

type fakeTensor struct {
	name string
	kind dequant.Type
	dims []uint64 // columns first
}

func (g *fakeGGUF) set(name string, value any) {
	for i := range g.keys {
		if g.keys[i].name == name {
			g.keys[i].value = value
			return
		}
	}
	g.keys = append(g.keys, fakeKey{name, value})
}

func (g *fakeGGUF) unset(name string) {
	g.keys = slices.DeleteFunc(g.keys, func(k fakeKey) bool { return k.name == name })
}

func (g *fakeGGUF) get(name string) any {
	for i := range g.keys {
		if g.keys[i].name == name {
			return g.keys[i].value
		}
	}
	return nil
}

func (g *fakeGGUF) add(name string, kind dequant.Type, dims ...uint64) {
	g.tensors = append(g.tensors, fakeTensor{name, kind, dims})
}

// tensor finds the tensor of that name.
func (g *fakeGGUF) tensor(name string) *fakeTensor {
	for i := range g.tensors {
		if g.tensors[i].name == name {
			return &g.tensors[i]
		}
	}
	panic("no tensor " + name)
}

func (g *fakeGGUF) drop(names ...string) {
	for _, name := range names {
		g.tensor(name)
		g.tensors = slices.DeleteFunc(g.tensors, func(t fakeTensor) bool { return t.name == name })
	}
}

// retype sets the type of every tensor whose name ends so.
func (g *fakeGGUF) retype(suffix string, kind dequant.Type) {
	for i := range g.tensors {
		if strings.HasSuffix(g.tensors[i].name, suffix) {
			g.tensors[i].kind = kind
		}
	}
}

// header writes the header and reads it back.
func (g *fakeGGUF) header(t testing.TB) *gguf.Header {
	t.Helper()
	b, size := g.bytes()
	h, err := gguf.Parse(bytes.NewReader(b), size, "fake.gguf")
	if err != nil {
		t.Fatalf("parse the header of a test: %v", err)
	}
	return h
}

// bytes is the header, and the size of the file it would be of.
func (g *fakeGGUF) bytes() ([]byte, int64) {
	b := []byte("GGUF")
	b = binary.LittleEndian.AppendUint32(b, 3)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(g.tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(g.keys)))
	for _, k := range g.keys {
		b = appendText(b, k.name)
		b = appendTyped(b, k.value)
	}
	offset := uint64(0)
	for _, t := range g.tensors {
		b = appendText(b, t.name)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(t.dims)))
		n := uint64(1)
		for _, d := range t.dims {
			b = binary.LittleEndian.AppendUint64(b, d)
			n *= d
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(t.kind))
		b = binary.LittleEndian.AppendUint64(b, offset)
		f := dequant.Lookup(t.kind)
		offset += (n/uint64(f.Block)*uint64(f.Bytes) + 31) / 32 * 32
	}
	b = append(b, make([]byte, -len(b)&31)...)
	return b, int64(len(b)) + int64(offset)
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func appendTyped(b []byte, v any) []byte {
	kind, _ := kindOf(v)
	b = binary.LittleEndian.AppendUint32(b, uint32(kind))
	return appendBare(b, v)
}

// kindOf is the value type of a Go value, and of a slice that of its elements.
func kindOf(v any) (kind, elem gguf.ValueType) {
	switch v.(type) {
	case bool:
		return gguf.TypeBool, 0
	case string:
		return gguf.TypeString, 0
	case uint8:
		return gguf.TypeUint8, 0
	case int32:
		return gguf.TypeInt32, 0
	case uint32:
		return gguf.TypeUint32, 0
	case uint64:
		return gguf.TypeUint64, 0
	case float32:
		return gguf.TypeFloat32, 0
	case float64:
		return gguf.TypeFloat64, 0
	case []bool:
		return gguf.TypeArray, gguf.TypeBool
	case []string:
		return gguf.TypeArray, gguf.TypeString
	case []int8:
		return gguf.TypeArray, gguf.TypeInt8
	case []uint8:
		return gguf.TypeArray, gguf.TypeUint8
	case []int32:
		return gguf.TypeArray, gguf.TypeInt32
	case []uint64:
		return gguf.TypeArray, gguf.TypeUint64
	case []float32:
		return gguf.TypeArray, gguf.TypeFloat32
	}
	panic(fmt.Sprintf("no GGUF type for %T", v))
}

func appendBare(b []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return appendText(b, v)
	case bool:
		if v {
			return append(b, 1)
		}
		return append(b, 0)
	case float32:
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	case float64:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	case []string:
		b = appendArray(b, v, len(v))
		for _, s := range v {
			b = appendText(b, s)
		}
		return b
	case []bool:
		return append(appendArray(b, v, len(v)), encode(v)...)
	case []int8:
		return append(appendArray(b, v, len(v)), encode(v)...)
	case []uint8:
		return append(appendArray(b, v, len(v)), v...)
	case []int32:
		return append(appendArray(b, v, len(v)), encode(v)...)
	case []uint64:
		return append(appendArray(b, v, len(v)), encode(v)...)
	case []float32:
		return append(appendArray(b, v, len(v)), encode(v)...)
	}
	return append(b, encode(v)...)
}

func appendArray(b []byte, v any, n int) []byte {
	_, elem := kindOf(v)
	b = binary.LittleEndian.AppendUint32(b, uint32(elem))
	return binary.LittleEndian.AppendUint64(b, uint64(n))
}

func encode(v any) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// fakeTarget is a GGUF of the family as its converter writes it, quantized.
func fakeTarget(f *Family) *fakeGGUF {
	if f.Layout.Arch == FlintMoE {
		l := f.Layout
		if f.Open {
			l = openLayout()
		}
		return fakeFlint(l)
	}
	l := f.Layout
	g := fakeQwen(l)
	eos := f.Stop[len(f.Stop)-1]
	g.set("tokenizer.ggml.eos_token_id", uint32(eos))
	return g
}

func openLayout() Layout {
	return Layout{
		Arch: FlintMoE, Layers: 8, Hidden: 512, Vocab: 151000, Context: 131072, Epsilon: 1e-5, FFN: 1024,
		Attention: AttentionLayout{
			Interval: 1, Heads: 8, KVHeads: 2, HeadDim: 128, RopeDim: 64, RopeBase: 5e5, QKNorm: true, Sinks: true,
			Window: 128, Sliding: []bool{true, true, true, false, true, true, true, false},
			NoRope: []bool{false, false, false, true, false, false, false, true},
		},
		MoE: MoELayout{
			Experts: 24, Taken: 4, Width: 192, SharedWidth: 384, LeadingDense: 2, Sigmoid: true, Normalize: true, Scale: 2.5,
		},
	}
}

// blocks is a K-quant where rows are whole blocks of it, else Q8_0.
func blocks(cols int) dequant.Type {
	if cols%256 == 0 {
		return dequant.Q4_K
	}
	return dequant.Q8_0
}

func (g *fakeGGUF) linear(name string, rows, cols int) {
	g.add(name, blocks(cols), uint64(cols), uint64(rows))
}
func (g *fakeGGUF) vector(name string, n int) { g.add(name, dequant.F32, uint64(n)) }
func (g *fakeGGUF) stack(name string, experts, rows, cols int) {
	g.add(name, blocks(cols), uint64(cols), uint64(rows), uint64(experts))
}

// common sets the keys every architecture has.
func (g *fakeGGUF) common(arch string, l Layout) {
	a := l.Attention
	u := func(key string, v int) { g.set(arch+"."+key, uint32(v)) }
	g.set("general.architecture", arch)
	u("block_count", l.Layers)
	u("context_length", l.Context)
	u("embedding_length", l.Hidden)
	if l.FFN > 0 {
		u("feed_forward_length", l.FFN)
	}
	u("attention.head_count", a.Heads)
	u("attention.head_count_kv", a.KVHeads)
	u("attention.key_length", a.HeadDim)
	u("attention.value_length", a.HeadDim)
	u("rope.dimension_count", a.RopeDim)
	g.set(arch+".rope.freq_base", float32(a.RopeBase))
	g.set(arch+".attention.layer_norm_rms_epsilon", float32(l.Epsilon))
	if l.MoE.Experts > 0 {
		u("expert_count", l.MoE.Experts)
		u("expert_used_count", l.MoE.Taken)
		u("expert_feed_forward_length", l.MoE.Width)
		u("expert_shared_feed_forward_length", l.MoE.SharedWidth)
	}
	g.set("tokenizer.ggml.model", "gpt2")
	g.set("tokenizer.ggml.tokens", make([]string, l.Vocab))
	g.linear("token_embd.weight", l.Vocab, l.Hidden)
	if !l.Tied {
		g.linear("output.weight", l.Vocab, l.Hidden)
	}
}

// fakeQwen is a GGUF of the Qwen architectures (models.md 13, 14.3).
func fakeQwen(l Layout) *fakeGGUF {
	g := &fakeGGUF{}
	arch := map[Architecture]string{DenseHybrid: "qwen35", MoEHybrid: "qwen35moe", HyperMoE: "qwen4exp"}[l.Arch]
	g.common(arch, l)
	u := func(key string, v int) { g.set(arch+"."+key, uint32(v)) }
	u("full_attention_interval", 4)
	u("ssm.conv_kernel", 4)
	u("ssm.group_count", l.GDN.KeyHeads)
	u("ssm.time_step_rank", l.GDN.ValueHeads)
	u("ssm.state_size", 128)
	u("ssm.inner_size", 128*l.GDN.ValueHeads)
	g.set(arch+".rope.dimension_sections", []int32{11, 11, 10, 0})
	if l.Arch == HyperMoE {
		g.hyperKeys(arch, l)
	}
	h := l.Hidden
	if l.Arch != HyperMoE {
		g.vector("output_norm.weight", h)
	}
	for i := range l.Layers {
		b := fmt.Sprintf("blk.%d.", i)
		if l.Arch == HyperMoE {
			g.mix(b+"hc_attn_", l, true)
			g.mix(b+"hc_ffn_", l, true)
		} else {
			g.vector(b+"attn_norm.weight", h)
			g.vector(b+"post_attention_norm.weight", h)
		}
		if i%4 == 3 {
			g.attention(b, l, 2)
		} else {
			g.recurrent(b, l)
		}
		g.feedForward(b, l, l.MoE.Experts > 0)
	}
	return g
}

func (g *fakeGGUF) attention(b string, l Layout, queries int) {
	a, h := l.Attention, l.Hidden
	g.linear(b+"attn_q.weight", queries*a.Heads*a.HeadDim, h)
	g.linear(b+"attn_k.weight", a.KVHeads*a.HeadDim, h)
	g.linear(b+"attn_v.weight", a.KVHeads*a.HeadDim, h)
	g.linear(b+"attn_output.weight", h, a.Heads*a.HeadDim)
	g.vector(b+"attn_q_norm.weight", a.HeadDim)
	g.vector(b+"attn_k_norm.weight", a.HeadDim)
	if l.Arch == HyperMoE {
		g.add(b+"indexer.q_proj.weight", dequant.F32, uint64(h), 512)
		g.add(b+"indexer.k_proj.weight", dequant.F32, uint64(h), 128)
		g.vector(b+"indexer.q_norm.weight", 128)
		g.vector(b+"indexer.k_norm.weight", 128)
	}
}

func (g *fakeGGUF) recurrent(b string, l Layout) {
	h, k, v := l.Hidden, 128*l.GDN.KeyHeads, 128*l.GDN.ValueHeads
	g.linear(b+"attn_qkv.weight", 2*k+v, h)
	g.linear(b+"attn_gate.weight", v, h)
	g.linear(b+"ssm_alpha.weight", l.GDN.ValueHeads, h)
	g.linear(b+"ssm_beta.weight", l.GDN.ValueHeads, h)
	g.add(b+"ssm_conv1d.weight", dequant.F32, 4, uint64(2*k+v))
	g.vector(b+"ssm_a", l.GDN.ValueHeads)
	g.vector(b+"ssm_dt.bias", l.GDN.ValueHeads)
	g.vector(b+"ssm_norm.weight", 128)
	g.linear(b+"ssm_out.weight", h, v)
}

func (g *fakeGGUF) feedForward(b string, l Layout, routed bool) {
	h, m := l.Hidden, l.MoE
	if !routed {
		g.linear(b+"ffn_gate.weight", l.FFN, h)
		g.linear(b+"ffn_up.weight", l.FFN, h)
		g.linear(b+"ffn_down.weight", h, l.FFN)
		return
	}
	g.add(b+"ffn_gate_inp.weight", dequant.F32, uint64(h), uint64(m.Experts))
	g.stack(b+"ffn_gate_exps.weight", m.Experts, m.Width, h)
	g.stack(b+"ffn_up_exps.weight", m.Experts, m.Width, h)
	g.stack(b+"ffn_down_exps.weight", m.Experts, h, m.Width)
	g.linear(b+"ffn_gate_shexp.weight", m.SharedWidth, h)
	g.linear(b+"ffn_up_shexp.weight", m.SharedWidth, h)
	g.linear(b+"ffn_down_shexp.weight", h, m.SharedWidth)
	if l.Arch != FlintMoE {
		g.vector(b+"ffn_gate_inp_shexp.weight", h)
	}
}

func (g *fakeGGUF) mix(stem string, l Layout, inject bool) {
	wide := 4 * l.Hidden
	g.vector(stem+"norm.weight", wide)
	g.add(stem+"down.weight", dequant.Q8_0, uint64(wide), uint64(l.Hyper.Rank))
	g.add(stem+"up.weight", dequant.BF16, uint64(l.Hyper.Rank), uint64(wide))
	if inject {
		g.add(stem+"inject.weight", dequant.F32, uint64(wide), 4)
	}
}

// hyperKeys sets what qwen4exp adds, with the released model's n-gram values or the tiny one's.
func (g *fakeGGUF) hyperKeys(arch string, l Layout) {
	u := func(key string, v int) { g.set(arch+"."+key, uint32(v)) }
	u("hyper_connection.count", 4)
	u("hyper_connection.low_rank", l.Hyper.Rank)
	u("attention.indexer.head_count", 4)
	u("attention.indexer.key_length", 128)
	u("attention.indexer.top_k", 4*l.QSA.Budget)
	ratios := make([]int32, l.Layers)
	for i := 3; i < l.Layers; i += 4 {
		ratios[i] = 4
	}
	g.set(arch+".attention.compress_ratios", ratios)
	u("embedding_length_per_layer_input", l.PLE.Width)
	g.set(arch+".ple.layers", []int32{1})
	u("ple.ngram_size", 3)
	u("ple.heads_per_ngram", l.PLE.Heads)
	u("ple.conv_kernel", 4)
	u("ple.eos_token_id", int(l.PLE.EOS))
	u("ple.image_token_id", int(l.PLE.Image))
	vocab := []uint64{503, 509, 521, 523, 541, 547, 557, 563}
	multipliers := []uint64{4295158889771065, 3929419265628323, 1270917961438207}
	if l.PLE.Heads == 8 {
		vocab = []uint64{
			20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
			20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171,
		}
		multipliers = []uint64{23703573157769, 20109073645365, 8052911324071}
	}
	offsets := make([]uint64, len(vocab))
	for i := 1; i < len(vocab); i++ {
		offsets[i] = offsets[i-1] + vocab[i-1]
	}
	g.set(arch+".ple.layer_multipliers", multipliers)
	g.set(arch+".ple.head_offsets", offsets)
	g.set(arch+".ple.head_vocab_sizes", vocab)

	wide, embedding := 4*l.Hidden, len(vocab)*l.PLE.Width
	g.add("per_layer_token_embd.weight", dequant.Q8_0, uint64(l.PLE.Width), uint64(l.PLE.Rows))
	g.linear("blk.1.ple_key.weight", wide, embedding)
	g.linear("blk.1.ple_value.weight", l.Hidden, embedding)
	g.vector("blk.1.ple_norm_key.weight", wide)
	g.vector("blk.1.ple_norm_query.weight", wide)
	g.vector("blk.1.ple_norm_conv.weight", wide)
	g.add("blk.1.ple_conv1d.weight", dequant.F32, 4, uint64(wide))
	g.mix("output_hc_", l, false)
}

// fakeFlint is a GGUF of Flint (models.md 8.3).
func fakeFlint(l Layout) *fakeGGUF {
	g := &fakeGGUF{}
	g.common("flint", l)
	g.set("flint.leading_dense_block_count", uint32(l.MoE.LeadingDense))
	g.set("flint.attention.sliding_window", uint32(l.Attention.Window))
	g.set("flint.attention.sliding_window_pattern", l.Attention.Sliding)
	rope := make([]bool, l.Layers)
	for i := range rope {
		rope[i] = !l.Attention.NoRope[i]
	}
	g.set("flint.attention.rope_pattern", rope)
	g.set("flint.expert_gating_func", uint32(2))
	g.set("flint.expert_weights_norm", true)
	if l.MoE.Scale != 0 {
		g.set("flint.expert_weights_scale", float32(l.MoE.Scale))
	}
	if l.Vocab > 150000 {
		tokens, types := make([]string, l.Vocab), make([]int32, l.Vocab)
		for i, text := range flintStops {
			tokens[150000+i], types[150000+i] = text, 3
		}
		g.set("tokenizer.ggml.tokens", tokens)
		g.set("tokenizer.ggml.token_type", types)
		g.set("tokenizer.ggml.eos_token_id", uint32(150001))
	} else {
		g.set("tokenizer.ggml.eog_token_ids", []int32{2000, 2002})
	}
	g.vector("output_norm.weight", l.Hidden)
	for i := range l.Layers {
		b := fmt.Sprintf("blk.%d.", i)
		g.vector(b+"attn_norm.weight", l.Hidden)
		g.vector(b+"ffn_norm.weight", l.Hidden)
		g.vector(b+"attn_sinks.weight", l.Attention.Heads)
		g.attention(b, l, 1)
		g.feedForward(b, l, i >= l.MoE.LeadingDense)
	}
	return g
}

// jsonObject is a configuration to be changed in tests.
type jsonObject = map[string]any

func encodeJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// at returns the object at a path of keys.
func at(o jsonObject, path ...string) jsonObject {
	for _, key := range path {
		o = o[key].(jsonObject)
	}
	return o
}

// fakeConfig is the config.json that a family's MLX releases publish (models.md 14.1), in 4 bits.
func fakeConfig(f *Family) jsonObject {
	l := f.Layout
	outer := map[Architecture]string{DenseHybrid: "qwen3_5", MoEHybrid: "qwen3_5_moe", HyperMoE: "qwen4_exp"}[l.Arch]
	types := make([]any, l.Layers)
	for i := range types {
		types[i] = "linear_attention"
		if i%4 == 3 {
			types[i] = "full_attention"
		}
	}
	text := jsonObject{
		"model_type": outer + "_text", "hidden_size": l.Hidden, "num_hidden_layers": l.Layers, "vocab_size": l.Vocab,
		"max_position_embeddings": l.Context, "num_attention_heads": l.Attention.Heads,
		"num_key_value_heads": l.Attention.KVHeads, "head_dim": 256, "linear_num_key_heads": l.GDN.KeyHeads,
		"linear_num_value_heads": l.GDN.ValueHeads, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
		"linear_conv_kernel_dim": 4, "full_attention_interval": 4, "layer_types": types, "rms_norm_eps": 1e-6,
		"hidden_act": "silu", "attention_bias": false, "attn_output_gate": true, "tie_word_embeddings": l.Tied,
		"mtp_num_hidden_layers": 1, "eos_token_id": 248044, "output_gate_type": "swish",
		"rope_parameters": jsonObject{
			"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25,
			"mrope_section": []any{11, 11, 10}, "mrope_interleaved": true,
		},
	}
	if l.MoE.Experts > 0 {
		text["num_experts"], text["num_experts_per_tok"] = l.MoE.Experts, l.MoE.Taken
		text["moe_intermediate_size"], text["shared_expert_intermediate_size"] = l.MoE.Width, l.MoE.SharedWidth
	} else {
		text["intermediate_size"] = l.FFN
	}
	o := jsonObject{
		"architectures": []any{"Qwen3_5ForConditionalGeneration"}, "model_type": outer, "text_config": text,
		"image_token_id": 248056, "video_token_id": 248057, "vision_start_token_id": 248053, "vision_end_token_id": 248054,
		"tie_word_embeddings": l.Tied, "quantization": jsonObject{"group_size": 64, "bits": 4, "mode": "affine"},
	}
	if v := f.Vision; v != nil {
		o["vision_config"] = jsonObject{
			"depth": v.Depth, "hidden_size": v.Hidden, "num_heads": v.Heads, "intermediate_size": v.FFN, "out_hidden_size": v.Out,
			"patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3,
			"num_position_embeddings": v.Side * v.Side, "hidden_act": "gelu_pytorch_tanh", "deepstack_visual_indexes": []any{},
		}
	}
	return o
}

// fakeCheckpoint is the header of a safetensors file.
type fakeCheckpoint struct{ tensors []fakeShard }

type fakeShard struct {
	name  string
	dtype safetensors.DType
	shape []int64
}

func (c *fakeCheckpoint) add(name string, dtype safetensors.DType, shape ...int) {
	s := fakeShard{name: name, dtype: dtype, shape: []int64{}}
	for _, d := range shape {
		s.shape = append(s.shape, int64(d))
	}
	c.tensors = append(c.tensors, s)
}

func (c *fakeCheckpoint) tensor(name string) *fakeShard {
	for i := range c.tensors {
		if c.tensors[i].name == name {
			return &c.tensors[i]
		}
	}
	panic("no tensor " + name)
}

func (c *fakeCheckpoint) drop(names ...string) {
	for _, name := range names {
		c.tensor(name)
		c.tensors = slices.DeleteFunc(c.tensors, func(t fakeShard) bool { return t.name == name })
	}
}

// checkpoint writes the header and reads it back, without data.
func (c *fakeCheckpoint) checkpoint(t testing.TB) *safetensors.Checkpoint {
	t.Helper()
	b, size := c.bytes()
	h, err := safetensors.Parse(bytes.NewReader(b), size, "model.safetensors")
	if err != nil {
		t.Fatalf("parse the header of a test: %v", err)
	}
	all, err := safetensors.Join([]*safetensors.Header{h})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (c *fakeCheckpoint) bytes() ([]byte, int64) {
	type entry struct {
		DType   string   `json:"dtype"`
		Shape   []int64  `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	o := map[string]entry{}
	offset := int64(0)
	for _, t := range c.tensors {
		n := t.dtype.Bytes()
		for _, d := range t.shape {
			n *= d
		}
		o[t.name] = entry{string(t.dtype), t.shape, [2]int64{offset, offset + n}}
		offset += n
	}
	j := encodeJSON(o)
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(j)))
	b = append(b, j...)
	return b, int64(len(b)) + offset
}

// fakeNames lists a target's modules and vectors in a naming: each is added by the callbacks.
func (c *fakeCheckpoint) target(l Layout, prefix, head string, stackedTaps bool,
	linear func(name string, rows, cols int), experts func(mlp, projection string, rows, cols int)) {
	h := l.Hidden
	taps := func(n int) []int {
		if stackedTaps {
			return []int{n, 4, 1}
		}
		return []int{n, 1, 4}
	}
	if !l.Tied {
		linear(head, l.Vocab, h)
	}
	c.add(prefix+"embed_tokens.weight", safetensors.BF16, l.Vocab, h)
	c.add(prefix+"norm.weight", safetensors.BF16, h)
	for i := range l.Layers {
		b := fmt.Sprintf("%slayers.%d.", prefix, i)
		c.add(b+"input_layernorm.weight", safetensors.BF16, h)
		c.add(b+"post_attention_layernorm.weight", safetensors.BF16, h)
		if i%4 == 3 {
			a := l.Attention
			linear(b+"self_attn.q_proj", 2*a.Heads*256, h)
			linear(b+"self_attn.k_proj", a.KVHeads*256, h)
			linear(b+"self_attn.v_proj", a.KVHeads*256, h)
			linear(b+"self_attn.o_proj", h, a.Heads*256)
			c.add(b+"self_attn.q_norm.weight", safetensors.BF16, 256)
			c.add(b+"self_attn.k_norm.weight", safetensors.BF16, 256)
		} else {
			k, v := 128*l.GDN.KeyHeads, 128*l.GDN.ValueHeads
			linear(b+"linear_attn.in_proj_qkv", 2*k+v, h)
			linear(b+"linear_attn.in_proj_z", v, h)
			linear(b+"linear_attn.out_proj", h, v)
			c.add(b+"linear_attn.in_proj_a.weight", safetensors.BF16, l.GDN.ValueHeads, h)
			c.add(b+"linear_attn.in_proj_b.weight", safetensors.BF16, l.GDN.ValueHeads, h)
			c.add(b+"linear_attn.conv1d.weight", safetensors.BF16, taps(2*k+v)...)
			c.add(b+"linear_attn.A_log", safetensors.F32, l.GDN.ValueHeads)
			c.add(b+"linear_attn.dt_bias", safetensors.BF16, l.GDN.ValueHeads)
			c.add(b+"linear_attn.norm.weight", safetensors.BF16, 128)
		}
		m := l.MoE
		if m.Experts == 0 {
			linear(b+"mlp.gate_proj", l.FFN, h)
			linear(b+"mlp.up_proj", l.FFN, h)
			linear(b+"mlp.down_proj", h, l.FFN)
			continue
		}
		c.add(b+"mlp.gate.weight", safetensors.BF16, m.Experts, h)
		experts(b+"mlp.", "gate_proj", m.Width, h)
		experts(b+"mlp.", "up_proj", m.Width, h)
		experts(b+"mlp.", "down_proj", h, m.Width)
		linear(b+"mlp.shared_expert.gate_proj", m.SharedWidth, h)
		linear(b+"mlp.shared_expert.up_proj", m.SharedWidth, h)
		linear(b+"mlp.shared_expert.down_proj", h, m.SharedWidth)
		c.add(b+"mlp.shared_expert_gate.weight", safetensors.BF16, 1, h)
	}
}

// affine adds an MLX module of so many bits in groups of 64.
func (c *fakeCheckpoint) affine(name string, bits int, shape ...int) {
	n := len(shape) - 1
	lead, k := shape[:n:n], shape[n]
	c.add(name+".weight", safetensors.U32, append(lead, k*bits/32)...)
	c.add(name+".scales", safetensors.BF16, append(lead, k/64)...)
	c.add(name+".biases", safetensors.BF16, append(lead, k/64)...)
}

// fakeMLX is an MLX checkpoint in 4 bits.
func fakeMLX(l Layout) *fakeCheckpoint {
	c := &fakeCheckpoint{}
	c.target(l, "language_model.model.", "language_model.lm_head", true,
		func(name string, rows, cols int) { c.affine(name, 4, rows, cols) },
		func(mlp, projection string, rows, cols int) {
			c.affine(mlp+"switch_mlp."+projection, 4, l.MoE.Experts, rows, cols)
		})
	return c
}

// fakeModelOpt is a Model Optimizer checkpoint: NVFP4, but FP8 for the attention.
func fakeModelOpt(l Layout) *fakeCheckpoint {
	c := &fakeCheckpoint{}
	module := func(name string, rows, cols int) {
		if strings.Contains(name, "self_attn") {
			c.add(name+".weight", safetensors.F8E4M3, rows, cols)
			c.add(name+".weight_scale", safetensors.F32)
			return
		}
		c.add(name+".weight", safetensors.U8, rows, cols/2)
		c.add(name+".weight_scale", safetensors.F8E4M3, rows, cols/16)
		c.add(name+".weight_scale_2", safetensors.F32)
		c.add(name+".input_scale", safetensors.F32)
	}
	c.target(l, "model.language_model.", "lm_head", false, module, eachExpert(l, module))
	return c
}

// fakeCompressed is a compressed-tensors checkpoint: FP8 by channel for the attention and the head, NVFP4 for the rest.
func fakeCompressed(l Layout) *fakeCheckpoint {
	c := &fakeCheckpoint{}
	module := func(name string, rows, cols int) {
		if strings.Contains(name, "self_attn") || name == "lm_head" {
			c.add(name+".weight", safetensors.F8E4M3, rows, cols)
			c.add(name+".weight_scale", safetensors.BF16, rows, 1)
			return
		}
		c.add(name+".weight_packed", safetensors.U8, rows, cols/2)
		c.add(name+".weight_scale", safetensors.F8E4M3, rows, cols/16)
		c.add(name+".weight_global_scale", safetensors.F32, 1)
	}
	c.target(l, "model.language_model.", "lm_head", false, module, eachExpert(l, module))
	return c
}

func eachExpert(l Layout, module func(name string, rows, cols int)) func(mlp, projection string, rows, cols int) {
	return func(mlp, projection string, rows, cols int) {
		for e := range l.MoE.Experts {
			module(fmt.Sprintf("%sexperts.%d.%s", mlp, e, projection), rows, cols)
		}
	}
}

func modelOptConfig(f *Family) jsonObject {
	o := fakeConfig(f)
	delete(o, "quantization")
	o["quantization_config"] = jsonObject{
		"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": []any{"model.visual*", "*mlp.gate", "mtp*", "*in_proj_[ab]"},
		"kv_cache_quant_algo": "FP8",
	}
	return o
}

func compressedConfig(f *Family) jsonObject {
	o := fakeConfig(f)
	delete(o, "quantization")
	o["quantization_config"] = jsonObject{
		"quant_method": "compressed-tensors", "format": "mixed-precision", "ignore": []any{"re:.*visual.*", "re:.*mlp\\.gate$"},
		"config_groups": jsonObject{
			"group_0": jsonObject{
				"format": "float-quantized", "targets": []any{"re:.*self_attn.*", "lm_head"},
				"weights": jsonObject{"num_bits": 8, "type": "float", "strategy": "channel", "group_size": nil, "symmetric": true},
			},
			"group_1": jsonObject{
				"format": "nvfp4-pack-quantized", "targets": []any{"re:.*(mlp|linear_attn)\\..*"},
				"weights": jsonObject{"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "actorder": nil},
			},
		},
	}
	return o
}

// family returns the family of that name.
func family(t testing.TB, name string) *Family {
	t.Helper()
	f := FamilyByName(name)
	if f == nil {
		t.Fatalf("no family %s", name)
	}
	return f
}
