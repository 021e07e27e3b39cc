//go:build cgo && linux && amd64

// Package host is the device of bridge.h on the CPU: the Metal sources of splash/metal/kernels, compiled as C++, every
// thread of a threadgroup a fiber, threadgroups spread over threads.
package host

/*
#cgo CXXFLAGS: -std=c++17 -g0 -O2 -Wall -Wno-attributes -Wno-subobject-linkage
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include "../bridge.h"
const splash_bridge *splash_host_bridge(void);

// load_bridge loads a library and returns the table that the function of that name gives, or NULL.
static const splash_bridge *load_bridge(const char *path, const char *name) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) return NULL;
	const splash_bridge *(*bridge)(void);
	*(void **)&bridge = dlsym(library, name);
	return bridge == NULL ? NULL : bridge();
}
*/
import "C"

import (
	"errors"
	"unsafe"

	// The sources are part of this package's C++ files: a change there makes a new build here.
	_ "splash/metal/kernels"
)

// Load loads a device that was built as a library, from these sources with changes, and returns its table. It stays loaded.
func Load(path, function string) (unsafe.Pointer, error) {
	p, f := C.CString(path), C.CString(function)
	defer C.free(unsafe.Pointer(p))
	defer C.free(unsafe.Pointer(f))
	table := C.load_bridge(p, f)
	if table == nil {
		return nil, errors.New("host: " + C.GoString(C.dlerror()))
	}
	return unsafe.Pointer(table), nil
}

// Bridge is the device's table of calls, a splash_bridge.
func Bridge() unsafe.Pointer { return unsafe.Pointer(C.splash_host_bridge()) }
