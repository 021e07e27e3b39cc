// Command splash serves language models, and checks, plans and measures them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"splash/internal/machine"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], console{os.Stdin, os.Stdout, os.Stderr}))
}

// A console is where a command reads and writes.
type console struct {
	in       io.Reader
	out, err io.Writer
}

// Exit statuses beside 0.
const (
	exitFailure = 1
	exitUsage   = 2
)

// A usageError is a fault of the command line: its message follows the command's usage, and the status is 2.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// A signalled error ends the process with 128 and the signal's number.
type signalled struct{ syscall.Signal }

func (s signalled) Error() string { return s.String() }

// Is makes the end of a context by a signal an end of a context.
func (s signalled) Is(err error) bool { return err == context.Canceled }

// run executes the command line and returns the exit status. The first SIGINT or SIGTERM ends the context it gives the
// command; a second one ends the process at once.
func run(ctx context.Context, args []string, c console) int {
	ctx, stop := withSignals(ctx)
	defer stop()
	root := newRoot(c)
	root.SetArgs(args)
	cmd, err := execute(ctx, root)
	var usage usageError
	var sig signalled
	switch {
	case err == nil:
		return 0
	case errors.As(context.Cause(ctx), &sig) && errors.Is(err, context.Canceled):
		return 128 + int(sig.Signal)
	case errors.As(err, &usage):
		fmt.Fprintf(c.err, "%s\nerror: %v\n", cmd.UsageString(), err)
		return exitUsage
	}
	fmt.Fprintf(c.err, "error: %v\n", err)
	return exitFailure
}

// execute runs the command. Reading a mapped file that was cut short meanwhile is an error of the command, and not the end
// of the process.
func execute(ctx context.Context, root *cobra.Command) (cmd *cobra.Command, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if cmd, err = root, machine.Unreadable(p); err == nil {
			panic(p)
		}
	}()
	return root.ExecuteContextC(ctx)
}

// withSignals catches the signals even where the process was started with SIGINT ignored, as shells start what they run in
// the background.
func withSignals(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case s := <-ch:
			cancel(signalled{s.(syscall.Signal)})
		case <-done:
			return
		}
		select {
		case s := <-ch:
			os.Exit(128 + int(s.(syscall.Signal)))
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(done)
		cancel(nil)
	}
}

func newRoot(c console) *cobra.Command {
	root := &cobra.Command{
		Use:   "splash",
		Short: "Serve language models to coding agents and OpenAI clients",
		Long: `Splash serves a small set of language models: on Apple silicon with Metal, elsewhere on the CPU.

Start with

  splash serve                  serve the built-in demonstration model at http://127.0.0.1:8000
  splash run "Hello!"           ask it something in the terminal
  splash claude                 start Claude Code with the served model; also codex, opencode, hermes, pi

and give a model of the Hugging Face Hub with --model OWNER/REPO[:VARIANT], or one of your own with --model-dir FILE.gguf.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return checkEmpty(cmd.Flags()) },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{flagError(err)} })
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newServe(), newRun(), newPull(), newList(), newShow(), newRemove(), newBench(), newModelCheck(), newPlan(),
		newDevices(), newVersion(), newCompletion())
	root.AddCommand(newClients()...)
	wrapArgs(root)
	return root
}

// flagError says of a number that is none what is expected, without the words of the package that reads it.
func flagError(err error) error {
	var value *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &value) || !errors.As(err, &number) {
		return err
	}
	expected := "a whole number"
	switch f := value.GetFlag(); {
	case f.Value.Type() == "float64":
		expected = "a number"
	case f.Value.Type() == "bool":
		expected = "true or false"
	case errors.Is(err, strconv.ErrRange):
		expected = "a smaller number"
	}
	return fmt.Errorf("--%s is %q; %s is expected", value.GetFlag().Name, value.GetValue(), expected)
}

// checkEmpty refuses a flag that was given nothing, as by a variable of the shell that is not set: what it would be
// without is not what was meant.
func checkEmpty(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if err == nil && f.Value.Type() == "string" && f.Value.String() == "" && f.Name != "system" {
			err = usagef("--%s is empty", f.Name)
		}
	})
	return err
}

// wrapArgs makes faults of the arguments of a command, and of those below it, usage errors.
func wrapArgs(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		wrapArgs(c)
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError{err}
			}
			return nil
		}
	}
}
