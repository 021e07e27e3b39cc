package tokenizer

import (
	"math"
	"strings"
	"unicode"

	"splash/internal/gguf"
)

// Keys of the metadata.
const (
	keyArchitecture = "general.architecture"
	keyModel        = "tokenizer.ggml.model"
	keyPre          = "tokenizer.ggml.pre"
	keyTokens       = "tokenizer.ggml.tokens"
	keyTypes        = "tokenizer.ggml.token_type"
	keyMerges       = "tokenizer.ggml.merges"
	keyAddBOS       = "tokenizer.ggml.add_bos_token"
	keyAddEOS       = "tokenizer.ggml.add_eos_token"
	keyEOS          = "tokenizer.ggml.eos_token_id"
	keyBOS          = "tokenizer.ggml.bos_token_id"
	keyPadding      = "tokenizer.ggml.padding_token_id"
	keyEOG          = "tokenizer.ggml.eog_token_ids"
	keyTemplate     = "tokenizer.chat_template" // and with .NAME, named ones
)

// defaultTemplate is the name of the chat template that has none.
const defaultTemplate = "default"

// FromGGUF reads the vocabulary from the header of a GGUF file, and from nothing else. It refuses keys that are missing,
// of another type or out of range; the tokens and merges themselves are checked by New.
func FromGGUF(h *gguf.Header) (*Vocabulary, error) {
	v := &Vocabulary{Name: h.Name, container: "GGUF", BOS: -1, Padding: -1}
	m := metadata{h, v}
	p, err := m.profile()
	if err != nil {
		return nil, err
	}
	v.Pre = p.pre
	for _, read := range []func() error{m.tokens, m.insertion, m.specials, m.templates, m.context} {
		if err := read(); err != nil {
			return nil, err
		}
	}
	if v.EOG, err = m.stops(p); err != nil {
		return nil, err
	}
	return v, nil
}

// metadata reads a header into a vocabulary.
type metadata struct {
	h *gguf.Header
	v *Vocabulary
}

func (m metadata) missing(key string) error {
	return m.v.errorf("missing or invalid GGUF metadata: %s", key)
}

func (m metadata) profile() (*profile, error) {
	model, _ := m.h.String(keyModel)
	pre, _ := m.h.String(keyPre)
	if p := profileOf(pre); p != nil && model == "gpt2" {
		return p, nil
	}
	expected := "gpt2/qwen35"
	if arch, _ := m.h.String(keyArchitecture); arch == "flint" {
		expected = "gpt2/flint"
	}
	return nil, m.v.errorf("unsupported GGUF tokenizer profile; expected %s, found %s %s and %s %s", expected, keyModel,
		brief(model), keyPre, brief(pre))
}

func (m metadata) tokens() error {
	var ok bool
	if m.v.Tokens, ok = m.h.Strings(keyTokens); !ok {
		return m.missing(keyTokens)
	}
	if m.v.Merges, ok = m.h.Strings(keyMerges); !ok {
		return m.missing(keyMerges)
	}
	types, ok := m.h.Ints(keyTypes)
	if !ok {
		return m.missing(keyTypes)
	}
	m.v.Types = make([]Kind, len(types))
	for i, kind := range types {
		if kind < 0 || kind > math.MaxInt8 {
			kind = 0 // which is no kind either
		}
		m.v.Types[i] = Kind(kind)
	}
	return m.v.checkSize()
}

// insertion refuses the insertion of tokens that the text does not have.
func (m metadata) insertion() error {
	for _, key := range []string{keyAddBOS, keyAddEOS} {
		if m.h.Key(key) == nil {
			continue
		}
		add, ok := m.h.Bool(key)
		if !ok {
			return m.missing(key)
		}
		if add {
			return m.v.errorf("GGUF automatic BOS/EOS insertion is unsupported: %s", key)
		}
	}
	return nil
}

func (m metadata) specials() error {
	for _, s := range []struct {
		key      string
		id       *int32
		required bool
	}{{keyEOS, &m.v.EOS, true}, {keyBOS, &m.v.BOS, false}, {keyPadding, &m.v.Padding, false}} {
		if m.h.Key(s.key) == nil && !s.required {
			continue
		}
		id, ok := m.h.Int(s.key)
		if !ok {
			return m.missing(s.key)
		}
		if err := m.v.checkSpecial(s.key, id); err != nil {
			return err
		}
		*s.id = int32(id)
	}
	return nil
}

// stops returns the tokens that end a generation: those the file lists, where the profile looks for such a list, or the
// profile's own.
func (m metadata) stops(p *profile) ([]int32, error) {
	if !p.needStops || m.h.Key(keyEOG) == nil {
		return m.v.stops(p)
	}
	listed, ok := m.h.Ints(keyEOG)
	if !ok || len(listed) == 0 {
		return nil, m.missing(keyEOG)
	}
	ids := make([]int32, len(listed))
	for i, id := range listed {
		if err := m.v.checkSpecial(keyEOG, id); err != nil {
			return nil, err
		}
		ids[i] = int32(id)
	}
	return ids, nil
}

func (m metadata) templates() error {
	text, _ := m.h.String(keyTemplate)
	if strings.TrimSpace(text) == "" {
		return m.v.errorf("GGUF chat template is empty: %s", keyTemplate)
	}
	m.v.Templates = map[string]string{defaultTemplate: text}
	for i := range m.h.Keys {
		name, named := strings.CutPrefix(m.h.Keys[i].Key, keyTemplate+".")
		if text, ok := m.h.String(m.h.Keys[i].Key); named && ok && name != defaultTemplate {
			m.v.Templates[name] = text
		}
	}
	return nil
}

func (m metadata) context() error {
	arch, ok := m.h.String(keyArchitecture)
	if !ok || arch == "" || strings.ContainsFunc(arch, unicode.IsControl) {
		return m.missing(keyArchitecture)
	}
	key := arch + ".context_length"
	length, ok := m.h.Int(key)
	if !ok {
		return m.missing(key)
	}
	if length <= 0 {
		return m.v.errorf("GGUF metadata must be positive: %s is %d", key, length)
	}
	m.v.Context = length
	return nil
}
