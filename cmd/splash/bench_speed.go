package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"splash/bench"
	"splash/internal/engine"
	"splash/internal/target"
)

// A speedRun is one run of "bench speed".
type speedRun struct {
	m                            benchModel
	o                            bench.SpeedOptions
	starts, rounds, conversation int
}

// A speedReport is what it prints. What was left out is nil.
type speedReport struct {
	Backend string            `json:"backend"`
	Start   *startup          `json:"start,omitempty"`
	Passes  *bench.Passes     `json:"passes,omitempty"`
	Turn    *bench.SecondTurn `json:"second_turn,omitempty"`
	*bench.SpeedResult
}

func (s *speedRun) run(cmd *cobra.Command, out benchOutput) error {
	for _, n := range s.o.Lanes {
		s.m.lanes = max(s.m.lanes, n)
	}
	t, err := s.m.open(cmd)
	if err != nil {
		return err
	}
	defer t.Close()
	if limit := t.Engine.Context; s.o.Prompt+s.o.Tokens > limit {
		return usagef("--prompt and --tokens are %d together; the model's context is %d", s.o.Prompt+s.o.Tokens, limit)
	}
	r := speedReport{Backend: t.Backend, SpeedResult: &bench.SpeedResult{Prompt: s.o.Prompt, Tokens: s.o.Tokens}}
	err = s.measure(cmd, t, &r)
	if interrupted(cmd.Context(), err) && (r.Start != nil || r.Passes != nil || len(r.Rows) > 0) {
		r.Interrupted, err = true, nil
	}
	if err != nil {
		return err
	}
	if out.plot != "" && len(r.Rows) > 0 {
		if err := bench.PlotSpeed(out.plot, r.SpeedResult); err != nil {
			return err
		}
	}
	if out.json {
		return writeJSON(cmd.OutOrStdout(), &r)
	}
	return printSpeed(cmd.OutOrStdout(), t, &r)
}

// start starts processes one after another. The first of them may be the one that brings the file into memory. An error comes
// with what those before it took.
func (s *speedRun) start(cmd *cobra.Command) (*startup, error) {
	bar := newBar(cmd, "starts", s.starts)
	defer bar.done()
	var all []*startup
	var err error
	for len(all) < s.starts {
		var one *startup
		if one, err = measureStart(cmd, s.m, s.o.Prompt, s.o.Tokens); err != nil {
			break
		}
		all = append(all, one)
		bar.set(len(all))
	}
	if len(all) == 0 {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *startup) int { return cmp.Compare(a.FirstMs, b.FirstMs) })
	return all[(len(all)-1)/2], err
}

// measure fills the report. An error leaves in it what was done before.
func (s *speedRun) measure(cmd *cobra.Command, t *target.Target, r *speedReport) (err error) {
	ctx := cmd.Context()
	if s.starts > 0 {
		if r.Start, err = s.start(cmd); err != nil {
			return err
		}
	}
	if s.rounds > 0 {
		if r.Passes, err = bench.MeasurePasses(ctx, t.Network, t.Plan, s.rounds); err != nil {
			return err
		}
	}
	prompts, err := corpus("")
	if err != nil {
		return err
	}
	for _, p := range prompts {
		s.o.Base = t.Tokenizer.AppendEncode(s.o.Base, p.Text, true)
	}
	s.o.Vocab = t.Tokenizer.Size()
	e := engine.New(t.Network, t.Engine)
	defer e.Close()
	bar := newBar(cmd, "runs", len(s.o.Lanes)*s.o.Runs)
	s.o.Progress = func(done, _ int) { bar.set(done) }
	speed, err := bench.Speed(ctx, e, s.o)
	bar.done()
	if err != nil {
		return err
	}
	r.SpeedResult = speed
	if r.Interrupted {
		return context.Cause(ctx)
	}
	prompt := min(s.conversation, t.Engine.Context-bench.TurnTokens)
	if prompt > 0 {
		r.Turn, err = bench.MeasureSecondTurn(ctx, e, prompt, s.o)
	}
	return err
}

func printSpeed(out io.Writer, t *target.Target, r *speedReport) error {
	if s := r.Start; s != nil {
		fmt.Fprintf(out, "start to first token: %.0f ms", s.FirstMs)
		if s.Total > 0 {
			fmt.Fprintf(out, "; resident after %d tokens: %s, of which weights %s, states %s, all else %s", s.Tokens, byteSize(s.Total),
				byteSize(s.Weights), byteSize(s.States), byteSize(max(0, s.Beyond)))
		}
		fmt.Fprintln(out)
	}
	if p := r.Passes; p != nil {
		fmt.Fprintf(out, "a pass: one row %.2f ms, eight %.2f ms (%.2f times); reads %s of weights", p.OneMs, p.EightMs, p.Ratio, byteSize(p.WeightBytes))
		if p.ReadPerSec > 0 {
			fmt.Fprintf(out, ", %.0f%% of the %.1f GB/s that this machine reads memory at", 100*p.Share, p.ReadPerSec/1e9)
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "%s on %s: prompts of %d tokens, %d decoded\n", t.Name, t.Backend, r.Prompt, r.Tokens)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "requests\tprefill tok/s\tdecode tok/s\teach\tfirst token ms\tagain ms\tratio\t")
	for _, row := range r.Rows {
		fmt.Fprintf(w, "%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t\n", row.Lanes, row.PrefillPerSec, row.DecodePerSec, row.DecodePerLane,
			row.FirstTokenMs, row.FirstAgainMs, row.FirstTokenRatio)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if s := r.Turn; s != nil {
		fmt.Fprintf(out, "a conversation of %d tokens: first token %.0f ms; of its second turn %.0f ms (%.0f times sooner)\n", s.Prompt, s.ColdMs, s.SecondMs, s.Ratio)
	}
	if r.Interrupted {
		fmt.Fprintln(out, "interrupted: these are the runs that were done")
	}
	return nil
}
