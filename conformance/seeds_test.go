package conformance_test

import (
	"context"
	"slices"
	"testing"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/engine"
	"splash/internal/model"
	"splash/oracle"
)

// TestModelsSeeds answers seeded requests with a draft on backends that choose tokens, choosing on them and from logits that are
// read: the draws are the same and so is the text, unless a draw lies on a boundary of float32. What is chosen twice is the same.
func TestModelsSeeds(t *testing.T) {
	const seeds, tokens = 12, 4
	prompt := secondTokens(t, 6)
	policies := []oracle.Policy{
		{Temperature: 1}, {Temperature: 0.7, MinP: 0.05}, {Temperature: 1.5, Repetition: 1.1, Frequency: 0.5},
		{Temperature: 1, TopP: 0.95}, {Temperature: 0.8},
	}
	m := inGGUF(fixtures.Recipe{Family: "tiny-qwen35", Seed: 5, Formats: fixtures.Uniform(dequant.Q8_0)})
	p, w := m.open(t)
	source := generatedDraft(t, p, fixtures.Draft{Family: "tiny-qwen35", Block: 16})
	o := engine.Options{Context: 256, Vocab: p.Layout.Vocab, Chunk: 48, Lanes: 6, Queue: seeds}
	answer := func(n model.Network, proposer engine.Proposer, seeds int) (all [][]int32) {
		o := o
		o.Proposer = proposer
		e := engine.New(n, o)
		defer e.Close()
		var streams []*engine.Stream
		for seed := range seeds {
			s, err := e.Submit(context.Background(), engine.Request{
				Prompt: prompt, MaxTokens: tokens, Policy: policies[seed%len(policies)], Seed: uint64(seed),
			})
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
