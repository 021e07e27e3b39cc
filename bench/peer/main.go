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
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"time"

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

// A turn is the tokens a second of one engine: of the prompt, of all that was decoded, and of the token that took the median
// time, which other work on the machine tells least on.
type turn struct{ prefill, decode, typical float64 }

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
	fmt.Fprintf(out, "tokens a second, ours / theirs:\n%30s%30s%30s\n", "prompt", "decoded", "median token")
	var ratios [3][]float64
	for range o.rounds {
		a, b, err := round(ctx, ours, theirs)
		if err != nil {
			return err
		}
		for i, v := range [][2]float64{{a.prefill, b.prefill}, {a.decode, b.decode}, {a.typical, b.typical}} {
			ratios[i] = append(ratios[i], v[0]/v[1])
			fmt.Fprintf(out, "%12.1f /%7.1f =%6.2fx", v[0], v[1], v[0]/v[1])
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "medians of %d rounds: prompt %.2fx, decoded %.2fx, median token %.2fx\n", o.rounds, median(ratios[0]), median(ratios[1]), median(ratios[2]))
	return nil
}

// round is the means of two turns of each: ours, theirs, theirs, ours.
func round(ctx context.Context, ours, theirs side) (a, b turn, err error) {
	var turns [4]turn
	for i, s := range []side{ours, theirs, theirs, ours} {
		if turns[i], err = s.turn(ctx); err != nil {
			return a, b, err
		}
	}
	return mean(turns[0], turns[3]), mean(turns[1], turns[2]), nil
}

// mean is that of times, not of speeds.
func mean(a, b turn) turn {
	of := func(x, y float64) float64 { return 2 / (1/x + 1/y) }
	return turn{of(a.prefill, b.prefill), of(a.decode, b.decode), of(a.typical, b.typical)}
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

func (p *peer) turn(context.Context) (turn, error) {
	prompt, err := p.ask("prefill", p.o.prompt)
	if err != nil {
		return turn{}, err
	}
	answer, err := p.ask("decode", p.o.tokens)
	if err != nil {
		return turn{}, err
	}
	return turn{prompt.Tokens / prompt.Ms * 1000, answer.Tokens / answer.Ms * 1000, 1000 / median(answer.Each)}, nil
}

// A timing is what one thing asked for took.
type timing struct {
	Ms, Tokens float64
	Each       []float64 // milliseconds of each token
}

func (p *peer) ask(what string, n int) (t timing, err error) {
	if _, err := fmt.Fprintln(p.in, what, n); err != nil {
		return t, err
	}
	if err := p.answers.Decode(&t); err != nil {
		return t, fmt.Errorf("%s: %w", what, err)
	}
	if t.Ms <= 0 || t.Tokens <= 0 || what == "decode" && len(t.Each) == 0 {
		return t, fmt.Errorf("%s: the answer is %+v", what, t)
	}
	return t, nil
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
	random, vocab := rand.New(rand.NewPCG(1, uint64(s.seed))), int32(s.t.Tokenizer.Size())
	prompt := make([]int32, s.o.prompt)
	for i := range prompt {
		prompt[i] = random.Int32N(vocab)
	}
	stream, err := s.e.Submit(ctx, engine.Request{Prompt: prompt, MaxTokens: s.o.tokens + 1})
	if err != nil {
		return turn{}, err
	}
	var each []float64
	var tokens []int32
	before := time.Time{}
	for more := true; more; {
		tokens, more = stream.Next(tokens[:0])
		now := time.Now()
		if len(tokens) > 0 && !before.IsZero() {
			each = append(each, now.Sub(before).Seconds()/float64(len(tokens)))
		}
		before = now
	}
	if _, err := stream.End(); err != nil {
		return turn{}, err
	}
	if len(each) == 0 {
		return turn{}, errors.New("no token was decoded")
	}
	m := stream.Timing()
	return turn{
		prefill: float64(s.o.prompt) / m.First.Sub(m.Started).Seconds(),
		decode:  float64(s.o.tokens) / m.Ended.Sub(m.First).Seconds(),
		typical: 1 / median(each),
	}, nil
}
