package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"splash/internal/flock"
)

// mostFile bounds a configuration that is read.
const mostFile = 16 << 20

// edit changes a file of text, which need not be there, and keeps its mode; a new one is private, as is its directory. The
// file is replaced whole or not at all, and where change fails not at all. Launches that edit files of one directory wait
// for each other.
func edit(ctx context.Context, path string, change func(text string) (string, error)) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	release, err := lockDir(ctx, dir)
	if err != nil {
		return err
	}
	defer release()
	path, err = target(path)
	if err != nil {
		return err
	}
	text, mode, err := readText(path)
	if err != nil {
		return err
	}
	changed, err := change(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return replace(path, changed, mode)
}

// lockDir takes the lock of a directory, which needs no file of its own.
func lockDir(ctx context.Context, dir string) (release func(), err error) {
	for {
		lock, err := flock.Existing(dir, true)
		if err == nil {
			return func() { lock.Unlock() }, nil
		}
		if !errors.Is(err, flock.ErrHeld) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// target is the file that is meant by a path, which may be a symbolic link.
func target(path string) (string, error) {
	to, err := filepath.EvalSymlinks(path)
	if err == nil {
		return to, nil
	}
	if _, there := os.Lstat(path); there == nil {
		return "", fmt.Errorf("%s is a symbolic link that leads nowhere", path)
	}
	return path, nil
}

// readText reads a file; one that is not there is empty, and would be private.
func readText(path string) (text string, mode os.FileMode, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", 0o600, nil
	}
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	data, err := io.ReadAll(io.LimitReader(f, mostFile+1))
	switch {
	case err != nil:
		return "", 0, err
	case len(data) > mostFile:
		return "", 0, fmt.Errorf("%s is longer than %d bytes", path, mostFile)
	case !utf8.Valid(data):
		return "", 0, fmt.Errorf("%s is not UTF-8", path)
	}
	return string(data), info.Mode().Perm(), nil
}

// replace puts a file in its place when it is complete.
func replace(path, text string, mode os.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".splash-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
