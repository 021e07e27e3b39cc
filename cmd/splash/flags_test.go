package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestFlagValues: a value that is none is refused by the name of its flag, and an empty one, as of a variable of the shell
// that is not set, does not have something else done.
func TestFlagValues(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"serve", "--port", "80a"}, `--port is "80a"; a whole number is expected`},
		{[]string{"serve", "--port", "70000"}, `--port is "70000"; a smaller number is expected`},
		{[]string{"serve", "--lanes", "1.5"}, `--lanes is "1.5"; a whole number is expected`},
		{[]string{"serve", "--no-draft=maybe"}, `--no-draft is "maybe"; true or false is expected`},
		{[]string{"run", "hi", "--temperature", "x"}, `--temperature is "x"; a number is expected`},
		{[]string{"run", "hi", "--temperature", "NaN"}, "--temperature is NaN; 0 to 2 is possible"},
		{[]string{"run", "hi", "--top-p", "NaN"}, "--top-p is NaN; above 0 up to 1 is possible"},
		{[]string{"run", "hi", "--seed", "18446744073709551616"}, `--seed is "18446744073709551616"; a smaller number is expected`},
		{[]string{"serve", "--model-dir", ""}, "--model-dir is empty"},
		{[]string{"serve", "--model="}, "--model is empty"},
		{[]string{"run", "--draft-model", "", "hi"}, "--draft-model is empty"},
		{[]string{"pull", "a/b", "--revision", ""}, "--revision is empty"},
	} {
		status, out, stderr := invoke(t, c.args...)
		if !strings.HasSuffix(stderr, "\nerror: "+c.says+"\n") || status != exitUsage || out != "" {
			t.Errorf("%q: status %d, %q", c.args, status, stderr)
		}
	}
}

// TestPromptIsInterrupted: a prompt of standard input that does not end is not waited for after Ctrl+C.
func TestPromptIsInterrupted(t *testing.T) {
	in, never, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer never.Close()
	defer in.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(signalled{syscall.SIGINT})
	var stderr bytes.Buffer
	if status := run(ctx, []string{"run", "-"}, console{in, io.Discard, &stderr}); status != 130 || stderr.Len() > 0 {
		t.Errorf("status %d, %q", status, stderr.String())
	}
}

// TestBindRemedy: an address that is not this machine's is told from a port that is taken.
func TestBindRemedy(t *testing.T) {
	for err, want := range map[error]string{
		plainBind(&net.OpError{Err: syscall.EADDRNOTAVAIL}): "--host names an address of this machine",
		plainBind(&net.OpError{Err: syscall.EADDRINUSE}):    "--port names another port",
		errors.New("another server answers there"):          "--port names another port",
	} {
		if got := bindRemedy(err); got != want {
			t.Errorf("%v: %s", err, got)
		}
	}
}
