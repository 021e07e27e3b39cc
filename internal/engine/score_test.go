package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/internal/model"
)

func TestScore(t *testing.T) {
	const limit = 200
	f := newFake(97)
	e := New(f, Options{Context: limit, Chunk: 64})
	defer e.Close()
	p := prompt(limit, 5) // fills the context
	wanted := []int32{3, 96, 0, 3}
	s, err := e.Submit(context.Background(), Request{Prompt: p, Score: wanted})
	if err != nil {
		t.Fatal(err)
	}
	if tokens, more := s.Next(nil); more || len(tokens) > 0 {
		t.Errorf("tokens %v", tokens)
	}
	if why, err := s.End(); why != Stop || err != nil {
		t.Errorf("ended %v: %v", why, err)
	}
	other := newFake(97)
	lane, err := other.Backend().NewLane()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Forward(&model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: p, Outputs: 1}}}); err != nil {
		t.Fatal(err)
	}
	var want []float32
	for _, token := range wanted {
		want = append(want, other.Logits(0)[token])
	}
	if d := cmp.Diff(want, s.Scores()); d != "" {
		t.Error(d)
	}
	for _, r := range []Request{
		{Prompt: prompt(limit+1, 5), Score: wanted},
		{Prompt: p[:5], Score: []int32{-1}},
		{Prompt: p},
	} {
		if _, err := e.Submit(context.Background(), r); err == nil {
			t.Errorf("%d tokens and scores of %v pass", len(r.Prompt), r.Score)
		}
	}
	f.nan = true
	if s, err = e.Submit(context.Background(), Request{Prompt: p[:50], Score: wanted}); err != nil {
		t.Fatal(err)
	}
	s.Next(nil)
	if _, err := s.End(); !errors.Is(err, ErrNotFinite) {
		t.Errorf("logits that are no numbers: %v", err)
	}
}
