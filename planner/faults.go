package planner

import (
	"fmt"
	"strings"
)

// A TensorFault is a tensor this build cannot load, once for all layers that have the fault.
type TensorFault struct {
	Name   string `json:"name"`  // without the layer's prefix
	Cause  string `json:"cause"` // the type's name, or "missing"
	Layers []int  `json:"layers,omitempty"`
}

// String is the fault with the layers that have it.
func (f *TensorFault) String() string {
	switch len(f.Layers) {
	case 0:
		return fmt.Sprintf("%s (%s)", f.Name, f.Cause)
	case 1:
		return fmt.Sprintf("%s (%s) in layer %d", f.Name, f.Cause, f.Layers[0])
	}
	return fmt.Sprintf("%s (%s) in %d layers", f.Name, f.Cause, len(f.Layers))
}

// A TensorError names every missing or unaccepted tensor of a target once, in image order.
type TensorError struct {
	Container string // "GGUF", "safetensors" or "vision"
	Faults    []TensorFault
}

func (e *TensorError) Error() string {
	texts := make([]string, len(e.Faults))
	for i := range e.Faults {
		texts[i] = e.Faults[i].String()
	}
	return fmt.Sprintf("%s tensors this build cannot load: %s", e.Container, strings.Join(texts, ", "))
}

// faultList gathers the faults of a target's tensors.
type faultList struct {
	container string
	faults    []TensorFault
	index     map[[2]string]int
}

// add notes a tensor by its name without the layer's prefix; its layer is -1 outside the layers.
func (l *faultList) add(name, cause string, layer int) {
	key := [2]string{name, cause}
	i, ok := l.index[key]
	if !ok {
		if l.index == nil {
			l.index = map[[2]string]int{}
		}
		i = len(l.faults)
		l.index[key] = i
		l.faults = append(l.faults, TensorFault{Name: name, Cause: cause})
	}
	if layer >= 0 {
		l.faults[i].Layers = append(l.faults[i].Layers, layer)
	}
}

func (l *faultList) err() error {
	if len(l.faults) == 0 {
		return nil
	}
	return &TensorError{Container: l.container, Faults: l.faults}
}
