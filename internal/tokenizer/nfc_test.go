package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// TestInert holds every character that is taken for inert to the norm package.
func TestInert(t *testing.T) {
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) || !inert(r) {
			continue
		}
		s := string(r)
		p := norm.NFC.PropertiesString(s)
		if p.CCC() != 0 || !norm.NFC.IsNormalString(s) || !p.BoundaryBefore() {
			t.Errorf("%U is not inert", r)
		}
	}
}

// TestNFC holds toNFC, and composeAll alone, to the norm package on text without long runs of marks.
func TestNFC(t *testing.T) {
	r := newTexter(71)
	for range 20_000 {
		text := r.text(1 + r.IntN(10))
		want := norm.NFC.String(text)
		if got := toNFC(text); got != want {
			t.Fatalf("%+q is %+q, want %+q", text, got, want)
		}
		if got := composeAll(text); got != want {
			t.Fatalf("composed anew, %+q is %+q, want %+q", text, got, want)
		}
	}
}

// TestNFCEveryCharacter composes each character's decomposition, after and before others.
func TestNFCEveryCharacter(t *testing.T) {
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		for _, text := range []string{string(r), norm.NFD.String(string(r)), "e" + string(r) + "\u0301", string(r) + "\u0327\u0301"} {
			if got, want := composeAll(text), norm.NFC.String(text); got != want {
				t.Fatalf("%+q is %+q, want %+q", text, got, want)
			}
		}
	}
}

// TestNFCLongRuns has runs of marks that the norm package would break up with U+034F.
func TestNFCLongRuns(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"a" + strings.Repeat("\u0301", 40), "\u00e1" + strings.Repeat("\u0301", 39)},
		{"a" + strings.Repeat("\u0301\u0316", 40) + "b", "\u00e1" + strings.Repeat("\u0316", 40) + strings.Repeat("\u0301", 39) + "b"},
		{strings.Repeat("\u0316", 50) + "e\u0301", strings.Repeat("\u0316", 50) + "\u00e9"},
		{"\u1112\u1161\u11ab" + strings.Repeat("\u0301", 31), "\ud55c" + strings.Repeat("\u0301", 31)},
		{"\u0344" + strings.Repeat("\u0344", 20), strings.Repeat("\u0308\u0301", 21)},
		{"x\xff" + strings.Repeat("\u0301", 40) + "\xe4\xbd", "x\xff" + strings.Repeat("\u0301", 40) + "\xe4\xbd"},
	} {
		if got := toNFC(tt.text); got != tt.want {
			t.Errorf("%+q is %+q, want %+q", tt.text, got, tt.want)
		}
	}
}
