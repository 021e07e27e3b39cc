package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/internal/model"
)

// TestFault: who asks learns of a fault before its requests do, with the stack of a panic and the requests' tokens.
func TestFault(t *testing.T) {
	for name, test := range map[string]struct {
		fail  func(*model.Pass) error
		stack bool
	}{
		"panic": {func(*model.Pass) error { panic("index out of range") }, true},
		"error": {func(*model.Pass) error { return errors.New("a device is lost") }, false},
	} {
		net := newFake(97)
		net.fail = test.fail
		told := make(chan *Fault, 1)
		e := New(net, Options{Context: 100, Fault: func(f *Fault) { told <- f }})
		want := prompt(7, 3)
		s, err := e.Submit(context.Background(), Request{Prompt: want, MaxTokens: 4, Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		for more := true; more; _, more = s.Next(nil) {
		}
		if _, end := s.End(); end == nil {
			t.Fatalf("%s: the request did not fail", name)
		}
		f := <-told
		if _, end := s.End(); !errors.Is(end, f.Err) || len(f.Requests) != 1 {
			t.Fatalf("%s: %+v, the request ended with %v", name, f, end)
		}
		if d := cmp.Diff(want, f.Requests[0].Prompt); d != "" || f.Requests[0].Seed != 5 {
			t.Errorf("%s: %s", name, d)
		}
		if got := strings.Contains(string(f.Stack), "fault_test.go"); got != test.stack {
			t.Errorf("%s: the stack is %s", name, f.Stack)
		}
		e.Close()
	}
}
