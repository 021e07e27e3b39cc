package tokenizer

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"
)

// lossy is the definition of section 3.9 of The Unicode Standard, by search: at each place the longest run of bytes that
// some character starts with is that character, or else one U+FFFD.
func lossy(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		n := min(len(b), utf8.UTFMax)
		for n > 1 && !startsCharacter(b[:n]) {
			n--
		}
		if utf8.Valid(b[:n]) {
			_, n = utf8.DecodeRune(b)
			out.Write(b[:n])
		} else {
			out.WriteRune(utf8.RuneError)
		}
		b = b[n:]
	}
	return out.String()
}

// startsCharacter reports whether some well-formed character starts with b or is b.
func startsCharacter(b []byte) bool {
	rest := [][]byte{{}, {0x80}, {0x80, 0x80}, {0x90, 0x80}, {0xA0, 0x80}, {0x90, 0x80, 0x80}, {0x80, 0x80, 0x80}, {0xA0}}
	for _, r := range rest {
		whole := append(bytes.Clone(b), r...)
		if _, n := utf8.DecodeRune(whole); n == len(whole) && utf8.Valid(whole) {
			return true
		}
	}
	return false
}

var hostileBytes = []string{
	"\x00", "a", "\x7f", "\x80", "\xbf", "\xc0", "\xc1", "\xc2", "\xdf", "\xe0", "\xe0\x9f", "\xe0\xa0", "\xed\x9f", "\xed\xa0",
	"\xed\xa0\x80", "\xef\xbf", "\xf0", "\xf0\x8f", "\xf0\x90", "\xf0\x9f\xa6", "\xf4\x8f", "\xf4\x90", "\xf5", "\xff",
	"\xe4\xbd\xa0", "\xf0\x9f\xa6\x99", "\xef\xbf\xbd", "\xc3\xa9", "\xf0\x9f\xa6\x41", "\xe4\x41", "\xc3\xc3\xa9",
}

// TestLossy holds the search above to a decoder of another make.
func TestLossy(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	for range 5000 {
		var b []byte
		for range 1 + r.IntN(6) {
			b = append(b, hostileBytes[r.IntN(len(hostileBytes))]...)
		}
		want, err := unicode.UTF8.NewDecoder().Bytes(b)
		if err != nil {
			t.Fatal(err)
		}
		if got := lossy(b); got != string(want) {
			t.Fatalf("% x: %q, want %q", b, got, want)
		}
	}
}

// chunksTokenizer has a token for every string of hostileBytes.
func chunksTokenizer(t testing.TB) (*Tokenizer, []int32) {
	v := bytesVocabulary("qwen35")
	v.add("</think>", Control)
	v.add("<b>", UserDefined)
	v.add("[PAD]", Unused)
	ids := []int32{256, v.find("</think>"), v.find("<b>"), v.find("[PAD]")}
	for _, s := range hostileBytes {
		if spelling := string(appendSpelling(nil, s)); v.find(spelling) < 0 {
			v.add(spelling, Normal)
		}
		ids = append(ids, v.find(string(appendSpelling(nil, s))))
	}
	return must(New(v))(t), ids
}

// TestDecoder decodes random tokens one by one: what comes out is whole characters at every step, and all of it the lossy
// decoding of all bytes at once.
func TestDecoder(t *testing.T) {
	tok, ids := chunksTokenizer(t)
	r := rand.New(rand.NewPCG(4, 9))
	for round := range 20_000 {
		d := tok.NewDecoder()
		var all, text []byte
		for range r.IntN(9) {
			id := ids[r.IntN(len(ids))]
			if id != 256 {
				all = append(all, tok.Bytes(id)...)
			}
			before := len(text)
			text = d.Append(text, id)
			if !utf8.Valid(text[before:]) {
				t.Fatalf("% x after token %d", text[before:], id)
			}
			if held := len(lossy(all)) - len(text); held < 0 || held > 3 {
				t.Fatalf("%d bytes held back of % x", held, all)
			}
		}
		text = d.Flush(text)
		if want := lossy(all); string(text) != want {
			t.Fatalf("round %d: % x decodes to %q, want %q", round, all, text, want)
		}
		if more := d.Flush(nil); len(more) > 0 {
			t.Fatalf("a second flush gives %q", more)
		}
	}
}

// TestDecoderChunkings cuts one text of bytes in every way into tokens.
func TestDecoderChunkings(t *testing.T) {
	text := []byte("\xf0\x9f\xa6\x99\xe4\xbd\xc3\xa9\xff\xf0\x9f")
	v := bytesVocabulary("qwen35")
	for i := range text {
		for j := i + 2; j <= len(text); j++ {
			if spelling := string(appendSpelling(nil, string(text[i:j]))); v.find(spelling) < 0 {
				v.add(spelling, Normal)
			}
		}
	}
	tok := must(New(v))(t)
	want := lossy(text)
	for cuts := range 1 << (len(text) - 1) {
		var ids []int32
		start := 0
		for i := 1; i <= len(text); i++ {
			if i == len(text) || cuts>>(i-1)&1 == 1 {
				id, ok := tok.ID(string(text[start:i]))
				if !ok {
					t.Fatalf("no token % x", text[start:i])
				}
				ids = append(ids, id)
				start = i
			}
		}
		if got := tok.Decode(ids); got != want {
			t.Fatalf("cuts %b: %q, want %q", cuts, got, want)
		}
	}
}

// TestVisibleTokens shows which tokens decode to their text.
func TestVisibleTokens(t *testing.T) {
	texts := []string{"<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>",
		"</arg_value>", "<|user|>", "<|im_end|>"}
	for _, tt := range []struct {
		pre, visible, want string
	}{
		{"qwen35", "", "<think></think><tool_call></tool_call>"},
		{"flint", "", "<think></think><tool_call></tool_call><arg_key></arg_key><arg_value></arg_value>"},
		{"qwen35", "<|user|>", "<think></think><tool_call></tool_call><|user|>"},
	} {
		v := bytesVocabulary(tt.pre)
		var ids []int32
		for _, text := range texts {
			if v.find(text) < 0 {
				v.add(text, Control)
			}
			ids = append(ids, v.find(text))
		}
		ids = append(ids, -1, int32(len(v.Tokens)), 1<<30)
		tok := must(New(v))(t)
		var visible []int32
		if tt.visible != "" {
			visible = append(visible, v.find(tt.visible))
		}
		if got := tok.Decode(ids, visible...); got != tt.want {
			t.Errorf("%s with %q: %q, want %q", tt.pre, tt.visible, got, tt.want)
		}
	}
}

func TestDecoderAllocations(t *testing.T) {
	tok := must(newLarge())(t)
	ids := tok.Encode(strings.Repeat("Hello, w\u00f6rld! \u4f60\u597d \U0001f999 <think>", 20), true)
	d := tok.NewDecoder(1, 2, 3)
	dst := make([]byte, 0, 1<<12)
	if n := testing.AllocsPerRun(100, func() {
		dst = dst[:0]
		for _, id := range ids {
			dst = d.Append(dst, id)
		}
		dst = d.Flush(dst)
	}); n != 0 {
		t.Errorf("%v allocations for %d tokens", n, len(ids))
	}
}

func TestEncodeAllocations(t *testing.T) {
	tok := must(newLarge())(t)
	text := strings.Repeat("The quick brown fox (it's 42) jumps.\n\t\u4f60\u597d<|im_end|>", 50)
	dst := tok.AppendEncode(nil, text, true) // fills the piece cache
	if n := testing.AllocsPerRun(20, func() { dst = tok.AppendEncode(dst[:0], text, true) }); n > 1 {
		t.Errorf("%v allocations for %d tokens whose pieces are cached", n, len(dst))
	}
}
