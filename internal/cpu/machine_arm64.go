package cpu

import (
	"runtime"

	"github.com/klauspost/cpuid/v2"
)

// dotProducts reports whether there are products of four bytes (FEAT_DotProd). Every Mac with an Arm processor has them.
func dotProducts() bool { return runtime.GOOS == "darwin" || cpuid.CPU.Supports(cpuid.ASIMDDP) }
