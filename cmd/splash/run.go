package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"splash/internal/answer"
	"splash/internal/chat"
	"splash/internal/engine"
	"splash/internal/target"
	"splash/oracle"
)

// runFlags are those of run.
type runFlags struct {
	modelFlags
	system, effort string
	policy         oracle.Policy
	seed           uint64
	maxTokens      int
	json, greedy   bool
}

func newRun() *cobra.Command {
	r := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run PROMPT",
		Short: "Ask a model something in the terminal",
		Long: `Load a model, ask it PROMPT and print its answer as it comes. PROMPT "-" is read from standard input.

--model names a model of the Hugging Face Hub, which is installed first, --model-dir local files; without them the built-in
demonstration model answers. On a terminal its reasoning is shown before, dimmed; elsewhere the answer alone is printed.
How fast it went is printed to standard error at the end.`,
		Example: `  splash run "What is the capital of France?"
  splash run --greedy --reasoning-effort none "What is the opposite of hot?"
  splash run --model mlx-community/Qwen3.8-27B-4bit "Hello!"
  git diff | splash run --model-dir model.gguf --system "Review this change." -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.check(); err != nil {
				return err
			}
			return r.run(cmd, args[0])
		},
	}
	r.modelFlags.flags(cmd)
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&r.system, "system", "", "`instructions` before the prompt")
	f.StringVar(&r.effort, "reasoning-effort", "", "`effort` of reasoning: "+strings.Join(chat.Efforts, ", "))
	f.IntVar(&r.maxTokens, "max-tokens", 0, "`tokens` of the answer, at most (default what the context leaves)")
	f.BoolVar(&r.greedy, "greedy", false, "always take the likeliest token")
	f.Float64Var(&r.policy.Temperature, "temperature", 1, "`temperature` from 0 to 2")
	f.Float64Var(&r.policy.TopP, "top-p", 0.95, "keep the likeliest tokens that have this `share` of the probability")
	f.IntVar(&r.policy.TopK, "top-k", 20, "keep so many of the likeliest `tokens`; 0 for all")
	f.Float64Var(&r.policy.MinP, "min-p", 0, "drop tokens below this `share` of the likeliest one's probability")
	f.Uint64Var(&r.seed, "seed", 0, "`seed` of the random choices (default another one each time)")
	f.BoolVar(&r.json, "json", false, "print one JSON object at the end instead of text")
	complete(cmd, "reasoning-effort", chat.Efforts...)
	return cmd
}

func (r *runFlags) check() error {
	p := &r.policy
	switch {
	case !(p.Temperature >= 0 && p.Temperature <= 2):
		return usagef("--temperature is %g; 0 to 2 is possible", p.Temperature)
	case !(p.TopP > 0 && p.TopP <= 1):
		return usagef("--top-p is %g; above 0 up to 1 is possible", p.TopP)
	case p.TopK < 0:
		return usagef("--top-k is %d; at least 0 is possible", p.TopK)
	case !(p.MinP >= 0 && p.MinP <= 1):
		return usagef("--min-p is %g; 0 to 1 is possible", p.MinP)
	case r.maxTokens < 0:
		return usagef("--max-tokens is %d; a positive number is expected", r.maxTokens)
	case r.effort != "" && !chat.ValidEffort(r.effort):
		return usagef("--reasoning-effort is %q; %s are known", r.effort, strings.Join(chat.Efforts, ", "))
	}
	if r.greedy {
		p.Temperature = 0
	} else if p.Temperature > 0 {
		p.Temperature = max(p.Temperature, 0.01)
	}
	return r.modelFlags.check()
}

func (r *runFlags) run(cmd *cobra.Command, prompt string) error {
	if prompt == "-" {
		text, err := readInput(cmd.Context(), cmd.InOrStdin())
		if err != nil {
			return fmt.Errorf("standard input: %w", err)
		}
		prompt = strings.TrimSuffix(text, "\n")
	}
	at, err := r.install(cmd, lineLog(cmd))
	if err != nil {
		return err
	}
	t, err := r.open(cmd, at, target.Options{Engine: engine.Options{Lanes: 1}}, nil)
	if err != nil {
		return err
	}
	defer t.Close()
	request, o, err := r.request(cmd.Context(), t, prompt)
	if err != nil {
		return err
	}
	if !cmd.Flags().Changed("seed") {
		request.Seed = rand.Uint64()
	}
	e := engine.New(t.Network, t.Engine)
	defer e.Close()
	s, err := e.Submit(cmd.Context(), request)
	if err != nil {
		return err
	}
	result := runResult{Model: t.Name, Backend: t.Backend, PromptTokens: len(request.Prompt)}
	out := newPrinter(cmd.OutOrStdout(), r.json)
	if err := result.read(s, answer.New(o), out); err != nil {
		return err
	}
	result.measure(s, e, t.Draft != nil)
	if r.json {
		return writeJSON(cmd.OutOrStdout(), result)
	}
	return result.print(cmd.ErrOrStderr())
}

// maxInput bounds a prompt of standard input, far beyond what any model's context holds.
const maxInput = 64 << 20

// readInput reads a prompt to its end, or until ctx ends, which leaves the read waiting behind.
func readInput(ctx context.Context, in io.Reader) (string, error) {
	type input struct {
		text []byte
		err  error
	}
	done := make(chan input, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(in, maxInput+1))
		if err == nil && len(text) > maxInput {
			err = fmt.Errorf("more than %d bytes", maxInput)
		}
		done <- input{text, err}
	}()
	select {
	case i := <-done:
		return string(i.text), i.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// request is the prompt as the engine takes it, and how its answer is read.
func (r *runFlags) request(ctx context.Context, t *target.Target, prompt string) (engine.Request, answer.Options, error) {
	var messages []chat.Message
	if r.system != "" {
		messages = append(messages, chat.Message{Role: chat.RoleSystem, Text: r.system})
	}
	messages = append(messages, chat.Message{Role: chat.RoleUser, Text: prompt})
	p, err := t.Templates.Select(false).Prompt(ctx, chat.Request{Messages: messages, Variables: chat.Variables{Effort: r.effort}})
	if err != nil {
		return engine.Request{}, answer.Options{}, err
	}
	request := engine.Request{
		Prompt: t.Tokenizer.Encode(p.Text, true), MaxTokens: r.maxTokens, Policy: r.policy, Seed: r.seed, Stop: t.Plan.Stop,
	}
	return request, answer.Options{Tokenizer: t.Tokenizer, Format: t.Format, Stop: t.Plan.Stop, Thinking: p.Thinking}, nil
}

// A runResult is an answer and what it took.
type runResult struct {
	Model           string  `json:"model"`
	Backend         string  `json:"backend"`
	Reasoning       string  `json:"reasoning,omitempty"`
	Answer          string  `json:"answer"`
	Finish          string  `json:"finish_reason"`
	PromptTokens    int     `json:"prompt_tokens"`
	Tokens          int     `json:"tokens"`
	FirstToken      float64 `json:"first_token_seconds"`
	TokensPerSecond float64 `json:"tokens_per_second"`
	TokensPerCycle  float64 `json:"tokens_per_cycle,omitempty"` // with a draft
}

// read takes the answer as it comes.
func (r *runResult) read(s *engine.Stream, reader *answer.Reader, out *printer) error {
	var tokens []int32
	for more := true; more; {
		tokens, more = s.Next(tokens[:0])
		events := reader.Read(tokens)
		if !more {
			why, err := s.End()
			if err != nil {
				return err
			}
			r.Finish = why.String()
			events = reader.Finish(why == engine.Length)
		}
		for _, e := range events {
			switch e.Kind {
			case chat.ReasoningDelta:
				r.Reasoning += e.Text
			case chat.ContentDelta:
				r.Answer += e.Text
			}
			out.event(e)
		}
		if err := out.flush(); err != nil {
			return err
		}
	}
	r.Tokens = reader.Tokens()
	return out.end()
}

func (r *runResult) measure(s *engine.Stream, e *engine.Engine, drafted bool) {
	at := s.Timing()
	r.FirstToken = at.First.Sub(at.Submitted).Seconds()
	if took := at.Ended.Sub(at.First); took > 0 && r.Tokens > 1 {
		r.TokensPerSecond = float64(r.Tokens-1) / took.Seconds()
	}
	if spec := e.Speculation(); drafted {
		r.TokensPerCycle = spec.Counts.TokensPerCycle()
	}
}

func (r *runResult) print(w io.Writer) error {
	line := fmt.Sprintf("%d tokens · first after %v · %.1f tokens/s", r.Tokens,
		time.Duration(r.FirstToken*float64(time.Second)).Round(time.Millisecond), r.TokensPerSecond)
	if r.TokensPerCycle > 0 {
		line += fmt.Sprintf(" · %.2f tokens a cycle", r.TokensPerCycle)
	}
	if r.Finish == engine.Length.String() {
		line += " · cut at the token limit"
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// A printer shows an answer as it comes.
type printer struct {
	w         *bufio.Writer
	terminal  bool // shows reasoning
	dim       bool // and dims it
	silent    bool
	reasoning bool // was printed last
	any       bool
}

func newPrinter(w io.Writer, silent bool) *printer {
	f, ok := w.(*os.File)
	terminal := ok && term.IsTerminal(int(f.Fd()))
	return &printer{w: bufio.NewWriter(w), terminal: terminal, dim: terminal && os.Getenv("NO_COLOR") == "", silent: silent}
}

func (p *printer) event(e chat.Event) {
	if p.silent || e.Kind != chat.ContentDelta && !(p.terminal && e.Kind == chat.ReasoningDelta) {
		return
	}
	if reasoning := e.Kind == chat.ReasoningDelta; reasoning != p.reasoning || !p.any {
		p.turn(reasoning)
	}
	p.w.WriteString(e.Text)
}

// turn goes over to reasoning, or from it.
func (p *printer) turn(reasoning bool) {
	switch {
	case p.any && !reasoning && p.dim:
		p.w.WriteString("\x1b[0m\n")
	case p.any:
		p.w.WriteString("\n")
	}
	if reasoning && p.dim {
		p.w.WriteString("\x1b[2m")
	}
	p.reasoning, p.any = reasoning, true
}

func (p *printer) flush() error { return p.w.Flush() }

func (p *printer) end() error {
	if p.silent {
		return nil
	}
	if p.reasoning && p.dim {
		p.w.WriteString("\x1b[0m")
	}
	p.w.WriteString("\n")
	return p.w.Flush()
}
