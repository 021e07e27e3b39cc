package planner

import (
	"fmt"
	"strings"
)

// modelOptAccepts says what algorithms Model Optimizer weights load in.
const modelOptAccepts = "Model Optimizer weights load as NVFP4, W4A16_NVFP4 or FP8"

// maxPattern bounds a glob of a configuration.
const maxPattern = 4096

// checkModelOpt holds a Model Optimizer checkpoint's quantization to the algorithms that load, and every module that is
// read only quantized to be one it quantizes (formats.md 4.2).
func checkModelOpt(o object, required []module) error {
	if layers, ok := o.object("quantized_layers"); ok {
		return checkQuantizedLayers(layers, required)
	}
	if err := checkAlgorithm("quantization_config", o); err != nil {
		return err
	}
	key := "ignore"
	if o[key] == nil {
		key = "exclude_modules"
	}
	if o[key] == nil {
		return nil
	}
	patterns, ok := o.texts(key)
	if !ok {
		return fmt.Errorf("quantization_config %s must be an array of strings", key)
	}
	for _, p := range patterns {
		if len(p) > maxPattern {
			return fmt.Errorf("quantization_config %s holds a pattern of %d bytes, at most %d", key, len(p), maxPattern)
		}
	}
	for i := range required {
		for _, name := range required[i].globbed() {
			for _, p := range patterns {
				if globMatch(p, name) {
					return unquantized(name)
				}
			}
		}
	}
	return nil
}

// globbed lists the names by which a pattern may name the module: of experts their stack, and the projections of the first
// and the last.
func (m *module) globbed() []string {
	if m.expert == "" {
		return []string{m.transformers()}
	}
	return []string{m.transformers(), m.transformersExpert(0), m.transformersExpert(m.experts - 1)}
}

// checkQuantizedLayers holds the algorithm of each layer, and every required module to be one of them; a layer's routed
// experts are one.
func checkQuantizedLayers(layers object, required []module) error {
	for _, name := range layers.keys() {
		label := "quantization_config quantized_layers " + plain(name)
		layer, ok := layers.object(name)
		if !ok {
			return fmt.Errorf("%s is %s; %s", label, show(layers[name]), modelOptAccepts)
		}
		if err := checkAlgorithm(label, layer); err != nil {
			return err
		}
	}
	for i := range required {
		name := required[i].transformers()
		if _, ok := layers[name]; !ok {
			return unquantized(name)
		}
	}
	return nil
}

// checkAlgorithm holds an object's quant_algo, and the groups of an NVFP4 one.
func checkAlgorithm(label string, o object) error {
	algorithm, ok := o.text("quant_algo")
	if !ok {
		return fmt.Errorf("%s is %s; %s", label, show(o["quant_algo"]), modelOptAccepts)
	}
	switch algorithm {
	case "FP8":
		return nil
	case "NVFP4", "W4A16_NVFP4":
		if v, ok := o["group_size"]; ok {
			if group, ok := toWhole(v); !ok || group != 16 {
				return fmt.Errorf("%s is %s in groups of %s; %s in groups of 16",
					label, algorithm, show(v), modelOptAccepts)
			}
		}
		return nil
	}
	return fmt.Errorf("%s is %s; %s", label, plain(algorithm), modelOptAccepts)
}

// globMatch reports whether a shell glob matches the whole name: fnmatch without flags, in which * and ? match any
// character. Its time is bounded by the square of the name's length.
func globMatch(pattern, name string) bool {
	p, n := 0, 0
	star, retry := -1, 0
	for n < len(name) {
		if p < len(pattern) && pattern[p] == '*' {
			star, retry = p+1, n
			p++
			continue
		}
		if size, ok := globOne(pattern[p:], name[n]); ok {
			p += size
			n++
			continue
		}
		if star < 0 {
			return false
		}
		retry++
		p, n = star, retry
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// globOne matches one character against the head of a pattern, and returns the head's length.
func globOne(pattern string, c byte) (int, bool) {
	if pattern == "" {
		return 0, false
	}
	switch pattern[0] {
	case '?':
		return 1, true
	case '[':
		if size, in, ok := globClass(pattern, c); ok {
			return size, in
		}
	case '\\':
		if len(pattern) > 1 {
			return 2, pattern[1] == c
		}
	}
	return 1, pattern[0] == c
}

// globClass matches a bracket expression; ok is false where the bracket does not close, which makes it a plain one.
func globClass(pattern string, c byte) (size int, in, ok bool) {
	i := 1
	negated := i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^')
	if negated {
		i++
	}
	for first := true; i < len(pattern); first = false {
		if pattern[i] == ']' && !first {
			return i + 1, in != negated, true
		}
		low := pattern[i]
		if low == '\\' && i+1 < len(pattern) {
			i++
			low = pattern[i]
		}
		i++
		high := low
		if i+1 < len(pattern) && pattern[i] == '-' && pattern[i+1] != ']' {
			high = pattern[i+1]
			i += 2
		}
		in = in || low <= c && c <= high
	}
	return 0, false, false
}
