//go:build cgo

package conformance_test

import (
	"splash/internal/model"
	"splash/metal"
	"splash/planner"
)

// chunkedBackends are rows of the metal backend whose recurrent layers take long segments in chunks, codedBackends those whose
// rotated inputs are codes of 8 bits.
func chunkedBackends() []operatorBackend { return formOf(" chunked", metal.Options{ChunkedGDN: true}) }
func codedBackends() []operatorBackend   { return formOf(" codes", metal.Options{Int8Activations: true}) }

// formOf is the first row of the metal backend with other options.
func formOf(name string, o metal.Options) []operatorBackend {
	all := metalBackends()
	if len(all) == 0 {
		return nil
	}
	b := all[0]
	b.name += name
	b.open = func(p *planner.Plan, maxRows int) (model.Backend, error) {
		o.MaxRows = maxRows
		return openMetal(p, o)
	}
	return []operatorBackend{b}
}
