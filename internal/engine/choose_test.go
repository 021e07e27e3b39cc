//go:build cgo

package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/internal/model"
	"splash/metal"
	"splash/oracle"
)

// choosing is a fake network on a backend that chooses tokens, by the kernels of the metal backend, from the logits of the fake one.
type choosing struct {
	*fake
	device  *metal.Device
	chooser *metal.Chooser
	logits  *metal.Buffer
	lanes   int // that tokens were chosen for
	read    int // rows of logits that the engine read
}

// device is the one that these tests choose on. It stays open.
var device = sync.OnceValues(func() (*metal.Device, error) { return metal.Open(metal.Devices()[0]) })

func newChoosing(t testing.TB, vocab int) *choosing {
	t.Helper()
	if err := metal.Usable(); err != nil {
		t.Skip(err)
	}
	d, err := device()
	if err != nil {
		t.Fatal(err)
	}
	c := &choosing{fake: newFake(vocab), device: d}
	if c.chooser, err = metal.NewChooser(d, vocab, nil); err == nil {
		c.logits, err = d.NewBuffer(4 * vocab * 1024)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.chooser.Close()
		c.logits.Free()
	})
	return c
}

func (c *choosing) Backend() model.Backend { return choosingBackend{fakeBackend{fake: c.fake}, nil} }

func (c *choosing) Logits(i int) []float32 {
	c.read++
	return c.fake.Logits(i)
}

func (c *choosing) Forward(p *model.Pass) error {
	if err := c.fake.Forward(p); err != nil || len(p.Choices) == 0 {
		return err
	}
	for i := range c.outputs {
		copy(c.logits.Float32s()[i*c.vocab:], c.fake.logits[i])
	}
	c.lanes += len(p.Choices)
	return c.chooser.Accept(c.logits, p.Choices)
}

// choosingBackend is of a choosing network, which does itself what is asked of a model.Chooser.
type choosingBackend struct {
	fakeBackend
	model.Chooser
}

// blockSums is sums, and says what blocks allow; where cannot, every third time, it does not.
type blockSums struct {
	sums
	cannot bool
	asked  int
}

func (c *blockSums) Rows(rows []uint64, proposals []int32) (allowed int, err error) {
	if c.asked++; c.cannot && c.asked%3 == 0 {
		return 0, errors.New("too much")
	}
	words, at := len(rows)/(len(proposals)+1), c.sums
	for i := 0; ; i++ {
		if err := at.Allowed(rows[i*words : (i+1)*words]); err != nil || i == len(proposals) {
			return i, err
		}
		if at.Accept(max(proposals[i], 0)) != nil {
			return i, nil
		}
	}
}

// chosenRequests are greedy and sampled, with penalties, stop tokens and constraints, all of them mixed.
func chosenRequests(n int, sampled bool) []Request {
	random := rand.New(rand.NewPCG(3, 4))
	var all []Request
	for i := range n {
		r := Request{Prompt: prompt(1+i%40, uint64(i)), MaxTokens: 1 + i%17, Seed: random.Uint64()}
		if sampled {
			r.Policy = oracle.Policy{Temperature: 0.5 + float64(i%4)/3, TopK: []int{0, 0, 0, 5, 20}[i%5], TopP: []float64{0, 0, 0.95}[i%3]}
			r.Policy.MinP = []float64{0, 0, 0.05}[i/2%3]
		}
		if i%4 == 1 {
			r.Policy.Repetition, r.Policy.Presence, r.Policy.Frequency = 1.25, 0.5, 0.125
		}
		if i%5 == 2 {
			r.Stop = []int32{int32(i % 97), 5, 6}
		}
		if i%3 == 2 {
			r.Constraint = &blockSums{sums: sums{n: 7, vocab: 97}, cannot: i%2 == 0}
		}
		all = append(all, r)
	}
	return all
}

// answersOf are what an engine on a network answers to requests that it is given at once.
func answersOf(t *testing.T, net model.Network, o Options, requests []Request) [][]int32 {
	t.Helper()
	o.Context, o.Queue, o.Lanes, o.Vocab = 4096, len(requests), 16, 97
	e := New(net, o)
	defer e.Close()
	var streams []*Stream
	for _, r := range requests {
		s, err := e.Submit(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	answers := make([][]int32, len(streams))
	for i, s := range streams {
		for more := true; more; {
			answers[i], more = s.Next(answers[i])
		}
		if _, err := s.End(); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
	return answers
}

// TestChosenText answers requests of every kind on a backend that chooses tokens and on one whose logits are read, with a draft
// and without. Greedy text is the same. So is sampled text, which takes the same draws, unless one lies on a boundary of float32.
func TestChosenText(t *testing.T) {
	for _, sampled := range []bool{false, true} {
		for _, drafted := range []bool{false, true} {
			answer := func(net model.Network, f *fake) [][]int32 {
				var o Options
				if drafted {
					random := rand.New(rand.NewPCG(5, 6))
					o.Proposer = newScript(f, func() int { return random.IntN(8) })
				}
				return answersOf(t, net, o, chosenRequests(48, sampled))
			}
			f, c := newFake(97), newChoosing(t, 97)
			want, got := answer(f, f), answer(c, c.fake)
			other := 0
			for i := range want {
				if !slices.Equal(want[i], got[i]) {
					other++
				}
			}
			t.Logf("sampled %v, drafted %v: tokens chosen %d times; %d of %d texts are other ones", sampled, drafted, c.lanes, other, len(want))
			if other > 0 && (!sampled || other > 2) {
				t.Error(cmp.Diff(want, got))
			}
			if c.lanes == 0 {
				t.Error("the backend chose no token")
			}
		}
	}
}

// TestChosenKeepsTheDistribution is TestDraftKeepsTheDistribution on a backend that chooses tokens.
func TestChosenKeepsTheDistribution(t *testing.T) {
	for name, x := range map[string]struct {
		samples int
		policy  oracle.Policy
	}{
		"temperature": {2500, oracle.Policy{Temperature: 1.2}}, "cut": {300, oracle.Policy{Temperature: 1, TopK: 4, TopP: 0.9}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChoosing(t, 5)
			keepsTheDistribution(t, c, c.fake, x.samples, x.policy)
		})
	}
}

// TestChosenReadsNoLogits: the engine reads the logits of those that ask for them, and no others.
func TestChosenReadsNoLogits(t *testing.T) {
	c := newChoosing(t, 97)
	e := New(c, Options{Context: 4096, Vocab: 97})
	scored, err := e.Submit(context.Background(), Request{Prompt: prompt(9, 1), Score: []int32{3, 50}})
	if err != nil {
		t.Fatal(err)
	}
	got := collect(t, e, Request{Prompt: prompt(30, 2), MaxTokens: 20})
	for more := true; more; _, more = scored.Next(nil) {
	}
	scores := scored.Scores()
	e.Close()
	if diff := cmp.Diff(text(t, Request{Prompt: prompt(30, 2), MaxTokens: 20}), got); diff != "" {
		t.Error(diff)
	}
	if len(scores) != 2 || c.read != 1 || c.lanes != 20 {
		t.Errorf("%d scores; %d rows of logits were read, tokens chosen %d times", len(scores), c.read, c.lanes)
	}
}

// TestNothingChosen: logits that are no numbers, and constraints that allow nothing, end their request with the error that they
// have where logits are read.
func TestNothingChosen(t *testing.T) {
	for name, x := range map[string]struct {
		nan  bool
		r    Request
		want error
	}{
		"no numbers":             {true, Request{}, ErrNotFinite},
		"no numbers, sampled":    {true, Request{Policy: oracle.Policy{Temperature: 1}}, ErrNotFinite},
		"no numbers, constraint": {true, Request{Constraint: &blockSums{sums: sums{n: 7, vocab: 97}}}, ErrNotFinite},
		"nothing allowed":        {false, Request{Constraint: &blockSums{sums: sums{n: 1000, sum: 1, vocab: 97}}}, ErrNothingAllowed},
		"nothing allowed, sampled": {
			false, Request{Policy: oracle.Policy{Temperature: 1}, Constraint: &blockSums{sums: sums{n: 1000, sum: 1, vocab: 97}}}, ErrNothingAllowed,
		},
	} {
		c := newChoosing(t, 97)
		c.nan = x.nan
		e := New(c, Options{Context: 4096, Vocab: 97})
		x.r.Prompt = prompt(5, 1)
		s, err := e.Submit(context.Background(), x.r)
		if err != nil {
			t.Fatal(err)
		}
		for more := true; more; _, more = s.Next(nil) {
		}
		if why, err := s.End(); why != Failed || !errors.Is(err, x.want) {
			t.Errorf("%s: ended %v: %v", name, why, err)
		}
		e.Close()
	}
}

func TestChosenDecodeDoesNotAllocate(t *testing.T) {
	for name, r := range map[string]Request{
		"greedy":      {},
		"sampled":     {Policy: oracle.Policy{Temperature: 0.8, MinP: 0.01}},
		"penalized":   {Policy: oracle.Policy{Temperature: 0.8, Repetition: 1.1}, Stop: []int32{-1}},
		"constrained": {Constraint: &blockSums{sums: sums{n: 7, vocab: 97}}},
	} {
		e := newEngine(newChoosing(t, 97), Options{Context: 1 << 20, Vocab: 97})
		for range 4 {
			r.Prompt = prompt(5, 1)
			s := newStream(context.Background(), r, 1<<20)
			s.tokens = make([]int32, 0, 4096)
			e.waiting = append(e.waiting, s)
		}
		e.admit()
		for range 60 {
			e.admit()
			e.step()
		}
		if n := testing.AllocsPerRun(40, func() { e.admit(); e.step() }); n != 0 {
			t.Errorf("%s: a pass of four lanes allocates %v times", name, n)
		}
	}
}
