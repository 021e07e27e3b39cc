//go:build cgo

package conformance_test

import (
	"splash/internal/model"
	"splash/metal"
	"splash/planner"
)

// chunkedBackends are rows of the metal backend whose recurrent layers take long segments in chunks.
func chunkedBackends() []operatorBackend {
	all := metalBackends()
	if len(all) == 0 {
		return nil
	}
	b := all[0]
	b.name += " chunked"
	b.open = func(p *planner.Plan, maxRows int) (model.Backend, error) {
		return openMetal(p, metal.Options{MaxRows: maxRows, ChunkedGDN: true})
	}
	return []operatorBackend{b}
}
