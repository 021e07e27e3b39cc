package cpu

import (
	"runtime"

	"github.com/klauspost/cpuid/v2"
	"golang.org/x/sys/cpu"
)

// dotProducts reports whether there are products of four bytes (FEAT_DotProd). Every Mac with an Arm processor has them;
// cpuid asks Linux, and x/sys Windows.
func dotProducts() bool {
	return runtime.GOOS == "darwin" || cpuid.CPU.Supports(cpuid.ASIMDDP) || cpu.ARM64.HasASIMDDP
}
