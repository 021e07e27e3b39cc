package tokenizer

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// FuzzRoundTrip holds that text comes back, normalized between its added tokens; that every way to encode it agrees; and
// that bytes which are not UTF-8 come back as they are.
func FuzzRoundTrip(f *testing.F) {
	for _, s := range snippets {
		f.Add(s+" "+s, true)
	}
	f.Add("a"+strings.Repeat("\u0301", 60), false)
	f.Add(strings.Repeat("ab", 40)+strings.Repeat("\u0316\u0301", 20)+"\xff", true)
	f.Add(strings.Repeat("x", 3*maxWindow), false)
	v := must(readVocabulary(tinyFile))(f)
	toks := []*Tokenizer{must(New(v))(f), must(New(flintOf(v)))(f)}
	f.Fuzz(func(t *testing.T, text string, special bool) {
		for _, tok := range toks {
			want := tok.normalized(v, text, special)
			ids := tok.Encode(text, special)
			if got := tok.concat(ids); got != want {
				t.Errorf("%s: %q comes back as %q, want %q", tok.profile.pre, text, got, want)
			}
			if got := tok.Decode(ids, ids...); got != lossy([]byte(want)) {
				t.Errorf("%s: %q decodes to %q", tok.profile.pre, text, got)
			}
			if again := tok.AppendEncode([]int32{1}, text, special); !slices.Equal(again[1:], ids) {
				t.Errorf("%s: %q has other tokens the second time", tok.profile.pre, text)
			}
			if len(text) < 1000 {
				checkMerges(t, tok, v, ids, want)
			}
		}
	})
}

// normalized is text as the profile normalizes it, its added tokens found by their definition.
func (t *Tokenizer) normalized(v *Vocabulary, text string, special bool) string {
	want := func(k Kind) bool { return k == UserDefined || special && k == Control }
	var out strings.Builder
	for at := 0; ; {
		start, end, _, found := naiveNext(v, want, text, at)
		if !found {
			start, end = len(text), len(text)
		}
		stretch := text[at:start]
		switch {
		case !t.profile.nfc:
		case hasLongRun(stretch):
			stretch = composeAll(stretch)
		default:
			stretch = norm.NFC.String(stretch)
		}
		out.WriteString(stretch)
		out.WriteString(text[start:end])
		if !found {
			return out.String()
		}
		at = end
	}
}

// checkMerges holds the tokens of text without added tokens to those of the naive merges of its pieces.
func checkMerges(t *testing.T, tok *Tokenizer, v *Vocabulary, ids []int32, text string) {
	t.Helper()
	if slices.ContainsFunc(ids, func(id int32) bool { return tok.Kind(id).added() }) {
		return
	}
	var want []string
	ranks := v.ranks()
	for _, piece := range tok.split(text) {
		want = append(want, naiveMerge(v, ranks, piece)...)
	}
	got := make([]string, len(ids))
	for i, id := range ids {
		got[i] = v.Tokens[id]
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q is %q, want %q", tok.profile.pre, text, got, want)
	}
}

// FuzzDecoder holds decoding in steps to the lossy decoding of all bytes.
func FuzzDecoder(f *testing.F) {
	for _, s := range hostileBytes {
		f.Add([]byte(s + "a" + s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		tok, _ := chunksTokenizer(t)
		d := tok.NewDecoder()
		var got []byte
		for _, b := range text {
			before := len(got)
			if got = d.Append(got, int32(b)); !utf8.Valid(got[before:]) {
				t.Errorf("% x after % x", got[before:], text)
			}
		}
		if got = d.Flush(got); string(got) != lossy(text) {
			t.Errorf("% x decodes to %q, want %q", text, got, lossy(text))
		}
	})
}

// FuzzFromJSON holds that any file is refused or makes a tokenizer that encodes.
func FuzzFromJSON(f *testing.F) {
	config := []byte(`{"eos_token": "<|im_end|>", "chat_template": [{"name": "default", "template": "x"}]}`)
	for _, pre := range []string{"qwen35", "flint"} {
		v := smallVocabulary(pre)
		f.Add(marshal(f, tokenizerObject(v)), marshal(f, configObject(v)), []byte(`{"bos_token": {"content": "<|user|>"}}`))
		f.Add(marshal(f, tokenizerObject(v)), config, []byte(`{}`))
	}
	f.Add([]byte(`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}}`), config, []byte("null"))
	f.Add([]byte(`{"added_tokens": [{"id": 1, "content": "x"}], "model": {"merges": null}}`), []byte("[]"), []byte(""))
	f.Fuzz(func(t *testing.T, tokenizer, config, specials []byte) {
		v, err := FromJSON(&Snapshot{Name: "fuzz", Tokenizer: tokenizer, Config: config, SpecialTokensMap: specials})
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("more than one line: %q", err)
			}
			return
		}
		checkAnyVocabulary(t, v)
	})
}

// FuzzFromGGUF holds that the keys of any file are refused or make a tokenizer that encodes.
func FuzzFromGGUF(f *testing.F) {
	qwen, flint := smallVocabulary("qwen35"), flintVocabulary()
	f.Add(fileOf(f, qwen, "qwen35"))
	f.Add(fileOf(f, qwen, "qwen35moe", keyValue{"tokenizer.chat_template.tool_use", "x"}))
	f.Add(fileOf(f, flint, "flint"))
	f.Add(fileOf(f, flint, "flint", keyValue{"tokenizer.ggml.eog_token_ids", []int32{257, 258}}))
	f.Add(fileOf(f, &Vocabulary{Pre: "qwen35", Tokens: []string{"a"}, Types: []Kind{Control}}, "qwen35"))
	f.Fuzz(func(t *testing.T, file []byte) {
		h, err := parseHeader(file)
		if err != nil {
			return
		}
		v, err := FromGGUF(h)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("more than one line: %q", err)
			}
			return
		}
		checkAnyVocabulary(t, v)
	})
}

// checkAnyVocabulary holds that a vocabulary is refused in one line, or encodes.
func checkAnyVocabulary(t *testing.T, v *Vocabulary) {
	t.Helper()
	tok, err := New(v)
	if err != nil {
		if strings.ContainsAny(err.Error(), "\r\n") {
			t.Errorf("more than one line: %q", err)
		}
		return
	}
	const text = "Hello, w\u00f6rld! <|im_end|> 123\n"
	for _, special := range []bool{false, true} {
		ids := tok.Encode(text, special)
		for _, id := range ids {
			if tok.Kind(id) == 0 {
				t.Errorf("no token %d", id)
			}
		}
		tok.Decode(ids)
	}
}
