//go:build unix

package safetensors

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// mmap maps the file read-only.
func mmap(f *os.File, size int64) ([]byte, error) {
	if int64(int(size)) != size {
		return nil, fmt.Errorf("%d bytes do not fit the address space", size)
	}
	return syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
}

func munmap(data []byte) error { return syscall.Munmap(data) }

// evict drops the pages of a mapping from this process's memory.
func evict(data []byte) error { return unix.Madvise(data, unix.MADV_DONTNEED) }
