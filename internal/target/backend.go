package target

import (
	"fmt"
	"strings"

	"splash/internal/cpu"
	"splash/internal/model"
	"splash/internal/reference"
	"splash/planner"
)

// A Backend is one way to compute.
type Backend struct {
	Name string
	// Open returns a backend for a target whose passes have at most maxRows rows. A backend that also has a Close method is
	// closed with its target.
	Open func(p *planner.Plan, maxRows int) (model.Backend, error)
	// Usable says why this machine cannot run it; nil runs everywhere.
	Usable func() error
}

// Backends lists the backends of this build, the one to prefer first.
func Backends() []Backend {
	return []Backend{
		{Name: "cpu", Open: func(p *planner.Plan, maxRows int) (model.Backend, error) {
			return cpu.New(p, maxRows, cpu.Options{})
		}},
		{Name: "oracle", Open: func(p *planner.Plan, maxRows int) (model.Backend, error) {
			return reference.New(p, maxRows), nil
		}},
	}
}

// Auto is the name that stands for the first backend this machine can run.
const Auto = "auto"

// FindBackend returns the backend of that name, which may be Auto or empty.
func FindBackend(name string) (Backend, error) {
	return findBackend(Backends(), name)
}

func findBackend(all []Backend, name string) (Backend, error) {
	names := []string{Auto}
	for _, b := range all {
		names = append(names, b.Name)
		var unusable error
		if b.Usable != nil {
			unusable = b.Usable()
		}
		switch {
		case name == b.Name && unusable != nil:
			return Backend{}, fmt.Errorf("backend %s cannot run here: %w", name, unusable)
		case name == b.Name, (name == Auto || name == "") && unusable == nil:
			return b, nil
		}
	}
	return Backend{}, fmt.Errorf("backend %q is none of %s", name, strings.Join(names, ", "))
}
