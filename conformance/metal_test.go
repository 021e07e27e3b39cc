//go:build cgo

package conformance_test

import (
	"os"
	"strings"
	"sync"
	"testing"

	"splash/internal/model"
	"splash/metal"
	"splash/planner"
)

// metalDevice is the device that rows of the metal backend run on: the GPU where there is one, else the host. It stays open.
var metalDevice = sync.OnceValues(func() (*metal.Device, error) {
	if path := os.Getenv(mutantLibrary); path != "" {
		return openMutant(path)
	}
	return metal.Open(metal.Devices()[0])
})

// A run of the tests on one mutant of the kernels, a library, has these in its environment, and no row but the mutant's.
const (
	mutantLibrary = "SPLASH_MUTANT"
	mutantFormats = "SPLASH_MUTANT_FORMATS"
)

func mutant() *operatorBackend {
	if os.Getenv(mutantLibrary) == "" {
		return nil
	}
	b := metalBackends()[0]
	b.name, b.only = "mutant", strings.Split(os.Getenv(mutantFormats), ",")
	return &b
}

// metalBackends are the operators' rows of the metal backend, with keys and values in every width.
func metalBackends() []operatorBackend {
	if metal.Usable() != nil {
		return nil
	}
	kind := "metal " + metal.Devices()[0]
	row := func(name string, kv, codes float64, o metal.Options) operatorBackend {
		open := func(p *planner.Plan, maxRows int) (model.Backend, error) {
			o.MaxRows = maxRows
			return openMetal(p, o)
		}
		return operatorBackend{name: name, open: open, kv: kv, codes: codes, planes: true, attends: name != kind}
	}
	return []operatorBackend{
		row(kind, bf16Roundoff, 0, metal.Options{}), row(kind+" wide", float32Roundoff, 0, metal.Options{WideKV: true}),
		row(kind+" int8", bf16Roundoff, codeRoundoff, metal.Options{Int8KV: true}),
	}
}

// metalModels is the metal backend as whole models are run on it.
func metalModels() []modelBackend {
	if metal.Usable() != nil {
		return nil
	}
	open := func(t testing.TB, p *planner.Plan, maxRows int) model.Backend {
		b, err := openMetal(p, metal.Options{MaxRows: maxRows, WideKV: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}
	draft := func(t testing.TB, b model.Backend, s *model.DraftSource) {
		plan, err := planner.PlanDraftImages(s.Sizes.Layers, s.Tensors)
		if err != nil {
			t.Fatal(err)
		}
		images, err := planner.BuildImages(t.Context(), plan, s.Weights)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.(*metal.Backend).LoadDraft(images); err != nil {
			t.Fatal(err)
		}
	}
	return []modelBackend{{"metal " + metal.Devices()[0], open, draft}}
}

// servedModels is the metal backend as it serves: with keys and values in BF16, and in codes of 8 bits.
func servedModels() (all []keptForm) {
	if metal.Usable() != nil {
		return nil
	}
	for _, f := range []keptForm{{name: "bf16", self: bf16Roundoff}, {name: "int8", self: bf16Roundoff, head: codeRoundoff}} {
		f.open = func(t testing.TB, p *planner.Plan, maxRows int) model.Backend {
			b, err := openMetal(p, metal.Options{MaxRows: maxRows, Int8KV: f.head > 0})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { b.Close() })
			return b
		}
		f.name = "metal " + metal.Devices()[0] + " " + f.name
		all = append(all, f)
	}
	return all
}

func openMetal(p *planner.Plan, o metal.Options) (*metal.Backend, error) {
	d, err := metalDevice()
	if err != nil {
		return nil, err
	}
	return metal.New(d, p, nil, o)
}

// unusedKernels are the kernels that no row of the suite has dispatched.
func unusedKernels() (unused []string, all int, err error) {
	if metal.Usable() != nil {
		return nil, 0, nil
	}
	names, err := metal.KernelNames()
	if err != nil {
		return nil, 0, err
	}
	d, err := metalDevice()
	if err != nil {
		return nil, 0, err
	}
	used := d.Used()
	for _, name := range names {
		if used[name] == 0 {
			unused = append(unused, name)
		}
	}
	return unused, len(names), nil
}
