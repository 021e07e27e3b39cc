package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"splash/dequant"
)

// The tensors beside an NVFP4 weight STEM.weight: the scales that its values are multiplied by, and the scales of its
// activations, which play no part.
const (
	weightSuffix = ".weight"
	scaleSuffix  = ".scale"
	inputSuffix  = ".input_scale"
)

// Matrix returns a tensor as stored, its blocks in place: a vector is one row, an experts tensor its experts' rows one
// after another. An NVFP4 weight has the values of its .scale as Global, one of a projection, one an expert of a tensor
// whose stem ends in _exps; nil without one, for 1. Side tensors that CheckScales refuses, and a scale that is not finite,
// are refused.
func (f *File) Matrix(name string) (dequant.Matrix, error) {
	t := f.Tensor(name)
	if t == nil {
		return dequant.Matrix{}, fmt.Errorf("%s: tensor %s is missing", f.Name, quote(name))
	}
	m := dequant.Matrix{Format: dequant.Lookup(t.Type), Rows: t.Rows(), Cols: t.Cols(), Data: f.Data(t)}
	stem, ok := strings.CutSuffix(name, weightSuffix)
	if !ok {
		return m, nil
	}
	for _, side := range []string{stem + scaleSuffix, stem + inputSuffix, name + scaleSuffix, name + inputSuffix} {
		if s := f.Tensor(side); s != nil {
			if err := f.checkScale(s); err != nil {
				return dequant.Matrix{}, err
			}
		}
	}
	if s := f.Tensor(stem + scaleSuffix); s != nil {
		var err error
		if m.Global, err = f.scales(s, t); err != nil {
			return dequant.Matrix{}, err
		}
	}
	return m, nil
}

// scales returns the values of a weight's .scale tensor.
func (f *File) scales(s, weight *Tensor) ([]float32, error) {
	values := make([]float32, s.Elements())
	data := f.Data(s)
	for i := range values {
		bits := binary.LittleEndian.Uint32(data[4*i:])
		g := math.Float32frombits(bits)
		if math.IsNaN(float64(g)) || math.IsInf(float64(g), 0) {
			return nil, fmt.Errorf("%s: non-finite tensor scale of %s: value %d of %s is %v",
				f.Part(s.Part).Name, plain(weight.Name), i, plain(s.Name), g)
		}
		values[i] = g
	}
	return values, nil
}

// CheckScales refuses .scale and .input_scale tensors that do not belong to an NVFP4 weight, are not F32, or have another
// number of values than the weight takes: every one of the header, whether or not its weight is read.
func (h *Header) CheckScales() error {
	for i := range h.Tensors {
		if err := h.checkScale(&h.Tensors[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkScale refuses a side tensor that is not as it must be. Any other tensor passes.
func (h *Header) checkScale(s *Tensor) error {
	suffix := scaleSuffix
	stem, ok := strings.CutSuffix(s.Name, suffix)
	if !ok {
		suffix = inputSuffix
		if stem, ok = strings.CutSuffix(s.Name, suffix); !ok {
			return nil
		}
	}
	file := h.Part(s.Part).Name
	if rest, ok := strings.CutSuffix(stem, weightSuffix); ok {
		return fmt.Errorf("%s: tensor %s is not read; the scale of %s is spelled %s",
			file, quote(s.Name), plain(stem), plain(rest+suffix))
	}
	weight := h.Tensor(stem + weightSuffix)
	if weight == nil {
		return fmt.Errorf("%s: %s scales no tensor; %s is missing", file, plain(s.Name), plain(stem+weightSuffix))
	}
	if weight.Type != dequant.NVFP4 {
		return fmt.Errorf("%s: %s scales a %s tensor; only NVFP4 weights take one", file, plain(s.Name), weight.Type)
	}
	if s.Type != dequant.F32 {
		return fmt.Errorf("%s: %s is %s; a scale is F32", file, plain(s.Name), s.Type)
	}
	if want := scaleCount(stem, weight); s.Elements() != want {
		return fmt.Errorf("%s: %s has %d values; %s takes %d", file, plain(s.Name), s.Elements(), plain(weight.Name), want)
	}
	return nil
}

// scaleCount is the number of scales of an NVFP4 weight: one, or one an expert.
func scaleCount(stem string, weight *Tensor) int64 {
	if strings.HasSuffix(stem, "_exps") && len(weight.Dims) > 2 {
		return int64(product(weight.Dims[2:]))
	}
	return 1
}
