//go:build !cgo

package conformance_test

func chunkedBackends() []operatorBackend { return nil }
func codedBackends() []operatorBackend   { return nil }
