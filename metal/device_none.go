//go:build cgo && !(linux && amd64) && !(darwin && arm64)

package metal

// No kernel is compiled for this system.
var bridges []bridge

func systemVersion() string { return "" }
