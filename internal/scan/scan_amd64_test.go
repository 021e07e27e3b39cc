package scan

import "github.com/klauspost/cpuid/v2"

// kernels are those that the machine runs.
func kernels() map[string]kernel {
	all := map[string]kernel{"plain": nil}
	if cpuid.CPU.Supports(cpuid.AVX2) {
		all["avx2"] = notAbove256
	}
	if cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512DQ) {
		all["avx512"] = notAbove512
	}
	return all
}
