package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
)

// maxFile bounds a file of a snapshot, in bytes.
const maxFile = 64 << 20

// A Snapshot is the files that say how a model's text is tokenized. All but tokenizer.json may be absent (nil).
type Snapshot struct {
	Name string // of the directory, as errors give it

	Tokenizer        []byte // tokenizer.json
	Config           []byte // tokenizer_config.json
	SpecialTokensMap []byte // special_tokens_map.json: special tokens that Config does not name
	ChatTemplate     []byte // chat_template.jinja: in place of Config's unnamed template
}

// ReadSnapshot reads the files from the root of a directory.
func ReadSnapshot(dir fs.FS, name string) (*Snapshot, error) {
	s := &Snapshot{Name: name}
	for _, f := range []struct {
		name string
		text *[]byte
	}{
		{fileTokenizer, &s.Tokenizer},
		{fileConfig, &s.Config},
		{fileSpecials, &s.SpecialTokensMap},
		{fileTemplate, &s.ChatTemplate},
	} {
		text, err := readFile(dir, f.name)
		if errors.Is(err, fs.ErrNotExist) && f.name != fileTokenizer {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path.Join(name, f.name), err)
		}
		*f.text = text
	}
	return s, nil
}

func readFile(dir fs.FS, name string) ([]byte, error) {
	if info, err := fs.Stat(dir, name); err == nil && !info.Mode().IsRegular() { // opening a pipe waits
		return nil, errors.New("not a regular file")
	}
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = errTooLong
	}
	return text, err
}

var errTooLong = fmt.Errorf("more than %d MiB", maxFile>>20)

const (
	fileTokenizer = "tokenizer.json"
	fileConfig    = "tokenizer_config.json"
	fileSpecials  = "special_tokens_map.json"
	fileTemplate  = "chat_template.jinja"
)

// FromJSON reads the vocabulary from the files of a snapshot. What tokenizer.json asks for must be, component by component,
// what one of the profiles does; anything else is refused with an error that names the component.
func FromJSON(s *Snapshot) (*Vocabulary, error) {
	v := &Vocabulary{Name: path.Join(s.Name, fileTokenizer), EOS: -1, BOS: -1, Padding: -1}
	var t tokenizerJSON
	if err := decodeJSON(s.Tokenizer, &t); err != nil {
		return nil, v.errorf("%w", err)
	}
	p, err := t.profile()
	if err != nil {
		return nil, v.errorf("%w", err)
	}
	v.Pre = p.pre
	v.IgnoreMerges = t.Model.IgnoreMerges
	v.Merges = t.Model.Merges
	if v.Tokens, v.Types, err = t.tokens(); err != nil {
		return nil, v.errorf("%w", err)
	}
	if err := v.configure(s); err != nil {
		return nil, err
	}
	if v.EOG, err = v.stops(p); err != nil {
		return nil, err
	}
	return v, nil
}

func decodeJSON(text []byte, into any) error {
	if len(text) > maxFile {
		return errTooLong
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("invalid JSON: %w", err)
	}
	return nil
}

// tokenizerJSON is a tokenizer.json of the tokenizers library. Truncation and padding are of calls, not of the vocabulary,
// and not read.
type tokenizerJSON struct {
	AddedTokens   []addedJSON     `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         modelJSON       `json:"model"`
}

type addedJSON struct {
	ID         int64  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

type modelJSON struct {
	Type         string           `json:"type"`
	Dropout      *float64         `json:"dropout"`
	Prefix       string           `json:"continuing_subword_prefix"`
	Suffix       string           `json:"end_of_word_suffix"`
	ByteFallback bool             `json:"byte_fallback"`
	IgnoreMerges bool             `json:"ignore_merges"`
	Vocab        map[string]int64 `json:"vocab"`
	Merges       mergesJSON       `json:"merges"`
}

// mergesJSON reads merges written as "a b" or as ["a", "b"].
type mergesJSON []string

func (m *mergesJSON) UnmarshalJSON(text []byte) error {
	if inner := bytes.TrimLeft(bytes.TrimPrefix(text, []byte("[")), " \t\r\n"); len(inner) == 0 || inner[0] != '[' {
		return json.Unmarshal(text, (*[]string)(m))
	}
	var pairs [][]string
	if err := json.Unmarshal(text, &pairs); err != nil {
		return err
	}
	*m = make([]string, len(pairs))
	for i, pair := range pairs {
		if len(pair) != 2 {
			return fmt.Errorf("model.merges: merge %d has %d parts, not 2", i, len(pair))
		}
		(*m)[i] = pair[0] + " " + pair[1]
	}
	return nil
}

// componentJSON holds what any of the accepted components states.
type componentJSON struct {
	Type          string            `json:"type"`
	PreTokenizers []json.RawMessage `json:"pretokenizers"`

	Pattern  patternJSON `json:"pattern"`
	Behavior string      `json:"behavior"`
	Invert   bool        `json:"invert"`

	AddPrefixSpace *bool `json:"add_prefix_space"`
	UseRegex       *bool `json:"use_regex"`
}

type patternJSON struct {
	Regex *string `json:"Regex"`
}

// component decodes a component, null as one without a type.
func component(name string, text json.RawMessage) (c componentJSON, err error) {
	if len(text) == 0 {
		return c, nil
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("unsupported %s: %w", name, err)
	}
	return c, nil
}

// unsupported makes the refusal of a component.
func unsupported(name, found, accepted string) error {
	return fmt.Errorf("unsupported %s: found %s, accepted is %s", name, found, accepted)
}

// profile returns the profile whose components the file has.
func (t *tokenizerJSON) profile() (*profile, error) {
	p, err := t.splits()
	if err != nil {
		return nil, err
	}
	normalizer, err := component("normalizer", t.Normalizer)
	if err != nil {
		return nil, err
	}
	want := ""
	if p.nfc {
		want = "NFC"
	}
	if normalizer.Type != want {
		return nil, unsupported("normalizer", typeName(normalizer), fmt.Sprintf("%s beside the split of gpt2/%s",
			typeName(componentJSON{Type: want}), p.pre))
	}
	processor, err := component("post_processor", t.PostProcessor)
	if err != nil {
		return nil, err
	}
	if processor.Type != "" && processor.Type != "ByteLevel" {
		return nil, unsupported("post_processor", typeName(processor), "null or ByteLevel")
	}
	decoder, err := component("decoder", t.Decoder)
	if err != nil {
		return nil, err
	}
	if decoder.Type != "ByteLevel" {
		return nil, unsupported("decoder", typeName(decoder), "ByteLevel")
	}
	return p, t.Model.check()
}

func typeName(c componentJSON) string {
	if c.Type == "" {
		return "null"
	}
	return brief(c.Type)
}

// splits returns the profile whose splits the pre-tokenizer has, before a ByteLevel that only spells.
func (t *tokenizerJSON) splits() (*profile, error) {
	c, err := component("pre_tokenizer", t.PreTokenizer)
	if err != nil {
		return nil, err
	}
	if c.Type != "Sequence" || len(c.PreTokenizers) == 0 {
		return nil, unsupported("pre_tokenizer", typeName(c), "a Sequence of Splits and ByteLevel")
	}
	last := len(c.PreTokenizers) - 1
	var patterns []string
	for i, text := range c.PreTokenizers[:last] {
		pattern, err := splitPattern(fmt.Sprintf("pre_tokenizer.pretokenizers[%d]", i), text)
		if err != nil {
			return nil, err
		}
		patterns = append(patterns, pattern)
	}
	name := fmt.Sprintf("pre_tokenizer.pretokenizers[%d]", last)
	level, err := component(name, c.PreTokenizers[last])
	if err != nil {
		return nil, err
	}
	if level.Type != "ByteLevel" || !isFalse(level.AddPrefixSpace) || !isFalse(level.UseRegex) {
		return nil, unsupported(name, typeName(level), "ByteLevel with add_prefix_space and use_regex false")
	}
	for _, p := range profiles() {
		if slices.Equal(p.splits, patterns) {
			return p, nil
		}
	}
	return nil, unsupported("pre_tokenizer", fmt.Sprintf("Splits by %s", brief(strings.Join(patterns, " then "))),
		"those of gpt2/qwen35 or gpt2/flint")
}

func isFalse(b *bool) bool { return b != nil && !*b }

// splitPattern returns the expression of a Split that isolates what it matches.
func splitPattern(name string, text json.RawMessage) (string, error) {
	c, err := component(name, text)
	if err != nil {
		return "", err
	}
	if c.Type != "Split" || c.Pattern.Regex == nil || c.Behavior != "Isolated" || c.Invert {
		return "", unsupported(name, typeName(c), "Split by a Regex, Isolated, not inverted")
	}
	return *c.Pattern.Regex, nil
}

func (m *modelJSON) check() error {
	switch {
	case m.Type != "BPE":
		return unsupported("model", brief(m.Type), "BPE")
	case m.ByteFallback:
		return unsupported("model.byte_fallback", "true", "false")
	case m.Dropout != nil && *m.Dropout != 0:
		return unsupported("model.dropout", fmt.Sprint(*m.Dropout), "null")
	case m.Prefix != "":
		return unsupported("model.continuing_subword_prefix", brief(m.Prefix), "none")
	case m.Suffix != "":
		return unsupported("model.end_of_word_suffix", brief(m.Suffix), "none")
	}
	return nil
}

// tokens returns the tokens by ID: the model's, and the added ones.
func (t *tokenizerJSON) tokens() ([]string, []Kind, error) {
	if n := len(t.Model.Vocab) + len(t.AddedTokens); n > maxTokens {
		return nil, nil, fmt.Errorf("unsupported model.vocab: %d tokens, at most %d are accepted", n, maxTokens)
	}
	size := len(t.Model.Vocab)
	for i := range t.AddedTokens {
		if _, ok := t.Model.Vocab[t.AddedTokens[i].Content]; !ok {
			size++
		}
	}
	tokens, kinds := make([]string, size), make([]Kind, size)
	for token, id := range t.Model.Vocab {
		if err := place(tokens, "model.vocab", token, id); err != nil {
			return nil, nil, err
		}
		kinds[id] = Normal
	}
	for i := range t.AddedTokens {
		a, name := &t.AddedTokens[i], fmt.Sprintf("added_tokens[%d]", i)
		if err := a.check(name); err != nil {
			return nil, nil, err
		}
		if id, ok := t.Model.Vocab[a.Content]; ok && id != a.ID {
			return nil, nil, fmt.Errorf("invalid %s: %s is %d, but %d in model.vocab", name, brief(a.Content), a.ID, id)
		}
		if err := place(tokens, name, a.Content, a.ID); err != nil {
			return nil, nil, err
		}
		kinds[a.ID] = UserDefined
		if a.Special {
			kinds[a.ID] = Control
		}
	}
	return tokens, kinds, nil
}

// place puts a token at its ID. There are as many places as tokens, so that all are taken when no two share one.
func place(tokens []string, name, token string, id int64) error {
	switch {
	case token == "":
		return fmt.Errorf("invalid %s: token %d is empty", name, id)
	case id < 0 || id >= int64(len(tokens)):
		return fmt.Errorf("invalid %s: %s is %d; %d tokens have the IDs from 0 to %d", name, brief(token), id, len(tokens),
			len(tokens)-1)
	case tokens[id] != "" && tokens[id] != token:
		return fmt.Errorf("invalid %s: %s and %s are both %d", name, brief(tokens[id]), brief(token), id)
	}
	tokens[id] = token
	return nil
}

func (a *addedJSON) check(name string) error {
	for _, flag := range []struct {
		name string
		set  bool
	}{{"single_word", a.SingleWord}, {"lstrip", a.LStrip}, {"rstrip", a.RStrip}, {"normalized", a.Normalized}} {
		if flag.set {
			return unsupported(name+"."+flag.name, fmt.Sprintf("true for %s", brief(a.Content)), "false")
		}
	}
	return nil
}

// specialsJSON is what tokenizer_config.json and special_tokens_map.json say of special tokens.
type specialsJSON struct {
	EOS tokenJSON `json:"eos_token"`
	BOS tokenJSON `json:"bos_token"`
	Pad tokenJSON `json:"pad_token"`
}

// configJSON is a tokenizer_config.json of the transformers library.
type configJSON struct {
	specialsJSON
	AddBOS         bool          `json:"add_bos_token"`
	AddEOS         bool          `json:"add_eos_token"`
	AddPrefixSpace bool          `json:"add_prefix_space"`
	MaxLength      *float64      `json:"model_max_length"`
	ChatTemplate   templatesJSON `json:"chat_template"`
}

// tokenJSON is the text of a token, written as a string, as an object with content, or as null.
type tokenJSON string

func (t *tokenJSON) UnmarshalJSON(text []byte) error {
	if text[0] != '{' {
		return json.Unmarshal(text, (*string)(t))
	}
	var object struct {
		Content string `json:"content"`
	}
	err := json.Unmarshal(text, &object)
	*t = tokenJSON(object.Content)
	return err
}

// templatesJSON is chat templates by name, written as one string, as a list of {name, template}, or as null.
type templatesJSON map[string]string

func (t *templatesJSON) UnmarshalJSON(text []byte) error {
	*t = make(templatesJSON)
	if text[0] != '[' {
		var one *string
		err := json.Unmarshal(text, &one)
		if one != nil {
			(*t)[defaultTemplate] = *one
		}
		return err
	}
	var list []struct{ Name, Template string }
	err := json.Unmarshal(text, &list)
	for _, item := range list {
		(*t)[item.Name] = item.Template
	}
	return err
}

// configure reads the files beside tokenizer.json.
func (v *Vocabulary) configure(s *Snapshot) error {
	var config configJSON
	if s.Config != nil {
		if err := decodeJSON(s.Config, &config); err != nil {
			return fmt.Errorf("%s: %w", path.Join(s.Name, fileConfig), err)
		}
	}
	var specials specialsJSON
	if s.SpecialTokensMap != nil {
		if err := decodeJSON(s.SpecialTokensMap, &specials); err != nil {
			return fmt.Errorf("%s: %w", path.Join(s.Name, fileSpecials), err)
		}
	}
	for _, flag := range []struct {
		name string
		set  bool
	}{
		{"add_bos_token", config.AddBOS},
		{"add_eos_token", config.AddEOS},
		{"add_prefix_space", config.AddPrefixSpace},
	} {
		if flag.set {
			return fmt.Errorf("%s: %w", path.Join(s.Name, fileConfig), unsupported(flag.name, "true", "false"))
		}
	}
	if err := v.nameSpecials(config.specialsJSON, specials); err != nil {
		return err
	}
	if n := config.MaxLength; n != nil && *n >= 1 && *n <= math.MaxInt32 {
		v.Context = int64(*n) // some files state 1e30 for "none"
	}
	v.Templates = config.ChatTemplate
	if s.ChatTemplate != nil {
		if v.Templates == nil {
			v.Templates = make(map[string]string)
		}
		v.Templates[defaultTemplate] = string(s.ChatTemplate)
	}
	return nil
}

// nameSpecials finds the special tokens, those of the first file before those of the second.
func (v *Vocabulary) nameSpecials(first, second specialsJSON) error {
	for _, s := range []struct {
		name          string
		first, second tokenJSON
		id            *int32
	}{
		{"eos_token", first.EOS, second.EOS, &v.EOS},
		{"bos_token", first.BOS, second.BOS, &v.BOS},
		{"pad_token", first.Pad, second.Pad, &v.Padding},
	} {
		text := string(s.first)
		if text == "" {
			text = string(s.second)
		}
		if text == "" && s.id != &v.EOS {
			continue
		}
		id := v.find(text)
		if id < 0 || v.Types[id] != Control {
			return v.errorf("invalid special token: %s is %s, not a special token of the vocabulary", s.name, brief(text))
		}
		*s.id = id
	}
	return nil
}
