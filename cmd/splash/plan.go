package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"splash/internal/check"
	"splash/internal/gguf"
	"splash/internal/model"
	"splash/internal/safetensors"
	"splash/metal"
	"splash/planner"
)

func newPlan() *cobra.Command {
	var o check.Options
	var asJSON, onMetal bool
	var dir string
	cmd := &cobra.Command{
		Use:   "plan PATH",
		Short: "Print the plan of a model's weight images",
		Long: `Print the images that a model's weights become: every tensor, its form and format, where it lies, and its bits per
weight. The plan is made from metadata alone; PATH is as for model-check.

With --metal what a decoding cycle of the Metal backend takes is printed instead: its dispatches, those that choose the lanes' tokens
among them, and the bytes that they move, each operator's inputs and results counted once, for cycles of one row and of eight, of
one lane and of four. What a draft takes is not among it.

With --write the images are made in a directory. What an interrupted run wrote is continued, images of a file that has
changed are made again, and images that are there already are left.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := check.Model(args[0], o)
			if err != nil {
				return err
			}
			if dir != "" {
				return writeImages(cmd, args[0], dir, report.Plan)
			}
			if onMetal {
				return metalPlan(cmd.OutOrStdout(), report, asJSON)
			}
			images, err := planner.PlanImages(report.Plan)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), planJSON(report, images))
			}
			return printPlan(cmd.OutOrStdout(), report, images)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.HeaderOnly, "header-only", false, "PATH is a GGUF's header without the data behind it")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	f.StringVar(&dir, "write", "", "make the images in this `directory`")
	f.BoolVar(&onMetal, "metal", false, "print what a decoding cycle of the Metal backend takes")
	cmd.MarkFlagsMutuallyExclusive("write", "json")
	cmd.MarkFlagsMutuallyExclusive("write", "metal")
	cmd.MarkFlagsMutuallyExclusive("write", "header-only")
	return cmd
}

// writeImages makes the images of the model at path in a directory.
func writeImages(cmd *cobra.Command, path, dir string, p *planner.Plan) error {
	w, sources, files, err := imageSources(path, p)
	if err != nil {
		return err
	}
	defer files.Close()
	wide, err := planner.InexactBF16(p, w)
	if err != nil {
		return err
	}
	images, err := planner.PlanImages(p, wide...)
	if err != nil {
		return err
	}
	const steps = 1000
	b := newBar(cmd, "Writing", steps)
	err = planner.MakeImages(cmd.Context(), dir, images, w, sources, func(s planner.ImageProgress) {
		b.set(int(steps * s.Done / max(s.Total, 1)))
	})
	b.done()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d images, %s\n", dir, len(images.Images), byteSize(images.Size()))
	return err
}

// imageSources opens the files that a plan's weights come from.
func imageSources(path string, p *planner.Plan) (planner.Weights, []planner.ImageSource, io.Closer, error) {
	if p.Format == "safetensors" {
		c, err := safetensors.OpenDir(path)
		if err != nil {
			return nil, nil, nil, err
		}
		sources, err := planner.CheckpointSources(c)
		if err != nil {
			return nil, nil, nil, errors.Join(err, c.Close())
		}
		return planner.OpenSafetensors(c, p), sources, c, nil
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, nil, nil, err
	}
	sources, err := planner.GGUFSources(f)
	if err != nil {
		return nil, nil, nil, errors.Join(err, f.Close())
	}
	return planner.OpenGGUF(f, p), sources, f, nil
}

// A plannedTensor is a tensor of an image as a reader sees it.
type plannedTensor struct {
	Image         string  `json:"image"`
	Name          string  `json:"name"`
	Form          string  `json:"form"`
	Type          string  `json:"type"`
	Rows          int     `json:"rows"`
	Cols          int     `json:"cols"`
	Offset        int64   `json:"offset"`
	Bytes         int64   `json:"bytes"`
	BitsPerWeight float64 `json:"bits_per_weight"`
}

func planned(images *planner.ImagePlan) []plannedTensor {
	var out []plannedTensor
	for i := range images.Images {
		m := &images.Images[i]
		for j := range m.Tensors {
			t := &m.Tensors[j]
			bytes := t.Plane0.Size + t.Plane1.Size + t.Meta.Size
			first := t.Descriptor
			if first.Size == 0 {
				first = t.Plane0
			}
			out = append(out, plannedTensor{
				Image: m.Name, Name: t.Name, Form: t.Form.String(), Type: t.Type.String(), Rows: t.Rows, Cols: t.Cols,
				Offset: first.Offset, Bytes: bytes, BitsPerWeight: 8 * float64(bytes) / (float64(t.Rows) * float64(t.Cols)),
			})
		}
	}
	return out
}

func planJSON(r *check.Report, images *planner.ImagePlan) any {
	return struct {
		Family  string          `json:"family"`
		Bytes   int64           `json:"bytes"`
		Images  int             `json:"images"`
		Tensors []plannedTensor `json:"tensors"`
	}{r.Family, images.Size(), len(images.Images), planned(images)}
}

func printPlan(out io.Writer, r *check.Report, images *planner.ImagePlan) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "image\ttensor\tform\ttype\trows\tcolumns\toffset\tbytes\tbits/weight\t")
	for _, t := range planned(images) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%.5g\t\n",
			t.Image, t.Name, t.Form, t.Type, t.Rows, t.Cols, t.Offset, t.Bytes, t.BitsPerWeight)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%s: %d images, %s\n", r.Family, len(images.Images), byteSize(images.Size()))
	return err
}

// cycleContext is the tokens before the cycles that --metal counts.
const cycleContext = 4096

// A cyclePlan is what a cycle of so many lanes and rows of each takes.
type cyclePlan struct {
	Lanes   int `json:"lanes"`
	Rows    int `json:"rows"`
	Context int `json:"context"`
	metal.Traffic
	Bytes       int64   `json:"bytes"`
	OverWeights float64 `json:"bytes_over_weight_bytes"`
}

// metalPlan prints what decoding cycles of the Metal backend take.
func metalPlan(out io.Writer, r *check.Report, asJSON bool) error {
	var all []cyclePlan
	for _, lanes := range []int{1, 4} {
		for _, rows := range []int{1, model.RollbackRows} {
			c := cyclePlan{Lanes: lanes, Rows: rows, Context: min(cycleContext, r.Plan.Layout.Context-rows)}
			var err error
			if c.Traffic, err = metal.CycleTraffic(r.Plan, lanes, rows, c.Context); err != nil {
				return err
			}
			c.Bytes = c.Total()
			c.OverWeights = float64(c.Bytes) / float64(c.Weights)
			all = append(all, c)
		}
	}
	if asJSON {
		return writeJSON(out, struct {
			Family string      `json:"family"`
			Cycles []cyclePlan `json:"cycles"`
		}{r.Family, all})
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "lanes\trows\tcontext\tdispatches\tchoosing\tweights\tstates\tkeys, values\tactivations\tbytes\tover weights\tloads\t")
	for _, c := range all {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%.3f\t%s\t\n", c.Lanes, c.Rows, c.Context, c.Dispatches, c.Choosing, byteSize(c.Weights),
			byteSize(c.States), byteSize(c.KV), byteSize(c.Activations), byteSize(c.Bytes), c.OverWeights, byteSize(c.Loads))
	}
	return w.Flush()
}
