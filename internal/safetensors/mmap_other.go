//go:build !unix

package safetensors

import (
	"io"
	"os"
)

// mmap reads the file where files cannot be mapped.
func mmap(f *os.File, size int64) ([]byte, error) {
	data := make([]byte, size)
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, size), data); err != nil {
		return nil, err
	}
	return data, nil
}

func munmap([]byte) error { return nil }

func evict([]byte) error { return nil }
