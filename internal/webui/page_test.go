package webui_test

import (
	"testing"
)

func TestAnswer(t *testing.T) {
	f, p := open(t, view{})
	f.answers(text("Hello *there*."))
	p.ask("Hi")
	p.done(2)
	if got, want := p.text(".answer .content"), "Hello there."; got != want {
		t.Errorf("answer %q, want %q", got, want)
	}
}
