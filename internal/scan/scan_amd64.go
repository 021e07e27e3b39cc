package scan

import "github.com/klauspost/cpuid/v2"

//go:generate go run ./gen -out scan_amd64.s -stubs scan_stubs_amd64.go -pkg scan

// notAbove is the kernel of the best level that the machine runs.
var notAbove = best()

func best() kernel {
	switch {
	case cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512DQ):
		return notAbove512
	case cpuid.CPU.Supports(cpuid.AVX2):
		return notAbove256
	}
	return nil
}
