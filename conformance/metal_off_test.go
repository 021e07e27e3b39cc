//go:build !cgo

package conformance_test

// Without cgo the metal backend has no device.
func metalBackends() []operatorBackend { return nil }

func mutant() *operatorBackend { return nil }

func metalModels() []modelBackend { return nil }

func servedModels() []keptForm { return nil }

func unusedKernels() (unused []string, all int, err error) { return nil, 0, nil }
