package main

import (
	"runtime"
	"strings"
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

func TestBenchSpeedRefusals(t *testing.T) {
	for _, args := range [][]string{{"--starts", "-1"}, {"--passes", "-1"}, {"--conversation", "-1"}} {
		status, _, errs := invoke(t, append([]string{"bench", "speed"}, args...)...)
		if status != 2 || !strings.Contains(errs, "0 leaves a measurement out") {
			t.Errorf("%v: status %d, %s", args, status, errs)
		}
	}
}
