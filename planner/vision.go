package planner

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"splash/dequant"
	"splash/internal/gguf"
	"splash/internal/safetensors"
)

// A VisionPlan is a vision tower whose tensors are all there.
type VisionPlan struct {
	Layout  VisionLayout
	Format  string // "gguf", "mlx" or "transformers": the form of the patch embedding differs
	Tensors []VisionTensor
}

// A VisionTensor is one tensor of a tower, under its name in a projector GGUF whatever the container. The patch embedding
// of a GGUF is two tensors, one a frame; of a checkpoint it is the one, v.patch_embd.weight.
type VisionTensor struct {
	Name   string
	Source string       // in the container
	Shape  []int        // in the container, rows first
	Type   dequant.Type // BF16, F16 or F32; all values must be exact in BF16
}

// Tensor returns the tensor of that name, or nil.
func (p *VisionPlan) Tensor(name string) *VisionTensor {
	for i := range p.Tensors {
		if p.Tensors[i].Name == name {
			return &p.Tensors[i]
		}
	}
	return nil
}

// The activation of the tower's FFN.
const visionAct = "gelu_pytorch_tanh"

// number is one size of a tower with its key in a vision configuration.
type visionNumber struct {
	key  string
	want int
	gguf string // in a projector's header, after "clip.vision."; "" where the header does not state it
}

func (v *VisionLayout) numbers() []visionNumber {
	return []visionNumber{
		{"depth", v.Depth, "block_count"},
		{"hidden_size", v.Hidden, "embedding_length"},
		{"num_heads", v.Heads, "attention.head_count"},
		{"intermediate_size", v.FFN, "feed_forward_length"},
		{"out_hidden_size", v.Out, "projection_dim"},
		{"patch_size", v.Patch, "patch_size"},
		{"spatial_merge_size", v.Merge, "spatial_merge_size"},
		{"temporal_patch_size", v.Temporal, ""},
		{"in_channels", 3, ""},
		{"num_position_embeddings", v.Side * v.Side, ""},
	}
}

// CheckVisionConfig holds the vision_config of a safetensors target's config.json to its family's tower (models.md 15.6).
func CheckVisionConfig(config []byte, v *VisionLayout) error {
	o, err := parseObject("config.json", config)
	if err != nil {
		return err
	}
	vision, ok := o.object("vision_config")
	if !ok {
		return fmt.Errorf("config.json has no vision_config; serve it with --language-only for text alone")
	}
	c := values{o: vision, label: "vision config"}
	for _, n := range v.numbers() {
		c.int(n.key, n.want)
	}
	c.text("hidden_act", visionAct)
	if list, ok := vision.list("deepstack_visual_indexes"); !ok || len(list) > 0 {
		c.fail("vision deepstack layers are unsupported")
	}
	return c.err
}

// CheckProcessor holds a preprocessor_config.json, or the image_processor object of a processor_config.json, to the one
// preprocessing there is (models.md 9.3).
func CheckProcessor(config []byte) error {
	o, err := parseObject("processor configuration", config)
	if err != nil {
		return err
	}
	if inner, ok := o.object("image_processor"); ok {
		o = inner
	}
	fault := func(key, want string) error {
		return fmt.Errorf("unsupported vision preprocessing configuration: %s %s, expected %s", key, show(o[key]), want)
	}
	for _, n := range [...]struct {
		key  string
		want int64
	}{{"patch_size", 16}, {"temporal_patch_size", 2}, {"merge_size", 2}} {
		if v, ok := o.whole(n.key); !ok || v != n.want {
			return fault(n.key, fmt.Sprint(n.want))
		}
	}
	for _, key := range [...]string{"image_mean", "image_std"} {
		list, ok := o.list(key)
		if !ok || len(list) != 3 || slices.ContainsFunc(list, func(v any) bool { f, ok := toFloat(v); return !ok || f != 0.5 }) {
			return fault(key, "[0.5, 0.5, 0.5]")
		}
	}
	return nil
}

// PlanProjector holds the header of a vision projector to the tower and finds every tensor (models.md 9.2, 9.3, 15.6).
func PlanProjector(h *gguf.Header, v *VisionLayout) (*VisionPlan, error) {
	if err := checkProjectorKind(h); err != nil {
		return nil, err
	}
	if err := checkProjectorSizes(h, v); err != nil {
		return nil, err
	}
	if err := checkProjectorValues(h, v); err != nil {
		return nil, err
	}
	return planProjectorTensors(h, v)
}

// checkProjectorKind refuses a header that is no projector of this kind of tower.
func checkProjectorKind(h *gguf.Header) error {
	arch, _ := h.String("general.architecture")
	kind, _ := h.String("clip.projector_type")
	gelu, _ := h.Bool("clip.use_gelu")
	if arch == "clip" && kind == "qwen3vl_merger" && gelu {
		return nil
	}
	return fmt.Errorf("unsupported GGUF vision architecture: general.architecture %s, clip.projector_type %s,"+
		" clip.use_gelu %v; expected clip, qwen3vl_merger and true", orNone(arch), orNone(kind), gelu)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return plain(s)
}

const clipPrefix = "clip.vision."

// checkProjectorSizes gathers every size that is not the tower's, and holds the grid of positions.
func checkProjectorSizes(h *gguf.Header, v *VisionLayout) error {
	m := metadata{h: h, prefix: clipPrefix}
	if _, err := positionSide(h); err != nil {
		return err
	}
	for _, n := range v.numbers() {
		if n.gguf != "" {
			m.uint(n.gguf, n.want)
		}
	}
	m.uint("image_size", v.Side*v.Patch)
	if len(m.faults) > 0 {
		return fmt.Errorf("vision metadata mismatch: %s%s", clipPrefix, strings.Join(m.faults, ", "+clipPrefix))
	}
	return nil
}

// positionSide is the side of the grid of positions: the image's side in patches.
func positionSide(h *gguf.Header) (int, error) {
	image, err := positive(h, clipPrefix+"image_size")
	if err != nil {
		return 0, err
	}
	patch, err := positive(h, clipPrefix+"patch_size")
	if err != nil {
		return 0, err
	}
	if image%patch != 0 || image/patch > 1<<15 {
		return 0, fmt.Errorf("invalid GGUF vision position grid: %simage_size %d, %spatch_size %d",
			clipPrefix, image, clipPrefix, patch)
	}
	return image / patch, nil
}

// checkProjectorValues holds what is no size: the epsilon, the normalization of pixels, and that no layer is stacked.
func checkProjectorValues(h *gguf.Header, v *VisionLayout) error {
	if f, ok := h.Float(clipPrefix + "attention.layer_norm_epsilon"); !ok || !(math.Abs(f-v.Epsilon) <= 1e-6*v.Epsilon) {
		return fmt.Errorf("vision LayerNorm epsilon mismatch: %sattention.layer_norm_epsilon %s, expected %s",
			clipPrefix, number(f), number(v.Epsilon))
	}
	for _, key := range [...]string{"image_mean", "image_std"} {
		if f, _ := h.Floats(clipPrefix + key); !slices.Equal(f, []float64{0.5, 0.5, 0.5}) {
			return fmt.Errorf("vision image normalization mismatch: %s%s %v, expected [0.5 0.5 0.5]", clipPrefix, key, f)
		}
	}
	deep, ok := h.Bools(clipPrefix + "is_deepstack_layers")
	if !ok || len(deep) != v.Depth {
		return fmt.Errorf("vision metadata must list %sis_deepstack_layers per block: %d bools, found %d",
			clipPrefix, v.Depth, len(deep))
	}
	if i := slices.Index(deep, true); i >= 0 {
		return fmt.Errorf("vision deepstack layers are unsupported: %sis_deepstack_layers %d is true", clipPrefix, i)
	}
	return nil
}

func planProjectorTensors(h *gguf.Header, v *VisionLayout) (*VisionPlan, error) {
	p := &VisionPlan{Layout: *v, Format: "gguf"}
	faults := faultList{container: "vision"}
	used := map[string]bool{}
	for _, w := range v.inventory() {
		for i, name := range w.gguf {
			used[name] = true
			t := h.Tensor(name)
			shape := w.shape
			if len(w.gguf) > 1 { // one frame of the patch embedding
				shape = []int{v.Hidden, 3, v.Patch, v.Patch}
			}
			switch {
			case t == nil:
				faults.add(w.short(i), "missing", w.block)
			case t.Type != dequant.F32 && t.Type != dequant.F16 && t.Type != dequant.BF16:
				faults.add(w.short(i), t.Type.String(), w.block)
			case !slices.Equal(trimOnes(t.Dims), trimOnes(reversed(shape))):
				return nil, fmt.Errorf("vision tensor shape mismatch: %s is %s, expected %s",
					name, extentsOf(t.Dims), extentsOf(reversed(shape)))
			default:
				p.Tensors = append(p.Tensors, VisionTensor{Name: name, Source: name, Shape: shape, Type: t.Type})
			}
		}
	}
	if err := faults.err(); err != nil {
		return nil, err
	}
	var unused []string
	for i := range h.Tensors {
		if name := h.Tensors[i].Name; !used[name] {
			unused = append(unused, plain(name))
		}
	}
	if len(unused) > 0 {
		return nil, fmt.Errorf("mmproj tensors the vision tower does not use: %s", few(unused))
	}
	return p, nil
}

// few joins names, the first of many.
func few(names []string) string {
	if len(names) > 20 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:20], ", "), len(names)-20)
	}
	return strings.Join(names, ", ")
}

func reversed(shape []int) []uint64 {
	dims := make([]uint64, len(shape))
	for i, d := range shape {
		dims[len(shape)-1-i] = uint64(d)
	}
	return dims
}

// Prefixes of a tower's tensors in MLX and transformers checkpoints.
var towerPrefixes = [...]string{"vision_tower.", "model.visual."}

// PlanTower finds every tensor of the tower in a safetensors checkpoint. A quantized tower is refused.
func PlanTower(c *safetensors.Checkpoint, v *VisionLayout) (*VisionPlan, error) {
	p := &VisionPlan{Layout: *v, Format: "mlx"}
	prefix := towerPrefixes[0]
	for i := range c.Tensors {
		name := c.Tensors[i].Name
		rest, ok := strings.CutPrefix(name, towerPrefixes[1])
		if ok {
			prefix, p.Format = towerPrefixes[1], "transformers"
		} else if rest, ok = strings.CutPrefix(name, towerPrefixes[0]); !ok {
			continue
		}
		switch {
		case strings.HasSuffix(rest, ".scales"):
			return nil, fmt.Errorf("the MLX vision tower is quantized (%s)", plain(name))
		case strings.HasPrefix(rest, "deepstack"):
			return nil, fmt.Errorf("vision deepstack layers are unsupported: %s", plain(name))
		}
	}
	faults := faultList{container: "vision"}
	for _, w := range v.inventory() {
		name := prefix + w.checkpoint
		t := c.Tensor(name)
		shape := w.shape
		if len(w.gguf) > 1 && p.Format == "mlx" {
			shape = []int{v.Hidden, v.Temporal, v.Patch, v.Patch, 3}
		}
		if t == nil {
			faults.add(w.shortCheckpoint(), "missing", w.block)
			continue
		}
		kind, ok := floatTypes(t.DType)
		if !ok {
			faults.add(w.shortCheckpoint(), string(t.DType), w.block)
			continue
		}
		if !slices.EqualFunc(t.Shape, shape, func(a int64, b int) bool { return a == int64(b) }) {
			return nil, fmt.Errorf("vision tensor shape mismatch: %s is %s, expected %s",
				name, extents(t.Shape), extentsOf(reversed(shape)))
		}
		p.Tensors = append(p.Tensors, VisionTensor{Name: w.gguf[0], Source: name, Shape: shape, Type: kind})
	}
	if err := faults.err(); err != nil {
		return nil, err
	}
	return p, nil
}

func floatTypes(d safetensors.DType) (dequant.Type, bool) {
	switch d {
	case safetensors.BF16:
		return dequant.BF16, true
	case safetensors.F16:
		return dequant.F16, true
	case safetensors.F32:
		return dequant.F32, true
	}
	return 0, false
}

// A visionWant is one tensor of a tower under its names in both containers.
type visionWant struct {
	gguf       []string // two of the patch embedding, one a frame
	checkpoint string   // after the prefix
	shape      []int    // rows first; of the patch embedding, transformers' form
	block      int      // -1 outside the blocks
}

func (w *visionWant) short(i int) string {
	return strings.TrimPrefix(w.gguf[i], fmt.Sprintf("v.blk.%d.", w.block))
}

func (w *visionWant) shortCheckpoint() string {
	return strings.TrimPrefix(w.checkpoint, fmt.Sprintf("blocks.%d.", w.block))
}

// inventory lists the tower's tensors (models.md 9.2).
func (v *VisionLayout) inventory() []visionWant {
	var all []visionWant
	add := func(block int, gguf, checkpoint string, shape ...int) {
		all = append(all, visionWant{gguf: []string{gguf}, checkpoint: checkpoint, shape: shape, block: block})
	}
	both := func(block int, gguf, checkpoint string, rows int, cols ...int) {
		add(block, gguf+".weight", checkpoint+".weight", append([]int{rows}, cols...)...)
		add(block, gguf+".bias", checkpoint+".bias", rows)
	}
	all = append(all, visionWant{
		gguf:       []string{"v.patch_embd.weight", "v.patch_embd.weight.1"},
		checkpoint: "patch_embed.proj.weight",
		shape:      []int{v.Hidden, 3, v.Temporal, v.Patch, v.Patch},
		block:      -1,
	})
	add(-1, "v.patch_embd.bias", "patch_embed.proj.bias", v.Hidden)
	add(-1, "v.position_embd.weight", "pos_embed.weight", v.Side*v.Side, v.Hidden)
	for b := range v.Depth {
		in, out := fmt.Sprintf("v.blk.%d.", b), fmt.Sprintf("blocks.%d.", b)
		both(b, in+"ln1", out+"norm1", v.Hidden)
		both(b, in+"ln2", out+"norm2", v.Hidden)
		both(b, in+"attn_qkv", out+"attn.qkv", 3*v.Hidden, v.Hidden)
		both(b, in+"attn_out", out+"attn.proj", v.Hidden, v.Hidden)
		both(b, in+"ffn_up", out+"mlp.linear_fc1", v.FFN, v.Hidden)
		both(b, in+"ffn_down", out+"mlp.linear_fc2", v.Hidden, v.FFN)
	}
	both(-1, "v.post_ln", "merger.norm", v.Hidden)
	both(-1, "mm.0", "merger.linear_fc1", v.Merged(), v.Merged())
	both(-1, "mm.2", "merger.linear_fc2", v.Out, v.Merged())
	return all
}

// ProjectorRank orders the projectors of a repository by the type of their weights: 0 BF16, 1 F32, 2 F16. ok is false for a
// header that is no projector of those types.
func ProjectorRank(h *gguf.Header) (rank int, ok bool) {
	if arch, _ := h.String("general.architecture"); arch != "clip" {
		return 0, false
	}
	rank = 1
	for i := range h.Tensors {
		switch h.Tensors[i].Type {
		case dequant.F16:
			rank = 2
		case dequant.BF16:
			if rank == 1 {
				rank = 0
			}
		case dequant.F32:
		default:
			return 0, false
		}
	}
	return rank, true
}
