package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

const turnEnd = "<|im_end|>"

// turns is n turns of a conversation of about size characters each.
func turns(seed uint64, n, size int) string {
	r := newTexter(seed)
	var b strings.Builder
	for range n {
		b.WriteString("<|im_start|>user\n")
		for start := b.Len(); b.Len() < start+size; {
			b.WriteString(r.text(4))
		}
		b.WriteString(turnEnd + "\n")
	}
	return b.String()
}

// TestPromptCache holds random conversations, which go on, branch and start over, to the IDs without a cache.
func TestPromptCache(t *testing.T) {
	tok := must(newLarge())(t)
	c := NewPromptCache(tok, turnEnd)
	r := rand.New(rand.NewPCG(2, 2))
	prompts := []string{""}
	for i := range 300 {
		prompt := prompts[r.IntN(len(prompts))]
		switch r.IntN(6) {
		case 0:
			prompt = turns(uint64(i), 1, 10+r.IntN(9000))
		case 1:
			prompt = prompt[:r.IntN(len(prompt)+1)]
		case 2:
			prompt += "<|im_start|>assistant\n<think>"
		default:
			prompt += turns(uint64(i), 1+r.IntN(2), 10+r.IntN(6000))
		}
		if len(prompt) > 60_000 {
			prompt = prompt[:30_000]
		}
		prompts = append(prompts, prompt)
		if len(prompts) > 6 {
			prompts = prompts[1:]
		}
		got := c.Encode(prompt)
		if want := tok.Encode(prompt, true); !slices.Equal(got, want) {
			t.Fatalf("prompt %d of %d bytes has other tokens", i, len(prompt))
		}
		for i := range got {
			got[i] = -1 // the caller's own
		}
		checkCache(t, c)
	}
	if s := c.Stats(); !s.Enabled || s.Hits < 20 || s.ReusedTokens < 20*1000 {
		t.Errorf("hardly used: %+v", s)
	}
}

func checkCache(t *testing.T, c *PromptCache) {
	t.Helper()
	s := c.Stats()
	size := 0
	for _, p := range c.prefixes {
		size += len(p.text) + 4*len(p.ids)
		if len([]rune(p.text)) < 4096 || !strings.HasSuffix(p.text, c.boundary) {
			t.Errorf("kept a prefix of %d bytes", len(p.text))
		}
	}
	if s.Entries > 4 || s.Capacity != 4 || s.Bytes != size || size > 8<<20 || s.BudgetBytes != 8<<20 {
		t.Errorf("%d bytes kept: %+v", size, s)
	}
}

func TestPromptCacheUse(t *testing.T) {
	tok := must(newLarge())(t)
	first := strings.Repeat("word ", 1000) + turnEnd
	for _, tt := range []struct {
		name    string
		prompts []string
		entries int
		hits    int64
	}{
		{"short", []string{"hello" + turnEnd + "x", "hello" + turnEnd + "y"}, 0, 0},
		{"4095 characters", []string{strings.Repeat("\u00e9", 4095-len(turnEnd)) + turnEnd}, 0, 0},
		{"4096 characters", []string{strings.Repeat("\u00e9", 4096-len(turnEnd)) + turnEnd}, 1, 0},
		{"no boundary", []string{strings.Repeat("word ", 1000)}, 0, 0},
		{"again", []string{first, first, first + "more"}, 1, 2},
		{"extended", []string{first, first + "x" + turnEnd, first + "x" + turnEnd + "y" + turnEnd}, 1, 2},
		{"branched", []string{first, first + "x" + turnEnd, first + "y" + turnEnd}, 2, 1},
		{"five", []string{"1" + first, "2" + first, "3" + first, "4" + first, "5" + first, "1" + first}, 4, 0},
		{"least recent", []string{"1" + first, "2" + first, "3" + first, "4" + first, "1" + first, "5" + first, "1" + first}, 4, 2},
		{"budget", []string{strings.Repeat("word ", 1<<20) + turnEnd, "2" + strings.Repeat("word ", 1<<20) + turnEnd}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := NewPromptCache(tok, turnEnd)
			for _, prompt := range tt.prompts {
				if !slices.Equal(c.Encode(prompt), tok.Encode(prompt, true)) {
					t.Error("other tokens")
				}
				checkCache(t, c)
			}
			if s := c.Stats(); s.Entries != tt.entries || s.Hits != tt.hits {
				t.Errorf("%d entries and %d hits, want %d and %d", s.Entries, s.Hits, tt.entries, tt.hits)
			}
		})
	}
}

// TestPromptCacheBoundary has boundaries that other added tokens overlap.
func TestPromptCacheBoundary(t *testing.T) {
	long := strings.Repeat("word ", 1000)
	for _, tt := range []struct {
		name     string
		boundary string
		added    []string
		enabled  bool
		texts    []string
	}{
		{"plain", turnEnd, nil, true, []string{turnEnd, turnEnd + turnEnd}},
		{"text", "word", nil, false, []string{"word"}},
		{"absent", "<|other|>", nil, false, []string{"<|other|>"}},
		{"longer", turnEnd, []string{turnEnd + "\n"}, false, []string{turnEnd, turnEnd + "\n"}},
		{"around", turnEnd, []string{"x" + turnEnd + "y"}, false, []string{"x" + turnEnd, "x" + turnEnd + "y"}},
		{"into", turnEnd, []string{"x<|im", "end|"}, true, []string{"x" + turnEnd, "<|im_end|x" + turnEnd + "y", turnEnd}},
		{"out of", turnEnd, []string{"|>y", ">"}, true, []string{turnEnd + "y", turnEnd + ">", turnEnd + "|>y"}},
		{"one letter", ">", nil, false, []string{turnEnd}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := bytesVocabulary("qwen35")
			for _, token := range tt.added {
				if id := v.find(token); id >= 0 {
					v.Types[id] = UserDefined
				} else {
					v.add(token, UserDefined)
				}
			}
			tok := must(New(v))(t)
			c := NewPromptCache(tok, tt.boundary)
			if c.Stats().Enabled != tt.enabled {
				t.Errorf("enabled: %v", c.Stats().Enabled)
			}
			for range 2 {
				for _, text := range tt.texts {
					for _, prompt := range []string{long + text, long + text + "y", long + text + turnEnd + "\n" + text} {
						if !slices.Equal(c.Encode(prompt), tok.Encode(prompt, true)) {
							t.Errorf("other tokens for ...%q", prompt[len(long):])
						}
					}
				}
			}
		})
	}
}

// TestConcurrentUse encodes from several goroutines, for the race detector.
func TestConcurrentUse(t *testing.T) {
	tok := newTokenizer(t, tinyFile)
	c := NewPromptCache(tok, turnEnd)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 20 {
				prompt := turns(uint64(i%5), 3, 2500) + fmt.Sprint(g)
				if !slices.Equal(c.Encode(prompt), tok.Encode(prompt, true)) {
					t.Error("other tokens")
				}
			}
		})
	}
	wg.Wait()
}
