//go:build !cgo

package metal

import "errors"

// A Device runs kernels; without cgo there is none.
type Device struct{ Name string }

// Devices is empty: a device takes cgo.
func Devices() []string { return nil }

// Open fails: a device takes cgo.
func Open(kind string) (*Device, error) {
	return nil, errors.New("metal: this build has no devices: it was made with CGO_ENABLED=0")
}
