package engine

import (
	"context"
	"errors"
	"testing"

	"splash/oracle"
)

// sums allows only tokens that keep the sum of the output's tokens divisible by n: a constraint that depends on every token
// before.
type sums struct {
	n, sum int32
	vocab  int
}

func (c *sums) Allowed(row []uint64) error {
	for t := range int32(c.vocab) {
		if (c.sum+t)%c.n == 0 {
			row[t/64] |= 1 << (t % 64)
		}
	}
	return nil
}

func (c *sums) Accept(token int32) error {
	if c.sum += token; c.sum%c.n != 0 {
		return errors.New("a token that was not allowed")
	}
	return nil
}

// TestConstraint decodes under a constraint, with proposals that mostly break it and without: the text is the same, and
// keeps to it.
func TestConstraint(t *testing.T) {
	for name, policy := range map[string]oracle.Policy{
		"greedy": {}, "penalized": {Frequency: 0.5}, "sampled": {Temperature: 1, TopK: 10},
	} {
		request := func() Request {
			return Request{Prompt: prompt(20, 3), MaxTokens: 60, Policy: policy, Seed: 9, Constraint: &sums{n: 7, vocab: 97}}
		}
		want := text(t, request())
		for i, token := range want {
			if token%7 != 0 {
				t.Fatalf("%s: token %d of the output is %d", name, i, token)
			}
		}
		f := newFake(97)
		e := New(f, Options{Context: 4096, Proposer: newScript(f, func() int { return 7 }), Vocab: 97, Rows: BudgetRows})
		got := collect(t, e, request())
		e.Close()
		if policy.Temperature == 0 {
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("%s: token %d is %d with a draft, %d without", name, i, got[i], want[i])
				}
			}
		}
	}
	e := New(newFake(97), Options{Context: 4096})
	defer e.Close()
	s, err := e.Submit(context.Background(), Request{Prompt: prompt(3, 1), Constraint: &sums{n: 1000, sum: 1, vocab: 97}})
	if err != nil {
		t.Fatal(err)
	}
	for more := true; more; _, more = s.Next(nil) {
	}
	if why, err := s.End(); why != Failed || !errors.Is(err, ErrNothingAllowed) {
		t.Errorf("ended %v: %v", why, err)
	}
}

func TestConstrainedDecodeDoesNotAllocate(t *testing.T) {
	e := newEngine(newFake(97), Options{Context: 1 << 20})
	for range 4 {
		s := newStream(context.Background(), Request{Prompt: prompt(5, 1), Constraint: &sums{n: 7, vocab: 97}}, 1<<20)
		s.tokens = make([]int32, 0, 4096)
		e.waiting = append(e.waiting, s)
	}
	e.admit()
	for range 100 {
		e.step()
	}
	if n := testing.AllocsPerRun(200, e.step); n != 0 {
		t.Errorf("a pass of four lanes allocates %v times", n)
	}
}
