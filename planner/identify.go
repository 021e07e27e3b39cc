package planner

import (
	"fmt"
	"strconv"
	"strings"
)

// sizeKeys are the sizes that tell families apart, by their keys in a text configuration.
var sizeKeys = [...]string{
	"hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings",
	"num_attention_heads", "num_key_value_heads", "head_dim",
}

func (l *Layout) identity() [len(sizeKeys)]float64 {
	return [...]float64{
		float64(l.Hidden), float64(l.Layers), float64(l.Vocab), float64(l.Context),
		float64(l.Attention.Heads), float64(l.Attention.KVHeads), float64(l.Attention.HeadDim),
	}
}

// A modelType names an architecture in a configuration: outer the model's, text the text model's. A flat configuration
// has one level, and one type.
type modelType struct {
	arch        Architecture
	gguf        string // general.architecture
	outer, text string
	flat        bool
}

var modelTypes = [...]modelType{
	{DenseHybrid, "qwen35", "qwen3_5", "qwen3_5_text", false},
	{MoEHybrid, "qwen35moe", "qwen3_5_moe", "qwen3_5_moe_text", false},
	{HyperMoE, "qwen4exp", "qwen4_exp", "qwen4_exp_text", false},
	{FlintMoE, "flint", "flint", "flint", true},
}

// modelTypeOf returns the type of that text model, or nil.
func modelTypeOf(text string) *modelType {
	for i := range modelTypes {
		if modelTypes[i].text == text {
			return &modelTypes[i]
		}
	}
	return nil
}

// identify returns the family of the architecture that has the sizes, which are found in a configuration of that source
// ("GGUF" or "MLX"). The error gives the first difference from the nearest family.
func identify(arch Architecture, found [len(sizeKeys)]float64, source string) (*Family, error) {
	var open, nearest *Family
	most := -1
	for _, f := range Families() {
		if f.Layout.Arch != arch {
			continue
		}
		if f.Open {
			open = f
			continue
		}
		same := 0
		for i, want := range f.Layout.identity() {
			if found[i] == want {
				same++
			}
		}
		if same == len(sizeKeys) {
			return f, nil
		}
		if same > most && !f.Test {
			nearest, most = f, same
		}
	}
	if open != nil {
		return open, nil
	}
	for i, want := range nearest.Layout.identity() {
		if found[i] != want {
			return nil, unsupported(fmt.Sprintf("text config %s: %s %s, %s %s",
				sizeKeys[i], source, number(found[i]), nearest.Name, number(want)))
		}
	}
	panic("planner: a family equal in every size was not taken")
}

// unsupported is the error of a model of no family.
func unsupported(difference string) error {
	return fmt.Errorf("no supported model has this architecture (%s); supported: %s",
		difference, strings.Join(Supported(), ", "))
}

// Supported lists the names of the families, test families aside.
func Supported() []string {
	var names []string
	for _, f := range Families() {
		if !f.Test {
			names = append(names, f.Name)
		}
	}
	return names
}

// number prints integers without a decimal point, other numbers in the shortest form that reads back.
func number(v float64) string {
	if v == float64(int64(v)) && v < 1e15 && v > -1e15 {
		return strconv.FormatInt(int64(v), 10)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
