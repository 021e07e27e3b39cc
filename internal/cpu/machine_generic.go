//go:build !amd64 && !arm64

package cpu

var kernelsFor = [...]*kernels{Generic: &genericKernels, NEON: nil}

func machineRuns(Level) bool { return false }

func emulated(Level) bool { return false }
