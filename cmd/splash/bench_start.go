package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"splash/bench"
	"splash/internal/engine"
)

// A startReport is what a process that starts, answers and ends says of itself.
type startReport struct {
	bench.Resident
	Weights int64 `json:"weight_bytes"`
	States  int64 `json:"state_bytes"` // of the lane: keys, values and recurrent states
	Tokens  int   `json:"tokens"`      // of the lane, at the end
}

// A startup is how long a process takes to its first token, and what memory it then works in.
type startup struct {
	FirstMs float64 `json:"start_to_first_token_ms"`
	*startReport
	Beyond int64 `json:"beyond_weights_and_states_bytes"` // resident
}

// newBenchStart is the process that measureStart starts. It prints a line at its first token and a report at its end.
func newBenchStart() *cobra.Command {
	var m benchModel
	var prompt, tokens int
	cmd := &cobra.Command{
		Use: "start", Short: "Start, print a line at the first token, then what memory is resident", Hidden: true, Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.argument(args); err != nil {
				return err
			}
			return runStart(cmd, m, prompt, tokens)
		},
	}
	m.flags(cmd)
	cmd.Flags().IntVar(&prompt, "prompt", 512, "`tokens` of the prompt after the first token")
	cmd.Flags().IntVar(&tokens, "tokens", 16, "`tokens` decoded after it")
	return cmd
}

func runStart(cmd *cobra.Command, m benchModel, prompt, tokens int) error {
	m.lanes, m.noDraft = 1, true
	t, err := m.open(cmd)
	if err != nil {
		return err
	}
	defer t.Close()
	t.Engine.Cache = -1 // what is kept of prompts is its own budget
	e := engine.New(t.Network, t.Engine)
	defer e.Close()
	vocab := t.Tokenizer.Size()
	if err := answerRandom(cmd, e, vocab, 8, 1); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), "first token")
	if err := answerRandom(cmd, e, vocab, prompt, tokens); err != nil {
		return err
	}
	r := startReport{Weights: bench.ModelBytes(t.Plan), Tokens: prompt + tokens}
	if r.Resident, err = bench.ReadResident(); err != nil {
		return err
	}
	if b, ok := t.Network.Backend().(interface{ LaneBytes() (fixed, token int64) }); ok {
		fixed, token := b.LaneBytes()
		r.States = fixed + token*int64(r.Tokens)
	}
	return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
}

func answerRandom(cmd *cobra.Command, e *engine.Engine, vocab, prompt, tokens int) error {
	_, err := bench.Speed(cmd.Context(), e, bench.SpeedOptions{Prompt: prompt, Tokens: tokens, Lanes: []int{1}, Runs: 1, Vocab: vocab})
	return err
}

// measureStart starts this program anew on the model.
func measureStart(cmd *cobra.Command, m benchModel, prompt, tokens int) (*startup, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"bench", "start", "--backend", m.backend, "--chunk", fmt.Sprint(m.chunk), "--prompt", fmt.Sprint(prompt), "--tokens", fmt.Sprint(tokens)}
	if m.path != "" {
		args = append(args, "--model-dir", m.path)
	}
	if m.installed != "" {
		args = append(args, m.installed)
	}
	child := exec.CommandContext(cmd.Context(), self, args...)
	child.Args[0] = os.Args[0]
	child.Stderr = cmd.ErrOrStderr()
	return timeStart(cmd.Context(), child)
}

// timeStart runs a process that says when it has a first token, and then what it has in memory. ctx is the process's own.
func timeStart(ctx context.Context, child *exec.Cmd) (*startup, error) {
	out, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := child.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	s := &startup{}
	var last []byte
	for lines.Scan() {
		if s.FirstMs == 0 {
			s.FirstMs = float64(time.Since(began)) / float64(time.Millisecond)
		}
		last = append(last[:0], lines.Bytes()...)
	}
	if err := errors.Join(lines.Err(), child.Wait()); err != nil {
		if ctx.Err() != nil { // Ctrl+C killed it
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("the process started to be timed: %w", err)
	}
	if err := json.Unmarshal(last, &s.startReport); err != nil {
		return nil, fmt.Errorf("the process started to be timed: %w", err)
	}
	s.Beyond = s.Total - s.Weights - s.States
	return s, nil
}
