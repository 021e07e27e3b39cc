package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"splash/internal/install"
)

// A modelJSON is an installed model as a script reads it.
type modelJSON struct {
	Model        string          `json:"model"`
	Family       string          `json:"family"`
	ChatFormat   string          `json:"chat_format"`
	TargetFormat string          `json:"target_format"`
	VisionFormat string          `json:"vision_format"`
	Target       install.Source  `json:"target"`
	Draft        *install.Source `json:"draft"`
	Directory    string          `json:"directory"`
	Bytes        int64           `json:"bytes"`
	Fault        *string         `json:"fault"`
	Files        []fileJSON      `json:"files"`
}

type fileJSON struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	Digest string `json:"digest"`
	Path   string `json:"path"`
}

// drafted says what drafts for the model.
func (m *modelJSON) drafted() string {
	if m.Draft == nil {
		return "without a draft"
	}
	return "draft " + m.Draft.String()
}

// describeModel describes the assembly in a folder. Bytes are those of its files, each counted once.
func describeModel(dir string, r *install.Record, fault error) *modelJSON {
	m := &modelJSON{
		Model: r.Model, Family: r.Family, ChatFormat: r.ChatFormat, TargetFormat: r.TargetFormat, VisionFormat: r.VisionFormat,
		Target: r.Sources.Target, Draft: r.Sources.Draft, Directory: dir, Files: []fileJSON{},
	}
	if fault != nil {
		text := fault.Error()
		m.Fault = &text
	}
	seen := map[string]bool{}
	for name, f := range r.Files {
		m.Files = append(m.Files, fileJSON{name, f.Bytes, f.Digest, f.Path})
		if !seen[f.Path] {
			seen[f.Path] = true
			m.Bytes += f.Bytes
		}
	}
	slices.SortFunc(m.Files, func(a, b fileJSON) int { return strings.Compare(a.Name, b.Name) })
	return m
}

func describeInstallation(i *install.Installation) *modelJSON {
	dir, err := filepath.EvalSymlinks(i.Link)
	if err != nil {
		dir = i.Link
	}
	return describeModel(dir, &i.Record, i.Fault)
}

func newList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the installed models",
		Long:  "List the installed models: family, formats, commit, size, and whether their files are as they were installed.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := newInstaller(cmd, true, lineLog(cmd))
			if err != nil {
				return err
			}
			all, err := in.List()
			if err != nil {
				return err
			}
			models := []*modelJSON{}
			for i := range all {
				models = append(models, describeInstallation(&all[i]))
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), modelsJSON{models})
			}
			return printModels(cmd.OutOrStdout(), models)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

type modelsJSON struct {
	Models []*modelJSON `json:"models"`
}

func printModels(out io.Writer, models []*modelJSON) error {
	if len(models) == 0 {
		_, err := fmt.Fprintln(out, "No model is installed; install one with: splash pull OWNER/REPO[:VARIANT]")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MODEL\tFAMILY\tFORMAT\tVISION\tDRAFT\tCOMMIT\tSIZE\tSTATE")
	for _, m := range models {
		draft, commit, state := "none", m.Target.Commit(), "ok"
		if m.Draft != nil {
			draft = m.Draft.String()
		}
		if commit == "" {
			commit = "local"
		}
		if m.Fault != nil {
			state = *m.Fault
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%.12s\t%s\t%s\n",
			m.Model, m.Family, m.TargetFormat, m.VisionFormat, draft, commit, byteSize(m.Bytes), state)
	}
	return w.Flush()
}

func newShow() *cobra.Command {
	var asJSON, verify bool
	cmd := &cobra.Command{
		Use:   "show OWNER/REPO[:VARIANT]",
		Short: "Show an installed model and its files",
		Long: `Show every installation of a model: where it is from, and its files. A model of another revision, draft or without
vision is an installation of its own.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeInstalled,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := newInstaller(cmd, true, lineLog(cmd))
			if err != nil {
				return err
			}
			all, err := findInstalled(in, args[0])
			if err != nil {
				return err
			}
			models := []*modelJSON{}
			for i := range all {
				if verify && all[i].Fault == nil {
					all[i].Fault = in.Verify(cmd.Context(), all[i])
				}
				models = append(models, describeInstallation(&all[i]))
			}
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), modelsJSON{models})
			} else {
				err = showModels(cmd.OutOrStdout(), models)
			}
			if err == nil && verify {
				err = anyFault(all)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&verify, "verify", false, "compute the digest of every file anew; status 1 where one is wrong")
	return cmd
}

func anyFault(all []install.Installation) error {
	for i := range all {
		if err := all[i].Fault; err != nil {
			return fmt.Errorf("%s: %w", all[i].Record.Model, err)
		}
	}
	return nil
}

// installedName is how the records name the model of an argument: a model of the Hub, or the absolute path of a local one.
func installedName(arg string) (string, error) {
	if _, err := install.ParseModel(arg); err == nil {
		return arg, nil
	}
	if _, err := os.Lstat(arg); err == nil || filepath.IsAbs(arg) {
		return filepath.Abs(arg)
	}
	_, err := install.ParseModel(arg)
	return "", usagef("%q: %w", arg, err)
}

// findInstalled lists the installations of a model, of which there is at least one.
func findInstalled(in *install.Installer, arg string) ([]install.Installation, error) {
	name, err := installedName(arg)
	if err != nil {
		return nil, err
	}
	all, err := in.List()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(i install.Installation) bool { return i.Record.Model != name })
	if len(all) == 0 {
		return nil, fmt.Errorf("%s is not installed; splash list shows what is", name)
	}
	return all, nil
}

func showModels(out io.Writer, models []*modelJSON) error {
	for i, m := range models {
		if i > 0 {
			fmt.Fprintln(out)
		}
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		line := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
		line("model", "%s", m.Model)
		line("family", "%s", m.Family)
		line("source", "%s, %s", m.Target, m.TargetFormat)
		line("vision", "%s", m.VisionFormat)
		line("chat format", "%s", m.ChatFormat)
		line("draft", "%s", strings.TrimPrefix(m.drafted(), "draft "))
		line("directory", "%s", m.Directory)
		for _, f := range m.Files {
			line("file", "%s, %s", f.Name, byteSize(f.Bytes))
		}
		line("size", "%s", byteSize(m.Bytes))
		if m.Fault != nil {
			line("fault", "%s", *m.Fault)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func newRemove() *cobra.Command {
	var asJSON, files bool
	cmd := &cobra.Command{
		Use:   "remove OWNER/REPO[:VARIANT]",
		Short: "Remove an installed model",
		Long: `Remove every installation of a model that no server serves. Its files stay in the Hub cache, which other tools share;
with --files those go too that no other installation uses. Local files are never deleted.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeInstalled,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := newInstaller(cmd, true, lineLog(cmd))
			if err != nil {
				return err
			}
			all, err := findInstalled(in, args[0])
			if err != nil {
				return err
			}
			name := all[0].Record.Model
			removed, freed, err := in.Remove(cmd.Context(), name, files)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), struct {
					Model   string `json:"model"`
					Removed int    `json:"removed"`
					Freed   int64  `json:"freed_bytes"`
				}{name, removed, freed})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), removedLine(in, name, removed, freed, files))
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&files, "files", false, "delete its files from the Hub cache where no other installation uses them")
	return cmd
}

func removedLine(in *install.Installer, name string, removed int, freed int64, files bool) string {
	line := fmt.Sprintf("Removed %s (%d installations)", name, removed)
	if removed == 1 {
		line = "Removed " + name
	}
	switch {
	case files:
		return fmt.Sprintf("%s; %s freed.", line, byteSize(freed))
	case filepath.IsAbs(name):
		return line + "."
	}
	repo, _, _ := strings.Cut(name, ":")
	return fmt.Sprintf("%s; its files stay in the Hub cache: %s", line, in.Hub.Cache.Folder(repo))
}
