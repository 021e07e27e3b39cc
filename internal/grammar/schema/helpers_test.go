package schema

import (
	"context"
	"testing"

	"splash/internal/chat/ojson"
	"splash/internal/grammar"
	"splash/internal/tokenizer"
)

// byteTokens is the vocabulary of the 256 bytes, and of a stop token after them.
type byteTokens struct{}

const stopToken = 256

func (byteTokens) Size() int { return 257 }

func (byteTokens) Bytes(id int32) []byte {
	if id == stopToken {
		return []byte("stop")
	}
	return []byte{byte(id)}
}

func (byteTokens) Kind(id int32) tokenizer.Kind {
	if id == stopToken {
		return tokenizer.Control
	}
	return tokenizer.Normal
}

func newBytes(t testing.TB) *grammar.Vocabulary {
	t.Helper()
	v, err := grammar.NewVocabulary(byteTokens{}, 257, nil, []int32{stopToken})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func decode(t testing.TB, text string) any {
	t.Helper()
	v, err := ojson.Decode(text, ojson.Options{MaxDepth: 512})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// compileSchema makes the grammar of a schema's values, with space around them.
func compileSchema(v *grammar.Vocabulary, s *Schema) (*grammar.Grammar, []string, error) {
	ctx := context.Background()
	rules := &grammar.Rules{}
	b := NewBuilder(ctx, rules)
	e, err := b.Value(s)
	if err != nil {
		return nil, nil, err
	}
	root := rules.Add("root", grammar.Seq(b.Space(), e, b.Space()))
	g, err := grammar.Compile(ctx, v, rules, root, grammar.Limits{})
	return g, b.Unenforced(), err
}

// accepts reports whether a text is an output of the grammar, and how much of it is the beginning of one.
func accepts(g *grammar.Grammar, text string) (ok bool, n int) {
	m := g.Matcher()
	for i := range len(text) {
		if m.Accept(int32(text[i])) != nil {
			return false, i
		}
	}
	return m.CanEnd(), len(text)
}
