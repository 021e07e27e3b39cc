//go:build !cgo || !linux || !amd64

// Package checked is the host device with every memory access of the kernels checked. It needs cgo and Linux on amd64.
package checked
