package tokenizer

import (
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Bounds of a PromptCache.
const (
	cachePrefixes   = 4
	cacheBytes      = 8 << 20 // of text and IDs together
	cacheCharacters = 4096    // the shortest prefix worth keeping
)

// A PromptCache encodes the prompts of conversations. It keeps the tokens of a prompt up to its last boundary token, the
// one that ends a turn, and reuses them for a prompt that starts with the same text. That changes no ID, because an added
// token splits whatever stands on its sides. It is safe for concurrent use.
type PromptCache struct {
	t        *Tokenizer
	boundary string
	id       int32
	enabled  bool

	mu       sync.Mutex
	prefixes []*prefix // the most recently used first
	bytes    int
	hits     int64
	reused   int64
}

// A prefix never changes.
type prefix struct {
	text string
	ids  []int32
}

func (p *prefix) size() int { return len(p.text) + 4*len(p.ids) }

// CacheStats are the counters of a PromptCache.
type CacheStats struct {
	Enabled            bool
	Entries, Capacity  int
	Bytes, BudgetBytes int
	Hits, ReusedTokens int64
}

// NewPromptCache returns the cache of a tokenizer for conversations whose turns end with boundary. The cache is off when
// boundary is not the text of an added token, or when another added token contains it: that one could begin before the
// boundary and reach beyond it.
func NewPromptCache(t *Tokenizer, boundary string) *PromptCache {
	c := &PromptCache{t: t, boundary: boundary, id: -1}
	if id, ok := t.ids[boundary]; !ok || !t.kinds[id].added() {
		return c
	}
	c.id = t.ids[boundary]
	c.enabled = !slices.ContainsFunc(t.all.texts, func(text string) bool {
		return text != boundary && strings.Contains(text, boundary)
	})
	return c
}

// Encode returns what the tokenizer's Encode returns with parseSpecial.
func (c *PromptCache) Encode(text string) []int32 {
	cut := strings.LastIndex(text, c.boundary) + len(c.boundary)
	if !c.enabled || cut < len(c.boundary) {
		return c.t.Encode(text, true)
	}
	known := c.lookup(text[:cut])
	ids := make([]int32, 0, len(known.ids)+(len(text)-len(known.text))/4+4)
	ids = append(ids, known.ids...)
	if len(known.text) < cut {
		ids = c.t.AppendEncode(ids, text[len(known.text):cut], true)
		if ids[len(ids)-1] != c.id {
			return c.t.Encode(text, true) // another added token took part of the boundary
		}
		c.keep(known, text[:cut], ids)
	}
	return c.t.AppendEncode(ids, text[cut:], true)
}

// lookup returns the longest kept prefix of text, or an empty one.
func (c *PromptCache) lookup(text string) *prefix {
	c.mu.Lock()
	defer c.mu.Unlock()
	best := -1
	for i, p := range c.prefixes {
		if strings.HasPrefix(text, p.text) && (best < 0 || len(p.text) > len(c.prefixes[best].text)) {
			best = i
		}
	}
	if best < 0 {
		return &prefix{}
	}
	p := c.prefixes[best]
	c.prefixes = slices.Insert(slices.Delete(c.prefixes, best, best+1), 0, p)
	c.hits++
	c.reused += int64(len(p.ids))
	return p
}

// keep keeps the tokens of text, which extends known, in its place.
func (c *PromptCache) keep(known *prefix, text string, ids []int32) {
	if utf8.RuneCountInString(text) < cacheCharacters {
		return
	}
	p := &prefix{strings.Clone(text), slices.Clone(ids)}
	if p.size() > cacheBytes {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prefixes = slices.DeleteFunc(c.prefixes, func(have *prefix) bool { return have == known || have.text == p.text })
	c.prefixes = slices.Insert(c.prefixes, 0, p)
	c.bytes = 0
	for i, have := range c.prefixes {
		if c.bytes += have.size(); i == cachePrefixes || c.bytes > cacheBytes {
			c.bytes -= have.size()
			clear(c.prefixes[i:])
			c.prefixes = c.prefixes[:i]
			break
		}
	}
}

// Stats returns the counters.
func (c *PromptCache) Stats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return CacheStats{
		Enabled:      c.enabled,
		Entries:      len(c.prefixes),
		Capacity:     cachePrefixes,
		Bytes:        c.bytes,
		BudgetBytes:  cacheBytes,
		Hits:         c.hits,
		ReusedTokens: c.reused,
	}
}
