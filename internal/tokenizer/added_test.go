package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// naiveNext is what scanner.next is defined to find.
func naiveNext(v *Vocabulary, want func(Kind) bool, text string, i int) (start, end int, id int32, found bool) {
	for ; i < len(text); i++ {
		for n, token := range v.Tokens {
			if want(v.Types[n]) && strings.HasPrefix(text[i:], token) && len(token) > end-start {
				start, end, id, found = i, i+len(token), int32(n), true
			}
		}
		if found {
			return start, end, id, true
		}
	}
	return 0, 0, 0, false
}

func TestScanner(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	word := func(letters string, most int) string {
		var b strings.Builder
		for range 1 + r.IntN(most) {
			b.WriteByte(letters[r.IntN(len(letters))])
		}
		return b.String()
	}
	for round := range 400 {
		v := &Vocabulary{}
		letters := "ab\xff<"
		if round%4 == 0 {
			letters = "a" // one first byte, and tokens that begin with one another
		}
		for range r.IntN(12) {
			if token := word(letters, 6); v.find(token) < 0 {
				v.add(token, []Kind{Normal, Control, UserDefined, Unused}[r.IntN(4)])
			}
		}
		for name, want := range map[string]func(Kind) bool{
			"all":          Kind.added,
			"user-defined": func(k Kind) bool { return k == UserDefined },
		} {
			s := newScanner(v, want)
			for range 20 {
				text := word(letters+"\x00", 20)
				from := r.IntN(len(text) + 1)
				start, end, id, found := s.next(text, from)
				wantStart, wantEnd, wantID, wantFound := naiveNext(v, want, text, from)
				if start != wantStart || end != wantEnd || id != wantID || found != wantFound {
					t.Fatalf("%s of %q in %q from %d: %d-%d is %d, %v; want %d-%d is %d, %v", name, v.Tokens, text, from,
						start, end, id, found, wantStart, wantEnd, wantID, wantFound)
				}
			}
		}
	}
}

// TestAddedTokens shows which tokens are found in text, and that they split it before it is normalized.
func TestAddedTokens(t *testing.T) {
	v := bytesVocabulary("qwen35")
	v.add("<|im", Control)
	v.add("<t>", UserDefined)
	v.add("<t>e", UserDefined)
	v.add("\u00e9\u00e9", UserDefined) // two characters of UTF-8, not the two bytes 0xE9 that they would spell
	tok := must(New(v))(t)
	end, im, tag, tagE, accents := int32(256), v.find("<|im"), v.find("<t>"), v.find("<t>e"), v.find("\u00e9\u00e9")
	for _, tt := range []struct {
		text    string
		special bool
		want    []int32
	}{
		{"<|im_end|>", true, []int32{end}},
		{"<|im_end|", true, []int32{im, '_', 'e', 'n', 'd', '|'}},
		{"<|im_end|>", false, []int32{'<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>'}},
		{"a<t>b", false, []int32{'a', tag, 'b'}},
		{"<t>e\u0301", true, []int32{tagE, 0xCC, 0x81}},
		{"<t>\u0301", true, []int32{tag, 0xCC, 0x81}},
		{"<t\u0338>", true, []int32{'<', 't', 0xCC, 0xB8, '>'}},
		{"e\u0301", true, []int32{0xC3, 0xA9}},
		{"e\u0301\u00e9", true, []int32{0xC3, 0xA9, 0xC3, 0xA9}}, // the raw text is scanned
		{"\u00e9\u00e9", true, []int32{accents}},
		{" <|im_end|> ", true, []int32{' ', end, ' '}},
		{"<|im_end|><|im_end|>", true, []int32{end, end}},
		{"", true, []int32{}},
	} {
		got := tok.Encode(tt.text, tt.special)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q, special %v: %v, want %v", tt.text, tt.special, got, tt.want)
		}
	}
}
