//go:build cgo

package amxtest

// #include "emulate.h"
import "C"

import (
	"github.com/klauspost/cpuid/v2"

	"splash/internal/cpu/amx"
)

func init() {
	if amx.Present() || !cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW) {
		return
	}
	if C.amx_install() == 0 {
		amx.Emulate()
	}
}

// A Kind is an instruction that multiplies tiles.
type Kind int

const (
	SignedSigned Kind = iota // TDPBSSD
	SignedUnsigned
	UnsignedSigned
	UnsignedUnsigned
	BFloat16 // TDPBF16PS
)

// A Shape is that of a product: a is rows of 4 depth bytes, b depth rows of 4 columns bytes, c rows of columns dwords.
type Shape struct{ Rows, Depth, Columns int }

// Multiply adds the product of a and b to c, by instructions that the C compiler's assembler encoded. Rows are 64 bytes
// apart.
func Multiply(k Kind, s Shape, c, a, b *[1024]byte) {
	C.amx_multiply(C.int(k), C.int(s.Rows), C.int(s.Depth), C.int(s.Columns), (*C.uchar)(&c[0]), (*C.uchar)(&a[0]), (*C.uchar)(&b[0]))
}

// Illegal carries out an instruction that no processor has.
func Illegal() { C.amx_illegal() }

// Emulated is the number of instructions that were emulated.
func Emulated() uint64 { return uint64(C.amx_count()) }
