//go:build !cgo || !linux || !amd64

// Package host is the device of bridge.h on the CPU. It needs cgo and Linux on amd64.
package host
