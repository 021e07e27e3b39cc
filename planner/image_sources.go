package planner

import (
	"splash/internal/gguf"
	"splash/internal/safetensors"
)

// GGUFSources identifies the files of a GGUF, every part of a split one. A GGUF in memory has none.
func GGUFSources(f *gguf.File) ([]ImageSource, error) {
	var all []ImageSource
	for i, path := range f.Paths {
		h := f.Header
		if len(f.Parts) > 0 {
			h = f.Parts[i]
		}
		s, err := IdentifyImageSource(path, h.End)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// CheckpointSources identifies the shards of a checkpoint on disk, or the files of a draft.
func CheckpointSources(c *safetensors.Checkpoint) ([]ImageSource, error) {
	var all []ImageSource
	for _, f := range c.Files {
		s, err := IdentifyImageSource(f.Name, f.DataStart)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}
