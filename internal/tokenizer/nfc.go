package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// toNFC returns text in Unicode's Normalization Form C; bytes that are not UTF-8 stay as they are.
//
// The norm package implements the Stream-Safe Text Process, which breaks runs of more than 30 marks with U+034F; the form
// itself, and the normalizer of the tokenizers library, do not. Text with long runs takes the way of composeAll.
func toNFC(text string) string {
	i := inertPrefix(text)
	if i == len(text) {
		return text
	}
	rest := text[i:]
	if norm.NFC.IsNormalString(rest) {
		return text
	}
	if hasLongRun(rest) {
		return text[:i] + composeAll(rest)
	}
	return text[:i] + norm.NFC.String(rest)
}

// inertPrefix returns the length of a prefix of text that no normalization reaches: of characters that are whole in NFC,
// followed by one that does not compose with what stands before it.
func inertPrefix(text string) int {
	last := 0
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			last = i
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(text[i:])
		if !inert(r) {
			return last
		}
		last = i
		i += n
	}
	return len(text)
}

// inert reports whether r is of one of the ranges, common in text, of starters that NFC leaves alone and that compose with
// no character before them.
func inert(r rune) bool {
	switch {
	case r < 0x300:
		return true
	case r < 0x3041:
		return 0x400 <= r && r <= 0x482 || 0x2010 <= r && r <= 0x2027 || 0x3001 <= r && r <= 0x3020
	case r < 0xA000:
		return r <= 0x3096 || 0x309D <= r && r <= 0x30FF || 0x4E00 <= r
	case r < 0x10000:
		return 0xAC00 <= r && r <= 0xD7A3 || 0xFF01 <= r && r <= 0xFF60
	}
	return 0x1F300 <= r && r <= 0x1F64F
}

// maxMarks is the length of a run of marks that the norm package is trusted with. A mark decomposes into at most three,
// and the character before the run into a letter and at most three.
const maxMarks = 8

// hasLongRun reports whether there are more than maxMarks marks in a row.
func hasLongRun(text string) bool {
	run := 0
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			run = 0
			i++
			continue
		}
		p := norm.NFC.PropertiesString(text[i:])
		if p.LeadCCC() == 0 {
			run = 0
		} else if run++; run > maxMarks {
			return true
		}
		i += max(p.Size(), 1)
	}
	return false
}

// composeAll is the definition of NFC (The Unicode Standard, section 3.11): decompose, order the marks, compose.
func composeAll(text string) string {
	var c composer
	c.out.Grow(len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && n == 1 {
			c.flush()
			c.out.WriteByte(text[0])
		} else {
			c.decompose(text[:n])
		}
		text = text[n:]
	}
	c.flush()
	return c.out.String()
}

// A composer holds what may still compose: a starter and the marks after it.
type composer struct {
	out     strings.Builder
	pending []uint64 // class, place and character of each, so that sorting by value orders marks and keeps equals
	chars   []rune

	apart, pair, both []byte // of decompose and compose
}

func (c *composer) decompose(char string) {
	c.apart = norm.NFD.AppendString(c.apart[:0], char)
	for i := 0; i < len(c.apart); {
		r, n := utf8.DecodeRune(c.apart[i:])
		class := norm.NFD.Properties(c.apart[i:]).CCC()
		i += n
		if class == 0 && len(c.pending) > 0 {
			c.next(r)
			continue
		}
		c.add(class, r)
	}
}

func (c *composer) add(class uint8, r rune) {
	c.pending = append(c.pending, uint64(class)<<56|uint64(len(c.pending))<<24|uint64(r))
}

// next takes a starter after other characters: it composes with a starter right before it, or begins anew.
func (c *composer) next(r rune) {
	c.settle()
	if len(c.chars) == 1 {
		if both, ok := c.compose(c.chars[0], r); ok {
			c.chars[0] = both
			c.again()
			return
		}
	}
	c.write()
	c.add(0, r)
}

// settle orders and composes the pending characters into chars.
func (c *composer) settle() {
	slices.Sort(c.pending)
	c.chars = c.chars[:0]
	starter, last := -1, uint8(0)
	for i, key := range c.pending {
		class, r := uint8(key>>56), rune(key&0xFFFFFF)
		if starter >= 0 && (len(c.chars) == starter+1 || last < class) {
			if both, ok := c.compose(c.chars[starter], r); ok {
				c.chars[starter] = both
				continue
			}
		}
		if i == 0 && class == 0 {
			starter = 0
		}
		c.chars = append(c.chars, r)
		last = class
	}
}

// again makes chars, a lone starter, pending.
func (c *composer) again() {
	c.pending = c.pending[:0]
	c.add(0, c.chars[0])
}

func (c *composer) write() {
	for _, r := range c.chars {
		c.out.WriteRune(r)
	}
	c.chars = c.chars[:0]
	c.pending = c.pending[:0]
}

func (c *composer) flush() {
	c.settle()
	c.write()
}

// compose returns the primary composite of a starter and a character, if there is one.
func (c *composer) compose(starter, r rune) (rune, bool) {
	c.pair = utf8.AppendRune(utf8.AppendRune(c.pair[:0], starter), r)
	c.both = norm.NFC.Append(c.both[:0], c.pair...)
	both, size := utf8.DecodeRune(c.both)
	return both, size == len(c.both)
}
