package planner

import (
	"fmt"
	"slices"
	"strings"

	"splash/dequant"
	"splash/internal/gguf"
)

const (
	rotationPrefix = "prism.hadamard."
	rotationBlock  = 1024
)

// A rotationKey is a key of a rotation (formats.md 6.2), with the value that the engine runs; nil where the value is the
// file's, or has a refusal of its own.
type rotationKey struct {
	key  string
	want any
}

var rotationKeys = [...]rotationKey{
	{"version", int64(1)},
	{"block_size", int64(rotationBlock)},
	{"transform", "normalized-sylvester-walsh-hadamard"},
	{"axis", "input-last-dimension"},
	{"sign_mode", "explicit"},
	{"gdn_v_grouped", nil},
	{"weight_names", nil},
	{"inverse_weight_names", nil},
	{"sign_widths", nil},
	{"sign_values", nil},
}

// rotate reads the header's rotation, holds it to the plan, and gives the rotated tensors their signs. A header without
// any of its keys is unrotated.
func (p *Plan) rotate(h *gguf.Header) error {
	found := 0
	for i := range h.Keys {
		key, ok := strings.CutPrefix(h.Keys[i].Key, rotationPrefix)
		if !ok {
			continue
		}
		found++
		if !slices.ContainsFunc(rotationKeys[:], func(k rotationKey) bool { return k.key == key }) {
			return notRun("unknown key %s", plain(h.Keys[i].Key))
		}
	}
	if found == 0 {
		return nil
	}
	if err := checkRotation(h); err != nil {
		return err
	}
	signs, err := readSigns(h)
	if err != nil {
		return err
	}
	return p.applyRotation(h, signs)
}

// notRun is the refusal of a rotation of another form.
func notRun(format string, args ...any) error {
	return fmt.Errorf("this rotation is not one the engine runs: "+format, args...)
}

// checkRotation holds the parameters to the one transform the engine runs.
func checkRotation(h *gguf.Header) error {
	for _, k := range rotationKeys {
		if k.want == nil {
			continue
		}
		var found any
		var ok bool
		if _, isString := k.want.(string); isString {
			found, ok = h.String(rotationPrefix + k.key)
		} else {
			found, ok = h.Int(rotationPrefix + k.key)
		}
		if !ok {
			found = "missing"
		}
		if found != k.want {
			return notRun("%s%s %s (expected %v)",
				rotationPrefix, k.key, plain(fmt.Sprint(found)), k.want)
		}
	}
	if grouped, _ := h.Bool(rotationPrefix + "gdn_v_grouped"); !grouped {
		return fmt.Errorf("rotated GDN inputs must keep their value heads grouped (prism.hadamard.gdn_v_grouped)")
	}
	return nil
}

// readSigns returns the signs of each input width.
func readSigns(h *gguf.Header) (map[int][]int8, error) {
	const widthsKey, valuesKey = rotationPrefix + "sign_widths", rotationPrefix + "sign_values"
	widths, ok := h.Ints(widthsKey)
	if !ok {
		return nil, notRun("%s missing (expected integers)", widthsKey)
	}
	values, ok := h.Ints(valuesKey)
	if !ok || h.Key(valuesKey).Elem != gguf.TypeInt8 {
		return nil, notRun("%s missing (expected int8 values)", valuesKey)
	}
	all := make([]int8, len(values))
	for i, v := range values {
		if v != 1 && v != -1 {
			return nil, notRun("%s %d is %d (expected 1 or -1)", valuesKey, i, v)
		}
		all[i] = int8(v)
	}
	signs := map[int][]int8{}
	used := 0
	for _, w := range widths {
		if w <= 0 || w%rotationBlock != 0 || signs[int(w)] != nil {
			return nil, notRun("%s holds %d (expected distinct multiples of %d)", widthsKey, w, rotationBlock)
		}
		if w > int64(len(all)-used) {
			return nil, notRun("%s holds %d values, its widths need more", valuesKey, len(all))
		}
		signs[int(w)] = all[used : used+int(w) : used+int(w)]
		used += int(w)
	}
	if used != len(all) {
		return nil, notRun("%s holds %d values, its widths %d", valuesKey, len(all), used)
	}
	return signs, nil
}

// applyRotation holds the named tensors to those whose weights are repacked into planes, and to the one token table.
func (p *Plan) applyRotation(h *gguf.Header, signs map[int][]int8) error {
	names, err := rotatedNames(h, "weight_names", signs)
	if err != nil {
		return err
	}
	tables, err := rotatedNames(h, "inverse_weight_names", signs)
	if err != nil {
		return err
	}
	if p.Layout.Arch != DenseHybrid {
		return fmt.Errorf("rotated weights are supported for dense targets only")
	}
	table := p.Tensor("token_embd.weight")
	if len(tables) != 1 || !tables[table.Name] || table.Type != dequant.PQ2_0 {
		return fmt.Errorf("the rotation's one token table must be token_embd.weight in PQ2_0")
	}
	rotated := 0
	for i := range p.Tensors {
		t := &p.Tensors[i]
		if planes := p.inPlanes(t); planes != names[t.Name] {
			return fmt.Errorf("the rotation must name every quantized tensor of the target and nothing else: %s", t.Name)
		} else if planes {
			rotated++
			t.Signs = signs[t.Cols]
		}
		if strings.HasSuffix(t.Name, ".ssm_out.weight") {
			t.ColOrder = nil // its inputs keep their value heads grouped
		}
	}
	if rotated != len(names) {
		for name := range names {
			if t := p.Tensor(name); t == nil {
				return fmt.Errorf("the rotation must name every quantized tensor of the target and nothing else: %s",
					plain(name))
			}
		}
	}
	table.Signs = signs[table.Cols]
	return nil
}

// inPlanes reports whether the tensor's weights are repacked into planes, which is what a rotation rotates: projections and
// the head, and alpha and beta where both are of one quantized type.
func (p *Plan) inPlanes(t *Tensor) bool {
	switch t.Role {
	case Linear, Experts:
		return true
	case AlphaBeta:
		alpha := p.Tensor(fmt.Sprintf("blk.%d.ssm_alpha.weight", t.Layer))
		beta := p.Tensor(fmt.Sprintf("blk.%d.ssm_beta.weight", t.Layer))
		return alpha.Type == beta.Type && linearBlocks(alpha.Type)
	}
	return false
}

// rotatedNames reads a list of tensors; each must exist, once, as a matrix whose columns have signs.
func rotatedNames(h *gguf.Header, key string, signs map[int][]int8) (map[string]bool, error) {
	list, ok := h.Strings(rotationPrefix + key)
	if !ok {
		return nil, notRun("%s%s missing (expected names)", rotationPrefix, key)
	}
	names := make(map[string]bool, len(list))
	for _, name := range list {
		t := h.Tensor(name)
		var fault string
		switch {
		case names[name]:
			fault = "is named twice"
		case t == nil:
			fault = "is missing"
		case len(trimOnes(t.Dims)) != 2:
			fault = "is not a matrix"
		case signs[t.Cols()] == nil:
			fault = fmt.Sprintf("has %d columns, which have no signs", t.Cols())
		}
		if fault != "" {
			return nil, notRun("%s of %s%s %s", plain(name), rotationPrefix, key, fault)
		}
		names[name] = true
	}
	return names, nil
}
