package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"splash/internal/cpu"
	"splash/internal/target"
	"splash/metal"
)

func newDevices() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List what a model can be computed on here",
		Long: `List the backends of this build and the devices that each has here: of metal the GPU, or elsewhere the host, which runs
the same kernels on the CPU, for tests; of cpu the instructions that it may use. The backend that --backend auto takes is
marked.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := listDevices()
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), l)
			}
			return l.print(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// A deviceList is the backends of a build, and the one that auto takes.
type deviceList struct {
	Auto     string          `json:"auto"`
	Backends []backendReport `json:"backends"`
}

type backendReport struct {
	Name    string         `json:"name"`
	Usable  bool           `json:"usable"`
	Reason  string         `json:"reason,omitempty"` // why it is not
	Devices []deviceReport `json:"devices"`
}

type deviceReport struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

func listDevices() (*deviceList, error) {
	auto, err := target.FindBackend(target.Auto)
	if err != nil {
		return nil, err
	}
	l := &deviceList{Auto: auto.Name}
	for _, b := range target.Backends() {
		r := backendReport{Name: b.Name, Usable: true, Devices: []deviceReport{}}
		if b.Usable != nil {
			if err := b.Usable(); err != nil {
				r.Usable, r.Reason = false, err.Error()
			}
		}
		switch b.Name {
		case "metal":
			for _, kind := range metal.Devices() {
				name, err := metal.Describe(kind)
				if err != nil {
					return nil, err
				}
				r.Devices = append(r.Devices, deviceReport{kind, name})
			}
		case "cpu":
			for _, level := range cpu.Levels() {
				r.Devices = append(r.Devices, deviceReport{level.String(), cpu.Processor()})
			}
		default:
			r.Devices = append(r.Devices, deviceReport{"float64", "plain Go"})
		}
		l.Backends = append(l.Backends, r)
	}
	return l, nil
}

func (l *deviceList) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "backend\tdevice\tname")
	for _, b := range l.Backends {
		name := b.Name
		if name == l.Auto {
			name += " (auto)"
		}
		if !b.Usable {
			fmt.Fprintf(w, "%s\t-\t%s\n", name, b.Reason)
		}
		for _, d := range b.Devices {
			fmt.Fprintf(w, "%s\t%s\t%s\n", name, d.Kind, d.Name)
		}
	}
	return w.Flush()
}
