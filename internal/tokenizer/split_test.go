package tokenizer

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
	"github.com/google/go-cmp/cmp"
)

// expand rewrites what regexp2 reads otherwise than the engine of the tokenizers library, whose (?i:) is Unicode's simple
// folding: by it U+017F is an s, while regexp2 compares lower case.
func expand(pattern string) string {
	return strings.ReplaceAll(pattern, `(?i:'s|'t|'re|'ve|'m|'ll|'d)`, `(?:'[sS\x{17f}]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])`)
}

// isolate splits each piece at the matches of a pattern; the gaps between them are pieces too.
func isolate(t *testing.T, pieces []string, re *regexp2.Regexp) []string {
	t.Helper()
	var out []string
	for _, piece := range pieces {
		chars := []rune(piece)
		at := 0
		m, err := re.FindRunesMatch(chars)
		for ; m != nil && err == nil; m, err = re.FindNextMatch(m) {
			if m.Index > at {
				out = append(out, string(chars[at:m.Index]))
			}
			if at = m.Index + m.Length; m.Length > 0 {
				out = append(out, string(chars[m.Index:at]))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if at < len(chars) {
			out = append(out, string(chars[at:]))
		}
	}
	return out
}

// TestSplits holds the scanners to the published regular expressions.
func TestSplits(t *testing.T) {
	const texts = 40_000
	for _, p := range profiles() {
		t.Run(p.pre, func(t *testing.T) {
			var patterns []*regexp2.Regexp
			for _, pattern := range p.splits {
				patterns = append(patterns, regexp2.MustCompile(expand(pattern), regexp2.None))
			}
			tok := &Tokenizer{profile: p, classes: unicodeClasses()}
			r := newTexter(34)
			for range texts {
				text := r.text(1 + r.IntN(16))
				want := []string{text}
				for _, re := range patterns {
					want = isolate(t, want, re)
				}
				if diff := cmp.Diff(want, tok.split(text)); diff != "" {
					t.Fatalf("%+q:\n%s", text, diff)
				}
			}
		})
	}
}

// TestSplitCases states the rules one by one.
func TestSplitCases(t *testing.T) {
	for _, tt := range []struct{ text, qwen35, flint string }{
		{"it's", "it|'s", "it's"},
		{"it'\u017fx", "it|'\u017f|x", "it'\u017f|x"},
		{"I'\u212a", "I|'\u212a", "I|'\u212a"},
		{"we'LL've", "we|'LL|'ve", "we'LL|'ve"},
		{"'tis 'twas", "'t|is| '|twas", "'tis| '|twas"},
		{"x'", "x|'", "x|'"},
		{"x'r", "x|'r", "x|'r"},
		{"camelCase HTTPServer", "camelCase| HTTPServer", "camel|Case| HTTPServer"},
		{"\u01c5a\u01c5", "\u01c5a\u01c5", "\u01c5a|\u01c5"},
		{"aA\u02b0BC", "aA\u02b0BC", "a|A\u02b0|BC"},
		{"\u0301AB", "\u0301AB", "\u0301|AB"},
		{"!\u0301!\u0301", "!\u0301|!\u0301", "!\u0301|!\u0301"},
		{"!!\u0301!", "!!|\u0301|!", "!!\u0301!"},
		{" \u0301", " \u0301", " \u0301"},
		{"12345678", "1|2|3|4|5|6|7|8", "123|456|78"},
		{" 1  2", " |1| | |2", " |1|  |2"},
		{"a1b\u0663\u00bd\u216b2", "a|1|b|\u0663|\u00bd|\u216b|2", "a|1|b|\u0663\u00bd\u216b|2"},
		{"ab\u6f22\u5b57\u304b\u30bfcd", "ab\u6f22\u5b57\u304b\u30bfcd", "ab|\u6f22\u5b57\u304b\u30bf|cd"},
		{"\u30ab\u30fb\u30bf", "\u30ab|\u30fb\u30bf", "\u30ab|\u30fb\u30bf"},
		{"\u6f22\u9fa6", "\u6f22\u9fa6", "\u6f22|\u9fa6"},
		{"://x/\n/\n y", "://|x|/\n|/\n| y", "://|x|/\n/\n| y"},
		{"a\n\n b", "a|\n\n| b", "a|\n\n| b"},
		{"a \n \n  b", "a| \n \n| | b", "a| \n \n| | b"},
		{"a   b   ", "a|  | b|   ", "a|  | b|   "},
		{"\t\tx", "\t|\tx", "\t|\tx"},
		{"\u3000\u3000!", "\u3000|\u3000|!", "\u3000|\u3000|!"},
		{"a\u0085b\u2028\rc", "a|\u0085b|\u2028\r|c", "a|\u0085b|\u2028\r|c"},
		{"\xff\xfea\xe4\xbd", "\xff\xfe|a|\xe4\xbd", "\xff\xfe|a|\xe4\xbd"},
		{"", "", ""},
	} {
		for pre, want := range map[string]string{"qwen35": tt.qwen35, "flint": tt.flint} {
			tok := &Tokenizer{profile: profileOf(pre), classes: unicodeClasses()}
			if got := strings.Join(tok.split(tt.text), "|"); got != want {
				t.Errorf("%s of %+q is %+q, want %+q", pre, tt.text, got, want)
			}
		}
	}
}

// TestClasses holds the table to the Unicode tables it is made of, for every character.
func TestClasses(t *testing.T) {
	c := unicodeClasses()
	for r := rune(0); r <= utf8.MaxRune; r++ {
		var want class
		for bit, in := range map[class]bool{
			space:   unicode.IsSpace(r),
			newline: r == '\r' || r == '\n',
			number:  unicode.IsNumber(r),
			letter:  unicode.IsLetter(r),
			mark:    unicode.IsMark(r),
			upper:   unicode.In(r, unicode.Lu, unicode.Lt, unicode.Lm, unicode.Lo, unicode.M),
			lower:   unicode.In(r, unicode.Ll, unicode.Lm, unicode.Lo, unicode.M),
			kana:    r >= '\u4e00' && r <= '\u9fa5' || r >= '\u3040' && r <= '\u309f' || r >= '\u30a0' && r <= '\u30ff',
		} {
			if in {
				want |= bit
			}
		}
		if got := c.of(r); got != want {
			t.Fatalf("class of %U is %08b, want %08b", r, got, want)
		}
	}
	if len(c.pages) > 255 {
		t.Errorf("%d pages are more than a byte counts", len(c.pages))
	}
}

// FuzzSplits holds the scanners to cover any text with pieces that are not empty.
func FuzzSplits(f *testing.F) {
	for _, s := range snippets {
		f.Add(s + "x" + s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range profiles() {
			tok := &Tokenizer{profile: p, classes: unicodeClasses()}
			pieces := tok.split(text)
			if got := strings.Join(pieces, ""); got != text {
				t.Errorf("%s: pieces of %q make %q", p.pre, text, got)
			}
			for _, piece := range pieces {
				if piece == "" {
					t.Errorf("%s: an empty piece of %q", p.pre, text)
				}
			}
		}
	})
}
