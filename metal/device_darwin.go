//go:build cgo && darwin && arm64

package metal

/*
#cgo CFLAGS: -fobjc-arc
#cgo LDFLAGS: -framework Foundation -framework Metal
#include "bridge.h"
const splash_bridge *splash_metal_bridge(void);
*/
import "C"

import (
	"syscall"
	"unsafe"
)

// systemVersion is the build of the system, on which what a GPU's compiler makes depends.
func systemVersion() string {
	version, err := syscall.Sysctl("kern.osversion")
	if err != nil {
		return "unknown"
	}
	return version
}

var bridges = []bridge{{"metal", func() unsafe.Pointer { return unsafe.Pointer(C.splash_metal_bridge()) }}}
