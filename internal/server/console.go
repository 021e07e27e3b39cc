package server

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// A Console writes the lines that tell a person, or a script, how the server is doing. Each is one write, and begins with
// the time.
type Console struct {
	Out, Err io.Writer
	Now      func() time.Time // nil: time.Now

	mu sync.Mutex
}

// Printf writes a status line.
func (c *Console) Printf(format string, args ...any) { c.write(c.Out, format, args) }

// Errorf writes a line about something that went wrong.
func (c *Console) Errorf(format string, args ...any) { c.write(c.Err, format, args) }

func (c *Console) write(w io.Writer, format string, args []any) {
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	line := now().Format("15:04:05 ") + printable(fmt.Sprintf(format, args...)) + "\n"
	c.mu.Lock()
	defer c.mu.Unlock()
	io.WriteString(w, line)
}

// printable replaces what would move the cursor of a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

// shorten cuts a text that a client sent to what a line of the console has room for.
func shorten(s string) string {
	const most = 256
	n := 0
	for i := range s {
		if n == most {
			return s[:i]
		}
		n++
	}
	return s
}
