package tokenizer

import (
	"strings"
	"testing"
)

// TestNewRefuses breaks one thing of a good vocabulary at a time.
func TestNewRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(v *Vocabulary)
		want string
	}{
		{"profile", func(v *Vocabulary) { v.Pre = "llama-bpe" }, `unsupported tokenizer profile gpt2/llama-bpe; expected gpt2/qwen35 or gpt2/flint`},
		{"no tokens", func(v *Vocabulary) { v.Tokens, v.Types = nil, nil }, `invalid or unsupported tokenizer vocabulary: no tokens`},
		{"too many", func(v *Vocabulary) { v.Tokens = make([]string, maxTokens+1) }, `1000001 tokens, at most 1000000 are accepted`},
		{"types", func(v *Vocabulary) { v.Types = v.Types[1:] }, `258 tokens but 257 types`},
		{"empty token", func(v *Vocabulary) { v.Tokens[70] = "" }, `token 70 is empty`},
		{"type 2", func(v *Vocabulary) { v.Types[70] = 2 }, `token 70 has type 2; accepted are 1 (normal), 3 (control), 4 (user-defined), 5 (unused)`},
		{"type 6", func(v *Vocabulary) { v.Types[70] = 6 }, `token 70 has type 6`},
		{"type 0", func(v *Vocabulary) { v.Types[70] = 0 }, `token 70 has type 0`},
		{"repeated", func(v *Vocabulary) { v.Tokens[257] = "a" }, `tokens 97 and 257 are both "a"`},
		{"long added", func(v *Vocabulary) { v.Tokens[256] = strings.Repeat("x", 1025) }, `added token 256 has 1025 bytes, at most 1024 are accepted`},
		{"byte", func(v *Vocabulary) { v.Tokens[32] = "xx" }, `byte-level tokenizer is missing byte tokens: none is 'Ġ', which stands for byte 32`},
		{"merge of one", func(v *Vocabulary) { v.Merges[0] = "ab" }, `invalid BPE merge: merge 0 is "ab", not two parts around one space`},
		{"merge of three", func(v *Vocabulary) { v.Merges[0] = "a b c" }, `invalid BPE merge: merge 0 is "a b c"`},
		{"two spaces", func(v *Vocabulary) { v.Merges[0] = "a  b" }, `invalid BPE merge`},
		{"no left", func(v *Vocabulary) { v.Merges[0] = " b" }, `invalid BPE merge`},
		{"no right", func(v *Vocabulary) { v.Merges[0] = "a " }, `invalid BPE merge`},
		{"unknown part", func(v *Vocabulary) { v.Merges[0] = "a bb" }, `invalid BPE vocabulary or merges: merge 0, "a bb", needs a token the vocabulary lacks`},
		{"unknown result", func(v *Vocabulary) { v.Merges[0] = "a c" }, `invalid BPE vocabulary or merges: merge 0, "a c", needs a token the vocabulary lacks`},
		{"merge twice", func(v *Vocabulary) { v.Merges = append(v.Merges, "a b") }, `invalid BPE vocabulary or merges: merge 1, "a b", is listed before`},
		{"EOS absent", func(v *Vocabulary) { v.EOS = -1 }, `invalid special token: EOS is -1, the vocabulary has 258 tokens`},
		{"EOS beyond", func(v *Vocabulary) { v.EOS = 258 }, `invalid special token: EOS is 258`},
		{"EOS normal", func(v *Vocabulary) { v.EOS = 97 }, `invalid special token: EOS is 97 ("a"), which is not a control token`},
		{"BOS", func(v *Vocabulary) { v.BOS = 98 }, `invalid special token: BOS is 98 ("b")`},
		{"padding", func(v *Vocabulary) { v.Padding = -2 }, `invalid special token: padding is -2`},
		{"EOG", func(v *Vocabulary) { v.EOG = []int32{256, 99} }, `invalid special token: stop token is 99 ("c")`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := bytesVocabulary("qwen35")
			v.merge("a", "b")
			tt.edit(v)
			checkRefusal(t, v, tt.want)
			v.Name, v.container = "some.gguf", "GGUF"
			for _, what := range []string{"byte-level", "tokenizer", "BPE", "special"} {
				tt.want = strings.Replace(tt.want, what, "GGUF "+what, 1)
				if strings.Contains(tt.want, "GGUF") {
					break
				}
			}
			checkRefusal(t, v, tt.want)
			if _, err := New(v); err != nil && !strings.HasPrefix(err.Error(), "some.gguf: ") {
				t.Errorf("no file in %v", err)
			}
		})
	}
}

func checkRefusal(t *testing.T, v *Vocabulary, want string) {
	t.Helper()
	_, err := New(v)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	if err != nil && strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %v", err)
	}
}

func TestLookUps(t *testing.T) {
	v := bytesVocabulary("qwen35")
	v.add("<think>", UserDefined)
	v.add("[PAD1]", Unused)
	v.add("\u4f60", Normal) // not spelled in the byte alphabet: its own text
	v.merge("\u0120", "a")
	tok := must(New(v))(t)
	if got := tok.Size(); got != len(v.Tokens) {
		t.Errorf("size %d, want %d", got, len(v.Tokens))
	}
	for _, tt := range []struct {
		id   int32
		text string
		kind Kind
	}{
		{'a', "a", Normal},
		{0, "\x00", Normal},
		{0xE9, "\xe9", Normal},
		{256, "<|im_end|>", Control},
		{257, "<think>", UserDefined},
		{258, "[PAD1]", Unused},
		{260, " a", Normal},
	} {
		if got := string(tok.Bytes(tt.id)); got != tt.text {
			t.Errorf("bytes of %d are %q, want %q", tt.id, got, tt.text)
		}
		if got := tok.Kind(tt.id); got != tt.kind || tok.IsControl(tt.id) != (tt.kind == Control) {
			t.Errorf("kind of %d is %d, want %d", tt.id, got, tt.kind)
		}
		if got, ok := tok.ID(tt.text); got != tt.id || !ok {
			t.Errorf("ID of %q is %d, %v, want %d", tt.text, got, ok, tt.id)
		}
	}
	if got := string(tok.Bytes(259)); got != "\u4f60" {
		t.Errorf("bytes of a token out of the alphabet are %q", got)
	}
	for _, text := range []string{"", "ab", "\u0120", "\u0120a", "<|im_end|", "\u00e9"} {
		if id, ok := tok.ID(text); ok {
			t.Errorf("ID of %q is %d", text, id)
		}
	}
	for _, id := range []int32{-1, -1 << 31, 261, 1<<31 - 1} {
		if b := tok.Bytes(id); b != nil || tok.Kind(id) != 0 || tok.IsControl(id) {
			t.Errorf("token %d is %q of kind %d", id, b, tok.Kind(id))
		}
	}
}

// TestAlphabet holds the alphabet to its definition, and each half to the other.
func TestAlphabet(t *testing.T) {
	other := rune(0x100)
	for b, r := range byteRunes {
		want := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE) {
			want = other
			other++
		}
		if r != want {
			t.Errorf("byte %d is %q, want %q", b, r, want)
		}
		text := string([]byte{byte(b)})
		if got := appendBytes(nil, string(appendSpelling(nil, text))); string(got) != text {
			t.Errorf("byte %d comes back as % x", b, got)
		}
	}
	if other != 0x144 || byteRunes[' '] != 'Ġ' || byteRunes['\n'] != 'Ċ' {
		t.Errorf("%d other characters, space %q, newline %q", other-0x100, byteRunes[' '], byteRunes['\n'])
	}
}
