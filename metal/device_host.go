//go:build cgo && linux && amd64

package metal

import (
	"splash/metal/host"
	"splash/metal/host/checked"
)

var bridges = []bridge{{"host", host.Bridge}, {"checked", checked.Bridge}}
