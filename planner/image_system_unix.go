//go:build unix

package planner

import (
	"context"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"splash/internal/flock"
)

// identify fills in what the file system knows of the file.
func (s *ImageSource) identify(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	s.Device, s.Inode, s.Size = uint64(st.Dev), uint64(st.Ino), st.Size
	s.Modified, s.Changed = st.Mtim.Nano(), st.Ctim.Nano()
	return nil
}

// syncDir makes the names of a directory last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

type unlocker struct{ lock *flock.Lock }

func (u unlocker) Close() error { return u.lock.Unlock() }

// lockFile takes the exclusive lock of path, or the shared one, and calls waiting when it has to wait.
func lockFile(ctx context.Context, path string, exclusive bool, waiting func()) (io.Closer, error) {
	acquire := flock.AcquireShared
	if exclusive {
		acquire = flock.Acquire
	}
	lock, err := acquire(ctx, path, waiting)
	if err != nil {
		return nil, err
	}
	return unlocker{lock}, nil
}
