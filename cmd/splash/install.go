package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"splash/internal/hub"
	"splash/internal/install"
	"splash/internal/target"
)

// hubFlags say what is installed of a model of the Hub, and whether the Hub is asked.
type hubFlags struct {
	revision              string
	languageOnly, offline bool
}

func (h *hubFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&h.revision, "revision", "", "branch, tag or `commit` of the model (default the default branch)")
	f.BoolVar(&h.languageOnly, "language-only", false, "leave the model's vision out")
	f.BoolVar(&h.offline, "offline", false, "make no request to the Hub, as with HF_HUB_OFFLINE=1")
	complete(cmd, "revision")
}

// selection is what a command line names. Its faults are usage errors.
func (h *hubFlags) selection(model, draft string) (install.Selection, error) {
	m, err := install.ParseModel(model)
	if err != nil {
		return install.Selection{}, usagef("%q: %w", model, err)
	}
	if draft, err = install.ParseDraft(draft, os.Getenv("HOME")); err != nil {
		return install.Selection{}, usagef("--draft-model: %w", err)
	}
	return install.Selection{Model: m, Revision: h.revision, Draft: draft, LanguageOnly: h.languageOnly}, nil
}

// sourceFlags say which model is installed.
type sourceFlags struct {
	hubFlags
	mmproj string
}

func (s *sourceFlags) flags(cmd *cobra.Command) {
	s.hubFlags.flags(cmd)
	cmd.Flags().StringVar(&s.mmproj, "mmproj", "", "GGUF vision projector `file` of --model-dir (default none: text only)")
	_ = cmd.MarkFlagFilename("mmproj", "gguf")
}

// check refuses what does not go together.
func (s *sourceFlags) check(model, dir string) error {
	switch {
	case s.mmproj != "" && dir == "":
		return usagef("--mmproj needs --model-dir")
	case s.mmproj != "" && s.languageOnly:
		return usagef("--mmproj cannot be combined with --language-only")
	case s.revision != "" && dir != "":
		return usagef("--revision cannot be combined with --model-dir")
	case s.revision != "" && model == "":
		return usagef("--revision needs --model")
	}
	return nil
}

// newInstaller returns the installer that the environment describes. What it does goes to log, a line a message, and how
// far a download is to standard error where that is a terminal.
func newInstaller(cmd *cobra.Command, offline bool, log func(line string)) (*install.Installer, error) {
	cfg, err := hub.Environment(os.Getenv)
	if err != nil {
		return nil, err
	}
	cfg.Offline = cfg.Offline || offline
	client, err := hub.New(cfg)
	if err != nil {
		return nil, err
	}
	client.Log = log
	client.Progress = hub.Lines(log, 10*time.Second)
	if stderr := cmd.ErrOrStderr(); isTerminal(stderr) {
		client.Progress = hub.Bar(stderr)
	}
	models, err := filepath.Abs(filepath.Join(install.DataDir(os.Getenv), "models"))
	if err != nil {
		return nil, err
	}
	return &install.Installer{Hub: client, Models: models, Log: log}, nil
}

// lineLog writes lines to standard error.
func lineLog(cmd *cobra.Command) func(line string) {
	var w io.Writer = cmd.ErrOrStderr()
	return func(line string) { fmt.Fprintln(w, line) }
}

// install returns the model as it is installed, held: that of --model-dir, its files linked, or that of --model from the Hub,
// which is followed. It is nil for the demonstration model.
func (m *modelFlags) install(cmd *cobra.Command, log func(line string)) (*install.Installed, error) {
	if m.model == "" && m.dir == "" {
		return nil, nil
	}
	// A machine that cannot run the backend finds out before tens of gigabytes are downloaded.
	if _, err := target.FindBackend(m.backend); err != nil {
		return nil, err
	}
	in, err := newInstaller(cmd, m.offline || m.dir != "", log)
	if err != nil {
		return nil, err
	}
	if m.dir != "" {
		return in.PrepareLocal(cmd.Context(), m.dir, install.LocalOptions{
			Draft: m.draft, MMProj: m.mmproj, LanguageOnly: m.languageOnly, NoDraft: m.noDraft,
		})
	}
	selection, err := m.selection(m.model, m.draft)
	if err != nil {
		return nil, err
	}
	return in.Install(cmd.Context(), selection)
}

// knownModels are models that completion offers though they are not installed.
var knownModels = []string{
	"mlx-community/Qwen3.6-35B-A3B-4bit",
	"mlx-community/Qwen3.8-27B-4bit",
	"unsloth/Qwen3.6-35B-A3B-GGUF:UD-Q4_K_M",
	"unsloth/Qwen3.8-27B-GGUF:UD-Q4_K_M",
}

// completeInstalled completes a model that is installed, without a request.
func completeInstalled(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 {
		return nil, directive
	}
	in, err := newInstaller(cmd, true, func(string) {})
	if err != nil {
		return nil, directive
	}
	all, err := in.List()
	if err != nil {
		return nil, directive
	}
	var names []cobra.Completion
	for i := range all {
		// An installation's model comes as often as it has selections; the list is in its order.
		if name := all[i].Record.Model; len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	return names, directive
}

// completeModel completes a model that is installed or well known.
func completeModel(cmd *cobra.Command, args []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names, directive := completeInstalled(cmd, args, text)
	if len(args) > 0 {
		return nil, directive
	}
	for _, known := range knownModels {
		if !slices.Contains(names, known) {
			names = append(names, known)
		}
	}
	return names, directive
}

// completeModelFlag completes --model.
func completeModelFlag(cmd *cobra.Command, _ []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return completeModel(cmd, nil, text)
}

func newPull() *cobra.Command {
	var h hubFlags
	var draft string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "pull OWNER/REPO[:VARIANT]",
		Short: "Install a model of the Hub, or follow the one that is installed",
		Long: `Check a model of the Hugging Face Hub from its metadata, download it and the draft of its family into the Hub cache,
and install it. An installed model is brought to the commit that its revision names now; only files that changed are
downloaded.

An interrupted download is resumed by the next one. VARIANT names one of the GGUFs of a repository.`,
		Example: `  splash pull unsloth/Qwen3.8-27B-GGUF:UD-Q4_K_M
  splash pull mlx-community/Qwen3.8-27B-4bit --language-only`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeModel,
		RunE: func(cmd *cobra.Command, args []string) error {
			selection, err := h.selection(args[0], draft)
			if err != nil {
				return err
			}
			in, err := newInstaller(cmd, h.offline, lineLog(cmd))
			if err != nil {
				return err
			}
			installed, err := in.Install(cmd.Context(), selection)
			if err != nil {
				return err
			}
			defer installed.Close()
			m := describeModel(installed.Dir, &installed.Record, nil)
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), m)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is installed: %s, %s, %s, from %s, %s.\n",
				m.Model, m.Family, m.TargetFormat, byteSize(m.Bytes), m.Target, m.drafted())
			return err
		},
	}
	h.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&draft, "draft-model", "", "repository or directory of the `draft` (default the family's)")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	_ = cmd.MarkFlagDirname("draft-model")
	return cmd
}
