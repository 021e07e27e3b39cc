package amx

import (
	"sync"
	"syscall"

	"github.com/klauspost/cpuid/v2"
)

// From Linux's Documentation/arch/x86/xstate.rst.
const (
	archRequestPermission = 0x1023 // ARCH_REQ_XCOMP_PERM of arch_prctl
	tileData              = 18     // XFEATURE_XTILEDATA, a bit of XCR0
)

// present asks Linux, which refuses where the processor or the system has no tiles, and where a thread's stack for
// signals is too small for them.
var present = sync.OnceValue(func() bool {
	if !cpuid.CPU.Supports(cpuid.AMXTILE, cpuid.AMXINT8, cpuid.AMXBF16) {
		return false
	}
	_, _, err := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, archRequestPermission, tileData, 0)
	return err == 0
})
