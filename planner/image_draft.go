package planner

import (
	"fmt"

	"splash/dequant"
)

// draftLayer lists the tensors of a draft layer in image order, under their names in the checkpoint after "layers.L.".
// The three projections that read the same rows share one plane tensor (formats.md 5.10).
var draftLayer = []draftSection{
	{names: []string{"input_layernorm.weight"}},
	{names: []string{"attention_conv.base_kernel"}},
	{names: []string{"attention_conv.kernel_projection.weight"}, planes: true},
	{as: "self_attn.qkv_proj.weight", planes: true,
		names: []string{"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}},
	{names: []string{"self_attn.q_norm.weight"}},
	{names: []string{"self_attn.k_norm.weight"}},
	{names: []string{"self_attn.o_proj.weight"}, planes: true},
	{names: []string{"post_attention_layernorm.weight"}},
	{names: []string{"mlp_conv.base_kernel"}},
	{names: []string{"mlp_conv.kernel_projection.weight"}, planes: true},
	{names: []string{"mlp.gate_proj.weight"}, planes: true},
	{names: []string{"mlp.up_proj.weight"}, planes: true},
	{names: []string{"mlp.down_proj.weight"}, planes: true},
}

// draftModel lists what stands outside a draft's layers. The mask embedding is there when the release ships it.
var draftModel = []draftSection{
	{names: []string{"fc.weight"}, planes: true},
	{names: []string{"hidden_norm.weight"}},
	{names: []string{"norm.weight"}},
	{names: []string{"candidate_selector.hidden_projection.weight"}, planes: true},
	{names: []string{"candidate_selector.predecessor_codebook"}},
	{names: []string{"candidate_selector.successor_codebook"}},
	{names: []string{"mask_embedding"}, optional: true},
}

// A draftSection is a tensor of a draft's image: planes in af4g64, or rows as stored.
type draftSection struct {
	as       string // its name, where it is not that of its one part
	names    []string
	planes   bool
	optional bool
}

// PlanDraftImages lays out the images of a DFlash2 draft of so many layers: one a layer and model.bin. Projections become
// affine 4-bit planes in groups of 64, padded to whole tiles; everything else stays BF16. Tensors bear the names of the
// checkpoint; those that no image holds are ignored.
func PlanDraftImages(layers int, tensors []Tensor) (*ImagePlan, error) {
	byName := make(map[string]*Tensor, len(tensors))
	for i := range tensors {
		byName[tensors[i].Name] = &tensors[i]
	}
	out := new(ImagePlan)
	for l := range layers {
		m := Image{Name: fmt.Sprintf("layer-%d.bin", l), Layer: uint32(l), Type: imageGDN}
		if err := placeDraft(&m, fmt.Sprintf("layers.%d.", l), draftLayer, byName); err != nil {
			return nil, err
		}
		out.Images = append(out.Images, m)
	}
	m := Image{Name: "model.bin", Layer: uint32(layers), Type: imageDraftModel}
	if err := placeDraft(&m, "", draftModel, byName); err != nil {
		return nil, err
	}
	out.Images = append(out.Images, m)
	return out, nil
}

// placeDraft places the sections of one image of a draft.
func placeDraft(m *Image, prefix string, sections []draftSection, byName map[string]*Tensor) error {
	p := placeImage(m)
	for _, s := range sections {
		t := ImageTensor{Name: prefix + s.names[0], Form: Bare, Type: dequant.BF16}
		if s.as != "" {
			t.Name = prefix + s.as
		}
		if s.planes {
			t.Form, t.Type = Planes, dequant.Affine(4, 64)
		}
		for _, name := range s.names {
			part := byName[prefix+name]
			if part == nil {
				break
			}
			if part.Type != dequant.BF16 {
				return fmt.Errorf("draft tensor %s is %s, want BF16", part.Name, part.Type)
			}
			if s.planes && part.Cols%64 != 0 {
				return fmt.Errorf("draft tensor %s has rows of %d values, not a multiple of 64", part.Name, part.Cols)
			}
			t.Parts = append(t.Parts, part)
		}
		switch {
		case len(t.Parts) == len(s.names):
			if err := p.add(t, s.planes); err != nil {
				return err
			}
		case len(t.Parts) > 0 || !s.optional:
			return fmt.Errorf("draft tensor %s is missing", prefix+s.names[len(t.Parts)])
		}
	}
	return nil
}
