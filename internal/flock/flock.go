// Package flock holds advisory locks on files, as the Hub's own tools take them: flock(2) on a lock file beside what it
// guards, LockFileEx on Windows. The kernel drops a lock with its process, however the process ends.
package flock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A Lock is a held lock. Unlock drops it; so does the end of the process.
type Lock struct{ file *os.File }

// ErrHeld says that another process, or another lock of this one, holds the file.
var ErrHeld = errors.New("the lock is held elsewhere")

// Try takes the exclusive lock of path, creating the file and its directory, or returns ErrHeld.
func Try(path string) (*Lock, error) { return open(path, true) }

// TryShared takes a shared lock of path as Try takes the exclusive one.
func TryShared(path string) (*Lock, error) { return open(path, false) }

// Acquire takes the exclusive lock of path as soon as it is free. It calls waiting once, unless nil, when it is not free
// at once, and gives up when ctx ends.
func Acquire(ctx context.Context, path string, waiting func()) (*Lock, error) {
	return acquire(ctx, path, Try, waiting)
}

// AcquireShared takes a shared lock of path as Acquire takes the exclusive one.
func AcquireShared(ctx context.Context, path string, waiting func()) (*Lock, error) {
	return acquire(ctx, path, TryShared, waiting)
}

func acquire(ctx context.Context, path string, try func(string) (*Lock, error), waiting func()) (*Lock, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		lock, err := try(path)
		if !errors.Is(err, ErrHeld) {
			return lock, err
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: %w", path, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// Existing takes a lock of a file that must be there, for reading alone: the file itself is what the lock keeps.
func Existing(path string, exclusive bool) (*Lock, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return take(file, exclusive)
}

func open(path string, exclusive bool) (*Lock, error) {
	for {
		file, err := create(path)
		if err != nil {
			return nil, err
		}
		lock, err := take(file, exclusive)
		if err != nil {
			return nil, err
		}
		if lock.current(path) {
			return lock, nil
		}
		lock.Unlock() // the file was removed while this process waited: its lock guards nothing
	}
}

func create(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if !errors.Is(err, os.ErrNotExist) {
		return file, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
}

func take(file *os.File, exclusive bool) (*Lock, error) {
	err := lock(file, exclusive)
	if err == nil {
		return &Lock{file}, nil
	}
	file.Close()
	if errors.Is(err, ErrHeld) {
		return nil, err
	}
	return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
}

// current reports whether path still names the locked file.
func (l *Lock) current(path string) bool {
	held, err := l.file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(held, named)
}

// File is the locked file, for a lock whose file says who holds it.
func (l *Lock) File() *os.File { return l.file }

// Unlock drops the lock. The file stays: removing it would let two processes lock two files of one name.
func (l *Lock) Unlock() error {
	if l == nil || l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}
