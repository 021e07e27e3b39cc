package answer_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/answer"
	"splash/internal/chat"
	"splash/internal/chat/ojson"
	"splash/internal/tokenizer"
)

// vocabulary is the tokenizer of a generated model of the family.
func vocabulary(t *testing.T, family string) *tokenizer.Tokenizer {
	t.Helper()
	r := fixtures.Recipe{Family: family, Formats: fixtures.Uniform(dequant.Q8_0)}
	g, err := r.GGUF()
	if err != nil {
		t.Fatal(err)
	}
	f, err := g.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	v, err := tokenizer.FromGGUF(f.Header)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.New(v)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func tools() *chat.ToolSet {
	schema := ojson.NewObject("type", "object", "properties", ojson.NewObject("a", ojson.NewObject("type", "integer")))
	return chat.NewToolSet([]any{ojson.NewObject("type", "function", "function", ojson.NewObject("name", "add", "parameters", schema))})
}

// said is events as text: R and C for reasoning and content, N and A for a call's name and arguments.
func said(events []chat.Event) string {
	var b strings.Builder
	last := ""
	for _, e := range events {
		kind := map[chat.EventKind]string{
			chat.ReasoningDelta: "R", chat.ContentDelta: "C", chat.CallStart: "N", chat.ArgumentsDelta: "A", chat.CallEnd: "E",
		}[e.Kind]
		if kind != last {
			fmt.Fprintf(&b, "|%s:", kind)
		}
		last = kind
		b.WriteString(e.Text)
	}
	return b.String()
}

const (
	qwenCall = "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
	glmCall  = "<tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"
)

func TestReader(t *testing.T) {
	qwen, flint := vocabulary(t, "tiny-qwen35"), vocabulary(t, "tiny-flint")
	count := func(tok *tokenizer.Tokenizer, text string) int { return len(tok.Encode(text, true)) }
	for _, c := range []struct {
		name, text string
		o          answer.Options
		cut        bool
		want       string
		reasoning  int
		complete   bool
		stop       string
	}{
		{"plain", "why</think> " + qwenCall, answer.Options{Tokenizer: qwen, Plain: true}, false, "|C:why</think> " + qwenCall, 0, false, ""},
		{"plain, stopped", "one two three", answer.Options{Tokenizer: qwen, Plain: true, StopStrings: []string{"wo t"}}, false, "|C:one t", 0, true, "wo t"},
		{"content", "äö€ 𝄞", answer.Options{Tokenizer: qwen, Format: chat.QWEN}, false, "|C:äö€ 𝄞", 0, false, ""},
		{"reasoning", "why</think>\n\nso", answer.Options{Tokenizer: qwen, Format: chat.QWEN, Thinking: true}, false, "|R:why|C:so", count(qwen, "why"), false, ""},
		{"reasoning, cut", "why", answer.Options{Tokenizer: qwen, Format: chat.QWEN, Thinking: true}, true, "|R:why", count(qwen, "why"), false, ""},
		{"call", "x " + qwenCall + " y", answer.Options{Tokenizer: qwen, Format: chat.QWEN, Tools: tools()}, false, `|C:x |N:add|A:{"a":1}|E:|C: y`, 0, false, ""},
		{"one call", qwenCall + "\n" + qwenCall, answer.Options{Tokenizer: qwen, Format: chat.QWEN, Tools: tools(), SingleCall: true}, false, `|N:add|A:{"a":1}|E:`, 0, true, ""},
		{"no calls", qwenCall, answer.Options{Tokenizer: qwen, Format: chat.QWEN, Tools: tools(), NoCalls: true}, false, "|C:" + qwenCall, 0, false, ""},
		{"flint", "<think>why</think>so " + glmCall, answer.Options{Tokenizer: flint, Format: chat.FLINT, Tools: tools()}, false,
			`|R:why|C:so |N:add|A:{"a":1}|E:`, 1 + count(flint, "why"), false, ""},
		{"flint, a call in reasoning", "<think>" + glmCall + "</think>so", answer.Options{Tokenizer: flint, Format: chat.FLINT, Tools: tools()}, false,
			"|R:" + glmCall + "|C:so", 1 + count(flint, glmCall), false, ""},
		{"flint, no reasoning", "so", answer.Options{Tokenizer: flint, Format: chat.FLINT}, false, "|C:so", 0, false, ""},
		{"flint, only reasoning", "<think>why", answer.Options{Tokenizer: flint, Format: chat.FLINT}, true, "|R:why", 1 + count(flint, "why"), false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			tokens := c.o.Tokenizer.Encode(c.text, true)
			if end, ok := c.o.Tokenizer.ID("<|im_end|>"); ok && !c.cut {
				c.o.Stop = []int32{end}
				tokens = append(tokens, end)
			}
			for range 20 {
				r := answer.New(c.o)
				var events []chat.Event
				for rest := tokens; len(rest) > 0; {
					n := 1 + rand.IntN(len(rest))
					events = append(events, r.Read(rest[:n])...)
					rest = rest[n:]
				}
				events = append(events, r.Finish(c.cut)...)
				if d := cmp.Diff(c.want, said(events)); d != "" {
					t.Fatal(d)
				}
				if r.ReasoningTokens() != c.reasoning || r.Complete() != c.complete || r.StopString() != c.stop {
					t.Fatalf("%d tokens of reasoning, complete %v, stop %q", r.ReasoningTokens(), r.Complete(), r.StopString())
				}
				if n := r.Tokens(); n != len(tokens) && !c.complete || n > len(tokens) {
					t.Fatalf("%d of %d tokens", n, len(tokens))
				}
			}
		})
	}
}

// TestBytes reads a text whose characters are cut into tokens of one byte.
func TestBytes(t *testing.T) {
	tok := vocabulary(t, "tiny-qwen35")
	var tokens []int32
	for _, b := range []byte("€𝄞\xf0\x9f") {
		id, ok := tok.ID(string([]byte{b}))
		if !ok {
			t.Fatalf("no token of the byte %x", b)
		}
		tokens = append(tokens, id)
	}
	r := answer.New(answer.Options{Tokenizer: tok, Format: chat.QWEN})
	var text string
	for _, id := range tokens {
		for _, e := range r.Read([]int32{id}) {
			text += e.Text
		}
	}
	for _, e := range r.Finish(true) {
		text += e.Text
	}
	if want := "€𝄞\ufffd"; text != want {
		t.Errorf("%q, want %q", text, want)
	}
}
