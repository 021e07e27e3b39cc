package main

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// TestBenchSpeedStarts times a process of the program itself.
func TestBenchSpeedStarts(t *testing.T) {
	s := newShell(t)
	status, first, errs, _ := s.run(nil, "bench", "speed", "--lanes", "1", "--prompt", "16", "--tokens", "4", "--runs", "1", "--starts", "1",
		"--passes", "0", "--conversation", "0")
	if status != 0 || !strings.HasPrefix(first, "start to first token: ") {
		t.Fatalf("status %d: %s%s", status, first, errs)
	}
	if runtime.GOOS == "linux" && !strings.Contains(first, "; resident after 20 tokens: ") {
		t.Errorf("no resident memory in %s", first)
	}
}

// TestStartIsInterrupted has a process that is timed end by Ctrl+C, as both are of one terminal: the error is Ctrl+C's.
func TestStartIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	child := exec.CommandContext(ctx, itself(t), "bench", "nonsense")
	child.Stderr = onWrite(func() { cancel(signalled{syscall.SIGINT}) })
	if _, err := timeStart(ctx, child); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

type onWrite func()

func (f onWrite) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

func TestBenchSpeedRefusals(t *testing.T) {
	for _, args := range [][]string{{"--starts", "-1"}, {"--passes", "-1"}, {"--conversation", "-1"}} {
		status, _, errs := invoke(t, append([]string{"bench", "speed"}, args...)...)
		if status != 2 || !strings.Contains(errs, "0 leaves a measurement out") {
			t.Errorf("%v: status %d, %s", args, status, errs)
		}
	}
}
