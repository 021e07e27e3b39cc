//go:build cgo && linux && amd64

// Package checked is the host device with every memory access of the kernels checked: bounds of buffers and of threadgroup
// memory, reads of threadgroup memory that no thread wrote, and races between threads of a threadgroup.
package checked

/*
#cgo CXXFLAGS: -std=c++17 -g0 -O1 -Wall -Wno-attributes -Wno-subobject-linkage -fsanitize=kernel-address
#include "../../bridge.h"
const splash_bridge *splash_checked_bridge(void);
*/
import "C"

import (
	"unsafe"

	// The device and the kernels are part of this package's C++ file: a change there makes a new build here.
	_ "splash/metal/host"
	_ "splash/metal/kernels"
)

// Bridge is the device's table of calls, a splash_bridge.
func Bridge() unsafe.Pointer { return unsafe.Pointer(C.splash_checked_bridge()) }
