package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/engine"
	"splash/internal/model"
	"splash/oracle"
)

// thirds allows every third token, and says so of blocks; it cannot say it every third time.
type thirds struct{ vocab, asked int }

func (c *thirds) Allowed(row []uint64) error {
	for t := 0; t < c.vocab; t += 3 {
		row[t/64] |= 1 << (t % 64)
	}
	return nil
}

func (c *thirds) Accept(token int32) error {
	if token%3 != 0 {
		return fmt.Errorf("token %d is not allowed", token)
	}
	return nil
}

func (c *thirds) Rows(rows []uint64, proposals []int32) (allowed int, err error) {
	if c.asked++; c.asked%3 == 0 {
		return 0, errors.New("too much")
	}
	for n := len(rows) / (len(proposals) + 1); len(rows) > 0; rows = rows[n:] {
		if err := c.Allowed(rows); err != nil {
			return 0, err
		}
	}
	return len(proposals), nil
}

// TestModelsSeeds answers seeded requests with a draft on backends that choose tokens, choosing on them and from logits that are
// read, some of them under a constraint: the draws are the same and so is the text, unless a draw lies on a boundary of float32. What
// is chosen twice is the same.
func TestModelsSeeds(t *testing.T) {
	const seeds, tokens = 10, 4
	prompt := secondTokens(t, 6)
	policies := []oracle.Policy{
		{Temperature: 1}, {Temperature: 0.7, MinP: 0.05}, {Temperature: 1.5, Repetition: 1.1, Frequency: 0.5},
		{Temperature: 1, TopP: 0.95}, {},
	}
	m := inGGUF(fixtures.Recipe{Family: "tiny-qwen35", Seed: 5, Formats: fixtures.Uniform(dequant.Q8_0)})
	p, w := m.open(t)
	source := generatedDraft(t, p, fixtures.Draft{Family: "tiny-qwen35", Block: 16})
	o := engine.Options{Context: 256, Vocab: p.Layout.Vocab, Chunk: 64, Lanes: 10, Queue: seeds}
	answer := func(n model.Network, proposer engine.Proposer, seeds int) (all [][]int32) {
		o := o
		o.Proposer = proposer
		e := engine.New(n, o)
		defer e.Close()
		var streams []*engine.Stream
		for seed := range seeds {
			r := engine.Request{Prompt: prompt, MaxTokens: tokens, Policy: policies[seed%len(policies)], Seed: uint64(seed)}
			if seed%4 == 1 {
				r.Constraint = &thirds{vocab: p.Layout.Vocab}
			}
			s, err := e.Submit(context.Background(), r)
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, s)
		}
		for _, s := range streams {
			var got []int32
			for more := true; more; {
				got, more = s.Next(got)
			}
			if _, err := s.End(); err != nil {
				t.Error(err)
			}
			all = append(all, got)
		}
		return all
	}
	for _, b := range modelBackends() {
		n, proposer, chooses := openPair(t, &b, p, w, source, o, false)
		if !chooses {
			continue
		}
		got := answer(n, proposer, seeds)
		for i, again := range answer(n, proposer, 2) {
			if !slices.Equal(again, got[i]) {
				t.Errorf("%s: seed %d says %v, and then %v", b.name, i, got[i], again)
			}
		}
		n, proposer, _ = openPair(t, &b, p, w, source, o, true)
		other := 0
		for i, want := range answer(n, proposer, seeds) {
			if !slices.Equal(want, got[i]) {
				t.Logf("seed %d: chosen %v, from logits that are read %v", i, got[i], want)
				other++
			}
		}
		t.Logf("%s: %d of %d texts of %d tokens are other ones", b.name, other, seeds, tokens)
		if other > 1 {
			t.Errorf("%s: %d of %d texts are other ones", b.name, other, seeds)
		}
	}
}
