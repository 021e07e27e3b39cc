//go:build cgo && darwin && arm64

package metal

/*
#cgo CFLAGS: -fobjc-arc
#cgo LDFLAGS: -framework Foundation -framework Metal
#include "bridge.h"
const splash_bridge *splash_metal_bridge(void);
*/
import "C"

import "unsafe"

var bridges = []bridge{{"metal", func() unsafe.Pointer { return unsafe.Pointer(C.splash_metal_bridge()) }}}
