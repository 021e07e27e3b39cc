package flock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b.lock")
	first, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Try(path); !errors.Is(err, ErrHeld) {
		t.Errorf("second lock: %v, want ErrHeld", err)
	}
	if _, err := TryShared(path); !errors.Is(err, ErrHeld) {
		t.Errorf("shared lock beside an exclusive one: %v, want ErrHeld", err)
	}
	waits := 0
	go func() {
		time.Sleep(20 * time.Millisecond)
		first.Unlock()
	}()
	second, err := Acquire(context.Background(), path, func() { waits++ })
	if err != nil {
		t.Fatal(err)
	}
	defer second.Unlock()
	if waits != 1 {
		t.Errorf("told %d times that it waits, want once", waits)
	}
}

func TestSharedLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.json")
	if err := os.WriteFile(path, []byte("{}"), 0o444); err != nil {
		t.Fatal(err)
	}
	a, err := Existing(path, false)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Existing(path, false)
	if err != nil {
		t.Fatal(err)
	}
	a.Unlock()
	if _, err := Existing(path, true); !errors.Is(err, ErrHeld) {
		t.Errorf("exclusive beside shared: %v, want ErrHeld", err)
	}
	b.Unlock()
	c, err := Existing(path, true)
	if err != nil {
		t.Fatal(err)
	}
	c.Unlock()
	if _, err := Existing(path+"x", false); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	held, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := AcquireShared(ctx, path, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestRemovedLockFileIsNotTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	held, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Unlock()
	os.Remove(path)
	if held.current(path) {
		t.Error("a removed file still counts as the lock")
	}
	again, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Unlock()
	if !again.current(path) {
		t.Error("the new file is not the lock")
	}
}
