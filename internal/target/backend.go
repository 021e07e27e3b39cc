package target

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"splash/internal/cpu"
	"splash/internal/model"
	"splash/internal/reference"
	"splash/metal"
	"splash/planner"
)

// A Backend is one way to compute.
type Backend struct {
	Name string
	// Open returns a backend for a target. A backend that also has a Close method is closed with its target.
	Open func(ctx context.Context, o *Opening) (model.Backend, error)
	// Footprint says what it takes of memory; nil: what the files' blocks take, read in place, and lanes as the planner has them.
	Footprint func(o *Opening) (metal.Footprint, error)
	// Portable says that what it keeps of prompts can be written to a disk.
	Portable bool
	// KVFormats are the ways it keeps keys and values; none: one of its own alone.
	KVFormats []string
	// ChunkedGDN says that it can take the recurrent layers of prompts a chunk of rows at a time.
	ChunkedGDN bool
	// Chunk is the rows of a prompt that a pass takes where nobody says how many: as few as read prompts nearly as fast as
	// more would, since a pass takes memory for each. 0: the engine's own.
	Chunk int
	// Usable says why this machine cannot run it; nil runs everywhere.
	Usable func() error
}

// An Opening is what a backend is opened for: a target whose passes have at most MaxRows rows, and its draft.
type Opening struct {
	Plan    *planner.Plan
	MaxRows int
	Lanes   int    // decoded at once
	KV      string // of KVFormats, or empty

	ExactActivations, ChunkedGDN bool // as in Options

	// For a backend that keeps weight images: the weights and the files they are in, the directory of the images, and who
	// is told how far they are.
	Weights  planner.Weights
	Files    func() ([]planner.ImageSource, error)
	Draft    *draftFiles // nil: none
	Images   string
	Progress func(done, total int64) // may be nil
	Log      func(line string)
}

// Backends lists the backends of this build, the one to prefer first: a GPU, else the CPU.
func Backends() []Backend {
	int8, bf16 := planner.KVInt8.String(), planner.KVBF16.String()
	gpu := Backend{Name: "metal", KVFormats: []string{int8, bf16}, ChunkedGDN: true, Open: openMetal, Footprint: metalFootprint, Usable: metal.Usable}
	all := []Backend{
		{Name: "cpu", Portable: true, Chunk: 128, KVFormats: []string{int8, bf16}, Open: func(_ context.Context, o *Opening) (model.Backend, error) {
			co := cpu.Options{KV: cpu.KVBF16}
			if o.KV == int8 {
				co.KV = cpu.KVInt8
			}
			return cpu.New(o.Plan, o.MaxRows, co)
		}},
		{Name: "oracle", Open: func(_ context.Context, o *Opening) (model.Backend, error) {
			return reference.New(o.Plan, o.MaxRows), nil
		}},
	}
	if metal.HasGPU() {
		return append([]Backend{gpu}, all...)
	}
	return append(all, gpu)
}

// openMetal opens the metal backend on images that are kept.
func openMetal(ctx context.Context, o *Opening) (model.Backend, error) {
	l := o.metal()
	l.Images, l.Progress = o.Images, o.Progress
	l.Waiting = func() { o.Log("Another Splash process writes these weight images; waiting...") }
	if dir, err := os.UserCacheDir(); err == nil {
		l.Kernels = filepath.Join(dir, "Splash", "kernels")
	}
	var err error
	if l.Target.Files, err = o.Files(); err != nil {
		return nil, err
	}
	if d := o.Draft; d != nil {
		if l.Draft.Files, err = d.images(); err != nil {
			return nil, err
		}
	}
	if len(l.Target.Files) > 0 {
		o.Log("Weight images · " + o.Images)
	}
	return metal.Load(ctx, l)
}

// metal is the loading of the metal backend, without files.
func (o *Opening) metal() *metal.Loading {
	l := &metal.Loading{
		Target: metal.Source{Plan: o.Plan, Weights: o.Weights}, MaxRows: o.MaxRows, Lanes: o.Lanes, Int8KV: o.KV == planner.KVInt8.String(),
		ExactActivations: o.ExactActivations, ChunkedGDN: o.ChunkedGDN,
	}
	if d := o.Draft; d != nil {
		l.Draft = &metal.Source{Draft: d.sizes, Tensors: d.tensors, Weights: d.weights}
	}
	return l
}

func metalFootprint(o *Opening) (metal.Footprint, error) { return o.metal().Footprint() }

// checkKV refuses a format that the backend does not have.
func (b *Backend) checkKV(format string) error {
	switch {
	case format == "" || slices.Contains(b.KVFormats, format):
		return nil
	case len(b.KVFormats) == 0:
		return fmt.Errorf("backend %s keeps keys and values in a format of its own, not in %s", b.Name, format)
	}
	return fmt.Errorf("backend %s keeps keys and values in %s, not in %s", b.Name, strings.Join(b.KVFormats, " or "), format)
}

// checkChunked refuses chunks of rows from a backend that has no such form.
func (b *Backend) checkChunked(chunked bool) error {
	if chunked && !b.ChunkedGDN {
		return fmt.Errorf("backend %s takes recurrent layers row by row alone", b.Name)
	}
	return nil
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
