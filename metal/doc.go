// Package metal runs the networks' operators as Metal kernels. One engine drives two devices through one table of C calls
// (bridge.h): the GPU of a Mac, and the host device, which is the same kernel sources compiled as C++ (splash/metal/host).
// Without cgo there is no device.
package metal
