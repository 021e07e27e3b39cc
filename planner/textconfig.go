package planner

import (
	"fmt"
	"slices"
)

// CheckConfig identifies a safetensors target by its config.json alone, holds the configuration to its family's values and
// its quantization to what loads (models.md 15.1, 15.3; formats.md 3.2, 4), before any weight is there. The plan has no
// tensors.
func CheckConfig(config []byte) (*Plan, error) {
	p, _, err := checkConfig(config)
	return p, err
}

func checkConfig(config []byte) (*Plan, *quantization, error) {
	o, err := parseObject("config.json", config)
	if err != nil {
		return nil, nil, err
	}
	text, kind, err := textConfig(o)
	if err != nil {
		return nil, nil, err
	}
	if kind.arch == HyperMoE || kind.arch == FlintMoE {
		return nil, nil, fmt.Errorf("%s loads from a GGUF only", ggufOnly(kind.arch))
	}
	var found [len(sizeKeys)]float64
	for i, key := range sizeKeys {
		v, ok := text.float(key)
		if !ok {
			return nil, nil, fmt.Errorf("text config %s must be a number", key)
		}
		found[i] = v
	}
	f, err := identify(kind.arch, found, "MLX")
	if err != nil {
		return nil, nil, err
	}
	p := &Plan{Family: f, Layout: f.Layout, Format: "safetensors", Stop: f.Stop}
	c := values{o: text, label: "text config"}
	if err := c.check(o, &p.Layout); err != nil {
		return nil, nil, err
	}
	q, err := readQuantization(o, &p.Layout)
	if err != nil {
		return nil, nil, err
	}
	return p, q, nil
}

// ggufOnly names the family of an architecture that loads from no other container.
func ggufOnly(arch Architecture) string {
	for _, f := range Families() {
		if f.Layout.Arch == arch {
			return f.Name
		}
	}
	return ""
}

// textConfig finds the text model's configuration and its type: text_config, or the top level of a flat one.
func textConfig(o object) (object, *modelType, error) {
	if outer, ok := o.text("model_type"); ok {
		if kind := modelTypeOf(outer); kind != nil && kind.flat {
			return o, kind, nil
		}
	}
	text, ok := o.object("text_config")
	if !ok {
		return nil, nil, unsupported("its config has no text_config")
	}
	name, ok := text.text("model_type")
	if !ok {
		return nil, nil, unsupported("its text_config has no model_type")
	}
	kind := modelTypeOf(name)
	if kind == nil || kind.flat {
		return nil, nil, unsupported("text model type " + plain(name))
	}
	return text, kind, nil
}

// values holds a configuration to expected values; the first difference is the error.
type values struct {
	o     object
	label string // what messages call it
	err   error
}

func (c *values) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// number holds a number to a value, as float64.
func (c *values) number(key string, want float64) {
	v, ok := c.o.float(key)
	switch {
	case !ok:
		c.fail("%s %s must be a number", c.label, key)
	case v != want:
		c.fail("%s %s mismatch: MLX %s, runtime %s", c.label, key, number(v), number(want))
	}
}

func (c *values) int(key string, want int) { c.number(key, float64(want)) }

func (c *values) bool(key string, want bool) {
	if v, ok := c.o.flag(key); !ok || v != want {
		c.fail("%s %s must be %v", c.label, key, want)
	}
}

func (c *values) text(key, want string) {
	v, ok := c.o.text(key)
	switch {
	case !ok:
		c.fail("%s %s must be a string", c.label, key)
	case v != want:
		c.fail("%s %s mismatch: MLX %s, runtime %s", c.label, key, plain(v), want)
	}
}

// check holds a Qwen text configuration to the layout (models.md 15.3). top is the whole configuration, which may state
// whether the head is tied in the text configuration's place.
func (c *values) check(top object, l *Layout) error {
	c.int("linear_num_key_heads", l.GDN.KeyHeads)
	c.int("linear_num_value_heads", l.GDN.ValueHeads)
	c.int("linear_key_head_dim", l.GDN.HeadDim)
	c.int("linear_value_head_dim", l.GDN.HeadDim)
	c.int("linear_conv_kernel_dim", l.GDN.Kernel)
	c.int("full_attention_interval", l.Attention.Interval)
	c.number("rms_norm_eps", l.Epsilon)
	if l.Arch == MoEHybrid {
		c.int("num_experts", l.MoE.Experts)
		c.int("num_experts_per_tok", l.MoE.Taken)
		c.int("moe_intermediate_size", l.MoE.Width)
		c.int("shared_expert_intermediate_size", l.MoE.SharedWidth)
	} else {
		c.int("intermediate_size", l.FFN)
	}
	c.bool("attention_bias", false)
	c.bool("attn_output_gate", true)
	c.tied(top, l.Tied)
	c.text("hidden_act", "silu")
	c.layerTypes(l)
	c.rope(l)
	return c.err
}

// tied holds tie_word_embeddings, wherever it is stated.
func (c *values) tied(top object, want bool) {
	_, inText := c.o["tie_word_embeddings"]
	_, atTop := top["tie_word_embeddings"]
	if inText || !atTop {
		c.bool("tie_word_embeddings", want)
	}
	if v, ok := top.flag("tie_word_embeddings"); atTop && (!ok || v != want) {
		c.fail("config tie_word_embeddings must be %v", want)
	}
}

func (c *values) layerTypes(l *Layout) {
	list, ok := c.o.list("layer_types")
	if !ok {
		c.fail("%s layer_types must be an array", c.label)
		return
	}
	if len(list) != l.Layers {
		c.fail("%s layer_types count mismatch: MLX %d, runtime %d", c.label, len(list), l.Layers)
		return
	}
	for i, v := range list {
		want := "linear_attention"
		if l.Attends(i) {
			want = "full_attention"
		}
		if v != want {
			c.fail("%s layer_types %d must be %s", c.label, i, want)
		}
	}
}

func (c *values) rope(l *Layout) {
	rope, ok := c.o.object("rope_parameters")
	if !ok {
		c.fail("%s rope_parameters must be an object", c.label)
		return
	}
	r := values{o: rope, label: c.label + " rope_parameters", err: c.err}
	r.number("rope_theta", l.Attention.RopeBase)
	r.number("partial_rotary_factor", float64(l.Attention.RopeDim)/float64(l.Attention.HeadDim))
	name := "rope_type"
	if _, ok := rope[name]; !ok && rope["type"] != nil {
		name = "type" // its older name
	}
	r.text(name, "default")
	if v, ok := rope["mrope_section"]; ok && !equalWhole(v, []int64{11, 11, 10}) {
		r.fail("%s mrope_section mismatch: MLX %s, runtime [11, 11, 10]", r.label, show(v))
	}
	c.err = r.err
}

// equalWhole reports whether a JSON value is that array of whole numbers.
func equalWhole(v any, want []int64) bool {
	list, ok := v.([]any)
	if !ok {
		return false
	}
	found := make([]int64, len(list))
	for i := range list {
		if found[i], ok = toWhole(list[i]); !ok {
			return false
		}
	}
	return slices.Equal(found, want)
}
