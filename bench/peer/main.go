// Command peer times this engine and llama.cpp on one GGUF, turn about, so that what else the machine does befalls both:
//
//	cd bench/peer && npm install --ignore-scripts && cd ../..
//	go run ./bench/peer [-rounds 3] [-threads 2] MODEL.gguf
//
// llama.cpp is the build that the version of node-llama-cpp in package.json brings, which the first line names. Each round
// goes ours, theirs, theirs, ours; a turn is a prompt and greedy decoding after it, one lane, no draft.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"

	"splash/bench"
	"splash/internal/engine"
	"splash/internal/target"
)

func main() {
	var o options
	flag.StringVar(&o.script, "script", filepath.Join("bench", "peer", "peer.mjs"), "the llama.cpp side, beside its node_modules")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds of four turns")
	flag.IntVar(&o.threads, "threads", 2, "threads of each")
	flag.IntVar(&o.prompt, "prompt", 512, "tokens of the prompt")
	flag.IntVar(&o.tokens, "tokens", 64, "tokens decoded")
	flag.Parse()
	if flag.NArg() != 1 || o.rounds < 1 || o.threads < 1 || o.prompt < 1 || o.tokens < 1 {
		fmt.Fprintln(os.Stderr, "usage: peer [flags] MODEL.gguf")
		flag.PrintDefaults()
		os.Exit(2)
	}
	o.model = flag.Arg(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, &o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

type options struct {
	script, model                   string
	rounds, threads, prompt, tokens int
}

// A turn is the tokens a second of one engine.
type turn struct{ prefill, decode float64 }

// A side takes turns.
type side interface {
	turn(ctx context.Context) (turn, error)
}

func run(ctx context.Context, o *options, out io.Writer) error {
	runtime.GOMAXPROCS(o.threads)
	theirs, err := startPeer(ctx, o)
	if err != nil {
		return err
	}
	defer theirs.close()
	ours, err := openOurs(ctx, o)
	if err != nil {
		return err
	}
	defer ours.close()
	fmt.Fprintf(out, "llama.cpp: %s, %s\n", theirs.Build, theirs.System)
	fmt.Fprintf(out, "%10s%12s%12s%12s%12s%10s%10s\n", "", "prefill", "theirs", "decode", "theirs", "prefill", "decode")
	var prefill, decode []float64
	for range o.rounds {
		var ourTurns, theirTurns []turn
		for _, own := range []bool{true, false, false, true} {
			var s side = theirs
			if own {
				s = ours
			}
			t, err := s.turn(ctx)
			if err != nil {
				return err
			}
			if own {
				ourTurns = append(ourTurns, t)
			} else {
				theirTurns = append(theirTurns, t)
			}
		}
		a, b := mean(ourTurns), mean(theirTurns)
		prefill, decode = append(prefill, a.prefill/b.prefill), append(decode, a.decode/b.decode)
		fmt.Fprintf(out, "%10s%12.1f%12.1f%12.1f%12.1f%9.2fx%9.2fx\n", "tok/s", a.prefill, b.prefill, a.decode, b.decode,
			a.prefill/b.prefill, a.decode/b.decode)
	}
	fmt.Fprintf(out, "median of %d rounds: prefill %.2fx, decode %.2fx\n", o.rounds, median(prefill), median(decode))
	return nil
}

// mean is that of times, not of speeds.
func mean(turns []turn) turn {
	var t turn
	for _, x := range turns {
		t.prefill += 1 / x.prefill
		t.decode += 1 / x.decode
	}
	n := float64(len(turns))
	return turn{n / t.prefill, n / t.decode}
}

func median(x []float64) float64 {
	slices.Sort(x)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// A peer is the process of the other engine.
type peer struct {
	o       *options
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *json.Decoder

	Build, System string
}

func startPeer(ctx context.Context, o *options) (*peer, error) {
	p := &peer{o: o, cmd: exec.CommandContext(ctx, "node", o.script, o.model, fmt.Sprint(o.threads))}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.answers = json.NewDecoder(bufio.NewReader(out))
	if err := p.answers.Decode(p); err != nil {
		p.close()
		return nil, fmt.Errorf("%s did not start (npm install in its folder first): %w", o.script, err)
	}
	return p, nil
}

func (p *peer) close() {
	p.in.Close()
	p.cmd.Wait()
}

func (p *peer) turn(context.Context) (t turn, err error) {
	if t.prefill, err = p.ask("prefill", p.o.prompt); err != nil {
		return t, err
	}
	t.decode, err = p.ask("decode", p.o.tokens)
	return t, err
}

// ask returns the tokens a second of what it asks for.
func (p *peer) ask(what string, n int) (float64, error) {
	if _, err := fmt.Fprintln(p.in, what, n); err != nil {
		return 0, err
	}
	var a struct {
		Ms     float64
		Tokens float64
	}
	if err := p.answers.Decode(&a); err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	return a.Tokens / a.Ms * 1000, nil
}

// ours is this engine.
type ours struct {
	o *options
	t *target.Target
	e *engine.Engine

	seed int
}

func openOurs(ctx context.Context, o *options) (*ours, error) {
	t, err := target.Open(ctx, target.Options{Path: o.model, Backend: "cpu", NoDraft: true, Engine: engine.Options{Lanes: 1}})
	if err != nil {
		return nil, err
	}
	return &ours{o: o, t: t, e: engine.New(t.Network, t.Engine)}, nil
}

func (s *ours) close() {
	s.e.Close()
	s.t.Close()
}

func (s *ours) turn(ctx context.Context) (turn, error) {
	s.seed++
	r, err := bench.Speed(ctx, s.e, bench.SpeedOptions{
		Prompt: s.o.prompt, Tokens: s.o.tokens + 1, Lanes: []int{1}, Runs: 1, Vocab: s.t.Tokenizer.Size(), Seed: uint64(s.seed),
	})
	if err != nil {
		return turn{}, err
	}
	if len(r.Rows) == 0 {
		return turn{}, context.Cause(ctx)
	}
	return turn{r.Rows[0].PrefillPerSec, r.Rows[0].DecodePerSec}, nil
}
