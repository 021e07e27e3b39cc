//go:build cgo

package metal

import (
	"context"
	"errors"

	"splash/planner"
)

// A Loaded is a backend with the device and the images that are its own.
type Loaded struct {
	*Backend
	device *Device
	images []*planner.Images
}

// Load opens a device and a backend for a target on it, and its draft.
func Load(ctx context.Context, l *Loading) (*Loaded, error) {
	if err := Usable(); err != nil {
		return nil, err
	}
	kind := l.Device
	if kind == "" {
		kind = Devices()[0]
	}
	images, err := l.images(ctx)
	if err != nil {
		return nil, err
	}
	x := &Loaded{images: images}
	if x.device, err = Open(kind); err == nil {
		x.Backend, err = New(x.device, l.Target.Plan, images[0], Options{MaxRows: l.MaxRows, Int8KV: l.Int8KV})
	}
	if err == nil && l.Draft != nil {
		err = x.LoadDraft(images[1])
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
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
