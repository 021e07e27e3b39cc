package planner

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"splash/dequant"
	"splash/internal/safetensors"
)

// Sizes that the draft's kernels are built for (draft.md 2.2).
const (
	DraftRows       = 8 // rows a cycle drafts: the anchor and seven proposals
	DraftHeads      = 32
	DraftKVHeads    = 8
	DraftHeadDim    = 128
	DraftWindow     = draftWindow
	DraftGroup      = 16 // channels of a convolution group
	DraftKernel     = 2  // taps of the convolution
	DraftRank       = 256
	DraftCandidates = 16

	maxDraftLayers = 64
	maxTaps        = 8
)

// A Draft is the sizes of a DFlash2 draft that passed the check against its target.
type Draft struct {
	Layers, Hidden, FFN, Vocab int
	RopeBase                   float64
	Epsilon                    float64
	Block                      int   // rows the draft was trained to fill, at least DraftRows
	Mask                       int32 // the token whose embedding the proposals' rows start from
	Taps                       []int // target layers it reads, ascending
	StreamMean                 bool  // a tap is the mean of the target's streams
}

// A DraftError gathers every fault of a draft's configuration.
type DraftError struct{ Faults []string }

func (e *DraftError) Error() string { return strings.Join(e.Faults, "; ") }

// PlanDraft holds a draft's config.json to its target (draft.md 2.2): a *DraftError names every fault with what was found
// and what is accepted. No weight is read.
func PlanDraft(config []byte, target *Plan) (*Draft, error) {
	o, err := parseObject("draft config.json", config)
	if err != nil {
		return nil, err
	}
	c := &draftConfig{target: target, faults: new([]string), object: o, label: "draft config"}
	d := c.draft()
	if len(*c.faults) > 0 {
		return nil, &DraftError{*c.faults}
	}
	return d, nil
}

// draftConfig is one object of a draft's configuration; faults are gathered for all.
type draftConfig struct {
	object
	target *Plan
	label  string
	faults *[]string
}

func (c *draftConfig) fault(format string, args ...any) {
	*c.faults = append(*c.faults, c.label+" "+fmt.Sprintf(format, args...))
}

func (c *draftConfig) mismatch(key string, want any) {
	c.fault("%s mismatch: checkpoint %s, runtime %v", key, show(c.object[key]), want)
}

// part is an object of the configuration.
func (c *draftConfig) part(key string) (*draftConfig, bool) {
	o, ok := c.object.object(key)
	if !ok {
		c.fault("%s must be an object", key)
	}
	return &draftConfig{target: c.target, faults: c.faults, object: o, label: c.label + " " + key}, ok
}

// positive reads an integer from 1 to 2^31 - 1.
func (c *draftConfig) positive(key string) int {
	v, ok := c.whole(key)
	if !ok || v < 1 || v > math.MaxInt32 {
		c.fault("%s must be a positive integer", key)
		return 0
	}
	return int(v)
}

// exact holds an integer to a value.
func (c *draftConfig) exact(key string, want int) {
	if v := c.positive(key); v != 0 && v != want {
		c.mismatch(key, want)
	}
}

func (c *draftConfig) draft() *Draft {
	c.architecture()
	l := &c.target.Layout
	d := &Draft{Hidden: l.Hidden, Vocab: l.Vocab, Epsilon: 1e-6, StreamMean: l.Hyper.Streams > 0}
	if d.Layers = c.positive("num_hidden_layers"); d.Layers > maxDraftLayers {
		c.fault("num_hidden_layers %d is above the %d layers a draft may have", d.Layers, maxDraftLayers)
	}
	c.exact("hidden_size", l.Hidden)
	if h, ok := c.whole("hidden_size"); ok && h == int64(l.Hidden) && h%DraftGroup != 0 {
		c.fault("hidden_size %d is not a whole number of %d-channel convolution groups", h, DraftGroup)
	}
	c.exact("vocab_size", l.Vocab)
	d.FFN = c.positive("intermediate_size")
	c.exact("num_attention_heads", DraftHeads)
	c.exact("num_key_value_heads", DraftKVHeads)
	c.exact("head_dim", DraftHeadDim)
	c.exact("sliding_window", DraftWindow)
	if v, ok := c.float("rms_norm_eps"); !ok || v != d.Epsilon {
		c.mismatch("rms_norm_eps", number(d.Epsilon))
	}
	for _, key := range [...]string{"is_causal", "attention_bias", "tie_word_embeddings"} {
		if v, ok := c.flag(key); !ok || v {
			c.fault("%s must be false", key)
		}
	}
	if v, _ := c.text("hidden_act"); v != "silu" {
		c.mismatch("hidden_act", "silu")
	}
	c.optional(d.Layers)
	if rope, ok := c.part("rope_parameters"); ok {
		rope.rope(d)
	}
	if dflash, ok := c.part("dflash_config"); ok {
		dflash.dflash(d)
	}
	return d
}

// architecture refuses anything but a DFlash2 draft; one of the first version has no convolutions and no selector.
func (c *draftConfig) architecture() {
	const want = "DFlash2DraftModel"
	if v, ok := c.texts("architectures"); !ok || !slices.Equal(v, []string{want}) {
		*c.faults = append(*c.faults, fmt.Sprintf("draft is not a DFlash2 model: architectures %s, runtime [%s]",
			show(c.object["architectures"]), want))
	}
}

// optional holds what a configuration may leave out.
func (c *draftConfig) optional(layers int) {
	if v, ok := c.object["layer_types"]; ok {
		list, _ := v.([]any)
		if len(list) != layers || slices.ContainsFunc(list, func(e any) bool { return e != "sliding_attention" }) {
			c.fault("layer_types %s must be %d times sliding_attention", show(v), layers)
		}
	}
	if v, ok := c.object["use_sliding_window"]; ok && v != true {
		c.fault("use_sliding_window must be true")
	}
	if _, ok := c.object["num_target_layers"]; ok {
		c.exact("num_target_layers", c.target.Layout.Layers)
	}
}

func (c *draftConfig) rope(d *Draft) {
	if v, _ := c.text("rope_type"); v != "default" {
		c.mismatch("rope_type", "default")
	}
	v, ok := c.float("rope_theta")
	if !ok || !(v > 0) || math.IsInf(v, 0) {
		c.fault("rope_theta %s must be a positive number", show(c.object["rope_theta"]))
	}
	d.RopeBase = v
}

func (c *draftConfig) dflash(d *Draft) {
	if d.Block = c.positive("block_size"); d.Block > 0 && d.Block < DraftRows {
		c.fault("block_size %d is below the %d rows a cycle drafts", d.Block, DraftRows)
	}
	c.exact("conv_group_size", DraftGroup)
	c.exact("conv_kernel_size", DraftKernel)
	c.exact("selector_rank", DraftRank)
	c.exact("selector_top_k", DraftCandidates)
	c.mask(d)
	c.taps(d)
	c.reduction(d)
	for _, key := range [...]string{"output_multiplier", "input_embedding_scale"} {
		if v, ok := c.object[key]; ok {
			if f, ok := toFloat(v); !ok || f != 1 {
				c.fault("%s %s is not supported", key, show(v))
			}
		}
	}
	const cap = "final_logit_softcapping"
	if v := c.object[cap]; v != nil {
		if f, ok := toFloat(v); !ok || f != 0 {
			c.fault("%s %s is not supported", cap, show(v))
		}
	}
}

// mask holds the mask token to those the family leaves to the draft.
func (c *draftConfig) mask(d *Draft) {
	const key = "mask_token_id"
	v, ok := c.whole(key)
	if !ok || v < 0 || v > math.MaxInt32 {
		c.fault("%s must be a token id", key)
		return
	}
	d.Mask = int32(v)
	r := c.target.Family.Mask
	switch {
	case r.First == r.Last && d.Mask != r.First:
		c.mismatch(key, r.First)
	case !r.Contains(d.Mask) && c.target.Layout.Arch == FlintMoE:
		c.fault("%s %d is not one of Flint's reserved tokens %d to %d", key, v, r.First, r.Last)
	case !r.Contains(d.Mask) || v >= int64(c.target.Layout.Vocab):
		c.fault("%s %d is outside the vocabulary of %d tokens", key, v, c.target.Layout.Vocab)
	}
}

// taps reads the target layers the draft reads.
func (c *draftConfig) taps(d *Draft) {
	const key = "target_layer_ids"
	list, ok := c.list(key)
	layers := c.target.Layout.Layers
	last := int64(-1)
	for _, v := range list {
		id, whole := toWhole(v)
		ok = ok && whole && id > last && id < int64(layers)
		last = id
		d.Taps = append(d.Taps, int(id))
	}
	if !ok || len(list) < 1 || len(list) > maxTaps {
		c.fault("%s must be 1 to %d ascending layers below %d, not %s", key, maxTaps, layers, show(c.object[key]))
	}
}

// reduction holds what becomes of a target's streams: their mean, where it has several.
func (c *draftConfig) reduction(d *Draft) {
	const key = "target_hidden_reduction"
	want := "none"
	if d.StreamMean {
		want = "stream_mean"
	}
	if v := c.object[key]; v != nil && v != want {
		c.mismatch(key, want)
	}
}

// maskFile is the file of a draft's own mask embedding.
const maskFile = "mask_embedding.safetensors"

// OpenDraft opens the checkpoint of a draft's directory, with the mask embedding where the release ships one.
func OpenDraft(dir string) (*safetensors.Checkpoint, error) {
	return safetensors.OpenIndexed(dir, filepath.Join(dir, maskFile))
}

// PlanDraftTensors finds every tensor of the draft in its checkpoint (draft.md 2.5, 2.6), in the checkpoint's names. One
// error names each tensor that is missing or of another type or shape; tensors the draft does not read are ignored, but
// not beside the mask embedding.
func PlanDraftTensors(d *Draft, c *safetensors.Checkpoint) ([]Tensor, error) {
	var tensors []Tensor
	var faults []string
	for _, w := range d.inventory() {
		t := c.Tensor(w.Name)
		switch {
		case t == nil && w.Name == "mask_embedding":
			continue
		case t == nil:
			faults = append(faults, fmt.Sprintf("draft tensor %s is missing", w.Name))
		case t.DType != safetensors.BF16 || !slices.Equal(t.Shape, w.shape):
			faults = append(faults, fmt.Sprintf("draft tensor %s is %s %s, want BF16 %s",
				w.Name, t.DType, extents(t.Shape), extents(w.shape)))
		case w.Role == Linear && w.Cols%64 != 0:
			faults = append(faults, fmt.Sprintf("draft tensor %s has rows of %d values, not a multiple of 64",
				w.Name, w.Cols))
		}
		w.Source = []Piece{{Name: w.Name, Rows: w.Rows}}
		tensors = append(tensors, w.Tensor)
	}
	for i := range c.Tensors {
		t := &c.Tensors[i]
		if filepath.Base(c.Files[t.File].Name) == maskFile && t.Name != "mask_embedding" {
			faults = append(faults, fmt.Sprintf("%s holds %s, want mask_embedding alone", maskFile, plain(t.Name)))
		}
	}
	if len(faults) > 0 {
		return nil, &DraftError{faults}
	}
	return tensors, nil
}

// A draftTensor is a tensor with its shape in the checkpoint.
type draftTensor struct {
	Tensor
	shape []int64
}

// inventory lists the draft's tensors, the mask embedding last. Linear ones are quantized at load.
func (d *Draft) inventory() []draftTensor {
	var all []draftTensor
	layer := -1
	add := func(name string, role Role, shape ...int) {
		t := draftTensor{Tensor: Tensor{Name: name, Layer: layer, Role: role, Type: dequant.BF16, Rows: 1}}
		for i, n := range shape {
			t.shape = append(t.shape, int64(n))
			if i < len(shape)-1 {
				t.Rows *= n
			} else {
				t.Cols = n
			}
		}
		if layer >= 0 {
			t.Name = fmt.Sprintf("layers.%d.%s", layer, name)
		}
		all = append(all, t)
	}
	h, query, key := d.Hidden, DraftHeads*DraftHeadDim, DraftKVHeads*DraftHeadDim
	dynamic := 2 * DraftKernel * h / DraftGroup
	for layer = range d.Layers {
		add("input_layernorm.weight", Norm, h)
		add("attention_conv.base_kernel", Convolution, 2, DraftKernel, h)
		add("attention_conv.kernel_projection.weight", Linear, dynamic, h)
		add("self_attn.q_proj.weight", Linear, query, h)
		add("self_attn.k_proj.weight", Linear, key, h)
		add("self_attn.v_proj.weight", Linear, key, h)
		add("self_attn.q_norm.weight", Norm, DraftHeadDim)
		add("self_attn.k_norm.weight", Norm, DraftHeadDim)
		add("self_attn.o_proj.weight", Linear, h, query)
		add("post_attention_layernorm.weight", Norm, h)
		add("mlp_conv.base_kernel", Convolution, 2, DraftKernel, h)
		add("mlp_conv.kernel_projection.weight", Linear, dynamic, h)
		add("mlp.gate_proj.weight", Linear, d.FFN, h)
		add("mlp.up_proj.weight", Linear, d.FFN, h)
		add("mlp.down_proj.weight", Linear, h, d.FFN)
	}
	layer = -1
	add("fc.weight", Linear, h, len(d.Taps)*h)
	add("hidden_norm.weight", Norm, h)
	add("norm.weight", Norm, h)
	add("candidate_selector.hidden_projection.weight", Linear, DraftRank, h)
	add("candidate_selector.predecessor_codebook", TokenTable, d.Vocab, DraftRank)
	add("candidate_selector.successor_codebook", TokenTable, d.Vocab, DraftRank)
	add("mask_embedding", Norm, h)
	return all
}
