//go:build unix

package filemap

import (
	"os"

	"golang.org/x/sys/unix"
)

func mapFile(f *os.File, size int) ([]byte, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err == nil {
		largePages(b)
	}
	return b, err
}

func unmap(b []byte) error { return unix.Munmap(b) }

func evict(b []byte) error { return unix.Madvise(b, unix.MADV_DONTNEED) }
