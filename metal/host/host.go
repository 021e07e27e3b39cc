//go:build cgo && linux && amd64

// Package host is the device of bridge.h on the CPU: the Metal sources of splash/metal/kernels, compiled as C++, every
// thread of a threadgroup a fiber, threadgroups spread over threads.
package host

/*
#cgo CXXFLAGS: -std=c++17 -g0 -O2 -Wall -Wno-attributes -Wno-subobject-linkage
#include "../bridge.h"
const splash_bridge *splash_host_bridge(void);
*/
import "C"

import (
	"unsafe"

	// The sources are part of this package's C++ files: a change there makes a new build here.
	_ "splash/metal/kernels"
)

// Bridge is the device's table of calls, a splash_bridge.
func Bridge() unsafe.Pointer { return unsafe.Pointer(C.splash_host_bridge()) }
