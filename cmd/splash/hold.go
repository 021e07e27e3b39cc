package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"splash/internal/flock"
)

// A holder says who serves a port, in the file that it has locked.
type holder struct {
	PID   int    `json:"pid"`
	Model string `json:"model"`
	Port  uint16 `json:"port"`
}

// hold takes the locks of a server: a share of serve.lock, which an upgrade takes alone, and its port's.
func hold(dir string, h holder) (release func(), err error) {
	upgrade, err := flock.TryShared(filepath.Join(dir, "serve.lock"))
	if errors.Is(err, flock.ErrHeld) {
		return nil, errors.New("Splash is being upgraded; wait for the upgrade to finish")
	}
	if err != nil {
		return nil, fmt.Errorf("the folder of Splash's own files cannot be used (SPLASH_DATA_DIR names another): %w", err)
	}
	path := filepath.Join(dir, fmt.Sprintf("serve-%d.lock", h.Port))
	port, err := flock.Try(path)
	if err != nil {
		upgrade.Unlock()
		if errors.Is(err, flock.ErrHeld) {
			return nil, heldBy(path, h.Port)
		}
		return nil, err
	}
	release = func() {
		port.Unlock()
		upgrade.Unlock()
	}
	f := port.File()
	data, err := json.Marshal(h)
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(append(data, '\n'), 0)
	}
	if err != nil {
		release()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return release, nil
}

// heldBy names who holds the lock of a port.
func heldBy(path string, port uint16) error {
	h := holder{Port: port}
	if data, err := readStart(path); err == nil && json.Unmarshal(data, &h) == nil && h.PID > 0 {
		return fmt.Errorf("Splash is already serving (PID %d, model %s, port %d); stop it with Ctrl+C first", h.PID, h.Model, h.Port)
	}
	return fmt.Errorf("Splash is already serving (port %d); stop it with Ctrl+C first", port)
}

func readStart(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 64<<10))
}
