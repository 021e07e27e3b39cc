package planner

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"splash/dequant"
)

// PlanImages lays out the images of a target: one a layer, the head, the token table and, where the network has one, the
// table of hashed n-grams. Tensors stand in the plan's order, which is that of formats.md 5.10. No weight is read.
//
// GDN convolutions and time biases are BF16, and making an image of one that BF16 does not hold fails; those named wide
// are F32, for backends that read both (see InexactBF16).
func PlanImages(p *Plan, wide ...string) (*ImagePlan, error) {
	out := new(ImagePlan)
	forms := &forms{wideNorms: widensNorms(p), wide: wide}
	for l := range p.Layout.Layers {
		m := Image{Name: fmt.Sprintf("layer-%d.bin", l), Layer: uint32(l), Type: imageGDN}
		if p.Layout.Attends(l) {
			m.Type = imageAttention
		}
		if err := placeTensors(&m, layerTensors(p, l), forms); err != nil {
			return nil, err
		}
		out.Images = append(out.Images, m)
	}
	head := Image{Name: "head.bin", Layer: uint32(p.Layout.Layers), Type: imageHead}
	if err := placeTensors(&head, headTensors(p), forms); err != nil {
		return nil, err
	}
	out.Images = append(out.Images, head)
	for _, t := range tableTensors(p) {
		m := Image{Name: "embedding.bin", Layer: uint32(p.Layout.Vocab), Type: uint32(p.Layout.Hidden)}
		if t.Name != tokenTable {
			m = Image{Name: "ple.bin", Layer: uint32(p.Layout.PLE.Layer), Type: imagePLE}
		}
		if err := placeTensors(&m, []*Tensor{t}, forms); err != nil {
			return nil, err
		}
		out.Images = append(out.Images, m)
	}
	return out, nil
}

const (
	tokenTable = "token_embd.weight"
	headWeight = "output.weight"
)

// layerTensors is the tensors of a layer, in order.
func layerTensors(p *Plan, layer int) []*Tensor {
	var all []*Tensor
	for i := range p.Tensors {
		if t := &p.Tensors[i]; t.Layer == layer {
			all = append(all, t)
		}
	}
	return all
}

// headTensors is the final norm or mix, and the head: of a tied target without one, the token table as a projection. (A
// rotated table's rows are H(D e), whose product with H(D x) is that of e with x, so it serves both ways.)
func headTensors(p *Plan) []*Tensor {
	var all []*Tensor
	var table, head *Tensor
	for i := range p.Tensors {
		t := &p.Tensors[i]
		switch {
		case t.Layer >= 0:
		case t.Name == headWeight:
			head = t
		case t.Role != TokenTable:
			all = append(all, t)
		case t.Name == tokenTable:
			table = t
		}
	}
	if head == nil && table != nil {
		tied := *table
		tied.Role = Linear
		head = &tied
	}
	if head != nil {
		all = append(all, head)
	}
	return all
}

// tableTensors is the token table, and after it the table of hashed n-grams.
func tableTensors(p *Plan) []*Tensor {
	var all []*Tensor
	for i := range p.Tensors {
		if t := &p.Tensors[i]; t.Layer < 0 && t.Role == TokenTable {
			all = append(all, t)
		}
	}
	return all
}

// widensNorms reports whether norms load as F32: all but MLX's, which multiply as they are and stay BF16. A checkpoint
// under transformers' names shows by the norms that are stored 1 below.
func widensNorms(p *Plan) bool {
	if p.Format != "safetensors" {
		return true
	}
	for i := range p.Tensors {
		if p.Tensors[i].Conversion == OnePlus {
			return true
		}
	}
	return false
}

// placeTensors places tensors in one image; GDN alpha and beta, which follow one another, share a section group.
func placeTensors(m *Image, tensors []*Tensor, f *forms) error {
	p := placeImage(m)
	for len(tensors) > 0 {
		t := tensors[0]
		if t.Role == AlphaBeta {
			if len(tensors) < 2 || tensors[1].Role != AlphaBeta {
				return fmt.Errorf("%s stands without its other half, alpha or beta", t.Name)
			}
			if err := p.alphaBeta(t, tensors[1]); err != nil {
				return err
			}
			tensors = tensors[2:]
			continue
		}
		image, err := f.of(t)
		if err == nil {
			err = p.add(image, false)
		}
		if err != nil {
			return err
		}
		tensors = tensors[1:]
	}
	if len(m.Tensors) == 0 {
		return fmt.Errorf("the plan has no tensor for %s", m.Name)
	}
	return nil
}

// forms decides how the tensors of a target stand in its images.
type forms struct {
	wideNorms bool
	wide      []string // convolutions and time biases that are F32
}

// of decides a tensor's form and type from its role (formats.md 5.8, 8.2 and 8.3).
func (f *forms) of(t *Tensor) (ImageTensor, error) {
	image := ImageTensor{Name: t.Name, Type: t.Type, Parts: []*Tensor{t}}
	switch t.Role {
	case Linear, Experts:
		image.Form = Planes
		if t.Conversion == ToQ8_0 {
			image.Type = dequant.Q8_0
		}
		if err := checkPlaneSource(t); err != nil {
			return image, err
		}
	case TokenTable, Router:
		image.Form = Described
		image.Type = rowType(t.Type)
	case Norm:
		image.Form = Bare
		if f.wideNorms {
			image.Type = dequant.F32
		}
	case SharedGate, Indexer:
		image.Form, image.Type = Described, dequant.F32
	case Convolution, TimeBias:
		image.Form, image.Type = Bare, dequant.BF16
		if slices.Contains(f.wide, t.Name) {
			image.Type = dequant.F32
		}
	case Decay, Sinks, Injection, PLEConvolution:
		image.Form, image.Type = Bare, dequant.F32
	default:
		return image, fmt.Errorf("%s has no place in an image: role %d", t.Name, t.Role)
	}
	if image.Form != Planes && t.Role != TokenTable && t.Signs != nil {
		return image, fmt.Errorf("%s is rotated, but only planes and the token table are read rotated", t.Name)
	}
	return image, nil
}

// checkPlaneSource holds a projection to the conversions that planes have.
func checkPlaneSource(t *Tensor) error {
	switch t.Conversion {
	case AsStored:
		return nil
	case ToQ8_0:
		if t.Type == dequant.BF16 || t.Type == dequant.F16 {
			return nil
		}
	}
	return fmt.Errorf("%s is %s, which planes of conversion %d are not made from", t.Name, t.Type, t.Conversion)
}

// rowType is the type of native rows: GGUF's NVFP4 blocks become NVFP4 rows.
func rowType(t dequant.Type) dequant.Type {
	if t == dequant.NVFP4 {
		return dequant.NVFP4Rows
	}
	return t
}

// alphaBeta places beta's rows and then alpha's: planes where both are of one quantized type, else F32 values.
func (p *placer) alphaBeta(a, b *Tensor) error {
	if strings.Contains(b.Name, "ssm_beta") {
		a, b = b, a
	}
	t := ImageTensor{Name: strings.Replace(a.Name, "ssm_beta", "ssm_beta_alpha", 1), Parts: []*Tensor{a, b}}
	if a.Type == b.Type && quantized(a.Type) {
		t.Form, t.Type = Planes, a.Type
		return p.add(t, true)
	}
	if a.Signs != nil || b.Signs != nil {
		return fmt.Errorf("%s and %s are rotated, but not of one quantized type: %s and %s", a.Name, b.Name, a.Type, b.Type)
	}
	t.Form, t.Type = Described, dequant.F32
	return p.add(t, false)
}

// quantized reports whether a type is one of planes, but for BF16 and F16.
func quantized(t dequant.Type) bool {
	return LookupImage(t) != nil && t != dequant.BF16 && t != dequant.F16
}

// InexactBF16 names the GDN convolutions and time biases that hold values BF16 does not, in the plan's order. It reads
// those tensors alone, which are small.
func InexactBF16(p *Plan, w Weights) ([]string, error) {
	var names []string
	for i := range p.Tensors {
		t := &p.Tensors[i]
		if t.Role != Convolution && t.Role != TimeBias || t.Type == dequant.BF16 {
			continue
		}
		part, err := openPart(w, t)
		if err != nil {
			return nil, err
		}
		if part.inexact() {
			names = append(names, t.Name)
		}
	}
	return names, nil
}

// inexact reports whether a value of the part takes more bits than BF16 has.
func (p *partRows) inexact() bool {
	values := make([]float32, p.tensor.Cols)
	for i := range p.matrices {
		for row := range p.each {
			p.matrices[i].DecodeRow(values, row)
			for _, v := range values {
				if math.Float32bits(v)&0xffff != 0 {
					return true
				}
			}
		}
	}
	return false
}
