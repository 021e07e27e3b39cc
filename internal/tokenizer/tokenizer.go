package tokenizer

import (
	"hash/maphash"
	"sync"
)

// A Tokenizer encodes and decodes with one vocabulary. It is safe for concurrent use.
type Tokenizer struct {
	profile *profile
	classes *classes

	ids   map[string]int32 // by spelling, as the vocabulary has it
	kinds []Kind
	shown []bool   // by ID: decodes to its bytes, being no control token or one of the profile's tags
	arena []byte   // the tokens' bytes, one after the other
	ends  []uint32 // by ID, where its bytes end in the arena

	base         *[256]int32
	merges       *mergeTable
	ignoreMerges bool

	all  *scanner // of every added token
	text *scanner // of the user-defined ones

	pieces pieceCache
	work   sync.Pool // of *workspace
}

// New checks a vocabulary and makes its tokenizer, which does not refer to v afterwards.
func New(v *Vocabulary) (*Tokenizer, error) {
	p := profileOf(v.Pre)
	if p == nil {
		return nil, v.errorf("unsupported %s gpt2/%s; expected gpt2/qwen35 or gpt2/flint", v.of("tokenizer profile"),
			v.Pre)
	}
	ids, err := v.index()
	if err != nil {
		return nil, err
	}
	base, err := v.byteTokens(ids)
	if err != nil {
		return nil, err
	}
	rules, err := v.resolve(ids)
	if err != nil {
		return nil, err
	}
	if err := v.checkSpecials(); err != nil {
		return nil, err
	}
	merges, repeated := newMergeTable(rules)
	if merges == nil {
		return nil, v.errorf("invalid %s: merge %d, %s, is listed before", v.of("BPE vocabulary or merges"), repeated,
			brief(v.Merges[repeated]))
	}
	t := &Tokenizer{
		profile:      p,
		classes:      unicodeClasses(),
		ids:          ids,
		kinds:        append([]Kind(nil), v.Types...),
		base:         base,
		merges:       merges,
		ignoreMerges: v.IgnoreMerges,
		all:          newScanner(v, Kind.added),
		text:         newScanner(v, func(k Kind) bool { return k == UserDefined }),
		pieces:       pieceCache{seed: maphash.MakeSeed()},
		work:         sync.Pool{New: func() any { return new(workspace) }},
	}
	t.spell(v)
	return t, nil
}

// spell fills the tables of the tokens' bytes.
func (t *Tokenizer) spell(v *Vocabulary) {
	size := 0
	for _, token := range v.Tokens {
		size += len(token)
	}
	t.arena = make([]byte, 0, size)
	t.ends = make([]uint32, len(v.Tokens))
	t.shown = make([]bool, len(v.Tokens))
	for id, token := range v.Tokens {
		if v.Types[id].added() {
			t.arena = append(t.arena, token...)
		} else {
			t.arena = appendBytes(t.arena, token)
		}
		t.ends[id] = uint32(len(t.arena))
		t.shown[id] = v.Types[id] != Control
	}
	for _, tag := range t.profile.tags {
		if id, ok := t.ids[tag]; ok {
			t.shown[id] = true
		}
	}
}

// Size is the number of tokens. A model may have more rows than that.
func (t *Tokenizer) Size() int { return len(t.kinds) }

// ID returns the token that is exactly text: an added token's text, or the bytes of another.
func (t *Tokenizer) ID(text string) (id int32, ok bool) {
	if id, ok := t.ids[text]; ok && t.kinds[id].added() {
		return id, true
	}
	id, ok = t.ids[string(appendSpelling(nil, text))]
	if !ok || t.kinds[id].added() {
		return 0, false
	}
	return id, true
}

// Bytes returns the bytes that a token stands for: of an added token its text, of others what their spelling stands for.
// It returns nil for an ID beyond the vocabulary. The bytes are shared and must not be written to.
func (t *Tokenizer) Bytes(id int32) []byte {
	if uint(id) >= uint(len(t.ends)) {
		return nil
	}
	start := uint32(0)
	if id > 0 {
		start = t.ends[id-1]
	}
	end := t.ends[id]
	return t.arena[start:end:end]
}

// Kind returns what a token is for, and 0 for an ID beyond the vocabulary.
func (t *Tokenizer) Kind(id int32) Kind {
	if uint(id) >= uint(len(t.kinds)) {
		return 0
	}
	return t.kinds[id]
}

// IsControl reports whether a token is a control token.
func (t *Tokenizer) IsControl(id int32) bool { return t.Kind(id) == Control }
