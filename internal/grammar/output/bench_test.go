package output

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"splash/internal/chat"
	"splash/internal/gguf"
	"splash/internal/grammar"
	"splash/internal/tokenizer"
)

// large returns the tokenizer of 151,669 tokens, and the compiler of QWEN's format for it.
var large = sync.OnceValues(func() (*tokenizer.Tokenizer, error) {
	const path = "../../../fixtures/tokenizer/vocab-qwen35-151k.gguf"
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	h, err := gguf.Parse(f, info.Size(), filepath.Base(path))
	if err != nil {
		return nil, err
	}
	v, err := tokenizer.FromGGUF(h)
	if err != nil {
		return nil, err
	}
	return tokenizer.New(v)
})

func newLarge(t testing.TB) (*tokenizer.Tokenizer, *Compiler) {
	t.Helper()
	tok, err := large()
	if err != nil {
		t.Fatal(err)
	}
	f, err := FormatOf(chat.QWEN, tok.ID)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(tok, 151_936, f)
	if err != nil {
		t.Fatal(err)
	}
	return tok, c
}

const (
	orderSchema = `{"$defs":{"Item":{"properties":{"sku":{"pattern":"^[A-Z]{3}-\\d{4}$","type":"string"},"qty":{"minimum":1,"type":"integer"},
		"note":{"anyOf":[{"type":"string","maxLength":80},{"type":"null"}]}},"required":["sku","qty","note"],"type":"object","additionalProperties":false}},
		"properties":{"id":{"format":"uuid","type":"string"},"title":{"type":"string"},"items":{"items":{"$ref":"#/$defs/Item"},"maxItems":10,"type":"array"},
		"total":{"type":"number"}},"required":["id","title","items","total"],"type":"object","additionalProperties":false}`
	orderText = `{
  "id": "123e4567-e89b-12d3-a456-426614174000",
  "title": "Ein Auftrag über Äpfel und Birnen, to be delivered before noon",
  "items": [
    {"sku": "ABC-1234", "qty": 12, "note": "Handle with care: the \"best\" apples of the year, 苹果"},
    {"sku": "XYZ-0001", "qty": 3, "note": null}
  ],
  "total": 1234.50
}`
)

// outputs are requests, and an answer to each.
func outputs(t testing.TB) map[string]struct {
	request Request
	text    string
} {
	say := Tool{"say", decode(t, `{"type":"object","properties":{"text":{"type":"string"}}}`), true}
	return map[string]struct {
		request Request
		text    string
	}{
		"schema": {Request{Response: &Response{Schema: decode(t, orderSchema)}}, orderText},
		"object": {Request{Response: &Response{AnyObject: true}}, orderText},
		"reasoning and schema": {
			Request{Thinking: true, Response: &Response{Schema: decode(t, orderSchema)}},
			"The user wants an order. I should write <some> JSON: {\"id\"...\n\nLet me do that.\n</think>\n\n" + orderText,
		},
		"call": {
			Request{Thinking: true, Tools: []Tool{say, {Name: "other"}}, Choice: Required},
			"I should say it.\n</think>\n\n<tool_call>\n<function=say>\n<parameter=text>\nfunc main() {\n\tfmt.Println(\"<b>hi</b>\")\n}\n</parameter>\n</function>\n</tool_call>",
		},
		"text without calls": {Request{Tools: []Tool{say}, Choice: None}, "Just some text, with <b>tags</b> and\n\nlines. Ünd mehr: 漢字."},
	}
}

// TestLarge follows answers in the large vocabulary: every token of theirs is allowed, and the second time over nothing
// is allocated.
func TestLarge(t *testing.T) {
	tok, c := newLarge(t)
	for name, test := range outputs(t) {
		o, err := c.Compile(context.Background(), &test.request)
		if err != nil {
			t.Fatal(err)
		}
		ids := tok.Encode(test.text, true)
		m, start := o.Matcher(), o.Matcher()
		row := make([]uint64, m.Words())
		rows := make([]uint64, 8*m.Words())
		for _, id := range ids {
			if err := m.Allowed(row); err != nil {
				t.Fatal(err)
			}
			if row[id>>6]>>(id&63)&1 == 0 {
				t.Fatalf("%s: %q is not allowed", name, tok.Bytes(id))
			}
			if err := m.Accept(id); err != nil {
				t.Fatal(err)
			}
		}
		if !m.CanEnd() {
			t.Errorf("%s: the answer cannot end", name)
		}
		allocs := testing.AllocsPerRun(5, func() {
			m.Set(start)
			for i, id := range ids {
				block := ids[i:min(len(ids), i+7)]
				if n, err := m.Rows(rows, block); err != nil && !errors.Is(err, grammar.ErrNoToken) || n != len(block) {
					t.Fatalf("%s: %d of %d proposals, %v", name, n, len(block), err)
				}
				if err := errors.Join(m.Allowed(row), m.Accept(id)); err != nil {
					t.Fatal(err)
				}
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}

// TestMasksOfLarge holds masks of the large vocabulary to accepting tokens by themselves, every seventh.
func TestMasksOfLarge(t *testing.T) {
	tok, c := newLarge(t)
	for name, test := range outputs(t) {
		o, err := c.Compile(context.Background(), &test.request)
		if err != nil {
			t.Fatal(err)
		}
		m := o.Matcher()
		probe := m.Clone()
		row := make([]uint64, m.Words())
		for i, id := range tok.Encode(test.text, true) {
			if i%9 == 4 {
				if err := m.Allowed(row); err != nil {
					t.Fatal(err)
				}
				for other := int32(i % 7); int(other) < c.vocabulary.Rows(); other += 7 {
					probe.Set(m)
					if got, want := row[other>>6]>>(other&63)&1 != 0, probe.Accept(other) == nil; got != want {
						t.Fatalf("%s: token %d, %q, after %d tokens: allowed %v, accepted %v", name, other, tok.Bytes(other), i, got, want)
					}
				}
			}
			if err := m.Accept(id); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// BenchmarkRepeated is the cost of a token, mask and all, where the grammar has been before.
func BenchmarkRepeated(b *testing.B) {
	tok, c := newLarge(b)
	for name, test := range outputs(b) {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			o, err := c.Compile(context.Background(), &test.request)
			if err != nil {
				b.Fatal(err)
			}
			ids := tok.Encode(test.text, true)
			m, start := o.Matcher(), o.Matcher()
			row := make([]uint64, m.Words())
			b.ReportAllocs()
			for b.Loop() {
				m.Set(start)
				for _, id := range ids {
					if err := errors.Join(m.Allowed(row), m.Accept(id)); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(ids)), "µs/token")
		})
	}
}

// BenchmarkFirst is the cost of a token in a grammar that was just compiled.
func BenchmarkFirst(b *testing.B) {
	tok, c := newLarge(b)
	for name, test := range outputs(b) {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			ids := tok.Encode(test.text, true)
			row := make([]uint64, c.vocabulary.Words())
			for b.Loop() {
				b.StopTimer()
				c.grammars = grammar.NewCache[*compiled](1, 1<<20)
				o, err := c.Compile(context.Background(), &test.request)
				if err != nil {
					b.Fatal(err)
				}
				m := o.Matcher()
				b.StartTimer()
				for _, id := range ids {
					if err := errors.Join(m.Allowed(row), m.Accept(id)); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(ids)), "µs/token")
		})
	}
}

// BenchmarkCompile is the cost of a grammar, without that of checking its schemas.
func BenchmarkCompile(b *testing.B) {
	_, c := newLarge(b)
	for name, test := range outputs(b) {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			for b.Loop() {
				c.grammars = grammar.NewCache[*compiled](1, 1<<20)
				if _, err := c.Compile(context.Background(), &test.request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// costlySchemas have many ways to read one output.
func costlySchemas() map[string]string {
	list := func(n int, item string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = strings.ReplaceAll(item, "N", strconv.Itoa(i+1))
		}
		return `{"anyOf":[` + strings.Join(items, ",") + `]}`
	}
	return map[string]string{
		"strings":  list(300, `{"type":"string","minLength":N,"maxLength":N0}`),
		"objects":  list(400, `{"type":"object","additionalProperties":{"type":"string","maxLength":N}}`),
		"arrays":   list(64, `{"type":"array","items":{"type":"array","items":{"type":"string"},"maxItems":N},"maxItems":N}`),
		"patterns": `{"type":"array","items":` + list(200, `{"type":"string","pattern":"^a{N}"}`) + `}`,
	}
}

// BenchmarkCostly is the longest that a mask takes under schemas made to be costly, along random outputs; in the engine the
// other requests wait for it. Outputs end where they have used up what they may.
func BenchmarkCostly(b *testing.B) {
	tok, c := newLarge(b)
	for name, source := range costlySchemas() {
		b.Run(name, func(b *testing.B) {
			o, err := c.Compile(context.Background(), &Request{Response: &Response{Schema: decode(b, source)}})
			if err != nil {
				b.Fatal(err)
			}
			r := rand.New(rand.NewPCG(1, 1))
			var longest time.Duration
			masks := 0
			for b.Loop() {
				m := o.Matcher()
				row := make([]uint64, m.Words())
				for range 50 {
					began := time.Now()
					err := m.Allowed(row)
					longest = max(longest, time.Since(began))
					if masks++; err != nil {
						break
					}
					id := randomToken(tok, r, row)
					if id < 0 || m.Accept(id) != nil || m.Ended() {
						break
					}
				}
			}
			b.ReportMetric(float64(longest.Microseconds()), "µs/longest")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(masks), "µs/mask")
		})
	}
}

// randomToken returns a token of a mask, a short one most often.
func randomToken(tok *tokenizer.Tokenizer, r *rand.Rand, row []uint64) int32 {
	id := int32(-1)
	for range 1000 {
		t := int32(r.IntN(tok.Size()))
		if row[t>>6]>>(t&63)&1 == 0 {
			continue
		}
		if id = t; len(tok.Bytes(t)) < 5 {
			break
		}
	}
	return id
}

// BenchmarkVocabulary is the cost of arranging the tokens, once for a model.
func BenchmarkVocabulary(b *testing.B) {
	tok, c := newLarge(b)
	for b.Loop() {
		if _, err := New(tok, 151_936, c.format); err != nil {
			b.Fatal(err)
		}
	}
}
