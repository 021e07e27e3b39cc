package tokenizer

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

type object = map[string]any

// tokenizerObject is the tokenizer.json of a vocabulary, as the transformers library saves one.
func tokenizerObject(v *Vocabulary) object {
	added, vocab := []object{}, object{}
	for id, token := range v.Tokens {
		if !v.Types[id].added() {
			vocab[token] = id
			continue
		}
		added = append(added, object{
			"id": id, "content": token, "special": v.Types[id] == Control,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
		})
	}
	byteLevel := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	p := profileOf(v.Pre)
	var pre []object
	for _, pattern := range p.splits {
		pre = append(pre, object{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": "Isolated", "invert": false})
	}
	var normalizer object
	if p.nfc {
		normalizer = object{"type": "NFC"}
	}
	return object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": normalizer,
		"pre_tokenizer":  object{"type": "Sequence", "pretokenizers": append(pre, byteLevel)},
		"post_processor": byteLevel,
		"decoder":        byteLevel,
		"model": object{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": "", "end_of_word_suffix": "",
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": v.IgnoreMerges, "vocab": vocab, "merges": v.Merges,
		},
	}
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	return must(json.Marshal(v))(t)
}

// smallVocabulary has a bit of everything.
func smallVocabulary(pre string) *Vocabulary {
	v := bytesVocabulary(pre)
	v.Name = "repo/tokenizer.json"
	v.Templates = map[string]string{}
	for _, p := range profiles() {
		for _, stop := range p.stops {
			if v.find(stop) < 0 {
				v.add(stop, Control)
			}
		}
	}
	v.merge("a", "b")
	v.merge("ab", "\u0120")
	v.add("<think>", UserDefined)
	v.EOS = v.find(profileOf(pre).stops[1])
	for _, stop := range profileOf(pre).stops {
		v.EOG = append(v.EOG, v.find(stop))
	}
	return v
}

func configObject(v *Vocabulary) object { return object{"eos_token": v.Tokens[v.EOS]} }

// set changes the value at a path of keys, and of elements of lists, in a document.
func set(t *testing.T, doc any, path string, value any) any {
	t.Helper()
	var whole any
	if err := json.Unmarshal(marshal(t, doc), &whole); err != nil {
		t.Fatal(err)
	}
	at := whole
	keys := strings.Split(path, "/")
	for i, key := range keys {
		last := i == len(keys)-1
		switch here := at.(type) {
		case map[string]any:
			if last {
				here[key] = value
			}
			at = here[key]
		case []any:
			n := int(key[0] - '0')
			if last {
				here[n] = value
			}
			at = here[n]
		default:
			t.Fatalf("nothing at %s", path)
		}
	}
	return whole
}

func TestFromJSON(t *testing.T) {
	for _, pre := range []string{"qwen35", "flint"} {
		v := smallVocabulary(pre)
		doc := tokenizerObject(v)
		pairs := make([][]string, len(v.Merges))
		for i, merge := range v.Merges {
			pairs[i] = strings.Split(merge, " ")
		}
		withVocab := set(t, doc, "model/vocab/<think>", v.find("<think>"))
		for _, tt := range []struct {
			name     string
			snapshot Snapshot
			edit     func(v *Vocabulary)
		}{
			{"plain", Snapshot{Tokenizer: marshal(t, doc), Config: marshal(t, configObject(v))}, nil},
			{"pairs", Snapshot{
				Tokenizer: marshal(t, set(t, doc, "model/merges", pairs)),
				Config:    marshal(t, configObject(v)),
			}, nil},
			{"no processor", Snapshot{
				Tokenizer: marshal(t, set(t, doc, "post_processor", nil)),
				Config:    marshal(t, configObject(v)),
			}, nil},
			{"added token in the vocabulary", Snapshot{
				Tokenizer: marshal(t, withVocab),
				Config:    marshal(t, configObject(v)),
			}, nil},
			{"ignore_merges", Snapshot{
				Tokenizer: marshal(t, set(t, doc, "model/ignore_merges", true)),
				Config:    marshal(t, configObject(v)),
			}, func(v *Vocabulary) { v.IgnoreMerges = true }},
			{"config", Snapshot{
				Tokenizer: marshal(t, doc),
				Config: marshal(t, object{
					"eos_token":        object{"content": v.Tokens[v.EOS], "lstrip": false},
					"bos_token":        nil,
					"pad_token":        "<|im_end|>",
					"add_bos_token":    false,
					"model_max_length": 262144,
					"chat_template":    "one",
				}),
			}, func(v *Vocabulary) {
				v.Padding, v.Context, v.Templates = 256, 262144, map[string]string{"default": "one"}
			}},
			{"named templates", Snapshot{
				Tokenizer: marshal(t, doc),
				Config: marshal(t, object{
					"eos_token":        v.Tokens[v.EOS],
					"model_max_length": 1e30,
					"chat_template":    []object{{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}},
				}),
				SpecialTokensMap: []byte(`{"eos_token": "other", "bos_token": "<|im_end|>"}`),
				ChatTemplate:     []byte("file"),
			}, func(v *Vocabulary) {
				v.BOS, v.Templates = 256, map[string]string{"default": "file", "tool_use": "t"}
			}},
			{"special_tokens_map alone", Snapshot{
				Tokenizer:        marshal(t, doc),
				SpecialTokensMap: marshal(t, configObject(v)),
				ChatTemplate:     []byte("file"),
			}, func(v *Vocabulary) { v.Templates = map[string]string{"default": "file"} }},
		} {
			t.Run(pre+" "+tt.name, func(t *testing.T) {
				want := *smallVocabulary(pre)
				if tt.edit != nil {
					tt.edit(&want)
				}
				tt.snapshot.Name = "repo"
				got := must(FromJSON(&tt.snapshot))(t)
				if diff := cmp.Diff(&want, got, cmpopts.IgnoreUnexported(Vocabulary{}), cmpopts.EquateEmpty()); diff != "" {
					t.Error(diff)
				}
				must(New(got))(t)
			})
		}
	}
}

func TestFromJSONRefuses(t *testing.T) {
	qwen := smallVocabulary("qwen35")
	byteLevel := object{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}
	for _, tt := range []struct {
		path  string
		value any
		want  string
	}{
		{"normalizer", nil, `unsupported normalizer: found null, accepted is "NFC" beside the split of gpt2/qwen35`},
		{"normalizer", object{"type": "NFKC"}, `unsupported normalizer: found "NFKC"`},
		{"normalizer", "NFC", `unsupported normalizer: json`},
		{"pre_tokenizer", nil, `unsupported pre_tokenizer: found null, accepted is a Sequence of Splits and ByteLevel`},
		{"pre_tokenizer", byteLevel, `unsupported pre_tokenizer: found "ByteLevel"`},
		{"pre_tokenizer/pretokenizers", []object{}, `unsupported pre_tokenizer: found "Sequence"`},
		{"pre_tokenizer/pretokenizers", []object{byteLevel}, `unsupported pre_tokenizer: found Splits by ""`},
		{"pre_tokenizer/pretokenizers/0/type", "Digits", `unsupported pre_tokenizer.pretokenizers[0]: found "Digits", accepted is Split`},
		{"pre_tokenizer/pretokenizers/0/behavior", "Removed", `unsupported pre_tokenizer.pretokenizers[0]`},
		{"pre_tokenizer/pretokenizers/0/invert", true, `unsupported pre_tokenizer.pretokenizers[0]`},
		{"pre_tokenizer/pretokenizers/0/pattern", object{"String": " "}, `unsupported pre_tokenizer.pretokenizers[0]`},
		{"pre_tokenizer/pretokenizers/0/pattern/Regex", splitQwen35 + " ", `unsupported pre_tokenizer: found Splits by "(?i:'s`},
		{"pre_tokenizer/pretokenizers/0/pattern/Regex", splitO200k, `unsupported pre_tokenizer: found Splits by`},
		{"pre_tokenizer/pretokenizers/1/type", "Metaspace", `unsupported pre_tokenizer.pretokenizers[1]: found "Metaspace", accepted is ByteLevel`},
		{"pre_tokenizer/pretokenizers/1/add_prefix_space", true, `unsupported pre_tokenizer.pretokenizers[1]`},
		{"pre_tokenizer/pretokenizers/1/use_regex", nil, `unsupported pre_tokenizer.pretokenizers[1]`},
		{"post_processor/type", "TemplateProcessing", `unsupported post_processor: found "TemplateProcessing", accepted is null or ByteLevel`},
		{"decoder", nil, `unsupported decoder: found null, accepted is ByteLevel`},
		{"model/type", "Unigram", `unsupported model: found "Unigram", accepted is BPE`},
		{"model/byte_fallback", true, `unsupported model.byte_fallback: found true, accepted is false`},
		{"model/dropout", 0.1, `unsupported model.dropout: found 0.1, accepted is null`},
		{"model/continuing_subword_prefix", "##", `unsupported model.continuing_subword_prefix: found "##"`},
		{"model/end_of_word_suffix", "</w>", `unsupported model.end_of_word_suffix: found "</w>"`},
		{"model/vocab/a", 5, `are both 5`},
		{"model/vocab/zzz", 4_000_000_000, `invalid model.vocab: "zzz" is 4000000000; `},
		{"model/vocab/zzz", -1, `invalid model.vocab: "zzz" is -1`},
		{"model/vocab/zzz", 1.5, `invalid JSON`},
		{"model/vocab/", 3, `invalid model.vocab: token 3 is empty`},
		{"model/vocab/<think>", 256, `invalid added_tokens[0]: "<think>" and "<|im_end|>" are both 256`},
		{"added_tokens/6/content", "a", `invalid added_tokens[6]: "a" is 264, but 97 in model.vocab`},
		{"model/merges/0", "a  b", `invalid BPE merge: merge 0`},
		{"model/merges", [][]string{{"a", "b", "c"}}, `model.merges: merge 0 has 3 parts, not 2`},
		{"model/merges", [][]string{{"a b", "c"}}, `invalid BPE merge`},
		{"added_tokens/0/lstrip", true, `unsupported added_tokens[0].lstrip: found true for "<|im_end|>", accepted is false`},
		{"added_tokens/0/rstrip", true, `unsupported added_tokens[0].rstrip`},
		{"added_tokens/0/single_word", true, `unsupported added_tokens[0].single_word`},
		{"added_tokens/0/normalized", true, `unsupported added_tokens[0].normalized`},
		{"added_tokens/0/id", 3, `invalid added_tokens[0]: `},
		{"added_tokens/0/content", "", `invalid added_tokens[0]: token 256 is empty`},
		{"added_tokens/0/special", false, `invalid special token: eos_token is "<|im_end|>", not a special token of the vocabulary`},
	} {
		v, err := FromJSON(&Snapshot{
			Name:      "repo",
			Tokenizer: marshal(t, set(t, tokenizerObject(qwen), tt.path, tt.value)),
			Config:    marshal(t, configObject(qwen)),
		})
		if err == nil {
			_, err = New(v)
		}
		if err == nil || !strings.HasPrefix(err.Error(), "repo/tokenizer.json: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s = %.40v: error %v, want %s", tt.path, tt.value, err, tt.want)
		}
	}
}

func TestSnapshotRefuses(t *testing.T) {
	v := smallVocabulary("qwen35")
	good := marshal(t, tokenizerObject(v))
	for _, tt := range []struct {
		name     string
		snapshot Snapshot
		want     string
	}{
		{"empty", Snapshot{}, "repo/tokenizer.json: invalid JSON: unexpected end of JSON input"},
		{"long", Snapshot{Tokenizer: make([]byte, maxFile+1)}, "repo/tokenizer.json: more than 64 MiB"},
		{"list", Snapshot{Tokenizer: []byte("[]")}, "repo/tokenizer.json: invalid JSON"},
		{"no EOS", Snapshot{Tokenizer: good}, `repo/tokenizer.json: invalid special token: eos_token is ""`},
		{"EOS", Snapshot{Tokenizer: good, Config: []byte(`{"eos_token": "</s>"}`)}, `eos_token is "</s>", not a special token`},
		{"EOS type", Snapshot{Tokenizer: good, Config: []byte(`{"eos_token": 5}`)}, `repo/tokenizer_config.json: invalid JSON`},
		{"padding", Snapshot{Tokenizer: good, Config: []byte(`{"eos_token": "<|im_end|>", "pad_token": "a"}`)},
			`pad_token is "a", not a special token`},
		{"BOS inserted", Snapshot{Tokenizer: good, Config: []byte(`{"add_bos_token": true}`)},
			`repo/tokenizer_config.json: unsupported add_bos_token: found true, accepted is false`},
		{"EOS inserted", Snapshot{Tokenizer: good, Config: []byte(`{"add_eos_token": true}`)},
			`repo/tokenizer_config.json: unsupported add_eos_token`},
		{"prefix space", Snapshot{Tokenizer: good, Config: []byte(`{"add_prefix_space": true}`)},
			`repo/tokenizer_config.json: unsupported add_prefix_space`},
		{"special map", Snapshot{Tokenizer: good, SpecialTokensMap: []byte(`{`)},
			`repo/special_tokens_map.json: invalid JSON`},
		{"template", Snapshot{Tokenizer: good, Config: []byte(`{"chat_template": {}}`)},
			`repo/tokenizer_config.json: invalid JSON`},
	} {
		tt.snapshot.Name = "repo"
		if _, err := FromJSON(&tt.snapshot); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %s", tt.name, err, tt.want)
		}
	}
}

func TestReadSnapshot(t *testing.T) {
	dir := fstest.MapFS{
		"tokenizer.json":      {Data: []byte("t")},
		"chat_template.jinja": {Data: []byte("c")},
		"other.json":          {Data: []byte("o")},
	}
	got := must(ReadSnapshot(dir, "repo"))(t)
	if diff := cmp.Diff(&Snapshot{Name: "repo", Tokenizer: []byte("t"), ChatTemplate: []byte("c")}, got); diff != "" {
		t.Error(diff)
	}
	dir["tokenizer_config.json"] = &fstest.MapFile{Data: make([]byte, maxFile+1)}
	if _, err := ReadSnapshot(dir, "repo"); err == nil || err.Error() != "repo/tokenizer_config.json: more than 64 MiB" {
		t.Errorf("error %v", err)
	}
	delete(dir, "tokenizer.json")
	if _, err := ReadSnapshot(dir, "repo"); err == nil || !strings.HasPrefix(err.Error(), "repo/tokenizer.json: ") {
		t.Errorf("error %v", err)
	}
}

// TestBothSources encodes with the large vocabulary as both kinds of file have it.
func TestBothSources(t *testing.T) {
	v := must(readLarge())(t)
	got := must(FromJSON(&Snapshot{Name: v.Name, Tokenizer: marshal(t, tokenizerObject(v)), Config: marshal(t, configObject(v))}))(t)
	want := *v
	want.Name += "/tokenizer.json"
	ignored := cmpopts.IgnoreFields(Vocabulary{}, "Padding", "Templates", "Context")
	if diff := cmp.Diff(&want, got, ignored, cmpopts.IgnoreUnexported(Vocabulary{})); diff != "" {
		t.Fatalf("%.2000s", diff)
	}
	tok := must(New(got))(t)
	for _, line := range readLines[libraryLine](t, "testdata/huggingface.jsonl")[:50] {
		if diff := cmp.Diff(line.Qwen35.IDs, tok.Encode(line.Text, true)); diff != "" {
			t.Errorf("%q:\n%s", line.Text, diff)
		}
	}
}
