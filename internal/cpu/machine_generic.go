//go:build !amd64

package cpu

var kernelsFor = [...]*kernels{Generic: &genericKernels, AVX2: nil, AVX512: nil}

func machineRuns(Level) bool { return false }
