package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"splash/bench"
	"splash/fixtures"
	"splash/internal/engine"
	"splash/internal/install"
	"splash/internal/target"
)

func newBench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure divergence, tokens a cycle and speed",
		Long: `Measure models: how far the next-token distributions of two of them are apart (kl), how many tokens a cycle a draft is
worth (tokens), and how fast they run (speed). Without a model, the built-in demonstration model is measured.

Ctrl+C ends a measurement early and prints what is done.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchKL(), newBenchTokens(), newBenchSpeed(), newBenchStart())
	return cmd
}

// benchOutput is how a measurement is given.
type benchOutput struct {
	json bool
	plot string
}

func (b *benchOutput) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&b.json, "json", false, "print one JSON object")
	f.StringVar(&b.plot, "plot", "", "draw a plot to a .svg, .png or .pdf `file`")
}

func (b *benchOutput) check() error {
	if b.plot == "" {
		return nil
	}
	if err := bench.CheckPlotPath(b.plot); err != nil {
		return usageError{err}
	}
	_, err := os.Stat(filepath.Dir(b.plot)) // now, not when all has been measured
	return err
}

// interrupted reports whether an error is Ctrl+C's, not a measurement's own.
func interrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}

// benchModel is which model is measured.
type benchModel struct {
	path, installed, backend, draft, weights, walk, rows string
	noDraft                                              bool
	lanes, chunk                                         int
}

// named takes a model as the command line names it: a file or directory, or an installed OWNER/REPO[:VARIANT].
func (m *benchModel) named(name string) {
	m.path, m.installed = name, ""
	if _, err := os.Stat(name); err == nil {
		return
	}
	if _, err := install.ParseModel(name); err == nil {
		m.path, m.installed = "", name
	}
}

// argument takes the model that an argument names, where there is one.
func (m *benchModel) argument(args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case m.path != "":
		return usagef("one model is measured; %q and --model-dir %q name two", args[0], m.path)
	case args[0] == "":
		return usagef("the model's name is empty")
	}
	m.named(args[0])
	return nil
}

func (m *benchModel) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&m.path, "model-dir", "", "GGUF `file` or model directory (default the demonstration model)")
	f.StringVar(&m.backend, "backend", target.Auto, "`backend` to run on")
	f.IntVar(&m.chunk, "chunk", 0, "`rows` of a prompt in one pass (default what serves the backend best)")
}

func (m *benchModel) draftFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&m.draft, "draft-model", "", "`directory` of the draft (default the demonstration model's own)")
	f.BoolVar(&m.noDraft, "no-draft", false, "decode one row a cycle")
	f.StringVar(&m.rows, "verify-rows", "auto", "rows the target verifies: `auto or all`")
	f.StringVar(&m.weights, "draft-weights", "af4g64", "the draft's projections: `af4g64 or bf16`")
	f.StringVar(&m.walk, "walk", "greedy", "how greedy proposals are chosen: `greedy or lookahead`")
}

func oneOf(flag, value string, choices ...string) error {
	for _, c := range choices {
		if value == c {
			return nil
		}
	}
	return usagef("--%s is %q; %s are known", flag, value, strings.Join(choices, ", "))
}

func (m *benchModel) options() (target.Options, error) {
	o := target.Options{Path: m.path, Backend: m.backend, Draft: m.draft, NoDraft: m.noDraft, UnroundedDraft: m.weights == "bf16"}
	o.Engine = engine.Options{Lanes: m.lanes, Chunk: m.chunk}
	for _, c := range []struct {
		flag, value string
		choices     []string
	}{
		{"verify-rows", m.rows, []string{"auto", "all"}},
		{"draft-weights", m.weights, []string{"af4g64", "bf16"}},
		{"walk", m.walk, []string{"greedy", "lookahead"}},
	} {
		if c.value == "" { // a measurement without a draft
			continue
		}
		if err := oneOf(c.flag, c.value, c.choices...); err != nil {
			return o, err
		}
	}
	if m.chunk < 0 || m.chunk > 1<<16 {
		return o, usagef("--chunk is %d; 1 to 65536 are possible", m.chunk)
	}
	if m.walk == "lookahead" {
		o.Walk = engine.LookAheadWalk
	}
	return o, nil
}

func (m *benchModel) open(cmd *cobra.Command) (*target.Target, error) {
	o, err := m.options()
	if err != nil {
		return nil, err
	}
	if m.installed != "" {
		in, err := newInstaller(cmd, true, lineLog(cmd))
		if err != nil {
			return nil, err
		}
		selection, err := new(hubFlags).selection(m.installed, m.draft)
		if err != nil {
			return nil, err
		}
		if o.Installed, err = in.Install(cmd.Context(), selection); err != nil {
			return nil, fmt.Errorf("%w; a measurement downloads nothing, so install it first: splash pull %s", err, m.installed)
		}
	}
	t, err := target.Open(cmd.Context(), o)
	if err != nil {
		return nil, err
	}
	if m.rows != "all" && t.Plan.Layout.MoE.Experts > 0 {
		t.Engine.Rows = engine.BudgetRows
	}
	return t, nil
}

// corpus reads text or prompts: the file, or what the demonstration model was made for.
func corpus(path string) ([]bench.Prompt, error) {
	var r io.Reader = bytes.NewReader(fixtures.PebblePrompts)
	if path != "" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	prompts, err := bench.ReadPrompts(r)
	if err != nil && path != "" {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return prompts, err
}

func newBenchKL() *cobra.Command {
	var out benchOutput
	var m benchModel
	var models []string
	var reference, text string
	var window, maxTokens int
	o := bench.KLOptions{}
	cmd := &cobra.Command{
		Use:   "kl [REFERENCE MODEL...]",
		Short: "Compare next-token distributions with a reference's",
		Long: `Run a text through a reference and through other models, or the same model on another backend, and print the KL
divergence of what they say comes next, how often the best token is the same, and the perplexity of both. A model is a
GGUF file or a directory, or an installed OWNER/REPO[:VARIANT]; MODEL@BACKEND names its backend. --reference and --model
name them too.`,
		Example: `  splash bench kl pebble-BF16.gguf pebble-Q8_0.gguf pebble-Q4_K_M.gguf
  splash bench kl --reference model.gguf@oracle --model model.gguf@cpu --text prose.txt --plot kl.svg`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			if reference == "" && len(args) > 0 {
				reference, args = args[0], args[1:]
			}
			models = append(args, models...)
			if reference == "" || len(models) == 0 || slices.Contains(models, "") {
				return usagef("a reference and at least one model beside it are needed")
			}
			if maxTokens < 2 {
				return usagef("--tokens is %d; at least 2 are needed", maxTokens)
			}
			if window < 2 {
				return usagef("--window is %d; at least 2 tokens are needed", window)
			}
			o.Window, o.Rows = window, m.chunk
			return runKL(cmd, m, reference, models, klText{text, maxTokens}, o, out)
		},
	}
	out.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&reference, "reference", "", "`model` that the others are compared with")
	f.StringArrayVar(&models, "model", nil, "`model` to compare; may be given again")
	f.StringVar(&text, "text", "", "text or prompt `file` (default the demonstration model's conversations)")
	f.IntVar(&maxTokens, "tokens", 16384, "`tokens` of the text at most")
	f.IntVar(&window, "window", 512, "`tokens` read in one sequence")
	f.IntVar(&m.chunk, "chunk", 64, "`rows` of one pass")
	f.Float64Var(&o.NearTie, "near-tie", 0.05, "`gap` of the reference's two best logits below which a flip is a tie broken")
	return cmd
}

// splitBackend parts MODEL@BACKEND.
func splitBackend(name string) (path, backend string, err error) {
	if at := strings.LastIndexByte(name, '@'); at > 0 {
		if _, err := os.Stat(name); err != nil {
			if at == len(name)-1 {
				return "", "", usagef("%q names no backend behind its @", name)
			}
			return name[:at], name[at+1:], nil
		}
	}
	return name, target.Auto, nil
}

// namedKL is a model's result.
type namedKL struct {
	Model string `json:"model"`
	*bench.KLResult
}

// klText is the text that models are compared on.
type klText struct {
	path   string
	tokens int // that are read at most
}

func runKL(cmd *cobra.Command, m benchModel, reference string, models []string, text klText, o bench.KLOptions, out benchOutput) error {
	ctx := cmd.Context()
	open := func(name string) (*target.Target, error) {
		one := m
		path, backend, err := splitBackend(name)
		if err != nil {
			return nil, err
		}
		one.backend = backend
		one.named(path)
		one.noDraft = true
		return one.open(cmd)
	}
	ref, err := open(reference)
	if err != nil {
		return err
	}
	defer ref.Close()
	prompts, err := corpus(text.path)
	if err != nil {
		return err
	}
	var tokens []int32
	for _, p := range prompts {
		if len(tokens) > text.tokens {
			break
		}
		tokens = ref.Tokenizer.AppendEncode(tokens, p.Text, true)
	}
	tokens = tokens[:min(len(tokens), text.tokens)]
	var results []namedKL
	for _, name := range models {
		if ctx.Err() != nil {
			break
		}
		r, err := oneKL(cmd, open, name, ref, tokens, o)
		if interrupted(ctx, err) {
			break
		}
		if err != nil {
			return err
		}
		results = append(results, namedKL{name, r})
	}
	if len(results) == 0 {
		return context.Cause(ctx)
	}
	if err := plotKL(out.plot, results); err != nil {
		return err
	}
	if out.json {
		return writeJSON(cmd.OutOrStdout(), struct {
			Reference string    `json:"reference"`
			Results   []namedKL `json:"results"`
		}{reference, results})
	}
	return printKL(cmd.OutOrStdout(), reference, results, len(results) < len(models))
}

func oneKL(cmd *cobra.Command, open func(string) (*target.Target, error), name string, ref *target.Target, tokens []int32, o bench.KLOptions) (*bench.KLResult, error) {
	t, err := open(name)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	if got, want := t.Plan.Layout.Vocab, ref.Plan.Layout.Vocab; got != want {
		return nil, fmt.Errorf("%s has a vocabulary of %d tokens; the reference's, of %d, cannot be compared with it", name, got, want)
	}
	bar := newBar(cmd, name, len(tokens)-1)
	o.Progress = bar.add
	defer bar.done()
	return bench.KL(cmd.Context(), ref.Network, t.Network, tokens, o)
}

func plotKL(path string, results []namedKL) error {
	if path == "" {
		return nil
	}
	var names []string
	var all []*bench.KLResult
	for _, r := range results {
		names, all = append(names, r.Model), append(all, r.KLResult)
	}
	return bench.PlotKL(path, names, all)
}

// printKL prints the results. left says that models are missing, which Ctrl+C left out.
func printKL(out io.Writer, reference string, results []namedKL, left bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "model\tpositions\tmean KL\tmedian\tp99\tmax\ttop-1 same\tflips\tat near ties\tperplexity\treference\t")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%d\t%.3e\t%.3e\t%.3e\t%.3e\t%.3f%%\t%d\t%d of %d\t%.4f\t%.4f\t\n", r.Model, r.Positions, r.Mean, r.Median,
			r.P99, r.Max, 100*r.Top1, r.Flips, r.TieFlips, r.NearTies, r.Perplexity, r.ReferencePerplexity)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "reference: %s; KL in nats\n", reference)
	if left || results[len(results)-1].Interrupted {
		fmt.Fprintln(out, "interrupted: these are the positions that were done")
	}
	return nil
}

func newBenchTokens() *cobra.Command {
	var out benchOutput
	var m benchModel
	var prompts string
	var compare bool
	o := bench.TokensOptions{}
	cmd := &cobra.Command{
		Use:     "tokens [MODEL]",
		Aliases: []string{"draft"},
		Short:   "Count the tokens a cycle that a draft is worth",
		Long: `Answer prompts with a draft and print how many tokens a decode cycle came to, how often the proposal at each position was
accepted, and what a cycle costs by the rows it verifies. --compare answers them without the draft too and says whether
the texts are the same.`,
		Example: `  splash bench tokens
  splash bench tokens --model-dir model.gguf --draft-model DFlash2/ --prompts code.jsonl --plot acceptance.svg`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(out.check(), m.argument(args)); err != nil {
				return err
			}
			if o.MaxTokens < 1 {
				return usagef("--max-tokens is %d; at least 1 is needed", o.MaxTokens)
			}
			if m.lanes < 1 || m.lanes > 64 {
				return usagef("--lanes is %d; 1 to 64 are possible", m.lanes)
			}
			o.Lanes = m.lanes
			return runTokens(cmd, m, prompts, o, compare, out)
		},
	}
	out.flags(cmd)
	m.flags(cmd)
	m.draftFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&prompts, "prompts", "", "prompt `file`: JSON with \"prompts\", JSON lines, or paragraphs (default the demonstration model's)")
	f.IntVar(&o.MaxTokens, "max-tokens", 256, "`tokens` of each answer at most")
	f.IntVar(&m.lanes, "lanes", 4, "`prompts` answered at once")
	f.Float64Var(&o.Policy.Temperature, "temperature", 0, "sampling `temperature`; 0 is greedy")
	f.IntVar(&o.Policy.TopK, "top-k", 0, "keep the `k` likeliest tokens; 0 is all")
	f.Float64Var(&o.Policy.TopP, "top-p", 1, "keep the tokens of this `share`")
	f.Uint64Var(&o.Seed, "seed", 1, "`seed` of sampled answers")
	f.BoolVar(&compare, "compare", false, "answer without the draft too, and compare the texts")
	return cmd
}

func runTokens(cmd *cobra.Command, m benchModel, prompts string, o bench.TokensOptions, compare bool, out benchOutput) error {
	r, err := tokensOnce(cmd, m, prompts, o, "with the draft")
	if err != nil {
		return err
	}
	if r.Interrupted && r.Prompts == 0 {
		return context.Cause(cmd.Context())
	}
	var different []string
	compared := false
	if compare && !r.Interrupted {
		m.noDraft = true
		alone, err := tokensOnce(cmd, m, prompts, o, "without the draft")
		switch {
		case interrupted(cmd.Context(), err) || err == nil && alone.Interrupted:
			r.Interrupted = true
		case err != nil:
			return err
		default:
			different, compared = bench.DifferentAnswers(r, alone), true
		}
	}
	if out.plot != "" {
		if err := bench.PlotAcceptance(out.plot, r); err != nil {
			return err
		}
	}
	if out.json {
		return writeJSON(cmd.OutOrStdout(), struct {
			*bench.TokensResult
			Compared  bool     `json:"compared"`
			Different []string `json:"different"`
		}{r, compared, different})
	}
	if err := printTokens(cmd.OutOrStdout(), r); err != nil {
		return err
	}
	if compared {
		fmt.Fprintf(cmd.OutOrStdout(), "%d of %d texts are the same without the draft\n", r.Prompts-len(different), r.Prompts)
	}
	return nil
}

func tokensOnce(cmd *cobra.Command, m benchModel, path string, o bench.TokensOptions, what string) (*bench.TokensResult, error) {
	t, err := m.open(cmd)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	texts, err := corpus(path)
	if err != nil {
		return nil, err
	}
	var prompts []bench.TokenPrompt
	for _, p := range texts {
		prompts = append(prompts, bench.TokenPrompt{Name: p.Name, Tokens: t.Tokenizer.Encode(p.Text, true)})
	}
	e := engine.New(t.Network, t.Engine)
	defer e.Close()
	o.Stop = t.Plan.Stop
	bar := newBar(cmd, what, len(prompts))
	defer bar.done()
	o.Progress = func(done, _ int) { bar.set(done) }
	return bench.Tokens(cmd.Context(), e, prompts, o)
}

func printTokens(out io.Writer, r *bench.TokensResult) error {
	fmt.Fprintf(out, "%d prompts, %d tokens after the first of each in %d cycles: %.3f tokens a cycle\n", r.Prompts, r.Tokens, r.LaneCycles, r.TokensPerCycle)
	if r.Drafted > 0 {
		if err := printDrafted(out, r); err != nil {
			return err
		}
	}
	if r.Interrupted {
		fmt.Fprintln(out, "interrupted: these are the answers that were done")
	}
	return nil
}

// printDrafted prints what became of the proposals.
func printDrafted(out io.Writer, r *bench.TokensResult) error {
	fmt.Fprintf(out, "%d of %d verified proposals accepted (%.1f%%)\n", r.Accepted, r.Drafted, 100*r.AcceptanceRate)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "position\tverified\taccepted\trate\twith all before\t")
	for _, p := range r.Positions {
		fmt.Fprintf(w, "%d\t%d\t%d\t%.3f\t%.3f\t\n", p.Position, p.Verified, p.Accepted, p.Rate, p.Survival)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "cycles by accepted proposals, 0 to 7: %v\n", r.Histogram)
	fmt.Fprintf(out, "acceptance model: slope %.3f, intercepts %.3f\n", r.Slope, r.Intercept)
	for _, l := range r.Lines {
		fmt.Fprintf(out, "cost of a cycle of %d lanes: %.2f ms + %.3f ms a row (%d cycles)\n", l.Lanes, l.BaseMs, l.RowMs, l.Cycles)
	}
	return nil
}

func newBenchSpeed() *cobra.Command {
	var out benchOutput
	var lanes string
	s := speedRun{}
	cmd := &cobra.Command{
		Use:     "speed [MODEL]",
		Aliases: []string{"throughput"},
		Short:   "Time starting, passes, prompts and decoding",
		Long: `Time how soon a process that starts has a first token, and what memory it works in; what a pass of one row takes beside the
eight of a cycle, and beside how fast the machine reads memory; how fast prompts are read and tokens decoded, with one
request and with several at once; how soon the first token comes for a prompt never seen and for the same prompt again; and
the first token of a long conversation's second turn.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(out.check(), s.m.argument(args)); err != nil {
				return err
			}
			var err error
			if s.o.Lanes, err = parseLanes(lanes); err != nil {
				return err
			}
			if s.o.Prompt < 1 || s.o.Tokens < 2 || s.o.Runs < 1 {
				return usagef("--prompt needs at least 1 token, --tokens 2, --runs 1")
			}
			if s.starts < 0 || s.rounds < 0 || s.conversation < 0 {
				return usagef("--starts, --passes and --conversation are counts; 0 leaves a measurement out")
			}
			return s.run(cmd, out)
		},
	}
	out.flags(cmd)
	s.m.flags(cmd)
	s.m.draftFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&lanes, "lanes", "1,2,4,8", "`requests` at once, one run after another")
	f.IntVar(&s.o.Prompt, "prompt", 512, "`tokens` of a prompt")
	f.IntVar(&s.o.Tokens, "tokens", 64, "`tokens` decoded of each")
	f.IntVar(&s.o.Runs, "runs", 3, "`runs` of each, of which the median counts")
	f.IntVar(&s.starts, "starts", 3, "`processes` to start, of which the median counts; 0: none")
	f.IntVar(&s.rounds, "passes", 15, "`rounds` of passes of one row and of eight; 0: none")
	f.IntVar(&s.conversation, "conversation", 8000, "`tokens` of a conversation's first prompt, or what the context has room for; 0: none")
	return cmd
}

func parseLanes(s string) ([]int, error) {
	var lanes []int
	for _, field := range strings.Split(s, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || n < 1 || n > 64 {
			return nil, usagef("--lanes has %q; numbers from 1 to 64, parted by commas, are read", field)
		}
		lanes = append(lanes, n)
	}
	return lanes, nil
}
