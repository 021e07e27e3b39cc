package bench

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// Size of a plot.
const (
	plotWidth  = 7 * vg.Inch
	plotHeight = 4.5 * vg.Inch
)

// CheckPlotPath refuses a file name whose ending is no picture format that is written.
func CheckPlotPath(path string) error {
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".svg", ".png", ".pdf":
		return nil
	default:
		return fmt.Errorf("%s: a plot ends in .svg, .png or .pdf, not %q", path, ext)
	}
}

// PlotKL draws how the KL divergences of named results are distributed: for each value, the share of positions above it.
func PlotKL(path string, names []string, results []*KLResult) error {
	p := plot.New()
	p.Title.Text = "KL divergence from the reference"
	p.X.Label.Text = "KL (nats)"
	p.Y.Label.Text = "share of positions above"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min, p.Y.Max = 0, 1
	var lines []any
	for i, r := range results {
		lines = append(lines, names[i], klCurve(r.Values))
	}
	if err := plotutil.AddLines(p, lines...); err != nil {
		return err
	}
	p.Legend.Top = true
	return p.Save(plotWidth, plotHeight, path)
}

// smallestKL is where a logarithmic axis begins: below it distributions are the same.
const smallestKL = 1e-9

func klCurve(values []float64) plotter.XYs {
	sorted := slices.Sorted(slices.Values(values))
	curve := make(plotter.XYs, len(sorted))
	for i, v := range sorted {
		curve[i] = plotter.XY{X: math.Max(v, smallestKL), Y: 1 - float64(i+1)/float64(len(sorted))}
	}
	return curve
}

// PlotAcceptance draws the share of a cycle's proposals that survive to each position.
func PlotAcceptance(path string, r *TokensResult) error {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("Accepted proposals: %.3f tokens a cycle", r.TokensPerCycle)
	p.X.Label.Text = "position of the proposal"
	p.Y.Label.Text = "share accepted"
	p.Y.Min, p.Y.Max = 0, 1
	var rate, survival plotter.XYs
	for _, x := range r.Positions {
		rate = append(rate, plotter.XY{X: float64(x.Position), Y: x.Rate})
		survival = append(survival, plotter.XY{X: float64(x.Position), Y: x.Survival})
	}
	if err := plotutil.AddLinePoints(p, "given those before", rate, "with all before", survival); err != nil {
		return err
	}
	return p.Save(plotWidth, plotHeight, path)
}

// PlotSpeed draws tokens a second by lanes.
func PlotSpeed(path string, r *SpeedResult) error {
	p := plot.New()
	p.Title.Text = "Speed"
	p.X.Label.Text = "requests at once"
	p.Y.Label.Text = "tokens a second"
	p.Y.Min = 0
	var all, each plotter.XYs
	for _, row := range r.Rows {
		all = append(all, plotter.XY{X: float64(row.Lanes), Y: row.DecodePerSec})
		each = append(each, plotter.XY{X: float64(row.Lanes), Y: row.DecodePerLane})
	}
	if err := plotutil.AddLinePoints(p, "decode, all", all, "decode, each", each); err != nil {
		return err
	}
	return p.Save(plotWidth, plotHeight, path)
}
