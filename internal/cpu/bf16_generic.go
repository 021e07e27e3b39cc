//go:build !amd64

package cpu

// bf16Scratch is nothing where no level has products of bfloat16 numbers.
type bf16Scratch struct{}
