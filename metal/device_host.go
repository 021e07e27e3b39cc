//go:build cgo && linux && amd64

package metal

import (
	"unsafe"

	"splash/metal/host"
	"splash/metal/host/checked"
)

var bridges = []bridge{{"host", host.Bridge}, {"checked", checked.Bridge}}

// systemVersion is nothing: the kernels are compiled in.
func systemVersion() string { return "" }

// OpenLibrary opens a device of the host that was built as a library, whose table a function gives: the kernels of these sources
// with changes, to see that tests notice them.
func OpenLibrary(path, function string) (*Device, error) {
	table, err := host.Load(path, function)
	if err != nil {
		return nil, err
	}
	return connectTo(bridge{path, func() unsafe.Pointer { return table }})
}
