//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package install

import (
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

func identify(path string) (identity, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return identity{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if s.Mode&unix.S_IFMT != unix.S_IFREG {
		return identity{}, fmt.Errorf("%s is not a regular file", path)
	}
	return identity{
		Device: uint64(s.Dev), Inode: uint64(s.Ino),
		Bytes: int64(s.Size), MTime: unix.TimespecToNsec(s.Mtim), CTime: unix.TimespecToNsec(s.Ctim),
	}, nil
}
