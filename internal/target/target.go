// Package target opens a model and all that serving it needs: its plan, its network on a backend, its draft, its
// tokenizer and its chat templates.
package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"splash/internal/chat"
	"splash/internal/engine"
	"splash/internal/install"
	"splash/internal/model"
	"splash/internal/tokenizer"
	"splash/internal/vision"
	"splash/planner"
)

// Options say what to open and how.
type Options struct {
	Path    string // a GGUF file, a part of a split, or a directory; empty: the demonstration model
	Name    string // of the model; empty: one made of the file's name
	Draft   string // a draft's directory; empty: none, and the demonstration model's own
	NoDraft bool   // decode a row a cycle
	Walk    engine.Walk

	// Vision is a vision projector, or the folder of a tower's shards; empty: none.
	Vision string

	// Installed is opened in place of Path, Draft and, with See, Vision. The target closes it, also where it cannot be opened.
	Installed *install.Installed
	See       bool // load the vision tower that is installed

	// UnroundedDraft leaves a draft's projections in BF16, to measure what rounding them to 4 bits costs.
	UnroundedDraft bool

	Backend string // the backend's name; empty or Auto: the best there is
	Images  string // where a backend keeps its weight images; empty: "images" in the data directory

	// KV is how keys and values are kept, one of the backend's KVFormats; empty: the last of them, its most exact one.
	KV string

	// ExactActivations keeps the inputs of rotated models as they are, where a backend would take those of a cycle in 8 bits.
	ExactActivations bool
	// ChunkedGDN takes the recurrent layers of prompts a chunk of rows at a time. What is computed of a prompt's token then depends,
	// in its last bits, on the passes that the prompt was cut into.
	ChunkedGDN bool

	// Memory is what there is for weights, lanes and what is kept of prompts, in bytes; 0: as much as they take.
	Memory int64

	Disk Disk // prompts that memory does not hold

	// Engine are the engine's limits. Context lowers the model's; Proposer, Vocab and Loader are the target's to set.
	Engine engine.Options

	Chat     bool                    // also probe the chat templates, without which there is no serving
	Progress func(done, total int64) // bytes of weights loaded; may be nil
	Log      func(line string)       // of what is done; may be nil
}

// log tells Log, if there is one.
func (o *Options) log(line string) {
	if o.Log != nil {
		o.Log(line)
	}
}

func (o *Options) imageDir() string {
	if o.Images != "" {
		return o.Images
	}
	return filepath.Join(install.DataDir(os.Getenv), "images")
}

// A Target is a model that is ready to be served.
type Target struct {
	Name       string
	Plan       *planner.Plan
	Network    model.Network
	Draft      *planner.Draft // nil: none
	Vision     *vision.Tower  // nil: none
	Tokenizer  *tokenizer.Tokenizer
	Vocabulary *tokenizer.Vocabulary
	Format     *chat.Format // with Options.Chat, as the templates
	Templates  *chat.Templates
	Backend    string
	Engine     engine.Options // of an engine on the network
	Memory     *MemoryPlan

	close []io.Closer // in the order of opening
}

// Device names what the backend computes on, and what it uses of it; the name is empty where the backend has none.
func (t *Target) Device() (name string, features []string) {
	if d, ok := t.Network.Backend().(interface {
		Device() (name string, features []string)
	}); ok {
		return d.Device()
	}
	return "", nil
}

// Open opens a target. Errors name the file, the tensor or key, what was found and what is accepted. ctx ends the loading.
func Open(ctx context.Context, o Options) (_ *Target, err error) {
	t := &Target{Name: o.Name, Engine: o.Engine}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	open := func() (*source, error) { return openSource(o.Path) }
	if i := o.Installed; i != nil {
		t.close = append(t.close, i)
		o.Path, o.Draft, o.Vision = i.Target(), i.Draft(), ""
		if o.See {
			o.Vision = i.Vision()
		}
		open = func() (*source, error) { return openInstalled(i) }
	}
	backend, err := o.backend()
	if err != nil {
		return nil, err
	}
	t.Backend = backend.Name
	if t.Engine.Chunk == 0 {
		t.Engine.Chunk = backend.Chunk
	}
	s, err := open()
	if err != nil {
		return nil, err
	}
	t.close = append(t.close, s.files)
	if t.Name == "" {
		t.Name = s.name
	}
	if err := t.describe(s); err != nil {
		return nil, named(s.label, err)
	}
	var d *draftFiles
	if !o.NoDraft && (o.Draft != "" || o.Path == "") {
		if d, err = openDraft(o.Draft, t.Plan); err != nil {
			return nil, err
		}
		t.close = append(t.close, d.files)
		t.Draft = d.sizes
	}
	if o.Vision != "" {
		if t.Vision, err = openVision(o.Vision, t.Plan); err != nil {
			return nil, err
		}
	}
	if o.Chat {
		if err := t.openChat(ctx); err != nil {
			return nil, named(s.label, err)
		}
		o.log("Chat template · " + t.Templates.Describe())
	}
	if err := t.planMemory(backend, s, d, o); err != nil {
		return nil, named(s.label, err)
	}
	began := time.Now()
	if err := t.load(ctx, backend, s, d, o); err != nil {
		return nil, err
	}
	if err := t.openDisk(s, d, o); err != nil {
		return nil, err
	}
	o.log(fmt.Sprintf("Weights loaded in %.1f s.", time.Since(began).Seconds()))
	if d != nil {
		if err := d.files.Changed(); err != nil {
			return nil, err
		}
	}
	return t, s.changed()
}

// Check refuses what needs no model to be refused: a backend that cannot run here, or does not do what is asked of it.
func (o *Options) Check() error {
	_, err := o.backend()
	return err
}

func (o *Options) backend() (Backend, error) {
	b, err := FindBackend(o.Backend)
	if err == nil {
		err = b.checkKV(o.KV)
	}
	if err == nil {
		err = b.checkChunked(o.ChunkedGDN)
	}
	if err == nil {
		err = o.Disk.check(&b)
	}
	return b, err
}

// describe takes what the files say without their weights.
func (t *Target) describe(s *source) (err error) {
	t.Plan, t.Vocabulary = s.plan, s.vocabulary
	t.Engine.Vocab, t.Engine.Hidden = s.plan.Layout.Vocab, s.plan.Layout.Hidden
	switch most := s.plan.Layout.Context; {
	case t.Engine.Context > most:
		return fmt.Errorf("a context of %d tokens is more than the model's %d", t.Engine.Context, most)
	case t.Engine.Context == 0:
		t.Engine.Context = most
	}
	if t.Tokenizer, err = tokenizer.New(s.vocabulary); err != nil {
		return err
	}
	if n := t.Tokenizer.Size(); n > t.Engine.Vocab {
		return fmt.Errorf("tokenizer vocabulary does not fit the model: %d tokens, %d rows", n, t.Engine.Vocab)
	}
	return nil
}

// opening is what a backend is opened for.
func (t *Target) opening(s *source, d *draftFiles, o *Options) *Opening {
	return &Opening{
		Plan: s.plan, MaxRows: t.Engine.MaxRows(), Lanes: t.Engine.MaxLanes(), KV: o.KV, Weights: s.weights, Files: s.images, Draft: d,
		ExactActivations: o.ExactActivations, ChunkedGDN: o.ChunkedGDN, Images: o.imageDir(), Log: o.log,
	}
}

// load builds the first network.
func (t *Target) load(ctx context.Context, backend Backend, s *source, d *draftFiles, o Options) (err error) {
	l := &loader{t: t, backend: backend, source: s, draft: d, o: o}
	t.close = append(t.close, l)
	t.Network, t.Engine.Proposer, err = l.load(ctx, o.Progress)
	t.Engine.Loader = l
	return err
}

// Close gives everything back. The engines on the network must be closed before.
func (t *Target) Close() error {
	var errs []error
	for i := len(t.close) - 1; i >= 0; i-- {
		errs = append(errs, t.close[i].Close())
	}
	t.close = nil
	return errors.Join(errs...)
}
