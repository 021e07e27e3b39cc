// Package tokenizer turns text into the token IDs of a model and IDs back into text.
//
// It knows byte-level BPE in the two profiles the served models use, gpt2/qwen35 and gpt2/flint, whether they come from
// the metadata of a GGUF file (FromGGUF) or from the tokenizer.json of a snapshot (FromJSON). Encoding finds the added
// tokens, normalizes the stretches between them, splits those into pieces and merges each piece's bytes by rank; the
// rules are those of the tokenizers library of Hugging Face, whose IDs the tests hold it to.
package tokenizer

import (
	"fmt"
	"slices"
	"strings"
)

// A Kind says what a token is for. The numbers are those of tokenizer.ggml.token_type in a GGUF.
type Kind int8

const (
	Normal      Kind = 1 // a piece of text, spelled in the byte alphabet
	Control     Kind = 3 // an added token that marks structure and decodes to nothing
	UserDefined Kind = 4 // an added token that is text
	Unused      Kind = 5 // fills an ID
)

// added reports whether tokens of the kind are found in the raw text, before it is split.
func (k Kind) added() bool { return k == Control || k == UserDefined }

func (k Kind) valid() bool { return k == Normal || k == Unused || k.added() }

// maxTokens bounds the vocabulary, its merges and the elements of any list that FromJSON reads.
const maxTokens = 1_000_000

// maxAddedText bounds the text of an added token in bytes, and so the work that the scanner does at one place.
const maxAddedText = 1024

// A Vocabulary is what a model's files say of its tokenizer. New checks it.
type Vocabulary struct {
	Name string // the file, as errors give it; may be empty
	Pre  string // the profile: "qwen35" or "flint"

	Tokens []string // by ID; added tokens as their text, all others in the byte alphabet
	Types  []Kind   // by ID
	Merges []string // "left right" by rank

	// IgnoreMerges makes a piece that is itself a token that token, whatever its merges.
	IgnoreMerges bool

	EOS, BOS, Padding int32   // each a control token; BOS and Padding may be -1, absent
	EOG               []int32 // the control tokens that end a generation

	Templates map[string]string // chat templates by name; the unnamed one is "default"
	Context   int64             // positions the model was made for; 0 where the file does not say

	container string // "GGUF" where the file is one, for messages
}

// A mergeRule is one merge, its tokens resolved.
type mergeRule struct{ left, right, result int32 }

// errorf makes an error of the vocabulary: the file, then the container and the rest.
func (v *Vocabulary) errorf(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if v.Name == "" {
		return err
	}
	return fmt.Errorf("%s: %w", v.Name, err)
}

// of is what, preceded by the container where there is one: "GGUF BPE merge".
func (v *Vocabulary) of(what string) string {
	if v.container == "" {
		return what
	}
	return v.container + " " + what
}

// checkSize checks that there are tokens, and a kind for each.
func (v *Vocabulary) checkSize() error {
	what := "invalid or unsupported " + v.of("tokenizer vocabulary")
	switch {
	case len(v.Tokens) == 0:
		return v.errorf("%s: no tokens", what)
	case len(v.Tokens) > maxTokens:
		return v.errorf("%s: %d tokens, at most %d are accepted", what, len(v.Tokens), maxTokens)
	case len(v.Types) != len(v.Tokens):
		return v.errorf("%s: %d tokens but %d types", what, len(v.Tokens), len(v.Types))
	}
	return nil
}

// index checks the tokens and their kinds and returns the IDs by spelling.
func (v *Vocabulary) index() (map[string]int32, error) {
	if err := v.checkSize(); err != nil {
		return nil, err
	}
	what := "invalid or unsupported " + v.of("tokenizer vocabulary")
	ids := make(map[string]int32, len(v.Tokens))
	for i, token := range v.Tokens {
		kind := v.Types[i]
		switch {
		case token == "":
			return nil, v.errorf("%s: token %d is empty", what, i)
		case !kind.valid():
			return nil, v.errorf("%s: token %d has type %d; accepted are 1 (normal), 3 (control), 4 (user-defined), "+
				"5 (unused)", what, i, kind)
		case kind.added() && len(token) > maxAddedText:
			return nil, v.errorf("%s: added token %d has %d bytes, at most %d are accepted", what, i, len(token),
				maxAddedText)
		}
		ids[token] = int32(i)
	}
	if len(ids) < len(v.Tokens) {
		for i, token := range v.Tokens {
			if last := ids[token]; int(last) != i {
				return nil, v.errorf("%s: tokens %d and %d are both %s", what, i, last, brief(token))
			}
		}
	}
	return ids, nil
}

// byteTokens returns the ID of each byte's character.
func (v *Vocabulary) byteTokens(ids map[string]int32) (*[256]int32, error) {
	var base [256]int32
	for b := range base {
		id, ok := ids[string(byteRunes[b])]
		if !ok {
			return nil, v.errorf("%s: none is %q, which stands for byte %d",
				v.of("byte-level tokenizer is missing byte tokens"), byteRunes[b], b)
		}
		base[b] = id
	}
	return &base, nil
}

// resolve turns the merges into IDs.
func (v *Vocabulary) resolve(ids map[string]int32) ([]mergeRule, error) {
	if len(v.Merges) > maxTokens {
		return nil, v.errorf("%s: %d merges, at most %d are accepted", v.of("BPE vocabulary or merges"), len(v.Merges),
			maxTokens)
	}
	rules := make([]mergeRule, len(v.Merges))
	var joined []byte
	for rank, merge := range v.Merges {
		left, right, ok := strings.Cut(merge, " ")
		if !ok || left == "" || right == "" || strings.Contains(right, " ") {
			return nil, v.errorf("invalid %s: merge %d is %s, not two parts around one space", v.of("BPE merge"), rank,
				brief(merge))
		}
		joined = append(append(joined[:0], left...), right...)
		l, hasLeft := ids[left]
		r, hasRight := ids[right]
		result, hasResult := ids[string(joined)]
		if !hasLeft || !hasRight || !hasResult {
			return nil, v.errorf("invalid %s: merge %d, %s, needs a token the vocabulary lacks",
				v.of("BPE vocabulary or merges"), rank, brief(merge))
		}
		rules[rank] = mergeRule{l, r, result}
	}
	return rules, nil
}

// checkSpecial refuses an ID that is not a control token. What names it: a key, a field.
func (v *Vocabulary) checkSpecial(what string, id int64) error {
	switch {
	case id < 0 || id >= int64(len(v.Types)):
		return v.errorf("invalid %s: %s is %d, the vocabulary has %d tokens", v.of("special token"), what, id,
			len(v.Types))
	case v.Types[id] != Control:
		return v.errorf("invalid %s: %s is %d (%s), which is not a control token", v.of("special token"), what, id,
			brief(v.Tokens[id]))
	}
	return nil
}

// checkSpecials holds the special IDs to checkSpecial.
func (v *Vocabulary) checkSpecials() error {
	if err := v.checkSpecial("EOS", int64(v.EOS)); err != nil {
		return err
	}
	for _, s := range []struct {
		what string
		id   int32
	}{{"BOS", v.BOS}, {"padding", v.Padding}} {
		if s.id == -1 {
			continue
		}
		if err := v.checkSpecial(s.what, int64(s.id)); err != nil {
			return err
		}
	}
	for _, id := range v.EOG {
		if err := v.checkSpecial("stop token", int64(id)); err != nil {
			return err
		}
	}
	return nil
}

// stops returns the IDs of the profile's stop tokens in the vocabulary. A profile whose stop tokens are required has all
// of them, each a control token, and the EOS among them.
func (v *Vocabulary) stops(p *profile) ([]int32, error) {
	var ids []int32
	for _, text := range p.stops {
		id := v.find(text)
		if id >= 0 && v.Types[id] == Control {
			ids = append(ids, id)
			continue
		}
		if p.needStops {
			return nil, v.errorf("invalid %s: the stop token %s is not a control token of the vocabulary",
				v.of("special token"), text)
		}
	}
	if p.needStops && !slices.Contains(ids, v.EOS) {
		return nil, v.errorf("invalid %s: EOS %d is none of the stop tokens %s", v.of("special token"), v.EOS,
			strings.Join(p.stops, ", "))
	}
	return ids, nil
}

// find returns the ID of an added token by its text, or -1. It is for a handful of look-ups before there is an index.
func (v *Vocabulary) find(text string) int32 {
	return int32(slices.Index(v.Tokens, text))
}

// brief quotes what a file says, cut to a length that fits in a message.
func brief(s string) string {
	const most = 60
	if len(s) > most {
		return fmt.Sprintf("%.*q...", most, s)
	}
	return fmt.Sprintf("%q", s)
}
