package planner

import (
	"fmt"
	"slices"
	"strings"

	"splash/dequant"
	"splash/internal/gguf"
)

// PlanGGUF identifies the target of a header, holds it to its family's values, and plans every tensor its network reads
// (models.md 15.1 from step 2 on). It reads no weight: the header may be that of a file that is not here. The error is the
// first step's that fails; a step gathers all it finds. Callers name the file.
func PlanGGUF(h *gguf.Header) (*Plan, error) {
	d, err := deriveSizes(h)
	if err != nil {
		return nil, err
	}
	return planGGUF(h, d, -1)
}

// PlanGGUFConfig plans the target that a configuration derived earlier describes, from the header of its file, which must
// be the same target's.
func PlanGGUFConfig(config []byte, h *gguf.Header) (*Plan, error) {
	o, err := parseObject("config.json", config)
	if err != nil {
		return nil, err
	}
	text, kind, err := textConfig(o)
	if err != nil {
		return nil, err
	}
	d, err := deriveSizes(h)
	if err != nil {
		return nil, err
	}
	if d.kind != kind {
		return nil, fmt.Errorf("GGUF architecture is %s, but the model's target is %s", d.kind.gguf, kind.gguf)
	}
	stated := d.sizes
	for i, key := range sizeKeys {
		v, ok := text.float(key)
		if !ok {
			return nil, fmt.Errorf("text config %s must be a number", key)
		}
		d.sizes[i] = v
	}
	experts := int64(-1)
	if _, ok := text["num_experts"]; ok && kind.arch != DenseHybrid {
		if experts, ok = text.whole("num_experts"); !ok || experts < 1 {
			return nil, fmt.Errorf("text config num_experts must be a positive integer")
		}
	}
	p, err := planGGUF(h, d, experts)
	if err != nil {
		return nil, err
	}
	for i, key := range sizeKeys {
		if d.sizes[i] != stated[i] {
			return nil, fmt.Errorf("text config %s mismatch: config.json %s, GGUF %s",
				key, number(d.sizes[i]), number(stated[i]))
		}
	}
	return p, nil
}

// planGGUF plans the target of a derived configuration; experts is the count it states, -1 where it states none.
func planGGUF(h *gguf.Header, d *derived, experts int64) (*Plan, error) {
	f, err := identify(d.kind.arch, d.sizes, "GGUF")
	if err != nil {
		return nil, err
	}
	p := &Plan{Family: f, Layout: f.Layout, Format: "gguf", Stop: f.Stop}
	if f.Open {
		p.Layout, err = openFlint(h, d)
	} else {
		err = checkMetadata(h, d, &p.Layout)
	}
	if err != nil {
		return nil, err
	}
	if found := int64(p.Layout.MoE.Experts); experts >= 0 && found != experts {
		return nil, fmt.Errorf("GGUF metadata does not match the target: expert_count %d (expected %d)", found, experts)
	}
	if err := p.fromHeader(h, d); err != nil {
		return nil, err
	}
	if err := p.planTensors(h); err != nil {
		return nil, err
	}
	return p, p.rotate(h)
}

// fromHeader completes the layout with what the file states for itself.
func (p *Plan) fromHeader(h *gguf.Header, d *derived) error {
	l := &p.Layout
	switch l.Arch {
	case HyperMoE:
		return readPLE(h, d.kind.gguf+".", l.Vocab, &l.PLE)
	case FlintMoE:
		return p.flint(h)
	}
	return nil
}

// flint reads Flint's stop tokens and whether its queries and keys are normalized, and refuses a selection bias.
func (p *Plan) flint(h *gguf.Header) error {
	l := &p.Layout
	stops, err := stopTokens(h, l.Vocab)
	if err != nil {
		return err
	}
	if p.Family.Open {
		p.Stop = stops
	} else if a, b := slices.Sorted(slices.Values(stops)), slices.Sorted(slices.Values(p.Stop)); !slices.Equal(a, b) {
		return fmt.Errorf("text config eos_token_id mismatch: GGUF %v, runtime %v", stops, p.Stop)
	}
	for i := range h.Tensors {
		name := h.Tensors[i].Name
		layer, rest, ok := layerOf(name)
		if !ok || layer >= l.Layers {
			continue
		}
		if strings.HasPrefix(rest, "exp_probs_b") {
			return fmt.Errorf("%s is a selection bias; Flint's router has none", plain(name))
		}
		if p.Family.Open && (rest == "attn_q_norm.weight" || rest == "attn_k_norm.weight") {
			l.Attention.QKNorm = true // the plan then wants both in every layer
		}
	}
	return nil
}

// layerOf splits "blk.12.rest".
func layerOf(name string) (layer int, rest string, ok bool) {
	s, ok := strings.CutPrefix(name, "blk.")
	if !ok {
		return 0, "", false
	}
	i := 0
	for i < len(s) && i < 9 && '0' <= s[i] && s[i] <= '9' {
		layer = layer*10 + int(s[i]-'0')
		i++
	}
	if i == 0 || i == len(s) || s[i] != '.' {
		return 0, "", false
	}
	return layer, s[i+1:], true
}

// planTensors finds every tensor of the inventory in the header. Missing ones and those of a type their role does not
// accept are gathered; another shape is refused at once.
func (p *Plan) planTensors(h *gguf.Header) error {
	faults := faultList{container: "GGUF"}
	wants := inventory(&p.Layout)
	p.start(len(wants))
	for i := range wants {
		w := &wants[i]
		if w.experts > 0 && w.expert != "down_proj" && h.Tensor(w.name) == nil {
			if fused := fusedExperts(h, w); fused != nil {
				if err := p.planFused(w, fused, &faults); err != nil {
					return err
				}
				continue
			}
		}
		t := h.Tensor(w.name)
		switch {
		case t == nil && w.optional:
		case t == nil:
			faults.add(w.short(w.name), "missing", w.layer)
		case !w.role.accepts(t.Type):
			faults.add(w.short(w.name), t.Type.String(), w.layer)
		default:
			if err := checkShape(t, w.dims()); err != nil {
				return err
			}
			p.add(w.tensor(t, Piece{Name: t.Name, Rows: max(w.experts, 1) * w.rows}))
		}
	}
	if err := faults.err(); err != nil {
		return err
	}
	if err := h.CheckScales(); err != nil {
		return err
	}
	return p.checkNVFP4()
}

// start makes room for n tensors.
func (p *Plan) start(n int) {
	p.Tensors, p.byName = make([]Tensor, 0, n), make(map[string]int, n)
}

func (p *Plan) add(t Tensor) {
	p.byName[t.Name] = len(p.Tensors)
	p.Tensors = append(p.Tensors, t)
}

// short is a GGUF name without the layer's prefix.
func (w *want) short(name string) string {
	return strings.TrimPrefix(name, fmt.Sprintf("blk.%d.", w.layer))
}

// dims are the extents of the tensor in a GGUF: columns first.
func (w *want) dims() []uint64 {
	dims := []uint64{uint64(w.cols)}
	if w.rows > 1 || w.experts > 0 {
		dims = append(dims, uint64(w.rows))
	}
	if w.experts > 0 {
		dims = append(dims, uint64(w.experts))
	}
	return dims
}

// tensor is the plan of a tensor of a GGUF, read from the piece.
func (w *want) tensor(t *gguf.Tensor, piece Piece) Tensor {
	n := Tensor{
		Name: w.name, Layer: w.layer, Role: w.role, Rows: w.rows, Cols: w.cols, Experts: w.experts,
		Type: t.Type, RowOrder: w.rowOrder, ColOrder: w.colOrder, Source: []Piece{piece},
	}
	if w.hyper && (t.Type == dequant.BF16 || t.Type == dequant.F16) {
		n.Conversion = ToQ8_0
	}
	return n
}

// fusedExperts returns the layer's tensor of gate and up rows, or nil.
func fusedExperts(h *gguf.Header, w *want) *gguf.Tensor {
	return h.Tensor(fmt.Sprintf("blk.%d.ffn_gate_up_exps.weight", w.layer))
}

// planFused plans the gate or the up rows of every expert of a fused tensor: each expert's gate rows stand before its up
// rows.
func (p *Plan) planFused(w *want, t *gguf.Tensor, faults *faultList) error {
	if !w.role.accepts(t.Type) {
		if w.expert == "gate_proj" {
			faults.add(w.short(t.Name), t.Type.String(), w.layer)
		}
		return nil
	}
	if err := checkShape(t, []uint64{uint64(w.cols), uint64(2 * w.rows), uint64(w.experts)}); err != nil {
		return err
	}
	piece := Piece{Name: t.Name, Rows: w.experts * w.rows, Stride: 2 * w.rows, Width: w.rows}
	if w.expert == "up_proj" {
		piece.First = w.rows
	}
	p.add(w.tensor(t, piece))
	return nil
}

// checkShape holds a tensor to the extents; extents of 1 at the end do not count.
func checkShape(t *gguf.Tensor, want []uint64) error {
	if slices.Equal(trimOnes(t.Dims), trimOnes(want)) {
		return nil
	}
	return fmt.Errorf("unexpected shape for %s: %s, expected %s", t.Name, extentsOf(t.Dims), extentsOf(want))
}

func trimOnes(dims []uint64) []uint64 {
	for len(dims) > 1 && dims[len(dims)-1] == 1 {
		dims = dims[:len(dims)-1]
	}
	return dims
}

// extentsOf prints the extents of a GGUF as rows and columns: the slowest first.
func extentsOf(dims []uint64) string {
	texts := make([]string, len(dims))
	for i, d := range dims {
		texts[len(dims)-1-i] = fmt.Sprint(d)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// checkNVFP4 refuses NVFP4 rows that are not whole blocks of the image, which has 256 elements to the file's 64.
func (p *Plan) checkNVFP4() error {
	for i := range p.Tensors {
		t := &p.Tensors[i]
		if t.Type == dequant.NVFP4 && t.Cols%256 != 0 {
			return fmt.Errorf("%s's rows are not whole nvfp4 blocks of 256 elements", t.Source[0].Name)
		}
	}
	return nil
}
