package target

import (
	"errors"
	"fmt"
	"path/filepath"

	"splash/fixtures"
	"splash/internal/engine"
	"splash/internal/model"
	"splash/internal/safetensors"
	"splash/planner"
)

// draftFiles are a draft's, checked and planned for its target.
type draftFiles struct {
	sizes   *planner.Draft
	tensors []planner.Tensor
	files   *safetensors.Checkpoint
	weights planner.Weights
	onDisk  bool
}

// images identifies the files, of which the demonstration model's draft has none.
func (d *draftFiles) images() ([]planner.ImageSource, error) {
	if !d.onDisk {
		return nil, nil
	}
	return planner.CheckpointSources(d.files)
}

// openDraft opens the draft in a directory, or, without one, that of the demonstration model. Its configuration is held
// to the target's before any weight is read.
func openDraft(dir string, p *planner.Plan) (*draftFiles, error) {
	name, config := "the demonstration model's draft", fixtures.PebbleDraftConfig
	if dir != "" {
		name = dir
		var err error
		if config, err = readSmall(filepath.Join(dir, "config.json")); err != nil {
			return nil, err
		}
	}
	sizes, err := planner.PlanDraft(config, p)
	if err != nil {
		return nil, fmt.Errorf("%s: draft configuration is incompatible with %s: %w", name, p.Family.Name, err)
	}
	var files *safetensors.Checkpoint
	if dir != "" {
		files, err = planner.OpenDraft(dir)
	} else {
		files, err = safetensors.FromBytes(name, fixtures.PebbleDraft)
	}
	if err != nil {
		return nil, err
	}
	tensors, err := planner.PlanDraftTensors(sizes, files)
	if err != nil {
		return nil, errors.Join(named(name, err), files.Close())
	}
	return &draftFiles{
		sizes: sizes, tensors: tensors, files: files, weights: planner.OpenSafetensors(files, p), onDisk: dir != "",
	}, nil
}

// proposer loads the draft beside its target.
func (d *draftFiles) proposer(n model.Network, w planner.Weights, o Options) (engine.Proposer, error) {
	source := model.DraftSource{Sizes: d.sizes, Tensors: d.tensors, Weights: w, Unrounded: o.UnroundedDraft}
	draft, err := model.NewDraft(n, source)
	if err != nil {
		return nil, err
	}
	return engine.NewProposer(draft, source, o.Walk)
}
