//go:build !cgo

package conformance_test

func chunkedBackends() []operatorBackend { return nil }
