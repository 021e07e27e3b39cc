package main

import (
	"fmt"
	"os"
	"testing"
)

// TestMain keeps what servers write out of the data directory of whoever runs the tests.
func TestMain(m *testing.M) { os.Exit(inTempDir(m)) }

func inTempDir(m *testing.M) int {
	dir, err := os.MkdirTemp("", "splash-data-")
	if err == nil {
		err = os.Setenv("SPLASH_DATA_DIR", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	return m.Run()
}
