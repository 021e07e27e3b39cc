//go:build !unix

package filemap

import (
	"io"
	"os"
)

// mapFile reads the file, where the system is not known to map files.
func mapFile(f *os.File, size int) ([]byte, error) {
	b := make([]byte, size)
	_, err := io.ReadFull(io.NewSectionReader(f, 0, int64(size)), b)
	return b, err
}

func unmap([]byte) error { return nil }

func evict([]byte) error { return nil }
