package planner

import (
	"fmt"
	"strings"
)

// A quantization is what a safetensors target's config.json says of its weights' formats.
type quantization struct {
	method string              // "mlx", "modelopt" or "compressed-tensors"
	groups []compressedGroup   // compressed-tensors
	ignore []compressedPattern // compressed-tensors
}

// Methods of quantization.
const (
	methodMLX        = "mlx"
	methodModelOpt   = "modelopt"
	methodCompressed = "compressed-tensors"
)

const wantsCheckpoint = "an MLX, Model Optimizer or compressed-tensors checkpoint or a GGUF is needed"

// readQuantization reads the configuration's quantization and refuses one that the loader would refuse, or that leaves a
// module unquantized which is read only quantized (formats.md 3.2, 4.2, 4.3).
func readQuantization(config object, l *Layout) (*quantization, error) {
	required := quantizedModules(l)
	if o, ok := config.object("quantization"); ok {
		return &quantization{method: methodMLX}, checkMLX(o, required)
	}
	o, ok := config.object("quantization_config")
	if !ok {
		return nil, fmt.Errorf("config.json declares no quantization; %s", wantsCheckpoint)
	}
	switch method, _ := o.text("quant_method"); method {
	case methodModelOpt:
		return &quantization{method: method}, checkModelOpt(o, required)
	case methodCompressed:
		return readCompressed(o, required)
	case "":
		return nil, fmt.Errorf("quantization_config names no quant_method; %s", wantsCheckpoint)
	default:
		return nil, fmt.Errorf("quantization_config quant_method is %s; %s", plain(method), wantsCheckpoint)
	}
}

// A module is one that the loader reads only quantized: a projection, the head, or the stack of a projection of every
// expert.
type module struct {
	name    string // "layers.3.self_attn.q_proj", "lm_head"; a stack's is its layer's MLP
	expert  string // the projection of every expert: "gate_proj"
	experts int
}

// quantizedModules lists them in image order. A tied head is none.
func quantizedModules(l *Layout) []module {
	var all []module
	for _, w := range inventory(l) {
		if (w.role == Linear || w.role == Experts) && !w.optional {
			all = append(all, module{name: w.module, expert: w.expert, experts: w.experts})
		}
	}
	return all
}

// mlx is the module's name in an MLX checkpoint.
func (m *module) mlx() string {
	switch {
	case m.expert != "":
		return mlxPrefix + m.name + ".switch_mlp." + m.expert
	case m.name == "lm_head":
		return "language_model.lm_head"
	}
	return mlxPrefix + m.name
}

// transformers is the module's name in a checkpoint that keeps transformers' names; of a stack, the name all its experts
// share.
func (m *module) transformers() string {
	switch {
	case m.expert != "":
		return transformersPrefix + m.name + ".experts"
	case m.name == "lm_head":
		return m.name
	}
	return transformersPrefix + m.name
}

// transformersExpert is the module of one expert's projection.
func (m *module) transformersExpert(e int) string {
	return fmt.Sprintf("%s.%d.%s", m.transformers(), e, m.expert)
}

// Prefixes of the text model's modules.
const (
	mlxPrefix          = "language_model.model."
	transformersPrefix = "model.language_model."
)

// canonical is a module's name without the prefix, however a checkpoint spells it.
func canonical(name string) string {
	for _, prefix := range [...]string{mlxPrefix, transformersPrefix, "language_model."} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return rest
		}
	}
	return name
}

// mlxAccepts says what formats MLX weights load as.
const mlxAccepts = "MLX weights load as affine 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128, or as mxfp4 or nvfp4"

// checkMLX holds an MLX checkpoint's quantization to the formats that load, module by module.
func checkMLX(o object, required []module) error {
	if err := checkMLXEntry("quantization", o, true); err != nil {
		return err
	}
	projections := map[string]bool{}
	for i := range required {
		projections[canonical(required[i].mlx())] = true
	}
	for _, key := range o.keys() {
		entry, ok := o.object(key)
		switch {
		case ok:
			if err := checkMLXEntry("quantization "+plain(key), entry, false); err != nil {
				return err
			}
		case projections[canonical(key)]:
			return fmt.Errorf("quantization %s is unquantized; Splash loads quantized MLX projections", plain(key))
		}
	}
	return nil
}

// checkMLXEntry holds one entry to the formats that load. The top level must state bits and groups; a module's entry may
// leave them to its mode, which is affine where the entry does not say.
func checkMLXEntry(label string, o object, top bool) error {
	mode := "affine"
	if v, ok := o["mode"]; ok {
		if mode, ok = v.(string); !ok {
			return fmt.Errorf("%s mode must be a string", label)
		}
	}
	bits, group := mlxDefaults(mode)
	for _, field := range [...]struct {
		key   string
		value *int64
	}{{"bits", &bits}, {"group_size", &group}} {
		if _, ok := o[field.key]; !ok && !top {
			continue
		}
		v, ok := o.whole(field.key)
		if !ok {
			return fmt.Errorf("%s %s must be a whole number", label, field.key)
		}
		*field.value = v
	}
	if !mlxLoads(mode, bits, group) {
		return fmt.Errorf("%s is %s %d-bit in groups of %d; %s", label, plain(mode), bits, group, mlxAccepts)
	}
	return nil
}

// mlxDefaults are MLX's own bits and group of a mode (mlx.core.quantize).
func mlxDefaults(mode string) (bits, group int64) {
	switch mode {
	case "mxfp4":
		return 4, 32
	case "nvfp4":
		return 4, 16
	case "mxfp8":
		return 8, 32
	}
	return 4, 64
}

func mlxLoads(mode string, bits, group int64) bool {
	switch mode {
	case "affine":
		switch bits {
		case 2, 3, 4, 5, 6, 8:
			return group == 32 || group == 64 || group == 128
		}
	case "mxfp4":
		return bits == 4 && group == 32
	case "nvfp4":
		return bits == 4 && group == 16
	}
	return false
}

// unquantized is the error of a module that a checkpoint's configuration leaves in floats.
func unquantized(module string) error {
	return fmt.Errorf("quantization_config leaves %s unquantized; Splash loads quantized projections", module)
}
