package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// isTerminal reports whether a person reads what is written.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// A bar shows how far long work is, where standard error is a terminal.
type bar struct{ b *progressbar.ProgressBar }

func newBar(cmd *cobra.Command, what string, total int) *bar {
	out := cmd.ErrOrStderr()
	if !isTerminal(out) {
		out = io.Discard
	}
	return &bar{progressbar.NewOptions(total,
		progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(what), progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish(),
		progressbar.OptionShowIts(), progressbar.OptionSetPredictTime(true),
	)}
}

func (b *bar) add(n int)    { _ = b.b.Add(n) }
func (b *bar) set(done int) { _ = b.b.Set(done) }
func (b *bar) done()        { _ = b.b.Finish() }
