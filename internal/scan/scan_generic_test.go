//go:build !amd64

package scan

func kernels() map[string]kernel { return map[string]kernel{"plain": nil} }
