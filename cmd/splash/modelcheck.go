package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"splash/internal/check"
	"splash/internal/install"
	"splash/planner"
)

// modelCheckFlags are those of model-check.
type modelCheckFlags struct {
	hubFlags
	check.Options
	size   memorySize
	asJSON bool

	model, dir string // named by flags, as serve takes them
	metadata   check.Metadata
}

func newModelCheck() *cobra.Command {
	var m modelCheckFlags
	cmd := &cobra.Command{
		Use:   "model-check PATH|OWNER/REPO[:VARIANT]",
		Short: "Say what a model is and takes, or why it cannot be served",
		Long: `Check a model from its metadata alone: its family, its formats, its image sizes and the memory that a context needs,
or the reason why it is refused. No weight is read: of a GGUF, the header alone.

PATH is a GGUF file, any part of a split GGUF, or a directory that holds a GGUF target or a safetensors checkpoint
(MLX, Model Optimizer or compressed-tensors). What is no path names a model of the Hugging Face Hub, checked with the
draft of its family before any weight is downloaded: of a GGUF its header is read, by ranges; of a checkpoint its
configuration, so its formats are not listed.

--model and --model-dir name the model as serve takes it. With --target-format nothing but metadata is read: --config, the
headers of a GGUF's files and its projector's (--header, one after another), and the draft's --draft-config.`,
		Example: `  splash model-check Qwen3.8-27B-UD-Q4_K_M.gguf --mmproj mmproj-BF16.gguf
  splash model-check Qwen3.6-35B-A3B-4bit --draft-model Qwen3.6-35B-A3B-DFlash2 --json
  splash model-check unsloth/Qwen3.8-27B-GGUF:UD-Q4_K_M
  splash model-check --target-format gguf --config config.json --header model.gguf.header --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := m.check(cmd, args)
			var usage usageError
			if err != nil && m.asJSON && cmd.Context().Err() == nil && !errors.As(err, &usage) {
				return errors.Join(err, printRefusal(cmd.OutOrStdout(), err))
			}
			return err
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
			names, _ := completeModel(cmd, args, text)
			return names, cobra.ShellCompDirectiveDefault // files too
		},
	}
	m.hubFlags.flags(cmd)
	f := cmd.Flags()
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "draft" { // the short form
			name = "draft-model"
		}
		return pflag.NormalizedName(name)
	})
	f.StringVar(&m.Draft, "draft-model", "", "DFlash2 `draft` to check with it: a directory; for the Hub a repository too")
	f.StringVar(&m.Projector, "mmproj", "", "GGUF vision projector `file` of a GGUF target on disk")
	f.BoolVar(&m.HeaderOnly, "header-only", false, "PATH is a GGUF's header without the data behind it")
	f.BoolVar(&m.asJSON, "json", false, "print one JSON object")
	m.size.flags(cmd)
	f.StringVar(&m.model, "model", "", "`OWNER/REPO[:VARIANT]` of the Hub to check; with --model-dir, its name alone")
	f.StringVar(&m.dir, "model-dir", "", "GGUF `file` or model directory to check")
	f.StringVar(&m.metadata.Target, "target-format", "", "check metadata alone, of a target of this `format`: gguf or safetensors")
	f.StringVar(&m.metadata.Vision, "vision-format", "none", "`format` of its vision tower: none, gguf or safetensors")
	f.StringVar(&m.metadata.Config, "config", "", "configuration `file` of --target-format")
	f.StringArrayVar(&m.metadata.Headers, "header", nil, "`file` with the header of a GGUF file of --target-format; may be given again")
	f.StringVar(&m.metadata.Draft, "draft-config", "", "configuration `file` of the draft of --target-format")
	complete(cmd, "target-format", "gguf", "safetensors")
	complete(cmd, "vision-format", "none", "gguf", "safetensors")
	_ = cmd.RegisterFlagCompletionFunc("model", completeModelFlag)
	_ = cmd.MarkFlagDirname("draft-model")
	return cmd
}

// check runs the check of what the command line names.
func (m *modelCheckFlags) check(cmd *cobra.Command, args []string) error {
	named := append(slices.Clone(args), m.dir)
	if m.dir == "" {
		named = append(args, m.model)
	}
	named = slices.DeleteFunc(named, func(s string) bool { return s == "" })
	if m.metadata.Target != "" {
		return m.runMetadata(cmd, len(named))
	}
	for _, flag := range []string{"config", "header", "draft-config", "vision-format"} {
		if cmd.Flags().Changed(flag) {
			return usagef("--%s needs --target-format", flag)
		}
	}
	switch {
	case len(named) != 1:
		return usagef("one model is checked: PATH, OWNER/REPO[:VARIANT], --model or --model-dir; %d are given", len(named))
	case m.dir != "":
		return m.runPath(cmd, m.dir)
	case m.model != "":
		if _, err := install.ParseModel(m.model); err != nil {
			return usagef("%s", err)
		}
		return m.runHub(cmd, m.model)
	}
	return m.run(cmd, args[0])
}

// runMetadata checks metadata whose files are elsewhere.
func (m *modelCheckFlags) runMetadata(cmd *cobra.Command, named int) error {
	d := &m.metadata
	switch {
	case named > 0:
		return usagef("--target-format checks --config and --header, and a model is named too")
	case d.Target != "gguf" && d.Target != "safetensors":
		return usagef("--target-format is %q; gguf and safetensors are known", d.Target)
	case d.Vision != "none" && d.Vision != "gguf" && d.Vision != "safetensors":
		return usagef("--vision-format is %q; none, gguf and safetensors are known", d.Vision)
	case d.Config == "":
		return usagef("--target-format needs --config")
	case d.Target == "gguf" && len(d.Headers) == 0:
		return usagef("--target-format gguf needs --header")
	case d.Target == "safetensors" && len(d.Headers) > 0:
		return usagef("--header is of a GGUF, and --target-format is safetensors")
	}
	report, err := d.Check()
	if err != nil {
		return err
	}
	return printReport(cmd.OutOrStdout(), report, m.size, m.asJSON)
}

func (m *modelCheckFlags) run(cmd *cobra.Command, model string) error {
	if _, err := os.Stat(model); errors.Is(err, fs.ErrNotExist) {
		if _, err := install.ParseModel(model); err == nil {
			return m.runHub(cmd, model)
		}
	}
	return m.runPath(cmd, model)
}

// runPath checks a model on disk.
func (m *modelCheckFlags) runPath(cmd *cobra.Command, model string) error {
	switch {
	case m.revision != "":
		return usagef("--revision needs a model of the Hub, and %s is a path", model)
	case m.languageOnly && m.Projector != "":
		return usagef("--mmproj cannot be combined with --language-only")
	}
	m.LanguageOnly = m.languageOnly
	report, err := check.Model(model, m.Options)
	if err != nil {
		return err
	}
	return printReport(cmd.OutOrStdout(), report, m.size, m.asJSON)
}

// runHub checks a model of the Hub as its installation does.
func (m *modelCheckFlags) runHub(cmd *cobra.Command, model string) error {
	switch {
	case m.Projector != "":
		return usagef("--mmproj needs a path; a model of the Hub has its own projector")
	case m.HeaderOnly:
		return usagef("--header-only needs a path")
	}
	selection, err := m.selection(model, m.Draft)
	if err != nil {
		return err
	}
	in, err := newInstaller(cmd, m.offline, lineLog(cmd))
	if err != nil {
		return err
	}
	found, err := in.Inspect(cmd.Context(), selection)
	if err != nil {
		return err
	}
	report, err := hubReport(found)
	if err != nil {
		return err
	}
	if m.asJSON {
		return writeHubReport(cmd.OutOrStdout(), found, report, m.size)
	}
	return printHubReport(cmd.OutOrStdout(), found, report, m.size)
}

// hubReport is what the check found of a model of the Hub, in the form of one on disk.
func hubReport(found *install.Report) (*check.Report, error) {
	var files []check.File
	for _, f := range found.Files {
		files = append(files, check.File{Name: f.Name, Bytes: f.Bytes})
	}
	r, err := check.Plan(found.Plan, files)
	if err != nil {
		return nil, err
	}
	r.VisionFormat, r.TargetFormat = found.Vision, found.Format
	if d := found.Draft; d != nil {
		r.Draft = &check.Draft{Repo: found.DraftOf.Repo, Layers: d.Layers, Block: d.Block, Taps: d.Taps}
	}
	r.Warnings = append(r.Warnings, found.Notes...)
	return r, nil
}

func printHubReport(out io.Writer, found *install.Report, r *check.Report, size memorySize) error {
	_, err := fmt.Fprintf(out, "%s, from %s; %s to download\n", found.Model, found.Source, byteSize(found.Download))
	if err != nil {
		return err
	}
	return printReport(out, r, size, false)
}

func writeHubReport(out io.Writer, found *install.Report, r *check.Report, size memorySize) error {
	memory, err := size.of(r)
	if err != nil {
		return err
	}
	return writeJSON(out, struct {
		Model    string         `json:"model"`
		Source   install.Source `json:"source"`
		Download int64          `json:"download_bytes"`
		*check.Report
		Memory *memoryJSON `json:"memory"`
	}{found.Model, found.Source, found.Download, r, memory})
}

// A memorySize is what memory is computed for.
type memorySize struct {
	context, lanes int
	kv             string
}

func (s *memorySize) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&s.context, "context", 0, "`tokens` of context to compute memory for (default the model's)")
	f.IntVar(&s.lanes, "lanes", 1, "`requests` decoded at once to compute memory for")
	f.StringVar(&s.kv, "kv-format", "int8", "`format` of keys and values: int8 or bf16")
	_ = cmd.RegisterFlagCompletionFunc("kv-format", cobra.FixedCompletions([]string{"int8", "bf16"}, cobra.ShellCompDirectiveNoFileComp))
}

func (s *memorySize) memory(p *planner.Plan) (planner.Memory, int, error) {
	kv := planner.KVInt8
	switch s.kv {
	case "int8":
	case "bf16":
		kv = planner.KVBF16
	default:
		return planner.Memory{}, 0, usagef("--kv-format is %q; int8 and bf16 are known", s.kv)
	}
	context := s.context
	if context == 0 {
		context = p.Layout.Context
	}
	if context < 1 || context > p.Layout.Context {
		return planner.Memory{}, 0, usagef("--context is %d; the model has 1 to %d tokens", s.context, p.Layout.Context)
	}
	if s.lanes < 1 || s.lanes > 1024 {
		return planner.Memory{}, 0, usagef("--lanes is %d; 1 to 1024 are possible", s.lanes)
	}
	m, err := planner.MemoryPlan(p, context, s.lanes, kv)
	return m, context, err
}

// memoryJSON is planner.Memory as a script reads it.
type memoryJSON struct {
	Context    int   `json:"context"`
	Lanes      int   `json:"lanes"`
	ImageBytes int64 `json:"image_bytes"`
	LaneBytes  int64 `json:"lane_bytes"`
	StateBytes int64 `json:"state_bytes"`
	TokenBytes int64 `json:"token_bytes"`
	TotalBytes int64 `json:"total_bytes"`
}

// of is the memory of a model, null where the plan of its images is not known.
func (s *memorySize) of(r *check.Report) (*memoryJSON, error) {
	if len(r.Plan.Tensors) == 0 {
		return nil, nil
	}
	m, context, err := s.memory(r.Plan)
	if err != nil {
		return nil, err
	}
	return &memoryJSON{
		Context: context, Lanes: s.lanes, ImageBytes: m.Images, LaneBytes: m.Lane, StateBytes: m.Recurrent + m.Conv + m.PLE,
		TokenBytes: m.KVToken + m.Index, TotalBytes: m.Total,
	}, nil
}

func printReport(out io.Writer, r *check.Report, size memorySize, asJSON bool) error {
	memory, err := size.of(r)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(out, struct {
			*check.Report
			Memory *memoryJSON `json:"memory"`
		}{r, memory})
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("family", "%s", r.Family)
	line("source", "%s, %s in %d files", r.TargetFormat, byteSize(r.FileBytes), len(r.Files))
	line("layers", "%d", r.Layers)
	if r.Experts != nil {
		line("experts", "%d a layer, %d taken", *r.Experts, r.Plan.Layout.MoE.Taken)
	}
	line("context", "%d tokens", r.Context)
	line("chat format", "%s", r.ChatFormat)
	line("vision", "%s", r.VisionFormat)
	for _, role := range r.Roles {
		line(role.Role, "%s (%d tensors)", strings.Join(role.Formats, ", "), role.Tensors)
	}
	if memory != nil {
		line("formats", "%s", formatShares(r.Formats))
		line("image", "%s", byteSize(r.ImageBytes))
	}
	if d := r.Draft; d != nil {
		line("draft", "%s", draftLine(d))
	}
	if memory != nil {
		line("memory", "%s: images %s, %d x %s for %d tokens (%s a token, state %s)", byteSize(memory.TotalBytes),
			byteSize(memory.ImageBytes), memory.Lanes, byteSize(memory.LaneBytes), memory.Context,
			byteSize(memory.TokenBytes), byteSize(memory.StateBytes))
	}
	for _, warning := range r.Warnings {
		line("warning", "%s", warning)
	}
	return w.Flush()
}

func draftLine(d *check.Draft) string {
	text := fmt.Sprintf("%d layers, reads target layers %v; ", d.Layers, d.Taps)
	if d.Repo != "" {
		return text + "from " + d.Repo
	}
	return text + fmt.Sprintf("file %s, image %s", byteSize(d.Bytes), byteSize(d.ImageBytes))
}

// formatShares lists formats by falling share.
func formatShares(formats map[string]int64) string {
	var names []string
	for name := range formats {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if formats[a] != formats[b] {
			return int(max(min(formats[b]-formats[a], 1), -1))
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %s", name, byteSize(formats[name]))
	}
	return strings.Join(names, ", ")
}

// byteSize writes a number of bytes with the unit that suits it.
func byteSize(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

// printRefusal writes the object a script finds in place of a report.
func printRefusal(out io.Writer, err error) error {
	type refusal struct {
		Reason  string   `json:"reason"`
		Tensors []string `json:"tensors"`
	}
	r := refusal{Reason: err.Error(), Tensors: []string{}}
	var tensors *planner.TensorError
	if errors.As(err, &tensors) {
		for i := range tensors.Faults {
			r.Tensors = append(r.Tensors, tensors.Faults[i].Name)
		}
	}
	return writeJSON(out, struct {
		Error refusal `json:"error"`
	}{r})
}

func writeJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
