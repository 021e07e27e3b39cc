//go:build !amd64 && !arm64

package cpu

// A tileUnpacker unpacks blocks straight into a tile; no level of this machine has one.
type tileUnpacker struct{}
