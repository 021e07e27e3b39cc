package target

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"splash/fixtures"
	"splash/internal/gguf"
	"splash/internal/install"
	"splash/internal/safetensors"
	"splash/internal/tokenizer"
	"splash/planner"
)

// A source is a target's files, checked and planned.
type source struct {
	name       string // of the model
	label      string // of the files, in errors
	plan       *planner.Plan
	weights    planner.Weights
	vocabulary *tokenizer.Vocabulary
	files      files
	changed    func() error // reports files that are no longer what was opened
	images     func() ([]planner.ImageSource, error)
}

// files are mapped. Evict gives back the memory that they take.
type files interface {
	io.Closer
	Evict() error
}

// openSource opens the target at path: a GGUF file, any part of a split one, a directory of GGUFs of one name, or a
// directory of safetensors; or, without a path, the demonstration model.
func openSource(path string) (*source, error) {
	if path == "" {
		f, err := gguf.FromBytes("the demonstration model", fixtures.Pebble)
		if err != nil {
			return nil, err
		}
		return planGGUF(f, "splash/pebble")
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() && isSnapshot(path) {
		return openSnapshot(path)
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	return planGGUF(f, "local/"+modelName(f.Paths[0]))
}

// modelName is the name of a model in a file that no one has named: the file's, as far as a model's name may be it.
func modelName(path string) string {
	name := strings.TrimSuffix(filepath.Base(path), ".gguf")
	if whole, _, _, ok := gguf.ParsePartName(filepath.Base(path)); ok {
		name = whole
	}
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', strings.ContainsRune("._-", r):
			return r
		}
		return '-'
	}, name)
	if name = strings.Trim(name, ".-"); name == "" {
		return "model"
	}
	return name
}

func planGGUF(f *gguf.File, name string) (*source, error) {
	images := func() ([]planner.ImageSource, error) { return planner.GGUFSources(f) }
	s := &source{name: name, label: f.Name, files: f, changed: f.Unchanged, images: images}
	var err error
	if s.plan, err = planner.PlanGGUF(f.Header); err == nil {
		s.vocabulary, err = tokenizer.FromGGUF(f.Header)
	}
	if err != nil {
		return nil, errors.Join(named(f.Name, err), f.Close())
	}
	s.weights = planner.OpenGGUF(f, s.plan)
	return s, nil
}

// named makes sure that an error says which file it is about.
func named(file string, err error) error {
	if strings.Contains(err.Error(), file) {
		return err
	}
	return fmt.Errorf("%s: %w", file, err)
}

// isSnapshot reports whether a directory holds a safetensors target rather than GGUFs.
func isSnapshot(dir string) bool {
	if shards, _ := filepath.Glob(filepath.Join(escapeGlob(dir), "*.safetensors")); len(shards) > 0 {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "model.safetensors.index.json"))
	return err == nil
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func openSnapshot(dir string) (*source, error) {
	return openCheckpoint(filepath.Join(dir, "config.json"), dir, dir, indexed)
}

// openInstalled opens the target of an assembly, whose folders hold nothing but what belongs there.
func openInstalled(i *install.Installed) (*source, error) {
	if i.Record.TargetFormat != install.Safetensors {
		return openSource(i.Target())
	}
	s, err := openCheckpoint(i.Config(), i.Tokenizer(), i.Target(), safetensors.OpenDir)
	if err == nil {
		s.name = "local/" + modelName(i.Record.Model)
	}
	return s, err
}

func indexed(dir string) (*safetensors.Checkpoint, error) { return safetensors.OpenIndexed(dir) }

// openCheckpoint opens a safetensors target: its configuration, the folder of its tokenizer and that of its shards.
func openCheckpoint(
	configFile, tokenizerDir, dir string, open func(dir string) (*safetensors.Checkpoint, error),
) (*source, error) {
	config, err := readSmall(configFile)
	if err != nil {
		return nil, err
	}
	snapshot, err := tokenizer.ReadSnapshot(os.DirFS(tokenizerDir), tokenizerDir)
	if err != nil {
		return nil, err
	}
	c, err := open(dir)
	if err != nil {
		return nil, err
	}
	images := func() ([]planner.ImageSource, error) { return planner.CheckpointSources(c) }
	s := &source{name: "local/" + modelName(filepath.Clean(dir)), label: dir, files: c, changed: c.Changed, images: images}
	if s.plan, err = planner.PlanSafetensors(config, c); err == nil {
		s.vocabulary, err = tokenizer.FromJSON(snapshot)
	}
	if err != nil {
		return nil, errors.Join(named(dir, err), c.Close())
	}
	s.weights = planner.OpenSafetensors(c, s.plan)
	return s, nil
}

// readSmall reads a configuration.
func readSmall(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // opening a pipe waits
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, planner.MaxConfig+1))
	if err != nil {
		return nil, err
	}
	if len(data) > planner.MaxConfig {
		return nil, fmt.Errorf("%s: more than %d bytes", path, planner.MaxConfig)
	}
	return data, nil
}
