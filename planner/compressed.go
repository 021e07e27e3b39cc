package planner

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"splash/dequant"
)

// Bounds of the patterns of a compressed-tensors configuration.
const (
	maxExpression  = 512
	maxExpressions = 256
)

// compressedAccepts says what compressed-tensors weights load as.
const compressedAccepts = "compressed-tensors weights load as nvfp4-pack-quantized" +
	" (float 4-bit by tensor_group in groups of 16) or float-quantized (float 8-bit by channel or tensor)"

// A compressedGroup is one of config_groups: a format, and the modules it claims.
type compressedGroup struct {
	name    string
	format  dequant.Type // NVFP4Rows or FP8Rows
	targets []compressedPattern
}

// A compressedPattern names modules: every projection, those an expression matches from their start, or one.
type compressedPattern struct {
	linear     bool
	expression *regexp.Regexp
	name       string
}

func (p *compressedPattern) matches(module string) bool {
	switch {
	case p.linear:
		return true
	case p.expression != nil:
		return p.expression.MatchString(module)
	}
	return p.name == module
}

func matchesAny(patterns []compressedPattern, module string) bool {
	for i := range patterns {
		if patterns[i].matches(module) {
			return true
		}
	}
	return false
}

// readCompressed reads a compressed-tensors configuration, refuses groups that do not load, and holds every module that is
// read only quantized to be a group's target which is not ignored (formats.md 4.3).
func readCompressed(o object, required []module) (*quantization, error) {
	q := &quantization{method: methodCompressed}
	groups, ok := o.object("config_groups")
	if !ok || len(groups) == 0 {
		return nil, fmt.Errorf("quantization_config config_groups must be an object of at least one group")
	}
	expressions := 0
	for _, name := range groups.keys() {
		label := "quantization_config config_groups " + plain(name)
		group, ok := groups.object(name)
		if !ok {
			return nil, fmt.Errorf("%s must be an object", label)
		}
		g := compressedGroup{name: name}
		var err error
		if g.format, err = compressedFormat(label, o, group); err != nil {
			return nil, err
		}
		if g.targets, err = readPatterns(label+" targets", group["targets"], &expressions); err != nil {
			return nil, err
		}
		q.groups = append(q.groups, g)
	}
	if v, ok := o["ignore"]; ok && v != nil {
		var err error
		if q.ignore, err = readPatterns("quantization_config ignore", v, &expressions); err != nil {
			return nil, err
		}
	}
	for i := range required {
		for _, name := range required[i].compressed() {
			if len(q.claims(name)) == 0 {
				return nil, unquantized(name)
			}
		}
	}
	return q, nil
}

// compressed lists the names by which the module is claimed before its tensors are there: of experts, the first's and the
// last's.
func (m *module) compressed() []string {
	if m.expert == "" {
		return []string{m.transformers()}
	}
	return []string{m.transformersExpert(0), m.transformersExpert(m.experts - 1)}
}

// claims lists the groups that claim a module; none where it is ignored.
func (q *quantization) claims(module string) []*compressedGroup {
	var all []*compressedGroup
	for i := range q.groups {
		if matchesAny(q.groups[i].targets, module) {
			all = append(all, &q.groups[i])
		}
	}
	if len(all) > 0 && matchesAny(q.ignore, module) {
		return nil
	}
	return all
}

// compressedFormat holds a group to the formats that load.
func compressedFormat(label string, o, group object) (dequant.Type, error) {
	w, ok := group.object("weights")
	if !ok {
		return 0, fmt.Errorf("%s weights must be an object", label)
	}
	kind, ok := w.text("type")
	if !ok {
		return 0, fmt.Errorf("%s weights type must be a string", label)
	}
	strategy, ok := w.text("strategy")
	if !ok {
		return 0, fmt.Errorf("%s weights strategy must be a string", label)
	}
	bits, ok := w.whole("num_bits")
	if !ok {
		return 0, fmt.Errorf("%s weights num_bits must be a whole number", label)
	}
	size, sized := int64(0), w["group_size"] != nil
	if sized {
		if size, ok = w.whole("group_size"); !ok {
			return 0, fmt.Errorf("%s weights group_size must be a whole number", label)
		}
	}
	format, ok := group.text("format")
	if !ok {
		format, _ = o.text("format")
	}
	if err := checkOrder(label, w); err != nil {
		return 0, err
	}
	type scheme struct {
		format, kind, strategy string
		bits, size             int64
		sized                  bool
	}
	switch (scheme{format, kind, strategy, bits, size, sized}) {
	case scheme{"nvfp4-pack-quantized", "float", "tensor_group", 4, 16, true}:
		return dequant.NVFP4Rows, nil
	case scheme{"float-quantized", "float", "channel", 8, 0, false}, scheme{"float-quantized", "float", "tensor", 8, 0, false}:
		return dequant.FP8Rows, nil
	}
	in := ""
	if sized {
		in = fmt.Sprintf(" in groups of %d", size)
	}
	if format == "" {
		format = "of no format"
	}
	return 0, fmt.Errorf("%s is %s: %s %d-bit by %s%s; %s",
		label, plain(format), plain(kind), bits, plain(strategy), in, compressedAccepts)
}

// checkOrder refuses asymmetric weights and reordered columns.
func checkOrder(label string, w object) error {
	if v, ok := w["symmetric"]; ok && v != nil && v != true {
		return fmt.Errorf("%s is asymmetric; compressed-tensors weights load symmetric and in their stored column order",
			label)
	}
	if v := w["actorder"]; v == "group" || v == true {
		return fmt.Errorf("%s has actorder %v; compressed-tensors weights load symmetric and in their stored column order",
			label, v)
	}
	return nil
}

// readPatterns reads an array of names, expressions after "re:", and the class Linear.
func readPatterns(label string, v any, expressions *int) ([]compressedPattern, error) {
	list, ok := toTexts(v)
	if !ok {
		return nil, fmt.Errorf("%s must be an array of strings", label)
	}
	patterns := make([]compressedPattern, 0, len(list))
	for _, s := range list {
		p := compressedPattern{name: s, linear: s == "Linear"}
		if expr, ok := strings.CutPrefix(s, "re:"); ok {
			if len(s) > maxExpression {
				return nil, fmt.Errorf("%s holds an expression of %d bytes, at most %d", label, len(s), maxExpression)
			}
			if *expressions++; *expressions > maxExpressions {
				return nil, fmt.Errorf("quantization_config holds more than %d expressions", maxExpressions)
			}
			var err error
			if p.expression, err = anchored(expr); err != nil {
				return nil, fmt.Errorf("%s: %s is no regular expression that Splash reads (%w)", label, plain(s), err)
			}
		}
		patterns = append(patterns, p)
	}
	return patterns, nil
}

// anchored compiles an expression that matches from the start of a name. What only a backtracking engine accepts, such as
// a look-ahead, is an error.
func anchored(expr string) (*regexp.Regexp, error) {
	// Alone first: the group around it must not complete it.
	if _, err := regexp.Compile(expr); err != nil {
		var fault *syntax.Error
		if errors.As(err, &fault) {
			return nil, errors.New(fault.Code.String())
		}
		return nil, err
	}
	return regexp.Compile("^(?:" + expr + ")")
}
