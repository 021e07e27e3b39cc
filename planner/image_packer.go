package planner

import (
	"context"
	"fmt"

	"splash/dequant"
)

// A Packer packs native rows into planes in the place of the writer, as a device can. What it makes are the writer's bytes.
type Packer interface {
	// Pack fills the planes, or leaves them as they are and reports that the writer has to. Several goroutines call it at once.
	Pack(p *Packing) (packed bool, err error)
}

// A Packing is a run of native blocks of whole tiles of rows, and where their units go.
type Packing struct {
	Name         string // of the tensor
	Format       *ImageFormat
	Rows         int // a multiple of 64
	From, Blocks int // the first native block of every row, and how many

	// Plane0, Plane1 and Meta are zeros, for the units of the rows in the image's order.
	Plane0, Plane1, Meta []byte

	first int // of the tensor's rows
	parts []*partRows
}

// Row finds row i: its matrix, and its row there. Rows past those of the tensor have none, and their units stay zeros.
func (p *Packing) Row(i int) (*dequant.Matrix, int) {
	n := p.first + i
	for _, part := range p.parts {
		if n < part.rows {
			return part.row(n)
		}
		n -= part.rows
	}
	return nil, 0
}

// An ImageMaker makes images. The bytes do not depend on who packs them.
type ImageMaker struct {
	Packer   Packer              // nil: the writer itself
	Progress func(ImageProgress) // called as bytes are written, one call at a time; may be nil
}

// Make is [MakeImages].
func (k *ImageMaker) Make(ctx context.Context, dir string, plan *ImagePlan, w Weights, sources []ImageSource) error {
	d := newImageDir(dir, plan, sources)
	d.packer = k.Packer
	if k.Progress != nil {
		d.progress = k.Progress
	}
	if err := d.make(ctx, w); err != nil {
		return fmt.Errorf("weight images in %s: %w", dir, err)
	}
	return nil
}

// Build is [BuildImages].
func (k *ImageMaker) Build(ctx context.Context, plan *ImagePlan, w Weights) (*Images, error) {
	images := new(Images)
	for i := range plan.Images {
		m := &plan.Images[i]
		f := &ImageFile{Image: m, Data: alignedBytes(m.Size)}
		iw, err := newImageWriter(m, w, memoryWriter(f.Data))
		if err == nil {
			iw.packer = k.Packer
			err = iw.frame()
		}
		if err == nil {
			err = iw.run(ctx, m.jobs(jobBytes), func(int64) {})
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}
		images.Files = append(images.Files, f)
	}
	return images, nil
}
