// Package filemap maps files of weights for reading.
package filemap

import (
	"fmt"
	"math"
	"os"
)

// Map maps the first size bytes of a file, which may be closed then. They are read-only.
func Map(f *os.File, size int64) ([]byte, error) {
	if size > math.MaxInt {
		return nil, fmt.Errorf("%d bytes do not fit the address space", size)
	}
	return mapFile(f, int(size))
}

// Unmap gives a mapping back.
func Unmap(b []byte) error { return unmap(b) }

// Evict drops the pages of a mapping from this process's memory. They are read again when they are used.
func Evict(b []byte) error { return evict(b) }
