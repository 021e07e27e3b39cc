package check

import (
	"errors"
	"fmt"
	"slices"

	"splash/internal/gguf"
	"splash/planner"
)

// Metadata is what is left of a model whose files are elsewhere: its configuration, and of a GGUF its headers.
type Metadata struct {
	Target  string   // format of the target: "gguf" or "safetensors"
	Vision  string   // format of the tower: "none", "gguf" or "safetensors"
	Config  string   // a config.json: the checkpoint's, or the one that was derived from a GGUF
	Headers []string // of a GGUF, all parts of a split, and of its projector
	Draft   string   // a draft's config.json; "": none
}

// Check checks the target's configuration and headers, then its tower's, then its draft's. A model of no family is told
// so whatever its tower, and one of another draft whatever that is.
func (m *Metadata) Check() (*Report, error) {
	r := &Report{VisionFormat: m.Vision, Warnings: []string{}}
	config, err := readConfig(m.Config)
	if err != nil {
		return nil, err
	}
	projectors, err := r.target(m, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Config, err)
	}
	if err := r.vision(m, config, projectors); err != nil {
		return nil, err
	}
	if err := r.describe(); err != nil {
		return nil, err
	}
	if m.Draft == "" {
		return r, nil
	}
	if config, err = readConfig(m.Draft); err != nil {
		return nil, err
	}
	d, err := planner.PlanDraft(config, r.Plan)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Draft, err)
	}
	r.Draft = &Draft{Layers: d.Layers, Block: d.Block, Taps: d.Taps}
	return r, nil
}

// target plans the target, and returns the projectors among the headers.
func (r *Report) target(m *Metadata, config []byte) (projectors []*gguf.Header, err error) {
	all, files, err := headers(m.Headers, Options{HeaderOnly: true})
	if err != nil {
		return nil, err
	}
	r.Files = files
	all = slices.DeleteFunc(all, func(h *gguf.Header) bool {
		if _, ok := planner.ProjectorRank(h); ok {
			projectors = append(projectors, h)
			return true
		}
		return false
	})
	switch {
	case m.Target == "safetensors":
		r.Plan, err = planner.CheckConfig(config)
		return projectors, err
	case len(all) == 0:
		return nil, errors.New("a GGUF target is planned from the headers of its files, and none is given")
	}
	h, err := gguf.Join(all)
	if err != nil {
		return nil, err
	}
	if r.Plan, err = planner.PlanGGUFConfig(config, h); err != nil {
		return nil, err
	}
	return projectors, nil
}

// vision checks the tower: its configuration, and a projector whose header is there.
func (r *Report) vision(m *Metadata, config []byte, projectors []*gguf.Header) error {
	if m.Vision == "none" {
		return nil
	}
	v := r.Plan.Family.Vision
	if v == nil {
		return fmt.Errorf("%s has no vision tower; the vision format is %s, and none is possible", r.Plan.Family.Name, m.Vision)
	}
	if err := planner.CheckVisionConfig(config, v); err != nil {
		return fmt.Errorf("%s: %w", m.Config, err)
	}
	for _, h := range projectors {
		if _, err := planner.PlanProjector(h, v); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	return nil
}
