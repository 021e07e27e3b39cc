package install

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"splash/internal/gguf"
	"splash/internal/hub"
)

// LocalOptions are what PrepareLocalModel is told beside the target.
type LocalOptions struct {
	Draft        string // the directory of a DFlash2 draft; empty: the family's, from the Hub cache
	MMProj       string // the vision projector of a GGUF target; empty: text only
	LanguageOnly bool   // no vision for a safetensors target
	NoDraft      bool   // decode without a draft
	ModelsDir    string // where prepared models are kept; empty: Splash's own
}

// A ModelError says why local files cannot be served as they are, and which.
type ModelError struct {
	File   string
	Reason string
	err    error
}

func (e *ModelError) Error() string {
	if strings.HasPrefix(e.Reason, e.File) {
		return e.Reason
	}
	// Files of a folder are read by their names in it.
	return e.File + ": " + strings.TrimPrefix(e.Reason, filepath.Base(e.File)+": ")
}

func (e *ModelError) Unwrap() error { return e.err }

func modelError(file string, err error) error {
	var e *ModelError
	if err == nil || errors.As(err, &e) {
		return err
	}
	return &ModelError{file, strings.Join(strings.Fields(err.Error()), " "), err}
}

// PrepareLocalModel checks local files as a download is checked and links them as an assembly, without a request to the
// Hub. Target is a GGUF file, any part of a split GGUF, a directory whose root holds GGUF targets of one name, or one that
// holds a safetensors model. The directory that it returns never changes; preparing the same files again returns it,
// reading their metadata, sizes and times alone. A server holds it with Installer.Hold.
func PrepareLocalModel(ctx context.Context, target string, opt LocalOptions) (dir string, err error) {
	cfg, err := hub.Environment(os.Getenv)
	if err != nil {
		return "", err
	}
	cfg.Offline = true
	client, err := hub.New(cfg)
	if err != nil {
		return "", err
	}
	if opt.ModelsDir == "" {
		opt.ModelsDir = filepath.Join(DataDir(os.Getenv), "models")
	}
	in := &Installer{Hub: client, Models: opt.ModelsDir}
	installed, err := in.PrepareLocal(ctx, target, opt)
	if err != nil {
		return "", err
	}
	return installed.Dir, installed.Close()
}

// PrepareLocal is PrepareLocalModel into the installer's models directory, with its check. It returns the assembly held.
func (in *Installer) PrepareLocal(ctx context.Context, target string, opt LocalOptions) (*Installed, error) {
	if opt.MMProj != "" && opt.LanguageOnly {
		return nil, &ModelError{File: opt.MMProj, Reason: "a projector cannot be combined with text only"}
	}
	if err := makeAbsolute(&target, &opt.Draft, &opt.MMProj); err != nil {
		return nil, err
	}
	c, err := in.inspectLocal(ctx, target, opt)
	if err != nil {
		return nil, modelError(target, err)
	}
	p := &publication{
		rel:    opt.link(target),
		model:  target,
		target: c,
		source: Source{Repo: target},
		links:  maps.Clone(c.links),
	}
	draft, err := in.localDraft(opt, c.plan.Family.Draft)
	if err != nil {
		return nil, err
	}
	if draft != nil {
		links, _, err := in.inspectDraft(ctx, draft, c.plan)
		if err != nil {
			return nil, modelError(draft.source().String(), err)
		}
		source := draft.source()
		p.draft = &source
		maps.Copy(p.links, links)
	}
	installed, err := in.publish(ctx, p)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return installed, modelError(target, err)
}

// link is where the installation of a prepared target is found below the models directory.
func (o LocalOptions) link(target string) string {
	parts := []any{"local", target, o.LanguageOnly, orNull(o.Draft), orNull(o.MMProj)}
	if o.NoDraft {
		parts = append(parts, o.NoDraft)
	}
	return filepath.Join(selections, key(parts...))
}

// makeAbsolute makes paths absolute; an empty one stays.
func makeAbsolute(paths ...*string) error {
	for _, path := range paths {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = abs
	}
	return nil
}

// inspectLocal checks the target at a path.
func (in *Installer) inspectLocal(ctx context.Context, target string, opt LocalOptions) (*candidate, error) {
	info, err := os.Stat(target)
	if err == nil && info.IsDir() {
		src, err := newDirFiles(target)
		if err != nil {
			return nil, err
		}
		if err := refusePackage(ctx, src, target); err != nil {
			return nil, err
		}
		if src.has("config.json") && hasCheckpoint(src) {
			if opt.MMProj != "" {
				const reason = "a safetensors target takes no projector: its tower is in its own checkpoint"
				return nil, &ModelError{File: opt.MMProj, Reason: reason}
			}
			return in.inspectCheckpoint(ctx, src, opt.LanguageOnly)
		}
	}
	paths, err := gguf.FindTarget(target)
	if err != nil {
		return nil, err
	}
	src, err := newDirFiles(filepath.Dir(paths[0]))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	c, err := in.inspectGGUF(ctx, src, names)
	if err != nil || opt.MMProj == "" {
		return c, err
	}
	return c, in.addLocalProjector(ctx, c, opt.MMProj)
}

// addLocalProjector checks the projector that was named.
func (in *Installer) addLocalProjector(ctx context.Context, c *candidate, path string) error {
	if c.plan.Family.Vision == nil {
		return &ModelError{File: path, Reason: c.plan.Family.Name + " has no vision tower, so it takes no projector"}
	}
	src, err := newDirFiles(filepath.Dir(path))
	if err != nil {
		return modelError(path, err)
	}
	h, _, err := ggufPart(ctx, src, filepath.Base(path))
	if err != nil {
		return modelError(path, err)
	}
	return modelError(path, in.addProjector(c, src, filepath.Base(path), h))
}

// localDraft finds a draft without the Hub: in the directory named, or else the family's in the Hub cache, at the commit
// that the cache records for its default branch.
func (in *Installer) localDraft(opt LocalOptions, released string) (files, error) {
	if opt.NoDraft {
		return nil, nil
	}
	if dir := opt.Draft; dir != "" {
		src, err := newDirFiles(dir)
		if err != nil {
			reason := err
			if errors.Is(err, fs.ErrNotExist) {
				reason = errors.New("local draft directory not found")
			}
			return nil, modelError(dir, reason)
		}
		return src, nil
	}
	if released == "" {
		return nil, nil
	}
	commit := in.Hub.Cache.Ref(released, "main")
	m, err := in.Hub.Cache.Model(released, commit)
	if commit == "" || err != nil || len(m.Files) == 0 {
		reason := "the family's draft is not in the Hub cache; download it with: hf download " + released
		return nil, &ModelError{File: released, Reason: reason}
	}
	return newHubFiles(in.Hub, m), nil
}
