//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package gguf

import (
	"fmt"
	"io"
	"math"
	"os"
)

// mapFile reads the first size bytes of a file, where the system is not known to map files.
func mapFile(file *os.File, size int64) ([]byte, error) {
	if size > math.MaxInt {
		return nil, fmt.Errorf("more than this system can address")
	}
	b := make([]byte, size)
	_, err := io.ReadFull(io.NewSectionReader(file, 0, size), b)
	return b, err
}

func unmapFile([]byte) error { return nil }

func evict([]byte) error { return nil }

// syncFolder does nothing where folders are not known to be files that can be synchronized.
func syncFolder(string) error { return nil }
