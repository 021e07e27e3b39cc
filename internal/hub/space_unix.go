//go:build darwin || freebsd || linux

package hub

import "golang.org/x/sys/unix"

// freeSpace is the number of bytes that a user can still write to the disk of a folder.
func freeSpace(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}
