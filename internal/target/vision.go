package target

import (
	"errors"
	"os"

	"splash/internal/gguf"
	"splash/internal/safetensors"
	"splash/internal/vision"
	"splash/planner"
)

// openVision loads the vision tower at path: a projector, or the folder of a tower's shards.
func openVision(path string, p *planner.Plan) (*vision.Tower, error) {
	v := p.Family.Vision
	if v == nil {
		return nil, named(path, errors.New(p.Family.Name+" has no vision tower, so it takes no projector"))
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return openTower(path, v)
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	var t *vision.Tower
	plan, err := planner.PlanProjector(f.Header, v)
	if err == nil {
		t, err = vision.Load(plan, vision.FromGGUF(f))
	}
	return loadedTower(path, t, err, f.Unchanged, f.Close)
}

func openTower(dir string, v *planner.VisionLayout) (*vision.Tower, error) {
	c, err := safetensors.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	var t *vision.Tower
	plan, err := planner.PlanTower(c, v)
	if err == nil {
		t, err = vision.Load(plan, vision.FromCheckpoint(c))
	}
	return loadedTower(dir, t, err, c.Changed, c.Close)
}

// loadedTower closes the files of a tower, which holds all of its weights.
func loadedTower(path string, t *vision.Tower, err error, changed, close func() error) (*vision.Tower, error) {
	if err == nil {
		err = changed()
	}
	if c := close(); err == nil {
		err = c
	}
	if err != nil {
		return nil, named(path, err)
	}
	return t, nil
}
