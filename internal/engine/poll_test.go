package engine

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPoll(t *testing.T) {
	r := Request{Prompt: prompt(50, 3), MaxTokens: 12}
	want := text(t, r)
	e := New(newFake(97), Options{Context: 4096, Chunk: 16})
	defer e.Close()
	s, err := e.Submit(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	var got []int32
	processed := 0
	for ended := false; !ended; {
		<-s.Ready()
		got, ended = s.Poll(got)
		n := s.Processed()
		if n < processed || n > len(r.Prompt) {
			t.Errorf("%d tokens of the prompt after %d", n, processed)
		}
		processed = n
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if processed != len(r.Prompt) {
		t.Errorf("%d tokens of the prompt processed, want %d", processed, len(r.Prompt))
	}
}
