//go:build cgo

package metal

import (
	"context"
	"errors"

	"splash/internal/model"
	"splash/planner"
)

// A Loaded is a backend with the device and the images that are its own.
type Loaded struct {
	*Backend
	device  *Device
	images  []*planner.Images
	loading *Loading
	kind    string // of the device
}

var _ model.Unloader = (*Loaded)(nil)

// Load opens a device and a backend for a target on it, and its draft.
func Load(ctx context.Context, l *Loading) (*Loaded, error) {
	if err := Usable(); err != nil {
		return nil, err
	}
	kind := l.kind()
	x := &Loaded{loading: l, kind: kind}
	var err error
	if x.device, err = openCached(kind, l.Kernels); err == nil {
		x.images, err = l.makeImages(ctx, x.device, kind)
	}
	if err == nil {
		x.Backend, err = New(x.device, l.Target.Plan, x.images[0], l.options(x.device.Name))
	}
	if err == nil && l.Draft != nil {
		err = x.LoadDraft(x.images[1])
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// kind is the kind of the device.
func (l *Loading) kind() string {
	if l.Device == "" {
		return Devices()[0]
	}
	return l.Device
}

// options are those of the backend on the device of that name.
func (l *Loading) options(device string) Options {
	return Options{
		MaxRows: l.MaxRows, Int8KV: l.Int8KV, ChunkedGDN: l.ChunkedGDN, Int8Activations: !l.ExactActivations && fastInt8(device),
	}
}

// Unload forgets the network, and lets go of the images.
func (x *Loaded) Unload() {
	x.Backend.Unload()
	_ = closeAll(x.images) // what cannot be unmapped stays
	x.images = nil
}

// Reload makes the images anew where they are gone, and gives them to the unloaded backend, before its network is built again.
func (x *Loaded) Reload(ctx context.Context, progress func(done, total int64)) (err error) {
	l := *x.loading
	l.Progress = progress
	if x.images, err = l.makeImages(ctx, x.device, x.kind); err != nil {
		return err
	}
	if err := x.wrap(x.images[0]); err != nil {
		return err
	}
	if l.Draft == nil {
		return nil
	}
	return x.LoadDraft(x.images[1])
}

// makeImages makes the images on a GPU, which repacks faster than the CPU does. A device of the host is the CPU, at a kernel's pace:
// there the writer packs. The bytes are the same.
func (l *Loading) makeImages(ctx context.Context, d *Device, kind string) ([]*planner.Images, error) {
	if kind != gpu {
		return l.images(ctx, nil)
	}
	r, err := NewRepacker(d)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return l.images(ctx, r)
}

// Close frees the backend, its device and its images.
func (x *Loaded) Close() error {
	var err error
	if x.Backend != nil {
		err = x.Backend.Close()
	}
	if x.device != nil {
		x.device.Close()
	}
	return errors.Join(err, closeAll(x.images))
}
