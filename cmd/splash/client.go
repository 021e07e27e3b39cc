package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"splash/internal/client"
	"splash/internal/server"
)

// newClients returns a command for every coding client.
func newClients() []*cobra.Command {
	var cmds []*cobra.Command
	for _, c := range client.Clients() {
		cmds = append(cmds, newClient(c))
	}
	return cmds
}

func newClient(c *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use:   c.Name + " [--port PORT] [--] [ARGUMENTS]",
		Short: "Start " + c.Name + " with the model that is served",
		Long: fmt.Sprintf(`Start an installed %[1]s with the model of the Splash server on this machine.

--port names the server's port (default SPLASH_PORT, else %[2]d). All other arguments, --help among them, are %[1]s's own;
those after a leading -- are not looked at:

  splash %[1]s --port 8001 -- --port 4096

SPLASH_API_KEY is sent as the server's key. If %[1]s is not installed, see
%[3]s`, c.Name, client.DefaultPort, c.URL),
		DisableFlagParsing:    true,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, args []string) error { return runClient(cmd, c, args) },
	}
	cmd.Flags().Uint16("port", 0, "`port` of the Splash server (default SPLASH_PORT, else 8000)") // for the help and completion alone
	cmd.InitDefaultHelpFlag()
	_ = cmd.Flags().MarkHidden("help") // it is the client's
	return cmd
}

// runClient becomes the client. It returns where that fails.
func runClient(cmd *cobra.Command, c *client.Client, args []string) error {
	port, explicit, args, err := clientPort(args)
	if err != nil {
		return err
	}
	path, err := c.Find()
	if err != nil {
		return err
	}
	key := os.Getenv("SPLASH_API_KEY")
	if err := server.CheckKey(key); err != nil {
		return fmt.Errorf("SPLASH_API_KEY: %w", err)
	}
	s, err := client.Probe(cmd.Context(), port, key)
	if errors.Is(err, client.ErrNotReady) {
		hint := ""
		if explicit {
			hint = fmt.Sprintf(" If --port was meant for %s itself, put it after --.", c.Name)
		}
		return fmt.Errorf("%w. Run 'splash serve --model <HF_REPO_ID>' in another terminal first.%s", err, hint)
	}
	if err != nil {
		return err
	}
	start, err := c.Command(cmd.Context(), path, s, os.Environ(), args)
	if err != nil {
		return err
	}
	if err := context.Cause(cmd.Context()); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Starting %s: %s · %s context tokens\n", c.Name, s.Model, groupThousands(s.Context))
	if err := syscall.Exec(start.Path, start.Args, start.Env); err != nil {
		return fmt.Errorf("cannot start %s: %w", start.Path, err)
	}
	return nil
}

// clientPort takes --port from the arguments of a client, up to --. A -- that comes before all others is taken too.
func clientPort(args []string) (port int, explicit bool, rest []string, err error) {
	value := ""
	for len(args) > 0 && args[0] != "--" {
		arg := args[0]
		args = args[1:]
		after, ok := strings.CutPrefix(arg, "--port=")
		switch {
		case ok:
			value, explicit = after, true
		case arg == "--port" && len(args) == 0:
			return 0, false, nil, usagef("--port needs a port")
		case arg == "--port":
			value, explicit, args = args[0], true, args[1:]
		default:
			rest = append(rest, arg)
		}
	}
	if len(rest) == 0 && len(args) > 0 {
		args = args[1:]
	}
	rest = append(rest, args...)
	name := "--port"
	if !explicit {
		if value = os.Getenv("SPLASH_PORT"); value == "" {
			return client.DefaultPort, false, rest, nil
		}
		name = "SPLASH_PORT"
	}
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil || n == 0 {
		return 0, false, nil, usagef("%s is %q; 1 to 65535 are possible", name, value)
	}
	return int(n), explicit, rest, nil
}
