//go:build !amd64 && !arm64

package cpu

import "runtime"

// pause is what a worker does between two looks for a task.
func pause() { runtime.Gosched() }
