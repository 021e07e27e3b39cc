package metal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	"splash/planner"
)

// A Source is a target or a draft to load: what a plan says of it, its weights, and the files that hold them. Without files
// its planes are made in memory.
type Source struct {
	Plan    *planner.Plan    // of a target
	Draft   *planner.Draft   // sizes of a draft
	Tensors []planner.Tensor // of a draft
	Weights planner.Weights
	Files   []planner.ImageSource
}

// A Loading says what Load opens.
type Loading struct {
	Target  Source
	Draft   *Source // nil: none
	Device  string  // empty: the first of Devices
	MaxRows int     // of a pass
	Lanes   int     // decoded at once
	Int8KV  bool    // keys and values are codes of 8 bits

	// ExactActivations multiplies the inputs of rotated models as they are. Otherwise cycles take them in codes of 8 bits on a
	// device that multiplies those faster.
	ExactActivations bool
	// ChunkedGDN is Options.ChunkedGDN.
	ChunkedGDN bool

	Kernels string // the directory that code of kernels for a GPU is kept in; empty: none is
	Images  string // the directory that images are kept in, one a file of weights below it

	Progress func(done, total int64) // bytes of images; may be nil
	Waiting  func()                  // another process makes the images; may be nil
}

// imagePlan lays out the source's images.
func (s *Source) imagePlan() (*planner.ImagePlan, error) {
	if s.Plan != nil {
		return PlanImages(s.Plan, s.Weights)
	}
	return planner.PlanDraftImages(s.Draft.Layers, s.Tensors)
}

// directory is where the source's images are kept: one for each set of files, by where they are on the disk, so that those of
// a file that has changed take the place of those of before.
func (s *Source) directory(images string) string {
	h := sha256.New()
	for _, f := range s.Files {
		fmt.Fprintln(h, f.Device, f.Inode)
	}
	return filepath.Join(images, hex.EncodeToString(h.Sum(nil)[:16]))
}

// A making is the images of a loading on their way.
type making struct {
	*Loading
	packer      planner.Packer // nil: the writer packs
	done, total int64          // of the sources before, and of all
}

// images makes the images of every source where they are not there already, with the packer where there is one, and opens them.
func (l *Loading) images(ctx context.Context, packer planner.Packer) (all []*planner.Images, err error) {
	sources := []*Source{&l.Target}
	if l.Draft != nil {
		sources = append(sources, l.Draft)
	}
	m := making{Loading: l, packer: packer}
	var plans []*planner.ImagePlan
	for _, s := range sources {
		p, err := s.imagePlan()
		if err != nil {
			return nil, err
		}
		plans = append(plans, p)
		m.total += p.Size()
	}
	for i, s := range sources {
		images, err := m.open(ctx, s, plans[i])
		if err != nil {
			return nil, errors.Join(err, closeAll(all))
		}
		all = append(all, images)
		m.done += plans[i].Size()
	}
	return all, nil
}

func closeAll(all []*planner.Images) error {
	var errs []error
	for _, m := range all {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

func (m *making) open(ctx context.Context, s *Source, plan *planner.ImagePlan) (*planner.Images, error) {
	maker := planner.ImageMaker{Packer: m.packer, Progress: func(p planner.ImageProgress) {
		switch {
		case p.Waiting && m.Waiting != nil:
			m.Waiting()
		case !p.Waiting && m.Progress != nil:
			m.Progress(m.done+p.Done, m.total)
		}
	}}
	if len(s.Files) == 0 {
		return maker.Build(ctx, plan, s.Weights)
	}
	dir := s.directory(m.Images)
	if err := maker.Make(ctx, dir, plan, s.Weights, s.Files); err != nil {
		return nil, err
	}
	return planner.OpenImages(ctx, dir, plan, s.Files)
}
