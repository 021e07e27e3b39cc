package cpu

import (
	"github.com/klauspost/cpuid/v2"

	"splash/internal/cpu/amx"
)

//go:generate go run ./gen -kernels attention -out attention_amd64.s -stubs attention_stubs_amd64.go -pkg cpu
//go:generate go run ./gen -kernels bf16 -out bf16_amd64.s -stubs bf16_stubs_amd64.go -pkg cpu
//go:generate go run ./gen -kernels dot -out dot_amd64.s -stubs dot_stubs_amd64.go -pkg cpu
//go:generate go run ./gen -kernels gdn -out gdn_amd64.s -stubs gdn_stubs_amd64.go -pkg cpu
//go:generate go run ./gen -kernels peak -out peak_amd64.s -stubs peak_stubs_amd64.go -pkg cpu
//go:generate go run ./gen -kernels product -out product_amd64.s -stubs product_stubs_amd64.go -pkg cpu
//go:generate go run ./gen -kernels quantize -out quantize_amd64.s -stubs quantize_stubs_amd64.go -pkg cpu
//go:generate go run ./gen -kernels tiles -out tiles_amd64.s -stubs tiles_stubs_amd64.go -pkg cpu
//go:generate go run ./gen -kernels unpack -out unpack_amd64.s -stubs unpack_stubs_amd64.go -pkg cpu
//go:generate go run ./gen -kernels vector -out vector_amd64.s -stubs vector_stubs_amd64.go -pkg cpu

var kernelsFor = [...]*kernels{
	Generic: &genericKernels, AVX2: kernels256(), AVX512: kernels512(), AVX512BF16: kernels512BF16(), AMX: kernelsAMX(), NEON: nil,
}

// machineRuns reports whether the processor and the system run a level.
func machineRuns(l Level) bool {
	switch l {
	case AVX2:
		return cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.F16C)
	case AVX512:
		return machineRuns(AVX2) &&
			cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL, cpuid.AVX512VNNI)
	case AVX512BF16:
		return machineRuns(AVX512) && cpuid.CPU.Supports(cpuid.AVX512BF16)
	case AMX:
		return machineRuns(AVX512) && amx.Runs()
	}
	return l == Generic
}

// emulated reports whether a level runs although the machine has no such instructions, as it may in tests.
func emulated(l Level) bool { return l == AMX && !amx.Present() }
