package tokenizer

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"splash/internal/gguf"
)

// A keyValue is a key of a file under test; a nil value leaves it out.
type keyValue struct {
	key   string
	value any
}

// headerOf is the header of a file of fileOf.
func headerOf(t testing.TB, v *Vocabulary, arch string, edits ...keyValue) *gguf.Header {
	t.Helper()
	return must(parseHeader(fileOf(t, v, arch, edits...)))(t)
}

func parseHeader(file []byte) (*gguf.Header, error) {
	return gguf.Parse(bytes.NewReader(file), int64(len(file)), "some.gguf")
}

// fileOf writes the keys of a vocabulary to a file, with edits.
func fileOf(t testing.TB, v *Vocabulary, arch string, edits ...keyValue) []byte {
	t.Helper()
	types := make([]int32, len(v.Types))
	for i, kind := range v.Types {
		types[i] = int32(kind)
	}
	keys := []keyValue{
		{"general.architecture", arch},
		{arch + ".context_length", uint32(4096)},
		{"tokenizer.ggml.model", "gpt2"},
		{"tokenizer.ggml.pre", v.Pre},
		{"tokenizer.ggml.tokens", v.Tokens},
		{"tokenizer.ggml.token_type", types},
		{"tokenizer.ggml.merges", v.Merges},
		{"tokenizer.ggml.eos_token_id", uint32(v.EOS)},
		{"tokenizer.ggml.add_bos_token", false},
		{"tokenizer.chat_template", "{{ messages }}"},
	}
	for _, edit := range edits {
		found := false
		for i := range keys {
			if keys[i].key == edit.key {
				keys[i].value, found = edit.value, true
			}
		}
		if !found {
			keys = append(keys, edit)
		}
	}
	var w gguf.Writer
	for _, kv := range keys {
		if kv.value != nil {
			w.Set(kv.key, kv.value)
		}
	}
	var file bytes.Buffer
	if _, err := w.WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// flintVocabulary is a small vocabulary with flint's stop tokens, 257 to 260.
func flintVocabulary() *Vocabulary {
	v := bytesVocabulary("flint")
	for _, stop := range []string{"<|end_of_text|>", "<|user|>", "<|observation|>", "<|developer|>"} {
		v.add(stop, Control)
	}
	v.EOS = 257
	return v
}

func TestFromGGUF(t *testing.T) {
	qwen := bytesVocabulary("qwen35")
	qwen.add("<|endoftext|>", Control)
	qwen.merge("a", "b")
	flint := flintVocabulary()
	flint.merge("a", "b")
	for _, tt := range []struct {
		name  string
		v     *Vocabulary
		arch  string
		edits []keyValue
		want  func(v *Vocabulary)
	}{
		{"plain", qwen, "qwen35", nil, func(v *Vocabulary) { v.EOG = []int32{257, 256} }},
		{"specials", qwen, "qwen35moe", []keyValue{
			{"tokenizer.ggml.bos_token_id", uint32(257)},
			{"tokenizer.ggml.padding_token_id", int64(257)},
			{"tokenizer.ggml.add_eos_token", false},
			{"tokenizer.ggml.eog_token_ids", []int32{97}}, // not read in this profile
			{"tokenizer.chat_template.tool_use", "tools"},
			{"tokenizer.chat_templates", []string{"tool_use"}},
			{"tokenizer.ggml.anything", "else"},
		}, func(v *Vocabulary) {
			v.BOS, v.Padding, v.EOG = 257, 257, []int32{257, 256}
			v.Templates["tool_use"] = "tools"
		}},
		{"absent flag", qwen, "qwen35", []keyValue{{"tokenizer.ggml.add_bos_token", nil}},
			func(v *Vocabulary) { v.EOG = []int32{257, 256} }},
		{"flint", flint, "flint", nil, func(v *Vocabulary) { v.EOG = []int32{257, 258, 259, 260} }},
		{"flint with stops", flint, "flint", []keyValue{{"tokenizer.ggml.eog_token_ids", []int32{260, 257}}},
			func(v *Vocabulary) { v.EOG = []int32{260, 257} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := *tt.v
			want.Name, want.Context, want.Templates = "some.gguf", 4096, map[string]string{"default": "{{ messages }}"}
			tt.want(&want)
			got := must(FromGGUF(headerOf(t, tt.v, tt.arch, tt.edits...)))(t)
			if diff := cmp.Diff(&want, got, cmpopts.IgnoreUnexported(Vocabulary{})); diff != "" {
				t.Error(diff)
			}
			must(New(got))(t)
		})
	}
}

func TestFromGGUFRefuses(t *testing.T) {
	qwen, flint := bytesVocabulary("qwen35"), flintVocabulary()
	qwen.merge("a", "b")
	const profile = "unsupported GGUF tokenizer profile; expected gpt2/"
	for _, tt := range []struct {
		v    *Vocabulary
		edit keyValue
		want string
	}{
		{qwen, keyValue{"tokenizer.ggml.model", "llama"}, profile + `qwen35, found tokenizer.ggml.model "llama" and tokenizer.ggml.pre "qwen35"`},
		{qwen, keyValue{"tokenizer.ggml.model", nil}, profile + "qwen35"},
		{qwen, keyValue{"tokenizer.ggml.pre", "qwen2"}, profile + "qwen35"},
		{qwen, keyValue{"tokenizer.ggml.pre", uint32(1)}, profile + "qwen35"},
		{flint, keyValue{"tokenizer.ggml.pre", "default"}, profile + "flint"},
		{qwen, keyValue{"tokenizer.ggml.tokens", nil}, "missing or invalid GGUF metadata: tokenizer.ggml.tokens"},
		{qwen, keyValue{"tokenizer.ggml.tokens", []int32{1}}, "missing or invalid GGUF metadata: tokenizer.ggml.tokens"},
		{qwen, keyValue{"tokenizer.ggml.tokens", []string{}}, "invalid or unsupported GGUF tokenizer vocabulary: no tokens"},
		{qwen, keyValue{"tokenizer.ggml.token_type", []int32{1}}, "invalid or unsupported GGUF tokenizer vocabulary: 258 tokens but 1 types"},
		{qwen, keyValue{"tokenizer.ggml.token_type", "x"}, "missing or invalid GGUF metadata: tokenizer.ggml.token_type"},
		{qwen, keyValue{"tokenizer.ggml.token_type", typesWith(qwen, 7, 300)}, "invalid or unsupported GGUF tokenizer vocabulary: token 7 has type"},
		{qwen, keyValue{"tokenizer.ggml.token_type", typesWith(qwen, 7, 2)}, "invalid or unsupported GGUF tokenizer vocabulary: token 7 has type 2"},
		{qwen, keyValue{"tokenizer.ggml.merges", nil}, "missing or invalid GGUF metadata: tokenizer.ggml.merges"},
		{qwen, keyValue{"tokenizer.ggml.merges", []string{"ab"}}, "invalid GGUF BPE merge"},
		{qwen, keyValue{"tokenizer.ggml.merges", []string{"a c"}}, "invalid GGUF BPE vocabulary or merges"},
		{qwen, keyValue{"tokenizer.ggml.add_bos_token", true}, "GGUF automatic BOS/EOS insertion is unsupported: tokenizer.ggml.add_bos_token"},
		{qwen, keyValue{"tokenizer.ggml.add_eos_token", true}, "GGUF automatic BOS/EOS insertion is unsupported: tokenizer.ggml.add_eos_token"},
		{qwen, keyValue{"tokenizer.ggml.add_eos_token", uint8(0)}, "missing or invalid GGUF metadata: tokenizer.ggml.add_eos_token"},
		{qwen, keyValue{"tokenizer.ggml.eos_token_id", nil}, "missing or invalid GGUF metadata: tokenizer.ggml.eos_token_id"},
		{qwen, keyValue{"tokenizer.ggml.eos_token_id", float32(256)}, "missing or invalid GGUF metadata: tokenizer.ggml.eos_token_id"},
		{qwen, keyValue{"tokenizer.ggml.eos_token_id", uint32(258)}, "invalid GGUF special token: tokenizer.ggml.eos_token_id is 258, the vocabulary has 258 tokens"},
		{qwen, keyValue{"tokenizer.ggml.eos_token_id", int32(-1)}, "invalid GGUF special token: tokenizer.ggml.eos_token_id is -1"},
		{qwen, keyValue{"tokenizer.ggml.eos_token_id", uint64(1<<32 + 256)}, "invalid GGUF special token: tokenizer.ggml.eos_token_id is 4294967552"},
		{qwen, keyValue{"tokenizer.ggml.eos_token_id", uint32(97)}, `invalid GGUF special token: tokenizer.ggml.eos_token_id is 97 ("a"), which is not a control token`},
		{qwen, keyValue{"tokenizer.ggml.bos_token_id", uint32(97)}, "invalid GGUF special token: tokenizer.ggml.bos_token_id"},
		{qwen, keyValue{"tokenizer.ggml.bos_token_id", "x"}, "missing or invalid GGUF metadata: tokenizer.ggml.bos_token_id"},
		{qwen, keyValue{"tokenizer.ggml.padding_token_id", uint32(1 << 31)}, "invalid GGUF special token: tokenizer.ggml.padding_token_id"},
		{flint, keyValue{"tokenizer.ggml.eog_token_ids", []int32{97}}, "invalid GGUF special token: tokenizer.ggml.eog_token_ids is 97"},
		{flint, keyValue{"tokenizer.ggml.eog_token_ids", []int32{}}, "missing or invalid GGUF metadata: tokenizer.ggml.eog_token_ids"},
		{flint, keyValue{"tokenizer.ggml.eog_token_ids", "x"}, "missing or invalid GGUF metadata: tokenizer.ggml.eog_token_ids"},
		{flint, keyValue{"tokenizer.ggml.eos_token_id", uint32(256)}, "invalid GGUF special token: EOS 256 is none of the stop tokens <|end_of_text|>, <|user|>"},
		{flint, keyValue{"tokenizer.ggml.token_type", typesWith(flint, 258, 4)}, "invalid GGUF special token: the stop token <|user|> is not a control token of the vocabulary"},
		{qwen, keyValue{"tokenizer.chat_template", nil}, "GGUF chat template is empty"},
		{qwen, keyValue{"tokenizer.chat_template", " \n\t"}, "GGUF chat template is empty"},
		{qwen, keyValue{"tokenizer.chat_template", []string{"x"}}, "GGUF chat template is empty"},
		{qwen, keyValue{"general.architecture", nil}, "missing or invalid GGUF metadata: general.architecture"},
		{qwen, keyValue{"general.architecture", "a\nb"}, "missing or invalid GGUF metadata: general.architecture"},
		{qwen, keyValue{"qwen35.context_length", nil}, "missing or invalid GGUF metadata: qwen35.context_length"},
		{qwen, keyValue{"qwen35.context_length", float32(1)}, "missing or invalid GGUF metadata: qwen35.context_length"},
		{qwen, keyValue{"qwen35.context_length", uint32(0)}, "GGUF metadata must be positive: qwen35.context_length is 0"},
		{qwen, keyValue{"qwen35.context_length", int32(-5)}, "GGUF metadata must be positive: qwen35.context_length is -5"},
	} {
		arch := "qwen35"
		if tt.v == flint {
			arch = "flint"
		}
		v, err := FromGGUF(headerOf(t, tt.v, arch, tt.edit))
		if err == nil {
			_, err = New(v)
		}
		if err == nil || !strings.HasPrefix(err.Error(), "some.gguf: "+tt.want) {
			t.Errorf("%s = %.60v: error %v, want %s", tt.edit.key, tt.edit.value, err, tt.want)
		}
	}
}

// typesWith are the kinds of the tokens, but for one.
func typesWith(v *Vocabulary, id, kind int) []int32 {
	types := make([]int32, len(v.Types))
	for i, k := range v.Types {
		types[i] = int32(k)
	}
	types[id] = int32(kind)
	return types
}

// TestFixtures reads the vocabularies of the files in the repository.
func TestFixtures(t *testing.T) {
	for _, tt := range []struct {
		path              string
		size, merges      int
		eos, pad          int32
		eog               []int32
		control, text, na int
	}{
		{largeFile, 151669, 151387, 151645, 151643, []int32{151643, 151645}, 14, 12, 0},
		{tinyFile, 2048, 1744, 2002, 2000, []int32{2000, 2002}, 14, 12, 22},
		{pebbleFile, 4096, 3813, 4071, 4069, []int32{4069, 4071}, 21, 6, 0},
	} {
		v := must(readVocabulary(tt.path))(t)
		count := make(map[Kind]int)
		for _, kind := range v.Types {
			count[kind]++
		}
		got := fmt.Sprint(len(v.Tokens), len(v.Merges), v.EOS, v.BOS, v.Padding, v.EOG, count[Control], count[UserDefined],
			count[Unused], v.Pre, v.Context)
		want := fmt.Sprint(tt.size, tt.merges, tt.eos, -1, tt.pad, tt.eog, tt.control, tt.text, tt.na, "qwen35", 4096)
		if got != want {
			t.Errorf("%s: %s, want %s", tt.path, got, want)
		}
		must(New(v))(t)
	}
}
