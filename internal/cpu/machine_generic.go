//go:build !amd64

package cpu

var kernelsFor = [...]*kernels{Generic: &genericKernels, AMX: nil}

func machineRuns(Level) bool { return false }
