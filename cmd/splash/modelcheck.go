package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"splash/internal/check"
	"splash/planner"
)

func newModelCheck() *cobra.Command {
	var o check.Options
	var asJSON bool
	var size memorySize
	cmd := &cobra.Command{
		Use:   "model-check PATH",
		Short: "Say what a model is and takes, or why it cannot be served",
		Long: `Check a model from its metadata alone: its family, its formats, its image sizes and the memory that a context needs,
or the reason why it is refused. No weight is read: of a GGUF, the header alone.

PATH is a GGUF file, any part of a split GGUF, or a directory that holds a GGUF target or a safetensors checkpoint
(MLX, Model Optimizer or compressed-tensors).`,
		Example: `  splash model-check Qwen3.8-27B-UD-Q4_K_M.gguf --mmproj mmproj-BF16.gguf
  splash model-check Qwen3.6-35B-A3B-4bit --draft Qwen3.6-35B-A3B-DFlash2 --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := check.Model(args[0], o)
			if err == nil {
				err = printReport(cmd.OutOrStdout(), report, size, asJSON)
			}
			if err != nil && asJSON {
				return errors.Join(err, printRefusal(cmd.OutOrStdout(), err))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Draft, "draft", "", "directory of a DFlash2 `draft` to check with it")
	f.StringVar(&o.Projector, "mmproj", "", "GGUF vision projector `file` of a GGUF target")
	f.BoolVar(&o.LanguageOnly, "language-only", false, "leave the vision tower of a safetensors target out")
	f.BoolVar(&o.HeaderOnly, "header-only", false, "PATH is a GGUF's header without the data behind it")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	size.flags(cmd)
	return cmd
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

func printReport(out io.Writer, r *check.Report, size memorySize, asJSON bool) error {
	m, context, err := size.memory(r.Plan)
	if err != nil {
		return err
	}
	memory := memoryJSON{
		Context: context, Lanes: size.lanes, ImageBytes: m.Images, LaneBytes: m.Lane, StateBytes: m.Recurrent + m.Conv + m.PLE,
		TokenBytes: m.KVToken + m.Index, TotalBytes: m.Total,
	}
	if asJSON {
		return writeJSON(out, struct {
			*check.Report
			Memory memoryJSON `json:"memory"`
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
	line("formats", "%s", formatShares(r.Formats))
	line("image", "%s", byteSize(r.ImageBytes))
	if d := r.Draft; d != nil {
		line("draft", "%d layers, reads target layers %v; file %s, image %s", d.Layers, d.Taps, byteSize(d.Bytes), byteSize(d.ImageBytes))
	}
	line("memory", "%s: images %s, %d x %s for %d tokens (%s a token, state %s)", byteSize(memory.TotalBytes),
		byteSize(memory.ImageBytes), size.lanes, byteSize(memory.LaneBytes), context, byteSize(memory.TokenBytes), byteSize(memory.StateBytes))
	for _, warning := range r.Warnings {
		line("warning", "%s", warning)
	}
	return w.Flush()
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
