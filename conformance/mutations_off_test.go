//go:build cgo && !(linux && amd64)

package conformance_test

import (
	"errors"

	"splash/metal"
)

// openMutant fails: kernels are built as libraries on Linux alone.
func openMutant(string) (*metal.Device, error) {
	return nil, errors.New("no libraries of kernels here")
}
