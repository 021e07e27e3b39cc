package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// A class is what the splits ask of a character: a set of the bits below. A character of none of space, letter, mark and
// number is punctuation to them.
type class uint8

const (
	space   class = 1 << iota // White_Space, which is \s
	newline                   // CR or LF
	number                    // N
	letter                    // L
	mark                      // M
	upper                     // Lu, Lt, Lm, Lo or M
	lower                     // Ll, Lm, Lo or M
	kana                      // Han or kana, as splitKana has them
)

// classes holds the class of every character: pages of 256, those that are equal held once.
type classes struct {
	page  [utf8.MaxRune>>8 + 1]uint8
	pages [][256]class
}

// unicodeClasses builds the table from the Unicode tables of the standard library.
var unicodeClasses = sync.OnceValue(func() *classes {
	all := make([]class, utf8.MaxRune+1)
	set := func(bits class, tables ...*unicode.RangeTable) {
		for _, table := range tables {
			for _, r := range table.R16 {
				fill(all, rune(r.Lo), rune(r.Hi), rune(r.Stride), bits)
			}
			for _, r := range table.R32 {
				fill(all, rune(r.Lo), rune(r.Hi), rune(r.Stride), bits)
			}
		}
	}
	set(space, unicode.White_Space)
	set(number, unicode.N)
	set(letter, unicode.L)
	set(mark, unicode.M)
	set(upper, unicode.Lu, unicode.Lt, unicode.Lm, unicode.Lo, unicode.M)
	set(lower, unicode.Ll, unicode.Lm, unicode.Lo, unicode.M)
	all['\r'] |= newline
	all['\n'] |= newline
	fill(all, 0x4E00, 0x9FA5, 1, kana)
	fill(all, 0x3040, 0x30FF, 1, kana)

	c := new(classes)
	seen := make(map[[256]class]uint8)
	for i := range c.page {
		page := [256]class(all[i<<8:])
		n, ok := seen[page]
		if !ok {
			n = uint8(len(c.pages))
			seen[page] = n
			c.pages = append(c.pages, page)
		}
		c.page[i] = n
	}
	return c
})

func fill(all []class, lo, hi, stride rune, bits class) {
	for r := lo; r <= hi; r += stride {
		all[r] |= bits
	}
}

// of is the class of a character.
func (c *classes) of(r rune) class { return c.pages[c.page[r>>8]][byte(r)] }

// at is the class and length of the character at text[i:], which is not empty. A byte that is not of a character is
// taken for U+FFFD.
func (c *classes) at(text string, i int) (class, int) {
	if b := text[i]; b < utf8.RuneSelf {
		return c.pages[0][b], 1
	}
	r, n := utf8.DecodeRuneInString(text[i:])
	return c.of(r), n
}

// run returns the end of the longest run of characters from i on that are of one of the classes.
func (c *classes) run(text string, i int, of class) int {
	for i < len(text) {
		cl, n := c.at(text, i)
		if cl&of == 0 {
			break
		}
		i += n
	}
	return i
}

// runNot returns the end of the longest run of characters from i on that are of none of the classes.
func (c *classes) runNot(text string, i int, of class) int {
	for i < len(text) {
		cl, n := c.at(text, i)
		if cl&of != 0 {
			break
		}
		i += n
	}
	return i
}
