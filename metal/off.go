//go:build !cgo

package metal

import (
	"context"
	"errors"

	"splash/internal/model"
	"splash/planner"
)

// A Device runs kernels; without cgo there is none.
type Device struct{ Name string }

var errOff = errors.New("metal: this build has no devices: it was made with CGO_ENABLED=0")

// Devices is empty: a device takes cgo.
func Devices() []string { return nil }

// Open fails: a device takes cgo.
func Open(kind string) (*Device, error) { return nil, errOff }

// Describe fails: a device takes cgo.
func Describe(kind string) (string, error) { return "", errOff }

// Close does nothing.
func (d *Device) Close() {}

// A Loaded is a backend with its device; without cgo there is none.
type Loaded struct{ model.Backend }

// Load fails: a device takes cgo.
func Load(context.Context, *Loading) (*Loaded, error) { return nil, errOff }

// Reload fails: a device takes cgo.
func (x *Loaded) Reload(context.Context, func(done, total int64)) error { return errOff }

// Close does nothing.
func (x *Loaded) Close() error { return nil }

// Footprint fails: it takes cgo.
func (l *Loading) Footprint() (Footprint, error) { return Footprint{}, errOff }

// CycleTraffic fails: recording a pass takes cgo.
func CycleTraffic(_ *planner.Plan, _, _, _ int) (Traffic, error) { return Traffic{}, errOff }
