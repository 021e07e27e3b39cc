//go:build !linux && !darwin

package machine

func memory() int64 { return 0 }
