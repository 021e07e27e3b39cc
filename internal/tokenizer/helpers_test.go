package tokenizer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"unicode"

	"splash/internal/gguf"
)

const (
	largeFile  = "../../fixtures/tokenizer/vocab-qwen35-151k.gguf"
	tinyFile   = "../../fixtures/tiny/tiny-qwen35-Q4_K_M.gguf"
	pebbleFile = "../../fixtures/pebble/pebble-Q4_K_M.gguf"
)

func readHeader(path string) (*gguf.Header, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return gguf.Parse(f, info.Size(), filepath.Base(path))
}

func readVocabulary(path string) (*Vocabulary, error) {
	h, err := readHeader(path)
	if err != nil {
		return nil, err
	}
	return FromGGUF(h)
}

var readLarge = sync.OnceValues(func() (*Vocabulary, error) { return readVocabulary(largeFile) })

var newLarge = sync.OnceValues(func() (*Tokenizer, error) {
	v, err := readLarge()
	if err != nil {
		return nil, err
	}
	return New(v)
})

// flintOf is the vocabulary with flint's profile.
func flintOf(v *Vocabulary) *Vocabulary {
	flint := *v
	flint.Pre = "flint"
	return &flint
}

var newLargeFlint = sync.OnceValues(func() (*Tokenizer, error) {
	v, err := readLarge()
	if err != nil {
		return nil, err
	}
	return New(flintOf(v))
})

// must returns v, or ends the test.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newTokenizer(t testing.TB, path string) *Tokenizer {
	t.Helper()
	return must(New(must(readVocabulary(path))(t)))(t)
}

// bytesVocabulary has the 256 byte tokens, whose IDs are the bytes, and after them what the test adds.
func bytesVocabulary(pre string) *Vocabulary {
	v := &Vocabulary{Pre: pre, EOS: 256, BOS: -1, Padding: -1}
	for _, r := range byteRunes {
		v.add(string(r), Normal)
	}
	v.add("<|im_end|>", Control)
	return v
}

func (v *Vocabulary) add(token string, kind Kind) {
	v.Tokens = append(v.Tokens, token)
	v.Types = append(v.Types, kind)
}

// merge adds a merge, and its result unless it is there.
func (v *Vocabulary) merge(left, right string) {
	v.Merges = append(v.Merges, left+" "+right)
	if v.find(left+right) < 0 {
		v.add(left+right, Normal)
	}
}

// readLines decodes the lines of a JSONL file.
func readLines[T any](t testing.TB, path string) []T {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []T
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		if len(bytes.TrimSpace(scan.Bytes())) == 0 {
			continue
		}
		var line T
		if err := json.Unmarshal(scan.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		lines = append(lines, line)
	}
	if err := scan.Err(); err != nil || len(lines) == 0 {
		t.Fatalf("%s: %d lines, %v", path, len(lines), err)
	}
	return lines
}

// A texter draws random text that is rich in what the splits tell apart.
type texter struct {
	*rand.Rand
	tables []*unicode.RangeTable
}

func newTexter(seed uint64) *texter {
	return &texter{
		Rand: rand.New(rand.NewPCG(seed, 1)),
		tables: []*unicode.RangeTable{
			unicode.Lu, unicode.Ll, unicode.Lt, unicode.Lm, unicode.Lo, unicode.Mn, unicode.Mc, unicode.Me, unicode.Nd,
			unicode.Nl, unicode.No, unicode.P, unicode.S, unicode.Z, unicode.Cc, unicode.Cf, unicode.White_Space,
			unicode.Han, unicode.Hiragana, unicode.Katakana,
		},
	}
}

var snippets = []string{
	"'s", "'S", "'\u017f", "'t", "'RE", "'re", "'Ve", "'ll", "'lL", "'m", "'d", "'D", "'x", "'r", "'l", "'\u212a", "''s",
	"\r", "\n", "\r\n", "\n\n", "  ", "\t", " \n ", "\u00a0", "\u3000", "\u2028", "\u0085", "\u200b", "\u180e", "\ufeff",
	"\u0301", "\u0300\u0316", "\u0345", "\u0344", "e\u0301", "\u1112\u1161\u11ab", "\uac00\u11a8", "\u02b0", "\u00aa",
	"\u01c5", "\u3099", "\u304b\u3099", "\u30fb", "\u4e00", "\u9fa5", "\u9fa6", "\u4dff", "\u3040", "\u30ff", "\u3100",
	"\u3007", "\u4f60\u597d", "1", "12", "123", "1234567", "\u0663", "\u00bd", "\u216b", "a", "Z", "Ab", "aB", "THE", "the",
	" the", " The", "/", "//", "/\n", "!", "?!", " (", "_", "<", "<|im_end|>", "<think>", "\x00", "\U0001f999",
	"\U0001f469\u200d\U0001f469", "\U0001d400", "\ufffd",
}

func (r *texter) text(parts int) string {
	var b []byte
	for range parts {
		if r.IntN(3) > 0 {
			b = append(b, snippets[r.IntN(len(snippets))]...)
			continue
		}
		b = append(b, string(r.char())...)
	}
	return string(b)
}

// char draws a character from a random table.
func (r *texter) char() rune {
	table := r.tables[r.IntN(len(r.tables))]
	n := r.IntN(len(table.R16) + len(table.R32))
	if n < len(table.R16) {
		return between(r, table.R16[n].Lo, table.R16[n].Hi, table.R16[n].Stride)
	}
	n -= len(table.R16)
	return between(r, table.R32[n].Lo, table.R32[n].Hi, table.R32[n].Stride)
}

func between[T uint16 | uint32](r *texter, lo, hi, stride T) rune {
	return rune(lo + stride*T(r.IntN(int((hi-lo)/stride)+1)))
}
