package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// release is set by the linker when a release is built: three numbers, without a v.
var release string

// version is the line that says which Splash this is.
func version() string {
	if release == "" {
		return "Splash (source checkout)"
	}
	return "Splash " + release
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which version this is",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version())
			return err
		},
	}
}

func newCompletion() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Write a shell completion script",
		Long: `Write a completion script to standard output. For example

  source <(splash completion bash)
  splash completion zsh > "${fpath[1]}/_splash"
  splash completion fish > ~/.config/fish/completions/splash.fish`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			default:
				return root.GenFishCompletion(out, true)
			}
		},
	}
}
